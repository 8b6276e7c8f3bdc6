package gateway

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// askingServer is a legacy server with the tool "asking", of which it says when a call ended without an answer.
func askingServer(ended chan string) *mcptest.Server {
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Def: `{"name":"asking","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		c.Progress(1, 0, "")
		c.Notify("notifications/message", `{"level":"warning","data":"a"}`)
		result, fault := c.Ask("elicitation/create", `{"message":"?"}`)
		if c.Ctx.Err() != nil {
			ended <- "cancelled"
			return
		}
		c.Progress(2, 0, "")
		c.Notify("notifications/message", `{"level":"error","data":"b"}`)
		c.Structured(`{"told":` + string(result) + string(fault) + `}`)
		ended <- "answered"
	}}, {Def: `{"name":"other","inputSchema":{"type":"object"}}`}}}
}

// capable makes a modern tools/call of a client with capabilities; params are the members of params.
func (g *gate) capable(id, params string, more ...string) reply {
	g.t.Helper()
	name := strings.Trim(at(g.t, `{`+params+`}`, "name"), `"`)
	return g.post(capableBody(id, "tools/call", params, allAbilities), append(modernHeaders("tools/call", "Mcp-Name: "+name), more...)...)
}

const accepted = `{"q1":{"action":"accept"}}`

// refusedState checks that a request was refused for its state, with a text that says why.
func refusedState(t *testing.T, r reply, why string) {
	t.Helper()
	if r.status != http.StatusBadRequest || at(t, r.body, "error", "code") != "-32602" || !strings.Contains(at(t, r.body, "error", "message"), why) {
		t.Errorf("want %q: %d %s", why, r.status, r.body)
	}
}

// keyed is a configuration with two callers, a and b.
const keyed = `"auth":{"api_keys":[{"name":"a","sha256":"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb","subject":"a"},` +
	`{"name":"b","sha256":"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d","subject":"b"}]}`

// TestForeignStates: whatever is not the state of this caller's last round of this very call is refused, and the call
// that waits is none the worse for it.
func TestForeignStates(t *testing.T) {
	ended := make(chan string, 16)
	s := askingServer(ended)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t)), "y": entry(s.StartHTTP(t))}, keyed), Options{})
	a, b := "Authorization: Bearer a", "Authorization: Bearer b"
	call := `"name":"x_asking","arguments":{"n":1.0}`
	_, state := mustDemand(t, g.capable("1", call, a).message())
	_, second := mustDemand(t, g.capable("1", call, a).message())

	plain := strings.Trim(state, `"`)
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(plain, sealed))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		forged := append([]byte(nil), raw...)
		forged[i] ^= 1
		refusedState(t, g.capable("2", call+retry(accepted, `"`+sealed+base64.RawURLEncoding.EncodeToString(forged)+`"`), a), "was changed")
	}
	for _, forged := range []string{`""`, `"x"`, `7`, `null`, `"` + sealed + `"`, `"` + plain + `="`, `"` + plain[:len(plain)-4] + `"`, `"` + strings.Repeat("x", 10_000) + `"`} {
		refusedState(t, g.capable("2", call+retry(accepted, forged), a), "was changed")
	}
	other := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keyed), Options{})
	_, elsewhere := mustDemand(t, other.capable("1", call, a).message())
	refusedState(t, g.capable("2", call+retry(accepted, elsewhere), a), "was changed")

	for name, r := range map[string]reply{
		"another caller":    g.capable("2", call+retry(accepted, state), b),
		"other arguments":   g.capable("2", `"name":"x_asking","arguments":{"n":2}`+retry(accepted, state), a),
		"no arguments":      g.capable("2", `"name":"x_asking"`+retry(accepted, state), a),
		"another tool":      g.capable("2", `"name":"x_other","arguments":{"n":1.0}`+retry(accepted, state), a),
		"another server":    g.capable("2", `"name":"y_asking","arguments":{"n":1.0}`+retry(accepted, state), a),
		"another server (2": g.capable("2", `"name":"y_asking","arguments":{"n":1.0}`+retry(accepted, second), a),
	} {
		t.Run(name, func(t *testing.T) { refusedState(t, r, "belongs to another call") })
	}
	for _, bad := range []string{`7`, `[]`, `{"q1":7}`, `{"q1":{},"q1":{}}`} {
		if r := g.capable("2", call+retry(bad, state), a); r.status != 400 || at(t, r.body, "error", "code") != "-32602" {
			t.Errorf("%s: %d %s", bad, r.status, r.body)
		}
	}
	// None of that touched the call.
	if got := g.capable("3", `"arguments":{"n":1},"name":"x_asking"`+retry(accepted, state), a).message(); at(t, got, "result", "structuredContent", "told") != `{"action":"accept"}` {
		t.Errorf("%s", got)
	}
	refusedState(t, g.capable("4", call+retry(accepted, state), a), "has ended")
	if got := g.capable("5", call+retry(accepted, second), a).message(); at(t, got, "result", "structuredContent") == "" {
		t.Errorf("%s", got)
	}
	if n := s.Executions("asking"); n != 3 {
		t.Errorf("%d executions", n)
	}
}

