package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// tellings counts the list_changed notifications on the stream of a session, and ends the session: as
// many as are wanted are waited for, and one more that the test causes itself and undoes afterwards; what
// else there was comes before the end.
func (s *stream) tellings(g *gate, session string, want int) int {
	s.t.Helper()
	for range want {
		s.next()
	}
	g.disturb()
	s.next()
	if r := g.do(g.request(http.MethodDelete, "", session)); r.status != http.StatusNoContent {
		s.t.Errorf("DELETE: %d %s", r.status, r.body)
	}
	n := want
	for s.next() != "" {
		n++
	}
	g.disturb()
	return n
}

func TestReload(t *testing.T) {
	a := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	b := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
	aHTTP, bHTTP := a.StartHTTP(t), b.StartHTTP(t)
	g := launch(t, parseConfig(t, map[string]string{"a": entry(aHTTP)}), Options{})
	list := func() string { return fmt.Sprint(toolNames(t, g.modern("1", "tools/list", "").body)) }
	call := func(tool string) string {
		return at(t, g.callModern("1", tool, `{"q":1}`).body, "result", "structuredContent")
	}
	unknown := func(tool string) bool {
		return strings.Contains(g.callModern("1", tool, "{}").body, `"Unknown tool: `+tool+`"`)
	}

	steps := []struct {
		name    string
		entries map[string]string
		wait    string // for this tool
		list    string
		works   string
		gone    string
	}{
		{"add", map[string]string{"a": entry(aHTTP), "b": entry(bHTTP)}, "b_echo", "[a_echo b_echo]", "b_echo", "c_echo"},
		{"prefix", map[string]string{"a": entry(aHTTP, `"prefix":"z"`), "b": entry(bHTTP)}, "", "[b_echo z_echo]", "z_echo", "a_echo"},
		{"disable", map[string]string{"a": entry(aHTTP, `"prefix":"z"`), "b": entry(bHTTP, `"disabled":true`)}, "", "[z_echo]", "z_echo", "b_echo"},
		{"enable", map[string]string{"a": entry(aHTTP, `"prefix":"z"`), "b": entry(bHTTP)}, "b_echo", "[b_echo z_echo]", "b_echo", "a_echo"},
		{"remove", map[string]string{"b": entry(bHTTP)}, "", "[b_echo]", "b_echo", "z_echo"},
		{"nothing", map[string]string{"b": entry(bHTTP)}, "", "[b_echo]", "b_echo", "z_echo"},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			before := list()
			session := g.open()
			stream := g.get(session)
			g.Apply(parseConfig(t, tt.entries))
			if tt.wait != "" {
				g.awaitTool(tt.wait, true)
			}
			if got := list(); got != tt.list {
				t.Errorf("list %s, want %s", got, tt.list)
			}
			if got := call(tt.works); got != `{"q":1}` {
				t.Errorf("%s: %s", tt.works, got)
			}
			if !unknown(tt.gone) {
				t.Errorf("%s is still known", tt.gone)
			}
			want := 1
			if before == tt.list {
				want = 0
			}
			if got := stream.tellings(g, session, want); got != want {
				t.Errorf("%d list_changed, want %d", got, want)
			}
		})
	}
	// One connection served the first server from the beginning to its removal, whatever its prefix.
	if n := a.Count("server/discover"); n != 1 {
		t.Errorf("a was discovered %d times", n)
	}
	if n := b.Count("initialize"); n != 2 {
		t.Errorf("b was initialized %d times, want once for each time it was added", n)
	}
}

