package gateway

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// TestModernEndsPassVerbatim: between a modern client and a modern server every round passes as it is, also one with
// nothing but requestState, with methods that nobody knows, or with a state that looks like one of Headgate's.
func TestModernEndsPassVerbatim(t *testing.T) {
	results := []string{
		`{"resultType":"input_required","requestState":"s \u00e4","x":1.0}`,
		`{"inputRequests":{"k/1":{"method":"x/unknown","params":{"big":9007199254740993}}},"resultType":"input_required","_meta":{"a":1.0}}`,
		`{"resultType":"input_required","inputRequests":{"a":` + askName + `,"b":` + askRoots + `},"requestState":"` + sealed + `AAAA"}`,
		`{"resultType":"later","taskId":"7"}`,
	}
	for _, kind := range []string{"http", "stdio"} {
		s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"raw","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			c.Result(results[int(c.Arguments()["n"].(float64))])
		}}}}
		conf, o := modernKinds(t, s)[kind]()
		g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
		for client, send := range modernSenders(g) {
			t.Run(kind+" to "+client, func(t *testing.T) {
				for i, want := range results {
					retries := `"inputResponses":{"k/1":{"any":1.0,"big":9007199254740993}, "k/2":7},"requestState":"` + sealed + `BBBB","more":[ 1 ]`
					got := send("1", `"name":"x_raw","arguments":{"n":`+string('0'+rune(i))+`},`+retries, `{"x/ability":{},"elicitation":{"z":1.0}}`)
					if at(t, got, "result") != want {
						t.Errorf("got %s, want %s", got, want)
					}
					body := ""
					for _, r := range s.Requests() {
						if r.Method == "tools/call" {
							body = string(r.Body)
						}
					}
					if !strings.Contains(body, retries) || !strings.Contains(body, `"io.modelcontextprotocol/clientCapabilities":{"x/ability":{},"elicitation":{"z":1.0}}`) {
						t.Errorf("sent %s", body)
					}
				}
			})
		}
	}
}

// TestCapabilitiesAreHonest: a modern server is told what the client of each request can do, and a legacy client's part
// of that is what can be brought to it; a legacy server's own session begins with what its client can do.
func TestCapabilitiesAreHonest(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	l := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t)), "l": entry(l.StartHTTP(t), `"session":"client"`)}), Options{})
	for _, tt := range []struct{ declared, told string }{
		{`{}`, `{}`},
		{`{"elicitation":{}}`, `{"elicitation":{}}`},
		{`{"roots":{"listChanged":true},"sampling":{"tools":{"x":1},"y":{}},"tasks":{},"experimental":{"z":{}}}`, `{"sampling":{"tools":{}},"roots":{}}`},
		{`{"elicitation":{"url":{}},"sampling":7}`, `{"elicitation":{"url":{}}}`},
	} {
		for client, call := range map[string]func(tool string){
			"http": func() func(string) {
				session := g.openWith(tt.declared)
				return func(tool string) { g.callLegacy(session, "1", tool, "{}") }
			}(),
			"stdio": func() func(string) {
				p := g.pipe()
				p.call(`"init"`, initializeWith(tt.declared))
				return func(tool string) { p.call("1", legacyBody("1", "tools/call", `{`+callParams(tool, "{}")+`}`)) }
			}(),
		} {
			call("x_echo")
			call("l_echo")
			got := ""
			for _, r := range s.Requests() {
				if r.Method == "tools/call" {
					got = at(t, string(r.Body), "params", "_meta", "io.modelcontextprotocol/clientCapabilities")
				}
			}
			if got != tt.told {
				t.Errorf("%s with %s: a modern server was told %s", client, tt.declared, got)
			}
			for _, r := range l.Requests() {
				if r.Method == "initialize" {
					got = at(t, string(r.Body), "params", "capabilities")
				}
			}
			if got != tt.told {
				t.Errorf("%s with %s: a legacy server was told %s", client, tt.declared, got)
			}
		}
	}
	t.Run("a client that takes no stream", func(t *testing.T) {
		session := g.openWith(allAbilities)
		g.post(legacyBody("1", "tools/call", `{"name":"x_echo"}`), session, "Accept: application/json")
		all := s.Requests()
		if got := at(t, string(all[len(all)-1].Body), "params", "_meta", "io.modelcontextprotocol/clientCapabilities"); got != `{}` {
			t.Errorf("told %s", got)
		}
	})
}

