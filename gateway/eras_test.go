package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// The table of the eras: clients of both eras over HTTP and stdio, servers of both eras over HTTP and stdio, and legacy
// ones over HTTP+SSE. TestEras has the questions of each kind in three rounds, with progress and log messages;
// TestCancellation a call that is cancelled before its server asks, TestCancelledWhileAsked while it does, and
// TestCancelledInALaterRound thereafter; TestAbandonedCall and TestSilentLegacyClient what nobody answers.

// wanted is what the tool "inquire" wants of its client, one after the other.
var wanted = []string{askName, askModel, askRoots}

// inquire makes the tool of servers of an era: it wants three things, reports before each, and answers with what it was
// told. ended hears of the end of every call.
func inquire(modern bool, ended chan string) mcptest.Tool {
	report := func(c *mcptest.Call, n int) {
		c.Progress(float64(n), 3, "")
		c.Notify("notifications/message", `{"level":"warning","data":`+fmt.Sprint(n)+`}`)
	}
	finish := func(c *mcptest.Call, told []string) {
		c.Structured(`{"told":[` + strings.Join(told, ",") + `]}`)
		ended <- "answered"
	}
	tool := mcptest.Tool{Def: `{"name":"inquire","inputSchema":{"type":"object"}}`}
	tool.Call = func(c *mcptest.Call) {
		var told []string
		for i, q := range wanted {
			report(c, i+1)
			result, fault := c.Ask(strings.Trim(string(memberOf(q, "method")), `"`), string(memberOf(q, "params")))
			if c.Ctx.Err() != nil {
				ended <- "cancelled"
				return
			}
			told = append(told, string(result)+string(fault))
		}
		finish(c, told)
	}
	if modern {
		tool.Call = func(c *mcptest.Call) {
			var told []string
			if raw := c.Member("requestState"); raw != nil {
				var state string
				_ = json.Unmarshal(raw, &state)
				_ = json.Unmarshal([]byte(state), &told)
				told = append(told, string(memberOf(string(c.Member("inputResponses")), "k")))
			}
			if len(told) == len(wanted) {
				finish(c, told)
				return
			}
			report(c, len(told)+1)
			state, _ := json.Marshal(told)
			c.Result(`{"resultType":"input_required","inputRequests":{"k":` + wanted[len(told)] + `},"requestState":` + string(quoteJSON(string(state))) + `}`)
		}
	}
	return tool
}

// erasOf are servers of both eras over every transport, and whether they are modern: HTTP+SSE is of the legacy era alone.
var erasOf = map[string]bool{"lh": false, "le": false, "ls": false, "mh": true, "ms": true}

// launchEras runs a gateway in front of the servers of erasOf, each with the tool that is made for its era.
func launchEras(t *testing.T, tool func(modern bool) mcptest.Tool) (g *gate, servers map[string]*mcptest.Server) {
	servers = map[string]*mcptest.Server{}
	entries, o := map[string]string{}, Options{Embedded: map[string]upstream.ServeFunc{}}
	for id, modern := range erasOf {
		s := &mcptest.Server{Era: mcptest.Legacy, Capabilities: `{"logging":{}}`, Tools: []mcptest.Tool{tool(modern)}}
		if modern {
			s.Era = mcptest.Modern
		}
		servers[id] = s
		switch id[1] {
		case 'h':
			entries[id] = entry(s.StartHTTP(t))
		case 'e':
			entries[id] = entry(s.StartSSE(t), `"type":"sse"`, `"session":"client"`)
		default:
			entries[id] = `{"command":"embedded","session":"client"}`
			o.Embedded[id] = serveLines(s)
		}
	}
	return launch(t, parseConfig(t, entries), o), servers
}

