package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

func TestVersionNegotiation(t *testing.T) {
	g, _ := echoGate(t)
	for asked, want := range map[string]string{
		`"2024-11-05"`: `"2024-11-05"`,
		`"2025-03-26"`: `"2025-03-26"`,
		`"2025-06-18"`: `"2025-06-18"`,
		`"2025-11-25"`: `"2025-11-25"`,
		`"2024-10-07"`: `"2025-11-25"`,
		`"2026-07-28"`: `"2025-11-25"`, // there is no session in that version
		`"2099-01-01"`: `"2025-11-25"`,
		`"latest"`:     `"2025-11-25"`,
		`""`:           `"2025-11-25"`,
		`7`:            "",
		`null`:         "",
	} {
		t.Run(asked, func(t *testing.T) {
			body := strings.Replace(initializeBody, `"2025-11-25"`, asked, 1)
			r := g.post(body)
			if got := at(t, r.body, "result", "protocolVersion"); r.status != 200 || got != want {
				t.Errorf("%d %s", r.status, r.body)
			}
			if opened := r.header.Get(sessionHeader) != ""; opened != (want != "") {
				t.Errorf("session %q", r.header.Get(sessionHeader))
			}
			if got := g.pipe().call(`"init"`, body); at(t, got, "result", "protocolVersion") != want {
				t.Errorf("stdio: %s", got)
			}
			if want == "" && at(t, r.body, "error", "code") != "-32602" {
				t.Errorf("%s", r.body)
			}
		})
	}
}

func TestSessionRules(t *testing.T) {
	g, s := echoGate(t)
	session := g.open()
	id := strings.TrimPrefix(session, sessionHeader+": ")
	if len(id) < 32 || strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' }) {
		t.Errorf("session id %q", id)
	}
	if other := g.open(); other == session {
		t.Errorf("two sessions have the id %q", other)
	}
	list := legacyBody("1", "tools/list", "")
	tests := []struct {
		name, method, body string
		header             []string
		status             int
	}{
		{"in session", "POST", list, []string{session}, 200},
		{"with its version", "POST", list, []string{session, "Mcp-Protocol-Version: 2025-11-25"}, 200},
		{"with an older version", "POST", list, []string{session, "Mcp-Protocol-Version: 2024-11-05"}, 200},
		{"with an unknown version", "POST", list, []string{session, "Mcp-Protocol-Version: 2025-01-01"}, 400},
		{"with two versions", "POST", list, []string{session, "Mcp-Protocol-Version: 2025-11-25", "Mcp-Protocol-Version: 2025-11-25"}, 400},
		{"notification", "POST", `{"jsonrpc":"2.0","method":"notifications/whatever"}`, []string{session}, 202},
		{"response", "POST", `{"jsonrpc":"2.0","id":1,"result":{}}`, []string{session}, 202},
		{"no session", "POST", list, nil, 400},
		{"notification without session", "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 400},
		{"two sessions", "POST", list, []string{session, session}, 400},
		{"unknown session", "POST", list, []string{sessionHeader + ": " + strings.Repeat("A", len(id))}, 404},
		{"other case", "POST", list, []string{sessionHeader + ": " + strings.ToLower(id)}, 404},
		{"long session", "POST", list, []string{sessionHeader + ": " + strings.Repeat("A", 10_000)}, 404},
		{"odd session", "POST", list, []string{sessionHeader + ": a&b=c;d\te"}, 404},
		{"GET unknown", "GET", "", []string{sessionHeader + ": x"}, 404},
		{"GET of JSON", "GET", "", []string{session, "Accept: application/json"}, 406},
		{"DELETE unknown", "DELETE", "", []string{sessionHeader + ": x"}, 404},
		{"DELETE with an unknown version", "DELETE", "", []string{session, "Mcp-Protocol-Version: 2025-01-01"}, 400},
		{"DELETE", "DELETE", "", []string{session}, 204},
		{"after DELETE", "POST", list, []string{session}, 404},
		{"GET after DELETE", "GET", "", []string{session}, 404},
		{"DELETE after DELETE", "DELETE", "", []string{session}, 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if r := g.do(g.request(tt.method, tt.body, tt.header...)); r.status != tt.status {
				t.Errorf("%d, want %d: %s", r.status, tt.status, r.body)
			}
		})
	}
	if n := s.Count("tools/list"); n != 1 {
		t.Errorf("lists of clients made %d upstream", n-1)
	}
}

