package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// watched is a tool that waits for the end of its call and says which call was cancelled.
type watched struct {
	started, cancelled chan string // by the argument n
	release            chan struct{}
}

func newWatched() *watched {
	return &watched{started: make(chan string, 16), cancelled: make(chan string, 16), release: make(chan struct{})}
}

func (w *watched) tool() mcptest.Tool {
	return mcptest.Tool{Def: `{"name":"watched","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		n := fmt.Sprint(c.Arguments()["n"])
		w.started <- n
		select {
		case <-w.release:
			c.Structured(string(c.Member("arguments")))
		case <-c.Ctx.Done():
			w.cancelled <- n
		}
	}}
}

// expect returns what comes out of a channel.
func expect(t *testing.T, what string, c <-chan string) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(limit):
		t.Fatalf("waiting for %s: in vain", what)
	}
	return ""
}

// TestCancellation has every kind of client cancel one of two calls, in every way it can, in front of
// every kind of server: that call ends there, without an answer, and the other goes on.
func TestCancellation(t *testing.T) {
	cancelled := func(id string) string {
		return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
	}
	clients := map[string]func(t *testing.T, g *gate, tool string) (cancel func()){
		"modern http, disconnect": func(t *testing.T, g *gate, tool string) func() {
			return g.abortable(modernBody("1", "tools/call", callParams(tool, `{"n":1}`)), modernHeaders("tools/call", "Mcp-Name: "+tool)...)
		},
		"legacy http, disconnect": func(t *testing.T, g *gate, tool string) func() {
			return g.abortable(legacyBody("1", "tools/call", `{`+callParams(tool, `{"n":1}`)+`}`), g.open())
		},
		"legacy http, notification": func(t *testing.T, g *gate, tool string) func() {
			session := g.open()
			answer := make(chan reply, 1)
			go func() { answer <- g.callLegacy(session, "1", tool, `{"n":1}`) }()
			return func() {
				g.post(cancelled("1"), g.open())       // of another session: nothing
				g.post(cancelled(`"1"`), session)      // another id: nothing
				g.post(cancelled(`{"x":[]}`), session) // no id at all
				if r := g.post(cancelled("1"), session); r.status != http.StatusAccepted {
					t.Errorf("%d %s", r.status, r.body)
				}
				if r := <-answer; r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" || r.body != "" {
					t.Errorf("the cancelled call was answered: %d %s", r.status, r.body)
				}
			}
		},
		"modern stdio": func(t *testing.T, g *gate, tool string) func() {
			p := g.pipe()
			p.send(modernBody("1", "tools/call", callParams(tool, `{"n":1}`)))
			return func() { p.send(cancelled("1")); p.silent() }
		},
		"legacy stdio": func(t *testing.T, g *gate, tool string) func() {
			p := g.pipe()
			p.shakeHands()
			p.send(legacyBody(`"a"`, "tools/call", `{`+callParams(tool, `{"n":1}`)+`}`))
			return func() { p.send(cancelled(`"a"`)); p.silent() }
		},
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			w := newWatched()
			kinds := upstreamKinds()
			g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool { return []mcptest.Tool{w.tool()} })
			other := make(chan reply, len(kinds))
			for _, k := range kinds {
				go func() { other <- g.callModern("1", k.id+"_watched", `{"n":2}`) }()
				if got := expect(t, "the other call", w.started); got != "2" {
					t.Fatalf("started: %s", got)
				}
				cancel := client(t, g, k.id+"_watched")
				if got := expect(t, "the call", w.started); got != "1" {
					t.Fatalf("started: %s", got)
				}
				cancel()
				if got := expect(t, "the cancellation at "+k.id, w.cancelled); got != "1" {
					t.Errorf("%s: the call %s was cancelled", k.id, got)
				}
			}
			close(w.release)
			for range kinds {
				if r := <-other; r.status != 200 || at(t, r.message(), "result", "structuredContent") != `{"n":2}` {
					t.Errorf("the other call: %d %s", r.status, r.body)
				}
			}
			if len(w.cancelled) != 0 {
				t.Errorf("%d more were cancelled", len(w.cancelled))
			}
		})
	}
}

// abortable sends a request whose connection the returned function breaks off.
func (g *gate) abortable(body string, header ...string) (abort func()) {
	req := g.request(http.MethodPost, body, header...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := g.http.Do(req.WithContext(ctx)); err == nil {
			resp.Body.Close()
			g.t.Errorf("the call was answered: %d", resp.StatusCode)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// silent checks that nothing was said but the answer to a question of now.
func (p *pipeClient) silent() {
	p.t.Helper()
	p.send(modernBody("99", "server/discover", ""))
	if got := p.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":99,`) {
		p.t.Errorf("got %s", got)
	}
}