// TestReloadToAnotherURL: the old server serves until the new one has been tried.
func TestReloadToAnotherURL(t *testing.T) {
	hold := make(chan struct{})
	reply := func(text string) []mcptest.Tool {
		return []mcptest.Tool{{Def: `{"name":"who","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Text(text) }}}
	}
	old := &mcptest.Server{Tools: reply("old")}
	fresh := &mcptest.Server{Tools: reply("fresh"), OnRequest: func(c *mcptest.Call) bool {
		if c.Method != "tools/list" {
			return false
		}
		select {
		case <-hold:
		case <-c.Ctx.Done():
		}
		return false
	}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(old.StartHTTP(t))}), Options{})
	g.Apply(parseConfig(t, map[string]string{"x": entry(fresh.StartHTTP(t))}))
	awaitServer(t, fresh, "the new server to be asked", func() bool { return fresh.Count("tools/list") == 1 })
	if r := g.callModern("1", "x_who", "{}"); !strings.Contains(r.body, `"old"`) {
		t.Errorf("meanwhile: %s", r.body)
	}
	stale := g.snapshot.Load()
	close(hold)
	g.await("the new server", func(s *snapshot) bool { return s.tool("x_who").owner != stale.tool("x_who").owner })
	if r := g.callModern("1", "x_who", "{}"); !strings.Contains(r.body, `"fresh"`) {
		t.Errorf("then: %s", r.body)
	}
	// A request that was on its way to the old one when it went finds the new one.
	retired := stale.tool("x_who").owner
	g.retired.Wait()
	if got := retired.Status().State; got != upstream.Stopped {
		t.Errorf("the old one is %s", got)
	}
	late := func() *exchange {
		at := guest{caller: authz.Anonymous(), s: stale, v: stale.shown()}
		return &exchange{guest: at, era: upstream.Modern, method: "tools/call", params: object(t, `{"name":"x_who"}`)}
	}
	if a := g.callTool(t.Context(), late()); !strings.Contains(string(a.result), `"fresh"`) {
		t.Errorf("on its way: %s %s", a.result, a.err)
	}
	g.Apply(parseConfig(t, nil))
	if a := g.callTool(t.Context(), late()); !strings.Contains(string(a.err), "Unknown tool: x_who") {
		t.Errorf("on its way to a server that was removed: %s %s", a.result, a.err)
	}
}

// TestReloadKeepsThePlaceOfACall: a call that finds its owner gone and goes to the next one is one call for the limits of
// its team. The audit log has one more record of it only where the next one is another server.
func TestReloadKeepsThePlaceOfACall(t *testing.T) {
	for next, records := range map[string]int{"x": 1, "y": 2} {
		t.Run("to "+next, func(t *testing.T) {
			file, auditing := auditConfig(t, `,"required":true`)
			config := func(id string, s *mcptest.Server) *configs.Config {
				return parseConfig(t, map[string]string{id: entry(s.StartHTTP(t), `"prefix":"p"`)}, auditing, keys(keyEntry("ann", "t")),
					`"teams":{"t":{"upstreams":["`+id+`"],"limits":{"calls_per_minute":1,"concurrent":1},"rules":[{"allow":["*"]}]}}`)
			}
			fresh := &mcptest.Server{Tools: mcptest.Builtin("echo")}
			g := launch(t, config("x", &mcptest.Server{Tools: mcptest.Builtin("echo")}), Options{})
			ann := authz.NewCaller("ann", []string{"t"}, nil)
			stale := g.snapshot.Load()
			view := stale.viewFor(ann, "")
			was, ok := view.find("p_echo")
			if !ok {
				t.Fatal("the tool is not there")
			}
			if err := g.Apply(config(next, fresh)); err != nil {
				t.Fatal(err)
			}
			g.settle()
			g.await("the new server", func(s *snapshot) bool {
				now, ok := s.viewFor(ann, "").find("p_echo")
				return ok && now.owner != was.owner
			})
			g.retired.Wait()

			x := &exchange{guest: guest{caller: ann, s: stale, v: view}, era: upstream.Modern, method: "tools/call",
				params: object(t, `{"name":"p_echo","arguments":{"n":1}}`)}
			a := g.callTool(t.Context(), x)
			if at(t, string(a.result), "structuredContent") != `{"n":1}` || fresh.Executions("echo") != 1 {
				t.Errorf("%s %s", a.result, a.err)
			}
			x.audit.end(x, verdict{outcome: "ok"})
			told, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(told), `"event":"call"`); n != records || !strings.Contains(string(told), `"upstream":"`+next+`"`) {
				t.Errorf("%d records of the call:\n%s", n, told)
			}
			passes := func() bool {
				release, over := g.limiter.Acquire([]string{"t"}, ann, "p_echo")
				if over == nil {
					release()
				}
				return over == nil || over.Kind == authz.LimitRate
			}
			if !passes() {
				t.Error("the call has ended and still has its place")
			}
		})
	}
}

// TestReloadOvertaken: a replacement that a newer configuration overtakes never serves.
func TestReloadOvertaken(t *testing.T) {
	old := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	never := &mcptest.Server{Tools: mcptest.Builtin("never"), OnRequest: func(c *mcptest.Call) bool { <-c.Ctx.Done(); return true }}
	cfg := parseConfig(t, map[string]string{"x": entry(old.StartHTTP(t))})
	g := launch(t, cfg, Options{})
	g.Apply(parseConfig(t, map[string]string{"x": entry(never.StartHTTP(t))}))
	awaitServer(t, never, "the replacement to be asked", func() bool { return never.Count("server/discover") == 1 })
	g.Apply(cfg)
	g.settle()
	g.retired.Wait()
	if r := g.callModern("1", "x_echo", `{"a":1}`); at(t, r.body, "result", "structuredContent") != `{"a":1}` {
		t.Errorf("%s", r.body)
	}
	if n := old.Count("server/discover"); n != 1 {
		t.Errorf("the server that stayed was discovered %d times", n)
	}
}

// TestRemovedWithACallInFlight: the call finishes although its server has left the list.
func TestRemovedWithACallInFlight(t *testing.T) {
	b := newBlocker()
	s := &mcptest.Server{Tools: []mcptest.Tool{b.tool}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	called := make(chan reply, 1)
	go func() { called <- g.callModern("1", "x_block", `{"n":1}`) }()
	awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })
	g.Apply(parseConfig(t, nil))
	if n := len(g.tools()); n != 0 {
		t.Errorf("%d tools are listed", n)
	}
	close(b.release)
	if r := <-called; at(t, r.body, "result", "structuredContent") != `{"n":1}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	g.retired.Wait()
}

// TestRemovedWhileConnecting: a server that was removed before it had answered does not come back when
// it does.
func TestRemovedWhileConnecting(t *testing.T) {
	asked, answer, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := &mcptest.Server{Tools: mcptest.Builtin("ghost")}
	serve := func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		defer close(ended)
		close(asked)
		<-answer
		return s.ServeLines(ctx, in, out)
	}
	g := launchUnsettled(t, parseConfig(t, map[string]string{"slow": embeddedEntry}), Options{Embedded: map[string]upstream.ServeFunc{"slow": serve}})
	<-asked
	g.Apply(parseConfig(t, nil))
	g.settle()
	close(answer)
	<-ended
	g.retired.Wait()
	g.rebuild()
	if tools, st := g.tools(), g.Status(); len(tools) != 0 || len(st.Upstreams) != 0 {
		t.Errorf("tools %v, status %+v", tools, st)
	}
}

// TestReloadBeforeAndAfterRun: a configuration may come at any time.
func TestReloadBeforeAndAfterRun(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	h := s.StartHTTP(t)
	one, other := parseConfig(t, map[string]string{"x": entry(h)}), parseConfig(t, map[string]string{"x": entry(h, `"call_timeout":"7s"`)})
	g := makeGateway(t, one, Options{})
	g.Apply(other)
	gate := serve(t, g)
	gate.settle()
	gate.awaitTool("x_echo", true)
	gate.stop()
	for _, cfg := range []*configs.Config{one, other, configs.Default()} {
		g.Apply(cfg)
	}
	if n := len(gate.tools()); n != 0 {
		t.Errorf("%d tools of no server", n)
	}
}