func TestRestart(t *testing.T) {
	g, _ := echoGate(t)
	old := g.open()
	again, _ := echoGate(t)
	if r := again.post(legacyBody("1", "tools/list", ""), old); r.status != 404 {
		t.Errorf("an old session: %d %s", r.status, r.body)
	}
	r := again.post(initializeBody, old)
	fresh := r.header.Get(sessionHeader)
	if r.status != 200 || fresh == "" || strings.HasSuffix(old, fresh) {
		t.Errorf("initialize in an old session: %d, session %q", r.status, fresh)
	}
	if r := again.post(legacyBody("1", "tools/list", ""), sessionHeader+": "+fresh); r.status != 200 {
		t.Errorf("the fresh session: %d %s", r.status, r.body)
	}
}

func TestSecondGetReplacesTheFirst(t *testing.T) {
	g, _ := echoGate(t)
	session := g.open()
	first := g.get(session)
	second := g.get(session)
	if got := first.next(); got != "" {
		t.Errorf("the first stream got %s", got)
	}
	g.disturb()
	if got := second.next(); got != listChanged {
		t.Errorf("the second stream got %q", got)
	}
	if r := g.do(g.request("DELETE", "", session)); r.status != 204 {
		t.Errorf("DELETE: %d", r.status)
	}
	if got := second.next(); got != "" {
		t.Errorf("after DELETE the stream got %s", got)
	}
}

func TestOtherSubject(t *testing.T) {
	g, _ := echoGate(t)
	session := g.open()
	id := strings.TrimPrefix(session, sessionHeader+": ")
	if g.sessions.get(id, guest{caller: authz.Anonymous()}.owner()) == nil || g.sessions.get(id, "somebody else") != nil {
		t.Error("a session belongs to its subject alone")
	}
	stranger, _ := g.admit(authz.Caller{Subject: "somebody else"}, "")
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		foreign, unknown := httptest.NewRecorder(), httptest.NewRecorder()
		for w, header := range map[*httptest.ResponseRecorder]string{foreign: session, unknown: sessionHeader + ": x"} {
			r := g.request(method, legacyBody("1", "tools/list", ""), header)
			switch method {
			case http.MethodPost:
				g.servePost(w, r, stranger)
			case http.MethodGet:
				g.serveGet(w, r, stranger)
			case http.MethodDelete:
				g.serveDelete(w, r, stranger)
			}
		}
		if foreign.Code != 404 || foreign.Code != unknown.Code || foreign.Body.String() != unknown.Body.String() {
			t.Errorf("%s: %d %s, for an unknown one %d %s", method, foreign.Code, foreign.Body, unknown.Code, unknown.Body)
		}
	}
	if r := g.post(legacyBody("1", "tools/list", ""), session); r.status != 200 {
		t.Errorf("the owner: %d %s", r.status, r.body)
	}
}

// blocker is a tool that waits until it is released, and then answers its arguments.
type blocker struct {
	release chan struct{}
	tool    mcptest.Tool
}

