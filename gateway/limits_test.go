package gateway

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
)

// limitGate is a gateway whose team t has limits, and ann (with two keys), bob and duo in it; u has none,
// and v those of one call a minute. cat is in u, and duo in t and v.
func limitGate(t *testing.T, limits string) (*gate, *mcptest.Server, *blocker) {
	b := newBlocker()
	s := &mcptest.Server{Tools: append(mcptest.Builtin("echo", "echo2", "boom", "fail"), b.tool)}
	team := func(name, limits, more string) string {
		return `"` + name + `":{"upstreams":["x"],"limits":` + limits + `,"rules":[{"allow":["*"]}` + more + `]}`
	}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))},
		keys(keyOf("ann", "ann", []string{"t"}, nil), keyOf("ann2", "ann", []string{"t"}, nil), keyEntry("bob", "t"), keyEntry("cat", "u"), keyEntry("duo", "t", "v")),
		`"teams":{`+team("t", limits, `,{"deny":["x_echo2"],"when":"caller.subject == 'ann'"}`)+`,`+team("u", `{}`, "")+`,`+team("v", `{"calls_per_minute":1}`, "")+`}`), Options{})
	return g, s, b
}

// over checks that a call was kept back by a limit.
func over(t *testing.T, what string, r reply, reason, text string, least, most int) {
	t.Helper()
	mark := at(t, r.body, "result", "_meta", "dev.headgate/failure")
	if r.status != http.StatusOK || mark == "" {
		t.Errorf("%s: %d %s, want %s", what, r.status, r.body, reason)
		return
	}
	wait, err := strconv.Atoi(at(t, mark, "retryAfterMs"))
	content := at(t, r.body, "result", "content")
	if at(t, r.body, "result", "isError") != "true" || at(t, mark, "reason") != `"`+reason+`"` || at(t, mark, "outcome") != `"not_started"` ||
		at(t, mark, "retryable") != "true" || at(t, mark, "server") != `"x"` || err != nil || wait < least || wait > most ||
		!strings.Contains(content, "the limit of "+text) {
		t.Errorf("%s: %s, want %s after %d to %d ms, of %s", what, r.body, reason, least, most, text)
	}
}

func passes(t *testing.T, what string, r reply) {
	t.Helper()
	if r.status != http.StatusOK || at(t, r.body, "result", "structuredContent") == "" {
		t.Errorf("%s: %d %s, want a result", what, r.status, r.body)
	}
}

// TestLimitOfRate uses up a minute's one call, and looks at who shares it: every endpoint, era and key
// of a subject does, and nobody whom the limit is not about.
func TestLimitOfRate(t *testing.T) {
	for _, tt := range []struct {
		name, limits, text string
		bob, otherTool     bool // whether the calls of another caller, and of another tool, pass
	}{
		{"team", `{"calls_per_minute":1}`, "team t is reached: 1 calls a minute", false, false},
		{"caller", `{"per_caller":{"calls_per_minute":1}}`, "caller is reached: 1 calls a minute", true, false},
		{"tool", `{"per_tool":{"*_echo*":{"calls_per_minute":1}}}`, "tool x_echo is reached: 1 calls a minute", false, true},
		{"the longest wait", `{"calls_per_minute":1,"per_caller":{"calls_per_minute":60}}`, "team t is reached: 1 calls a minute", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, s, _ := limitGate(t, tt.limits)
			session := g.openAs("ann")
			// What is not a call, or is none of this caller's, costs nothing.
			for _, name := range []string{"x_none", "X_ECHO", "echo", "x_echo2"} {
				if r := g.callAs("ann", "", name); at(t, r.body, "error", "message") != `"Unknown tool: `+name+`"` {
					t.Errorf("%s: %s", name, r.body)
				}
			}
			g.listAs("ann", "")
			passes(t, "the first call", g.callAs("ann", "", "x_echo"))
			for what, r := range map[string]reply{
				"modern":           g.callAs("ann", "", "x_echo"),
				"the other key":    g.callAs("ann2", "", "x_echo"),
				"legacy":           g.callAs("ann", session, "x_echo"),
				"the team's own":   g.endpoint("t").callAs("ann", "", "x_echo"),
				"the session's":    g.endpoint("t").callAs("ann2", g.endpoint("t").openAs("ann"), "x_echo"),
				"once more modern": g.callAs("ann", "", "x_echo"),
			} {
				over(t, what, r, "rate_limited", tt.text, 1, 60_000)
				if legacy := what == "legacy" || what == "the session's"; legacy != (at(t, r.body, "result", "resultType") == "") {
					t.Errorf("%s: %s", what, r.body)
				}
			}
			ran := 1
			others := func(what string, pass bool, r reply) {
				if pass {
					ran++
					passes(t, what, r)
				} else {
					over(t, what, r, "rate_limited", "", 1, 60_000)
				}
			}
			others("another caller of the team", tt.bob, g.callAs("bob", "", "x_echo"))
			others("another team", true, g.callAs("cat", "", "x_echo"))
			others("another team again", true, g.callAs("cat", "", "x_echo"))
			if n := s.Executions("echo"); n != ran {
				t.Errorf("%d calls reached the server, want %d", n, ran)
			}
			before := s.Executions("boom")
			r := g.callAs("ann", "", "x_boom")
			if limited := at(t, r.body, "result", "_meta", "dev.headgate/failure") != ""; limited == tt.otherTool || s.Executions("boom")-before == 1 == limited {
				t.Errorf("another tool: %s", r.body)
			}
		})
	}
}

