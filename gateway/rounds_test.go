package gateway

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// initializeWith is a handshake of a client with capabilities.
func initializeWith(caps string) string {
	return strings.Replace(initializeBody, `"capabilities":{}`, `"capabilities":`+caps, 1)
}

// openWith opens a session of a client with capabilities.
func (g *gate) openWith(caps string, header ...string) (session string) {
	g.t.Helper()
	r := g.post(initializeWith(caps), header...)
	session = sessionHeader + ": " + r.header.Get(sessionHeader)
	g.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, append(header, session)...)
	return session
}

// replier makes the response of a client to a question: `"result":…`, `"error":…`, or "" for none.
type replier func(method, params string) string

// dialogue is a legacy client in the midst of one call.
type dialogue struct {
	asked         []string // methods and params of the questions, in order
	notifications []string
	answer        string // the final message
}

// converse calls a tool and answers what the server asks.
type converse func(id, tool, args string, reply replier, meta ...string) dialogue

// legacyClients are legacy clients with capabilities, over every transport.
func legacyClients(g *gate, caps string) map[string]converse {
	session := g.openWith(caps)
	pipe := g.pipe()
	pipe.call(`"init"`, initializeWith(caps))
	return map[string]converse{"http": g.overHTTP(session), "stdio": pipe.converse}
}

func legacyCall(id, tool, args string, meta []string) string {
	params := callParams(tool, args)
	if len(meta) > 0 {
		params += `,"_meta":{` + strings.Join(meta, ",") + `}`
	}
	return legacyBody(id, "tools/call", `{`+params+`}`)
}

// hear takes one message of a call; it returns the response that is to be sent, and whether the call is over.
func (d *dialogue) hear(t testing.TB, message string, reply replier) (response string, over bool) {
	m, err := wire.Parse([]byte(message))
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	switch m.Kind {
	case wire.KindResponse:
		d.answer = message
		return "", true
	case wire.KindNotification:
		d.notifications = append(d.notifications, message)
		return "", false
	}
	d.asked = append(d.asked, m.Method+" "+string(m.Params))
	if r := reply(m.Method, string(m.Params)); r != "" {
		return `{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + r + `}`, false
	}
	return "", false
}

// overHTTP has a client call with the headers of its session.
func (g *gate) overHTTP(header ...string) converse {
	return func(id, tool, args string, reply replier, meta ...string) (d dialogue) {
		st := g.openStream(g.request("POST", legacyCall(id, tool, args, meta), header...))
		defer st.close()
		if st.header.Get("Content-Type") == "application/json" {
			g.t.Errorf("no stream: the answer came as JSON")
			return d
		}
		for {
			response, over := d.hear(g.t, st.next(), reply)
			if over {
				return d
			}
			if response != "" {
				if r := g.post(response, header...); r.status != 202 {
					g.t.Errorf("a response: %d %s", r.status, r.body)
				}
			}
		}
	}
}

func (c *pipeClient) converse(id, tool, args string, reply replier, meta ...string) (d dialogue) {
	c.send(legacyCall(id, tool, args, meta))
	for {
		response, over := d.hear(c.t, c.next(), reply)
		if over {
			return d
		}
		if response != "" {
			c.send(response)
		}
	}
}

// demanding is a modern server's tool that demands its argument "rounds" rounds of input, and answers with what it
// got. Its requestState counts them.
func demanding() mcptest.Tool {
	return mcptest.Tool{Def: `{"name":"demanding","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		rounds := rawArray(string(memberOf(string(c.Member("arguments")), "rounds")))
		var told []string
		if raw := c.Member("requestState"); raw != nil {
			var state string
			_ = json.Unmarshal(raw, &state)
			_ = json.Unmarshal([]byte(state), &told)
			told = append(told, string(c.Member("inputResponses")))
		}
		if len(told) == len(rounds) {
			all, _ := json.Marshal(told)
			c.Structured(`{"told":` + string(all) + `}`)
			return
		}
		state, _ := json.Marshal(told)
		inputs := rounds[len(told)]
		if inputs != "null" {
			inputs = `"inputRequests":` + inputs + `,`
		} else {
			inputs = ""
		}
		c.Progress(float64(len(told)+1), 0, "")
		c.Result(`{"resultType":"input_required",` + inputs + `"requestState":` + string(quoteJSON(string(state))) + `}`)
	}}
}