func newBlocker() *blocker {
	b := &blocker{release: make(chan struct{})}
	b.tool = mcptest.Tool{Def: `{"name":"block","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		select {
		case <-b.release:
			c.Structured(string(c.Member("arguments")))
		case <-c.Ctx.Done():
		}
	}}
	return b
}

func TestIdleSessions(t *testing.T) {
	b := newBlocker()
	s := &mcptest.Server{Tools: []mcptest.Tool{b.tool}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	idle, calling, listening := g.open(), g.open(), g.open()
	stream := g.get(listening)
	called := make(chan reply, 1)
	go func() { called <- g.callLegacy(calling, "1", "x_block", "{}") }()
	awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })

	g.sessions.sweep(time.Hour)
	if n := g.sessions.count(); n != 3 {
		t.Errorf("%d sessions after an early sweep", n)
	}
	g.sessions.sweep(0)
	if n := g.sessions.count(); n != 2 {
		t.Errorf("%d sessions after the sweep, want the one with a call and the one with a stream", n)
	}
	if r := g.post(legacyBody("1", "tools/list", ""), idle); r.status != 404 {
		t.Errorf("the idle session: %d %s", r.status, r.body)
	}
	close(b.release)
	if r := <-called; r.status != 200 || at(t, r.body, "result") == "" {
		t.Errorf("the call: %d %s", r.status, r.body)
	}
	g.disturb()
	if got := stream.next(); got != listChanged {
		t.Errorf("the stream: %s", got)
	}
}

// TestOneIDForTwoRequests: a client that uses one id for overlapping requests gets the right answer to
// each, by its HTTP exchange.
func TestOneIDForTwoRequests(t *testing.T) {
	b := newBlocker()
	s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), b.tool)}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session := g.open()
	first, second := make(chan reply, 1), make(chan reply, 1)
	go func() { first <- g.callLegacy(session, "1", "x_block", `{"n":1}`) }()
	go func() { second <- g.callLegacy(session, "1", "x_block", `{"n":2}`) }()
	awaitServer(t, s, "both calls", func() bool { return s.Executions("block") == 2 })
	if r := g.callLegacy(session, "1", "x_echo", `{"n":3}`); at(t, r.body, "result", "structuredContent") != `{"n":3}` {
		t.Errorf("a third: %s", r.body)
	}
	close(b.release)
	if r := <-first; at(t, r.body, "result", "structuredContent") != `{"n":1}` {
		t.Errorf("the first: %s", r.body)
	}
	if r := <-second; at(t, r.body, "result", "structuredContent") != `{"n":2}` {
		t.Errorf("the second: %s", r.body)
	}
}

// TestSessionForgetsRequests: what has ended is forgotten, although another request with its id goes on.
func TestSessionForgetsRequests(t *testing.T) {
	s := newSession("x")
	cancelled := map[string]int{}
	begin := func(id wire.ID, name string) func() { return s.begin(id, func() { cancelled[name]++ }) }
	endA := begin("1", "a")
	for range 100 {
		endB := begin("1", "b")
		endA()
		endA = endB
	}
	endC := begin(`"1"`, "c")
	if n := len(s.inflight["1"]); n != 1 {
		t.Errorf("%d requests are held for one", n)
	}
	s.cancel("1")
	s.cancel("2")
	if fmt.Sprint(cancelled) != "map[b:1]" {
		t.Errorf("cancelled: %v", cancelled)
	}
	endA()
	endC()
	if len(s.inflight) != 0 || s.running != 0 {
		t.Errorf("%d ids and %d requests are held for none", len(s.inflight), s.running)
	}
}

// TestManySessions: clients that never end their sessions leave nothing behind.
func TestManySessions(t *testing.T) {
	g, _ := echoGate(t)
	h := g.Handler()
	before := runtime.NumGoroutine()
	for range 5000 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(initializeBody))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if n := g.Status().Sessions; n != 5000 {
		t.Errorf("%d sessions", n)
	}
	if n := runtime.NumGoroutine(); n > before+100 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	g.sessions.sweep(0)
	if n := g.Status().Sessions; n != 0 {
		t.Errorf("%d sessions after the sweep", n)
	}
}

func TestLoggingLevel(t *testing.T) {
	g, _ := echoGate(t)
	session := g.open()
	for params, code := range map[string]string{`{"level":"warning"}`: "", `{"level":"loud"}`: "-32602", `{"level":1}`: "-32602", `{}`: "-32602"} {
		r := g.post(legacyBody("1", "logging/setLevel", params), session)
		if r.status != 200 || at(t, r.body, "error", "code") != code || code == "" && at(t, r.body, "result") != "{}" {
			t.Errorf("%s: %d %s", params, r.status, r.body)
		}
	}
}