// TestStateIsUsedOnce: of many requests with one state one resumes the call.
func TestStateIsUsedOnce(t *testing.T) {
	ended := make(chan string, 16)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(askingServer(ended).StartHTTP(t))}), Options{})
	_, state := mustDemand(t, g.capable("1", `"name":"x_asking"`).message())
	answers := make(chan reply, 8)
	for range cap(answers) {
		go func() { answers <- g.capable("2", `"name":"x_asking"`+retry(accepted, state)) }()
	}
	won := 0
	for range cap(answers) {
		r := <-answers
		if r.status == http.StatusOK {
			won++
			continue
		}
		refusedState(t, r, "requestState")
	}
	if won != 1 {
		t.Errorf("%d resumed the call", won)
	}
}

// TestReplayedRound: a state of an earlier round does not answer a later question.
func TestReplayedRound(t *testing.T) {
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{asking()}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	call := `"name":"x_asking","arguments":{"ask":[` + askName + `,` + askName + `]}`
	_, first := mustDemand(t, g.capable("1", call).message())
	_, second := mustDemand(t, g.capable("2", call+retry(`{"q1":{"action":"decline"}}`, first)).message())
	refusedState(t, g.capable("3", call+retry(`{"q2":{"action":"accept"}}`, first)), "was used already")
	if got := g.capable("4", call+retry(`{"q2":{"action":"decline"}}`, second)).message(); at(t, got, "result", "structuredContent") == "" {
		t.Errorf("%s", got)
	}
}

// waits waits until as many calls wait, and no others are known: a server may hear of the end of a call before the
// gateway has forgotten it.
func (g *gate) waits(want int) {
	g.t.Helper()
	poll(g.t, fmt.Sprintf("%d calls that wait", want), func() bool {
		g.talks.mu.Lock()
		known := len(g.talks.all)
		g.talks.mu.Unlock()
		return known == want && g.talks.waiting.count() == want
	})
}

// TestNotificationsOfResumedCall: progress and log messages go to the request that attends the call, with its own
// token and from its own level on.
func TestNotificationsOfResumedCall(t *testing.T) {
	ended := make(chan string, 16)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(func() *mcptest.HTTP {
		s := askingServer(ended)
		s.Capabilities = `{"logging":{}}`
		return s.StartHTTP(t)
	}())}), Options{})
	send := func(id, params string, meta ...string) reply {
		return g.post(capableBody(id, "tools/call", params, allAbilities, meta...), modernHeaders("tools/call", "Mcp-Name: x_asking")...)
	}
	log := `"io.modelcontextprotocol/logLevel":"`
	first := send("1", `"name":"x_asking"`, `"progressToken":"one"`, log+`info"`)
	_, state := mustDemand(t, first.message())
	if e := first.events(); len(e) != 3 || at(t, e[0], "params", "progressToken") != `"one"` || at(t, e[1], "params", "data") != `"a"` {
		t.Errorf("%s", first.body)
	}
	next := send("2", `"name":"x_asking"`+retry(accepted, state), `"progressToken":2`, log+`error"`)
	if e := next.events(); len(e) != 3 || at(t, e[0], "params", "progressToken") != "2" || at(t, e[0], "params", "progress") != "2" || at(t, e[1], "params", "data") != `"b"` {
		t.Errorf("%s", next.body)
	}
	_, state = mustDemand(t, send("3", `"name":"x_asking"`, `"progressToken":"one"`, log+`info"`).message())
	if quiet := send("4", `"name":"x_asking"`+retry(accepted, state)); quiet.header.Get("Content-Type") != "application/json" {
		t.Errorf("a request that asked for nothing: %s", quiet.body)
	}
}