func toldTo(t testing.TB, message string) (list []string) {
	t.Helper()
	unmarshal(t, at(t, message, "result", "structuredContent", "told"), &list)
	return list
}

// modernKinds are modern servers over every transport.
func modernKinds(t *testing.T, s *mcptest.Server) map[string]func() (string, Options) {
	return map[string]func() (string, Options){
		"http":  func() (string, Options) { return entry(s.StartHTTP(t)), Options{} },
		"stdio": func() (string, Options) { return embeddedEntry, Options{Embedded: embed("x", s)} },
	}
}

// TestModernServerDemandsOfLegacyClient: three rounds, one of several demands and one of none.
func TestModernServerDemandsOfLegacyClient(t *testing.T) {
	for _, kind := range []string{"http", "stdio"} {
		s := &mcptest.Server{Tools: []mcptest.Tool{demanding()}}
		conf, o := modernKinds(t, s)[kind]()
		g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
		for client, call := range legacyClients(g, allAbilities) {
			t.Run(kind+" to "+client, func(t *testing.T) {
				args := `{"rounds":[{"a":` + askName + `},null,{"b ":` + askRoots + `,"c":` + askModel + `}]}`
				d := call("1", "x_demanding", args, func(method, params string) string {
					return `"result":{"by":` + string(quoteJSON(method)) + `,"x":1.0}`
				}, `"progressToken":"mine"`)
				want := []string{`{"a":{"by":"elicitation/create","x":1.0}}`, ``, `{"b ":{"by":"roots/list","x":1.0},"c":{"by":"sampling/createMessage","x":1.0}}`}
				if got := toldTo(t, d.answer); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
					t.Errorf("told %q", got)
				}
				if len(d.asked) != 3 || d.asked[0] != "elicitation/create "+at(t, askName, "params") {
					t.Errorf("asked %q", d.asked)
				}
				if len(d.notifications) != 3 || at(t, d.notifications[2], "params", "progressToken") != `"mine"` || at(t, d.notifications[2], "params", "progress") != "3" {
					t.Errorf("notifications %q", d.notifications)
				}
			})
		}
	}
}

// TestLegacyClientRefuses: a refused elicitation is told to the server, and what cannot be told ends the call.
func TestLegacyClientRefuses(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{demanding()}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	const fault = `"error":{"code":-1,"message":"no"}`
	for client, call := range legacyClients(g, `{"elicitation":{},"sampling":{}}`) {
		t.Run(client, func(t *testing.T) {
			for _, tt := range []struct{ name, ask, reply, told string }{
				{"an error", askName, fault, `{"a":{"action":"cancel"}}`},
				{"no such method", askName, `"error":{"code":-32601,"message":"no"}`, `{"a":{"action":"decline"}}`},
				{"declined", askName, `"result":{"action":"decline"}`, `{"a":{"action":"decline"}}`},
				{"not an object", askName, `"result":7`, `{"a":{"action":"cancel"}}`},
				{"a mode that it lacks", `{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example"}}`, "", `{"a":{"action":"decline"}}`},
				{"sampling, an error", askModel, fault, ""},
				{"roots that it lacks", askRoots, "", ""},
				{"something else", `{"method":"x/y"}`, "", ""},
			} {
				d := dialogueOf(t, g, client, call, `{"rounds":[{"a":`+tt.ask+`}]}`, func(string, string) string { return tt.reply })
				if tt.told != "" {
					if got := toldTo(t, d.answer); len(got) != 1 || got[0] != tt.told {
						t.Errorf("%s: %s", tt.name, d.answer)
					}
					continue
				}
				if at(t, d.answer, "result", "isError") != "true" || at(t, d.answer, "result", "_meta", "dev.headgate/failure", "reason") != `"input_refused"` {
					t.Errorf("%s: %s", tt.name, d.answer)
				}
			}
		})
	}
}