// TestCancelledWithoutAStream: a client that takes no stream is told that nothing will come.
func TestCancelledWithoutAStream(t *testing.T) {
	w := newWatched()
	s := &mcptest.Server{Tools: []mcptest.Tool{w.tool()}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session := g.open()
	answer := make(chan reply, 1)
	go func() {
		answer <- g.post(legacyBody("1", "tools/call", `{"name":"x_watched"}`), session, "Accept: application/json")
	}()
	expect(t, "the call", w.started)
	g.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, session)
	if r := <-answer; r.status != http.StatusAccepted || r.body != "" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// reporting is a server whose tool reports, in front of every kind of client.
func reporting() []mcptest.Tool {
	return []mcptest.Tool{{Def: `{"name":"report","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		for i := range 3 {
			c.Progress(float64(i+1), 3, fmt.Sprint(c.Arguments()["n"]))
		}
		c.Structured(string(c.Member("arguments")))
	}}}
}

// TestProgress: progress comes before the answer of its own request, with the client's own token as the
// client wrote it.
func TestProgress(t *testing.T) {
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool { return reporting() })
	session, pipe := g.open(), g.pipe()
	for _, k := range kinds {
		for i, token := range []string{`"a"`, `7`, `1.0`, `9007199254740993`, `"\u00e5"`, `""`} {
			n := fmt.Sprint(i)
			want := ""
			for step := 1; step <= 3; step++ {
				want += fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":3,"message":"%s"}}`+"\n", token, step, n)
			}
			meta := `"progressToken":` + token
			args := `{"n":` + n + `}`
			modern := g.callModern("1", k.id+"_report", args, meta)
			legacy := g.post(legacyBody("1", "tools/call", `{`+callParams(k.id+"_report", args)+`,"_meta":{`+meta+`}}`), session)
			for client, r := range map[string]reply{"modern": modern, "legacy": legacy} {
				events := r.events()
				if len(events) != 4 || strings.Join(events[:3], "\n")+"\n" != want || at(t, events[3], "result", "structuredContent") != args {
					t.Errorf("%s to %s, token %s:\n%s\nwant %s", k.id, client, token, r.body, want)
				}
				if r.header.Get("X-Accel-Buffering") != "no" || r.header.Get("Content-Type") != "text/event-stream" {
					t.Errorf("%s: %v", client, r.header)
				}
			}
			pipe.send(modernBody("1", "tools/call", callParams(k.id+"_report", args), meta))
			got := pipe.next() + "\n" + pipe.next() + "\n" + pipe.next() + "\n"
			if got != want || at(t, pipe.next(), "result", "structuredContent") != args {
				t.Errorf("%s to stdio:\n%swant %s", k.id, got, want)
			}
		}
		// Without a token nothing is reported, and the answer stays plain; and so it does for a client
		// that takes nothing else.
		plain := g.callModern("1", k.id+"_report", "{}")
		only := g.post(modernBody("1", "tools/call", callParams(k.id+"_report", "{}"), `"progressToken":1`),
			modernHeaders("tools/call", "Mcp-Name: "+k.id+"_report", "Accept: application/json")...)
		for client, r := range map[string]reply{"without a token": plain, "JSON only": only} {
			if r.header.Get("Content-Type") != "application/json" || at(t, r.body, "result", "structuredContent") != "{}" {
				t.Errorf("%s, %s: %s %s", k.id, client, r.header.Get("Content-Type"), r.body)
			}
		}
	}
}

// TestProgressOfTwoCalls: calls that run at the same time, with the same id and the same token, hear
// of themselves alone.
func TestProgressOfTwoCalls(t *testing.T) {
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool { return reporting() })
	for _, k := range kinds {
		answers := make(chan reply, 16)
		for n := range cap(answers) {
			go func() {
				answers <- g.callModern("1", k.id+"_report", fmt.Sprintf(`{"n":%d}`, n), `"progressToken":"same"`)
			}()
		}
		for range cap(answers) {
			events := (<-answers).events()
			if len(events) != 4 {
				t.Fatalf("%s: %d events: %v", k.id, len(events), events)
			}
			n := at(t, events[3], "result", "structuredContent", "n")
			for _, e := range events[:3] {
				if at(t, e, "params", "message") != `"`+n+`"` {
					t.Errorf("%s: call %s heard %s", k.id, n, e)
				}
			}
		}
	}
}