// TestCapabilitiesOfSharedSessions: a legacy server's session that is shared by clients which differ in what they can
// do, or by requests which do, begins with all that can be brought to any of them. What the first one lacks, the next
// can be asked.
func TestCapabilitiesOfSharedSessions(t *testing.T) {
	const bridged = `{"elicitation":{"form":{},"url":{}},"sampling":{"context":{},"tools":{}},"roots":{}}`
	const args = `{"ask":[` + askName + `]}`
	for _, kind := range []string{"http", "sse", "stdio"} {
		for _, session := range []string{"caller", "client"} {
			t.Run(kind+", session: "+session, func(t *testing.T) {
				s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
				entries, o := map[string]string{}, Options{}
				switch own := `"session":"` + session + `"`; kind {
				case "http":
					entries["x"] = entry(s.StartHTTP(t), own)
				case "sse":
					entries["x"] = entry(s.StartSSE(t), `"type":"sse"`, own)
				default:
					entries["x"], o.Embedded = `{"command":"embedded",`+own+`}`, embed("x", s)
				}
				g := launch(t, parseConfig(t, entries), o)
				for client, send := range modernSenders(g) {
					if got := send("1", callParams("x_asking", args), `{}`); !strings.Contains(at(t, got, "result", "structuredContent"), `"code":-32601`) {
						t.Errorf("modern, %s, without abilities: %s", client, got)
					}
					_, state := mustDemand(t, send("2", callParams("x_asking", args), allAbilities))
					if got := send("3", callParams("x_asking", args)+retry(`{"q1":{"n":7}}`, state), allAbilities); at(t, got, "result", "structuredContent") != `{"told":[{"n":7}]}` {
						t.Errorf("modern, %s: %s", client, got)
					}
				}
				if session == "caller" {
					d := g.overHTTP(g.openWith(allAbilities))("4", "x_asking", args, func(string, string) string { return `"result":{"n":8}` })
					if at(t, d.answer, "result", "structuredContent") != `{"told":[{"n":8}]}` {
						t.Errorf("legacy: %s", d.answer)
					}
				}
				for _, r := range s.Requests() {
					if r.Method == "initialize" && at(t, string(r.Body), "params", "capabilities") != bridged {
						t.Errorf("a session began with %s", r.Body)
					}
				}
			})
		}
	}
}

// TestMissingCapability: a modern server's demand for a capability passes as it is, with the status that goes with it;
// a legacy server's question that a client has no capability for is refused at once.
func TestMissingCapability(t *testing.T) {
	const missing = `{"code":-32021,"message":"needs elicitation","data":{"requiredCapabilities":{"elicitation":{}}}}`
	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"needs","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		if c.Header != nil {
			c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":`+missing+`}`)
		} else {
			c.Error(missing)
		}
	}}}}
	l := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t)), "p": embeddedEntry, "l": entry(l.StartHTTP(t))}), Options{Embedded: embed("p", s)})
	session := g.open()
	for _, id := range []string{"x", "p"} {
		if r := g.callModern("1", id+"_needs", "{}"); r.status != 400 || at(t, r.message(), "error") != missing {
			t.Errorf("%s, modern: %d %s", id, r.status, r.body)
		}
		if r := g.callLegacy(session, "1", id+"_needs", "{}"); r.status != 200 || at(t, r.message(), "error") != missing {
			t.Errorf("%s, legacy: %d %s", id, r.status, r.body)
		}
	}
	args := `{"ask":[` + askName + `,` + askModel + `,` + askRoots + `]}`
	for client, r := range map[string]reply{
		"modern":            g.callModern("1", "l_asking", args),
		"legacy":            g.callLegacy(session, "1", "l_asking", args),
		"legacy, no stream": g.post(legacyBody("1", "tools/call", `{`+callParams("l_asking", args)+`}`), g.openWith(allAbilities), "Accept: application/json"),
	} {
		if n := strings.Count(at(t, r.message(), "result", "structuredContent"), `"code":-32601`); n != 3 {
			t.Errorf("%s: %s", client, r.body)
		}
	}
}