// dialogueOf is call for calls of which it is not known whether anything is asked.
func dialogueOf(t testing.TB, g *gate, client string, call converse, args string, reply replier) dialogue {
	t.Helper()
	if client != "http" {
		return call("1", "x_demanding", args, reply)
	}
	// Over HTTP a client that accepts nothing but a stream always gets one.
	session := g.openWith(`{"elicitation":{},"sampling":{}}`)
	st := g.openStream(g.request("POST", legacyCall("1", "x_demanding", args, nil), session, "Accept: text/event-stream"))
	defer st.close()
	var d dialogue
	for {
		response, over := d.hear(t, st.next(), reply)
		if over {
			return d
		}
		if response != "" {
			g.post(response, session)
		}
	}
}

// TestEndlessDemands: a server that never has enough is told so, and one that demands nonsense has answered badly.
func TestEndlessDemands(t *testing.T) {
	demand := ""
	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"demanding","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Result(demand) }}}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	for _, tt := range []struct{ name, result string }{
		{"endless", `{"resultType":"input_required","inputRequests":{"a":` + askName + `}}`},
		{"nothing demanded", `{"resultType":"input_required"}`},
		{"no object", `{"resultType":"input_required","inputRequests":[]}`},
		{"no request", `{"resultType":"input_required","inputRequests":{"a":7}}`},
		{"no string", `{"resultType":"input_required","requestState":7}`},
	} {
		demand = tt.result
		d := dialogueOf(t, g, "http", nil, `{}`, func(string, string) string { return `"result":{"action":"accept"}` })
		ok := at(t, d.answer, "error", "data", "headgate", "reason") == `"bad_upstream_answer"` || at(t, d.answer, "result", "_meta", "dev.headgate/failure", "reason") == `"input_refused"`
		if !ok || tt.name == "endless" && len(d.asked) != maxRounds {
			t.Errorf("%s: asked %d times: %s", tt.name, len(d.asked), d.answer)
		}
	}
}

// TestLegacyServerAsksLegacyClient: a question goes to the client whose call caused it, with the params and the answer
// as they were written, over every transport.
func TestLegacyServerAsksLegacyClient(t *testing.T) {
	for _, kind := range []string{"http", "sse", "stdio"} {
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
		conf, o := legacyKinds(t, s)[kind]()
		g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
		for client, call := range legacyClients(g, allAbilities) {
			t.Run(kind+" to "+client, func(t *testing.T) {
				odd := `{"method":"elicitation/create","params":{"message":"?","_meta":{"progressToken":3,"k":1.0},"task":{},"z":[ 1 ]}}`
				i := 0
				d := call("7", "x_asking", `{"ask":[`+askName+`,`+askModel+`,`+odd+`,{"method":"x/y"},`+askRoots+`]}`, func(method, params string) string {
					if i++; i == 2 {
						return `"error":{"code":-1,"message":"User rejected","data":1.0}`
					}
					return `"result":{"n":` + strconv.Itoa(i) + `.0}`
				})
				want := `{"told":[{"n":1.0},{"code":-1,"message":"User rejected","data":1.0},{"n":3.0},{"code":-32601,"message":"the client of this session did not declare the capability for x/y"},{"n":4.0}]}`
				if got := at(t, d.answer, "result", "structuredContent"); got != want {
					t.Errorf("told %s", got)
				}
				if len(d.asked) != 4 || d.asked[2] != `elicitation/create {"message":"?","_meta":{"k":1.0},"z":[ 1 ]}` {
					t.Errorf("asked %q", d.asked)
				}
			})
		}
	}
}