// TestLimitOfTwoTeams: who is in two teams calls on the account of the one that has room, and at a
// team's endpoint on that of this team alone.
func TestLimitOfTwoTeams(t *testing.T) {
	g, s, _ := limitGate(t, `{"calls_per_minute":1}`)
	passes(t, "on the account of t", g.callAs("duo", "", "x_echo"))
	over(t, "of t alone", g.endpoint("t").callAs("duo", "", "x_echo"), "rate_limited", "team t", 1, 60_000)
	passes(t, "on the account of v", g.callAs("duo", "", "x_echo"))
	over(t, "of v alone", g.endpoint("v").callAs("duo", "", "x_echo"), "rate_limited", "team v", 1, 60_000)
	over(t, "of both", g.callAs("duo", "", "x_echo"), "rate_limited", "team ", 1, 60_000)
	over(t, "another's of t", g.callAs("ann", "", "x_echo"), "rate_limited", "team t", 1, 60_000)
	if n := s.Executions("echo"); n != 2 {
		t.Errorf("%d calls reached the server, want 2", n)
	}
}

// TestLimitOfToolUnderTwoNames: a tool has one account, also where a team's own endpoint names it otherwise.
func TestLimitOfToolUnderTwoNames(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("ann", "t")),
		`"teams":{"t":{"upstreams":["x"],"naming":{"separator":"."},"rules":[{"allow":["x_*"]}],"limits":{"per_tool":{"x_echo":{"calls_per_minute":1}}}}}`), Options{})
	passes(t, "the first call", g.endpoint("t").callAs("ann", "", "x.echo"))
	over(t, "the same name", g.endpoint("t").callAs("ann", "", "x.echo"), "rate_limited", "tool x_echo", 1, 60_000)
	over(t, "the other name", g.callAs("ann", "", "x_echo"), "rate_limited", "tool x_echo", 1, 60_000)
	if n := s.Executions("echo"); n != 1 {
		t.Errorf("%d calls reached the server, want 1", n)
	}
}

// TestLimitOfConcurrency holds one call, and looks at who has to wait for it; a call that has ended gives
// its place back, however it ended.
func TestLimitOfConcurrency(t *testing.T) {
	for _, tt := range []struct {
		name, limits, tool, text string
		bob                      bool // whether another caller's call passes
	}{
		{"team", `{"concurrent":1}`, "x_echo", "team t is reached: 1 calls at a time", false},
		{"caller", `{"per_caller":{"concurrent":1}}`, "x_echo", "caller is reached: 1 calls at a time", true},
		{"tool", `{"per_tool":{"x_block":{"concurrent":1}}}`, "x_block", "tool x_block is reached: 1 calls at a time", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, s, b := limitGate(t, tt.limits)
			// Calls that end in one way or another, one after the other.
			for _, tool := range []string{"x_echo", "x_boom", "x_fail", "x_echo"} {
				if r := g.callAs("ann", "", tool); at(t, r.body, "result", "_meta", "dev.headgate/failure") != "" {
					t.Errorf("%s: %s", tool, r.body)
				}
			}
			hold := func(n int) (done chan reply, cancel func()) {
				ctx, cancel := context.WithCancel(t.Context())
				req := g.request(http.MethodPost, modernBody("1", "tools/call", callParams("x_block", `{"n":1}`)),
					modernHeaders("tools/call", "Mcp-Name: x_block", bearer("ann"))...).WithContext(ctx)
				done = make(chan reply, 1)
				go func() {
					defer close(done)
					if resp, err := g.http.Do(req); err == nil {
						defer resp.Body.Close()
						if body, err := io.ReadAll(resp.Body); err == nil {
							done <- reply{resp.StatusCode, resp.Header, string(body)}
						}
					}
				}()
				awaitServer(t, s, "the call", func() bool { return s.Executions("block") == n })
				return done, cancel
			}
			full := func(what string) {
				t.Helper()
				echo, block := s.Executions("echo"), s.Executions("block")
				over(t, what, g.callAs("ann", "", tt.tool), "concurrency_limited", tt.text, 1, 60_000)
				over(t, what+", other key", g.callAs("ann2", g.openAs("ann"), tt.tool), "concurrency_limited", tt.text, 1, 60_000)
				if s.Executions("echo") != echo || s.Executions("block") != block {
					t.Errorf("%s: a call that was kept back reached the server", what)
				}
			}

			// The client goes away: its place is free once the gateway has noticed.
			done, cancel := hold(1)
			full("while a call runs")
			cancel()
			<-done
			g.awaitFree("t", tt.tool)

			done, cancel = hold(2)
			defer cancel()
			full("while the next call runs")
			if tt.name == "tool" {
				passes(t, "another tool", g.callAs("ann", "", "x_echo"))
			} else if r := g.callAs("bob", "", "x_echo"); tt.bob {
				passes(t, "another caller", r)
			} else {
				over(t, "another caller", r, "concurrency_limited", tt.text, 1, 60_000)
			}
			passes(t, "another team", g.callAs("cat", "", "x_echo"))
			close(b.release)
			passes(t, "the call that was held", <-done)
			g.awaitFree("t", tt.tool)
			passes(t, "after it", g.callAs("ann", "", tt.tool))
		})
	}
}

// awaitFree waits until ann's calls of a tool have their places back.
func (g *gate) awaitFree(team, tool string) {
	g.t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); runtime.Gosched() {
		if release, err := g.limiter.Acquire([]string{team}, authz.NewCaller("ann", []string{team}, nil), tool); err == nil {
			release()
			return
		}
	}
	g.t.Fatal("a call that has ended still has its place")
}