// TestServerEndsWhileItsCallWaits: what became of the call is the answer of the request that comes for it.
func TestServerEndsWhileItsCallWaits(t *testing.T) {
	timedOut := make(chan string, 1)
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Def: `{"name":"hasty","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		go c.Ask("elicitation/create", `{"message":"?"}`)
		<-timedOut
		c.Text("never mind")
	}}}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	_, state := mustDemand(t, g.capable("1", `"name":"x_hasty"`).message())
	timedOut <- ""
	if got := g.capable("2", `"name":"x_hasty"`+retry(accepted, state)).message(); !strings.Contains(got, "never mind") {
		t.Errorf("%s", got)
	}
	g.waits(0)
}

// TestTooManyWait: beyond the bounds a question is not brought to its client, and its tool ends at once.
func TestTooManyWait(t *testing.T) {
	ended := make(chan string, 64)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(askingServer(ended).StartHTTP(t))}, keyed), Options{})
	for i := range callerTalks {
		mustDemand(t, g.capable(fmt.Sprint(i), `"name":"x_asking"`, "Authorization: Bearer a").message())
	}
	got := g.capable("1", `"name":"x_asking"`, "Authorization: Bearer a").message()
	if at(t, got, "result", "structuredContent", "told") != `{"action":"cancel"}` {
		t.Errorf("one too many: %s", got)
	}
	mustDemand(t, g.capable("1", `"name":"x_asking"`, "Authorization: Bearer b").message())
	g.waits(callerTalks + 1)
}

// TestDrainWithWaitingCalls: no request will come for what waits, so it is cancelled, and a request that comes all the
// same is told why; what is asked from then on gets no answer.
func TestDrainWithWaitingCalls(t *testing.T) {
	ended := make(chan string, 16)
	w := newWatched()
	s := askingServer(ended)
	ask := s.Tools[0].Call
	s.Tools = append(s.Tools, mcptest.Tool{Def: `{"name":"late","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		w.started <- ""
		<-w.release
		ask(c)
	}})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	_, state := mustDemand(t, g.capable("1", `"name":"x_asking"`).message())
	late := make(chan reply, 1)
	go func() { late <- g.capable("1", `"name":"x_late"`) }()
	expect(t, "the late call", w.started)
	g.Drain()
	if got := expect(t, "the end of the call", ended); got != "cancelled" {
		t.Errorf("the call was %s", got)
	}
	refusedState(t, g.capable("2", `"name":"x_asking"`+retry(accepted, state)), "is being stopped")
	close(w.release)
	if r := <-late; at(t, r.message(), "result", "structuredContent", "told") != `{"action":"cancel"}` {
		t.Errorf("asked after the drain: %s", r.body)
	}
	g.waits(0)
}

// TestTimeOfTheClient: a client that is asked has no more time than the call has over all.
func TestTimeOfTheClient(t *testing.T) {
	h := askingServer(make(chan string, 16)).StartHTTP(t)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(h, `"call_timeout":"400ms"`, `"max_call_timeout":"400ms"`)}), Options{})
	for client, call := range legacyClients(g, allAbilities) {
		d := call("2", "x_asking", `{}`, func(string, string) string { return "" })
		if at(t, d.answer, "result", "_meta", "dev.headgate/failure", "reason") != `"timeout"` {
			t.Errorf("%s: %s", client, d.answer)
		}
	}
}