// TestLogMessages: log messages reach the request that asked for them, from its level up.
func TestLogMessages(t *testing.T) {
	kinds := upstreamKinds()
	for _, k := range kinds {
		k.server.Capabilities = `{"logging":{}}`
	}
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool {
		return []mcptest.Tool{{Def: `{"name":"log","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			for _, level := range []string{"debug", "info", "warning", "error"} {
				c.Notify("notifications/message", `{"level":"`+level+`","logger":"l","data":{"x":1.0}}`)
			}
			c.Notify("notifications/message", `{"level":"loud","data":1}`)
			c.Text("done")
		}}}
	})
	want := []string{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"l","data":{"x":1.0}}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"l","data":{"x":1.0}}}`}
	session, quiet := g.open(), g.open()
	g.post(legacyBody("1", "logging/setLevel", `{"level":"warning"}`), session)
	for _, k := range kinds {
		tool := k.id + "_log"
		for client, r := range map[string]reply{
			"modern": g.callModern("1", tool, "{}", `"io.modelcontextprotocol/logLevel":"warning"`),
			"legacy": g.callLegacy(session, "1", tool, "{}"),
		} {
			if events := r.events(); len(events) != 3 || events[0] != want[0] || events[1] != want[1] {
				t.Errorf("%s to %s: %s", k.id, client, r.body)
			}
		}
		for client, r := range map[string]reply{"modern": g.callModern("1", tool, "{}"), "legacy": g.callLegacy(quiet, "1", tool, "{}")} {
			if r.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s to %s that asked for nothing: %s", k.id, client, r.body)
			}
		}
	}
}

// TestNothingAfterTheAnswer: what a server says about a call that it has answered goes nowhere.
func TestNothingAfterTheAnswer(t *testing.T) {
	kinds := upstreamKinds()
	late := make(chan struct{}, 16)
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool {
		return append(mcptest.Builtin("echo"), mcptest.Tool{Def: `{"name":"late","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			c.Progress(1, 0, "")
			c.Text("done")
			c.Progress(2, 0, "")
			c.Result(`{"content":[],"again":true}`)
			late <- struct{}{}
		}})
	})
	pipe := g.pipe()
	for _, k := range kinds {
		r := g.callModern("1", k.id+"_late", "{}", `"progressToken":1`)
		if events := r.events(); len(events) != 2 || !strings.Contains(events[1], "done") {
			t.Errorf("%s: %s", k.id, r.body)
		}
		<-late
		pipe.send(modernBody("1", "tools/call", callParams(k.id+"_late", "{}"), `"progressToken":1`))
		progress, answer := pipe.next(), pipe.next()
		if at(t, progress, "params", "progress") != "1" || !strings.Contains(answer, "done") {
			t.Errorf("%s: %s %s", k.id, progress, answer)
		}
		<-late
		// The server has said it all; an answer that comes behind it shows that none of it passed.
		pipe.call("2", modernBody("2", "tools/call", callParams(k.id+"_echo", "{}")))
		pipe.silent()
	}
}

// TestClientThatDoesNotRead floods clients that read nothing: the server's call ends all the same, and
// other clients are served.
func TestClientThatDoesNotRead(t *testing.T) {
	flooded := make(chan string, 2)
	tools := append(mcptest.Builtin("echo"), mcptest.Tool{Def: `{"name":"flood","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		text := strings.Repeat("x", 8<<10)
		for i := range 800 {
			c.Progress(float64(i+1), 0, text)
		}
		c.Text("done")
		flooded <- "done"
	}})
	s := &mcptest.Server{Tools: tools}
	g := launch(t, parseConfig(t, map[string]string{"x": embeddedEntry}), Options{Embedded: map[string]upstream.ServeFunc{"x": serveLines(s)}})
	body := modernBody("1", "tools/call", `"name":"x_flood"`, `"progressToken":1`)
	t.Run("http", func(t *testing.T) {
		conn := g.dial()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprint(conn, postHead(len(body), strings.Join(modernHeaders("tools/call", "Mcp-Name: x_flood"), "\r\n")+"\r\n")+body)
		expect(t, "the end of the flood", flooded)
		if r := g.callModern("2", "x_echo", `{"a":1}`); at(t, r.body, "result", "structuredContent") != `{"a":1}` {
			t.Errorf("%s", r.body)
		}
		conn.Close()
	})
	t.Run("stdio", func(t *testing.T) {
		in, host := io.Pipe()
		deaf, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- g.ServeStdio(context.Background(), authz.Anonymous(), in, out) }()
		fmt.Fprintln(host, body)
		expect(t, "the end of the flood", flooded)
		if got := g.pipe().call("2", modernBody("2", "tools/call", callParams("x_echo", `{"a":1}`))); at(t, got, "result", "structuredContent") != `{"a":1}` {
			t.Errorf("%s", got)
		}
		deaf.Close() // the host is gone
		select {
		case err := <-done:
			if err == nil {
				t.Error("no error although the host is gone")
			}
		case <-time.After(limit):
			t.Error("ServeStdio goes on although the host is gone")
		}
		host.Close()
	})
}
