package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// This file has calls between all eras and transports end otherwise than with an answer.

// askFirst makes a tool of servers of an era that asks its client for a name before it does anything else.
func askFirst(modern bool, tool mcptest.Tool) mcptest.Tool {
	then := tool.Call
	tool.Call = func(c *mcptest.Call) {
		switch {
		case !modern:
			c.Ask("elicitation/create", string(memberOf(askName, "params")))
		case c.Member("requestState") == nil:
			c.Result(`{"resultType":"input_required","inputRequests":{"k":` + askName + `},"requestState":"s"}`)
			return
		}
		then(c)
	}
	return tool
}

// modernAnswer are the params of a request that answers what askFirst asks.
func modernAnswer(t *testing.T, call, message string) string {
	t.Helper()
	inputs, state := mustDemand(t, message)
	return call + retry(fmt.Sprintf(`{"%s":{"action":"accept"}}`, object(t, inputs)[0].Name), state)
}

// TestCancelledInALaterRound has clients of both eras, over every transport, cancel a call whose server they have told
// what it asked, in every way they can: it ends there, and nothing more is said of it.
func TestCancelledInALaterRound(t *testing.T) {
	w := newWatched()
	g, _ := launchEras(t, func(modern bool) mcptest.Tool { return askFirst(modern, w.tool()) })
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`
	const yes = `,"result":{"action":"accept"}}`
	response := func(t *testing.T, question string) string {
		return `{"jsonrpc":"2.0","id":` + at(t, question, "id") + yes
	}
	// Each starts the call of a tool, and returns what cancels it.
	clients := map[string]func(t *testing.T, tool string) (cancel func()){
		"modern http": func(t *testing.T, tool string) func() {
			call := callParams(tool, `{"n":1}`)
			next := modernAnswer(t, call, g.capable("6", call).message())
			return g.abortable(capableBody("7", "tools/call", next, allAbilities), modernHeaders("tools/call", "Mcp-Name: "+tool)...)
		},
		"modern stdio": func(t *testing.T, tool string) func() {
			p, call := g.pipe(), callParams(tool, `{"n":1}`)
			next := modernAnswer(t, call, p.call("6", capableBody("6", "tools/call", call, allAbilities)))
			p.send(capableBody("7", "tools/call", next, allAbilities))
			return func() { p.send(cancelled); p.silent() }
		},
		"legacy http, disconnect": func(t *testing.T, tool string) func() {
			session := g.openWith(allAbilities)
			st := g.openStream(g.request("POST", legacyCall("7", tool, `{"n":1}`, nil), session))
			g.post(response(t, st.next()), session)
			return st.close
		},
		"legacy http, notification": func(t *testing.T, tool string) func() {
			session := g.openWith(allAbilities)
			st := g.openStream(g.request("POST", legacyCall("7", tool, `{"n":1}`, nil), session))
			g.post(response(t, st.next()), session)
			return func() {
				g.post(cancelled, session)
				if e := st.next(); e != "" {
					t.Errorf("after the cancellation came %s", e)
				}
			}
		},
		"legacy stdio": func(t *testing.T, tool string) func() {
			p := g.pipe()
			p.call(`"init"`, initializeWith(allAbilities))
			p.send(legacyCall("7", tool, `{"n":1}`, nil))
			p.send(response(t, p.next()))
			return func() { p.send(cancelled); p.silent() }
		},
	}
	for id := range erasOf {
		for client, call := range clients {
			t.Run(client+" to "+id, func(t *testing.T) {
				cancel := call(t, id+"_watched")
				expect(t, "the call to go on", w.started)
				cancel()
				expect(t, "the cancellation", w.cancelled)
			})
		}
	}
	g.waits(0)
}

// TestAbandonedCall: a call of a modern client that nobody comes back for is cancelled at its legacy server and
// forgotten, and its state has expired. The next call is asked as if nothing had been.
func TestAbandonedCall(t *testing.T) {
	for _, kind := range []string{"http", "sse", "stdio"} {
		ended := make(chan string, 16)
		conf, o := legacyKinds(t, askingServer(ended))[kind]()
		g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
		patience := g.talks.patience
		for client, send := range modernSenders(g) {
			t.Run(client+" to "+kind, func(t *testing.T) {
				g.talks.patience = 200 * time.Millisecond
				_, state := mustDemand(t, send("1", `"name":"x_asking"`, allAbilities))
				if got := expect(t, "the end of the call", ended); got != "cancelled" {
					t.Errorf("the call was %s", got)
				}
				g.waits(0)
				got := send("2", `"name":"x_asking"`+retry(accepted, state), allAbilities)
				refusedState(t, reply{status: 400, body: got}, "has expired")

				g.talks.patience = patience
				_, state = mustDemand(t, send("3", `"name":"x_asking"`, allAbilities))
				if got := send("4", `"name":"x_asking"`+retry(accepted, state), allAbilities); at(t, got, "result", "structuredContent", "told") != `{"action":"accept"}` {
					t.Errorf("the next call: %s", got)
				}
				if got := expect(t, "the end of the call", ended); got != "answered" {
					t.Errorf("the next call was %s", got)
				}
			})
		}
	}
}

// TestAbandonedAtAModernServer: what a modern server asks of a modern client is no affair of Headgate's once it has
// passed. Nothing waits for the client to come back.
func TestAbandonedAtAModernServer(t *testing.T) {
	for kind, start := range modernKinds(t, &mcptest.Server{Tools: []mcptest.Tool{askFirst(true, newWatched().tool())}}) {
		conf, o := start()
		g := launch(t, parseConfig(t, map[string]string{"x": conf}), o)
		for client, send := range modernSenders(g) {
			if inputs, state := mustDemand(t, send("1", `"name":"x_watched"`, allAbilities)); inputs != `{"k":`+askName+`}` || state != `"s"` {
				t.Errorf("%s to %s: %s %s", client, kind, inputs, state)
			}
			g.waits(0)
		}
	}
}

// TestSilentLegacyClient: a legacy client that never answers is told that its question is taken back, and the call
// ends: a legacy server hears that nobody answered, and of a modern one the client hears that it went without.
func TestSilentLegacyClient(t *testing.T) {
	ended := make(chan string, 64)
	g, _ := launchEras(t, func(modern bool) mcptest.Tool { return inquire(modern, ended) })
	g.talks.patience = 50 * time.Millisecond
	for id, modern := range erasOf {
		for client, call := range legacyClients(g, allAbilities) {
			t.Run(client+" to "+id, func(t *testing.T) {
				d := call("1", id+"_inquire", `{}`, func(string, string) string { return "" })
				withdrawn := 0
				for _, n := range d.notifications {
					if at(t, n, "method") == `"notifications/cancelled"` {
						withdrawn++
					}
				}
				if withdrawn != len(d.asked) {
					t.Errorf("of the questions %q %d are taken back", d.asked, withdrawn)
				}
				told := at(t, d.answer, "result", "structuredContent", "told")
				const nobody = `{"code":-32603,"message":"the client gave no answer"}`
				if modern && at(t, d.answer, "result", "_meta", "dev.headgate/failure", "reason") != `"input_refused"` ||
					!modern && told != `[{"action":"cancel"},`+nobody+`,`+nobody+`]` {
					t.Errorf("%s", d.answer)
				}
			})
		}
	}
}