// TestEras has clients of both eras, over every transport, answer servers of both eras, over every transport, in three
// rounds, with progress and log messages on the way.
func TestEras(t *testing.T) {
	ended := make(chan string, 256)
	g, _ := launchEras(t, func(modern bool) mcptest.Tool { return inquire(modern, ended) })
	check := func(t *testing.T, answer string, notifications []string) {
		t.Helper()
		if got := at(t, answer, "result", "structuredContent", "told"); got != `[{"n":1},{"n":2},{"n":3}]` {
			t.Errorf("told %s", answer)
		}
		if len(notifications) != 6 {
			t.Fatalf("notifications %q", notifications)
		}
		for i := range 3 {
			progress, log, n := notifications[2*i], notifications[2*i+1], fmt.Sprint(i+1)
			if at(t, progress, "params", "progress") != n || at(t, progress, "params", "progressToken") != `"mine"` || at(t, log, "params", "data") != n {
				t.Errorf("round %s: %s %s", n, progress, log)
			}
		}
	}
	const level = `{"level":"info"}`
	session, legacyPipe, modernPipe := g.openWith(allAbilities), g.pipe(), g.pipe()
	g.post(legacyBody("1", "logging/setLevel", level), session)
	legacyPipe.call(`"init"`, initializeWith(allAbilities))
	legacyPipe.call("1", legacyBody("1", "logging/setLevel", level))
	for id := range erasOf {
		for client, call := range map[string]converse{"http": g.overHTTP(session), "stdio": legacyPipe.converse} {
			t.Run("legacy "+client+" to "+id, func(t *testing.T) {
				n := 0
				d := call("7", id+"_inquire", `{}`, func(string, string) string {
					n++
					return fmt.Sprintf(`"result":{"n":%d}`, n)
				}, `"progressToken":"mine"`)
				check(t, d.answer, d.notifications)
				if len(d.asked) != 3 {
					t.Errorf("asked %q", d.asked)
				}
			})
		}
		var notifications []string
		for client, send := range map[string]func(body string) (answer string){
			"http": func(body string) string {
				r := g.post(body, modernHeaders("tools/call", "Mcp-Name: "+id+"_inquire")...)
				if e := r.events(); len(e) > 1 {
					notifications = append(notifications, e[:len(e)-1]...)
				}
				return r.message()
			},
			"stdio": func(body string) string {
				modernPipe.send(body)
				for {
					line := modernPipe.next()
					if at(t, line, "id") != "" {
						return line
					}
					notifications = append(notifications, line)
				}
			},
		} {
			t.Run("modern "+client+" to "+id, func(t *testing.T) {
				notifications = nil
				request := func(n int, more string) string {
					return send(capableBody(fmt.Sprint(n), "tools/call", `"name":"`+id+`_inquire"`+more, allAbilities,
						`"progressToken":"mine"`, `"io.modelcontextprotocol/logLevel":"info"`))
				}
				more := ""
				for n := 1; n <= 3; n++ {
					inputs, state := mustDemand(t, request(n, more))
					obj := object(t, inputs)
					want := wanted[n-1]
					if want == askRoots && !erasOf[id] {
						want = askedRoots
					}
					if len(obj) != 1 || string(obj[0].Value) != want {
						t.Fatalf("round %d: %s", n, inputs)
					}
					more = retry(fmt.Sprintf(`{"%s":{"n":%d}}`, obj[0].Name, n), state)
				}
				check(t, request(4, more), notifications)
			})
		}
	}
	g.waits(0)
}

// TestCancelledWhileAsked has legacy clients give up a call in the midst of a question: its legacy server is told, and
// the client gets no answer.
func TestCancelledWhileAsked(t *testing.T) {
	ended := make(chan string, 256)
	g, _ := launchEras(t, func(modern bool) mcptest.Tool { return inquire(modern, ended) })
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	for id, modern := range erasOf {
		for _, how := range []string{"http, notification", "http, disconnect", "stdio"} {
			t.Run(how+", "+id, func(t *testing.T) {
				body := legacyCall("7", id+"_inquire", `{}`, nil)
				switch how {
				case "stdio":
					p := g.pipe()
					p.call(`"init"`, initializeWith(allAbilities))
					p.send(body)
					question := p.next()
					p.send(cancelled)
					if got := p.next(); at(t, got, "method") != `"notifications/cancelled"` || at(t, got, "params", "requestId") != at(t, question, "id") {
						t.Errorf("the question is not taken back: %s", got)
					}
					p.silent()
				default:
					session := g.openWith(allAbilities)
					st := g.openStream(g.request("POST", body, session))
					st.next()
					if how == "http, disconnect" {
						st.close()
						break
					}
					g.post(cancelled, session)
					for e := st.next(); e != ""; e = st.next() {
						if at(t, e, "method") != `"notifications/cancelled"` {
							t.Errorf("after the cancellation came %s", e)
						}
					}
				}
				if !modern {
					if got := expect(t, "the end of the call", ended); got != "cancelled" {
						t.Errorf("the call was %s", got)
					}
				}
			})
		}
	}
	if len(ended) != 0 {
		t.Errorf("%d more calls ended", len(ended))
	}
}

// TestEndOfElicitation: the news that an elicitation by URL is complete reaches the client that was asked, if it is one
// that knows of such.
func TestEndOfElicitation(t *testing.T) {
	for _, kind := range []string{"http", "sse", "stdio"} {
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Def: `{"name":"asking","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			c.Ask("elicitation/create", `{"mode":"url","message":"?","url":"https://x.example","elicitationId":"e1"}`)
			c.Notify("notifications/elicitation/complete", `{"elicitationId":"e1"}`)
			c.Text("done")
		}}}}
		conf, o := legacyKinds(t, s)[kind]()
		g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
		for client, call := range legacyClients(g, allAbilities) {
			d := call("1", "x_asking", `{}`, func(string, string) string { return `"result":{"action":"accept"}` })
			if len(d.notifications) != 1 || at(t, d.notifications[0], "method") != `"notifications/elicitation/complete"` {
				t.Errorf("%s to %s: %q", kind, client, d.notifications)
			}
		}
		_, state := mustDemand(t, g.capable("1", `"name":"x_asking"`).message())
		if r := g.capable("2", `"name":"x_asking"`+retry(accepted, state)); r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s to a modern client: %s", kind, r.body)
		}
	}
}