// TestAnswersAreNotCrossed has many clients of both eras answer two servers whose request ids collide, each with a
// word of its own: nobody sees another's question, and no server another's answer.
func TestAnswersAreNotCrossed(t *testing.T) {
	entries := map[string]string{}
	for _, id := range []string{"x", "y"} {
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
		entries[id] = entry(s.StartHTTP(t))
	}
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
	entries["z"] = `{"command":"embedded","session":"client"}`
	m := &mcptest.Server{Tools: []mcptest.Tool{demanding()}}
	entries["m"] = entry(m.StartHTTP(t))
	g := launch(t, parseConfig(t, entries), Options{Embedded: embed("z", s)})
	ask := func(word string) string {
		return `{"method":"elicitation/create","params":{"message":"` + word + `"}}`
	}
	var clients sync.WaitGroup
	const calls = 8
	for n := range 6 {
		call := g.overHTTP(g.openWith(allAbilities))
		if n%2 == 1 {
			pipe := g.pipe()
			pipe.call(`"init"`, initializeWith(allAbilities))
			call = pipe.converse
		}
		clients.Go(func() {
			for i := range calls {
				word := fmt.Sprintf("c%d-%d", n, i)
				reply := func(_, params string) string {
					if !strings.Contains(params, word) {
						t.Errorf("%s was asked %s", word, params)
					}
					return `"result":{"word":"` + word + `"}`
				}
				for _, id := range []string{"x", "y", "z"} {
					d := call("1", id+"_asking", `{"ask":[`+ask(word)+`,`+ask(word)+`]}`, reply)
					if got := at(t, d.answer, "result", "structuredContent"); got != `{"told":[{"word":"`+word+`"},{"word":"`+word+`"}]}` {
						t.Errorf("%s at %s: %s", word, id, d.answer)
					}
				}
				d := call("1", "m_demanding", `{"rounds":[{"a":`+ask(word)+`}]}`, reply)
				if got := toldTo(t, d.answer); len(got) != 1 || got[0] != `{"a":{"word":"`+word+`"}}` {
					t.Errorf("%s: %s", word, d.answer)
				}
			}
		})
	}
	for n := range 6 {
		clients.Go(func() {
			for i := range calls {
				word := fmt.Sprintf("m%d-%d", n, i)
				for _, id := range []string{"x", "y"} {
					args := `"name":"` + id + `_asking","arguments":{"ask":[` + ask(word) + `]}`
					send := func(params string) string {
						return g.post(capableBody("1", "tools/call", params, allAbilities), modernHeaders("tools/call", "Mcp-Name: "+id+"_asking")...).message()
					}
					first := send(args)
					if !strings.Contains(at(t, first, "result", "inputRequests"), word) {
						t.Errorf("%s was asked %s", word, first)
						continue
					}
					got := send(args + retry(`{"q1":{"word":"`+word+`"}}`, at(t, first, "result", "requestState")))
					if at(t, got, "result", "structuredContent") != `{"told":[{"word":"`+word+`"}]}` {
						t.Errorf("%s at %s: %s", word, id, got)
					}
				}
			}
		})
	}
	clients.Wait()
	g.waits(0)
}

// TestOneClient: where there is one client, a server on a shared stream may ask it, and nobody else.
func TestOneClient(t *testing.T) {
	for _, caps := range []string{allAbilities, `{}`} {
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
		o := Options{Embedded: embed("x", s)}
		o.Upstream.OneClient = true
		g := launch(t, parseConfig(t, map[string]string{"x": embeddedEntry}), o)
		p := g.pipe()
		p.call(`"init"`, initializeWith(caps))
		d := p.converse("1", "x_asking", `{"ask":[`+askName+`]}`, func(string, string) string { return `"result":{"n":1}` })
		if got := at(t, d.answer, "result", "structuredContent", "told"); caps != `{}` && got != `[{"n":1}]` || caps == `{}` && !strings.Contains(got, "-32601") {
			t.Errorf("%s: %s", caps, d.answer)
		}
	}
}

// TestAnswerOfAnotherSession: a response counts on the session that was asked, and once.
func TestAnswerOfAnotherSession(t *testing.T) {
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session, other := g.openWith(allAbilities), g.openWith(allAbilities)
	st := g.openStream(g.request("POST", legacyCall("1", "x_asking", `{"ask":[`+askName+`]}`, nil), session))
	id := at(t, st.next(), "id")
	response := func(word, session string) {
		if r := g.post(`{"jsonrpc":"2.0","id":`+id+`,"result":{"word":"`+word+`"}}`, session); r.status != 202 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	response("other", other)
	response("mine", session)
	response("again", session)
	if got := at(t, st.next(), "result", "structuredContent", "told"); got != `[{"word":"mine"}]` {
		t.Errorf("told %s", got)
	}
}
