package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// FuzzHeaders sends arbitrary headers with a good request. Whatever they say, the answer can be read and is
// never that the server is at fault; and nothing is called without the right key, or for a foreign page.
func FuzzHeaders(f *testing.F) {
	s := &mcptest.Server{Forgetful: true, Tools: mcptest.Builtin("echo")}
	g := launch(f, parseConfig(f, map[string]string{"x": entry(s.StartHTTP(f))}, keys(keyEntry("alice"))), Options{})
	handler := g.Handler()
	const key = "Bearer key-of-alice"
	for _, seed := range []struct{ authorization, host, origin, accept, content, version, method, name, session string }{
		{key, "localhost:8080", "", "application/json, text/event-stream", "application/json", "2026-07-28", "tools/call", "x_echo", ""},
		{key, "[::1]", "http://localhost:1", "*/*;q=0.1", "application/json; charset=utf-8", "2026-07-28", "tools/call", "=?base64?eF9lY2hv?=", ""},
		{"bearer key-of-alice ", "127.0.0.1.evil.example", "null", "text/*;q=0", "text/plain", "2025-11-25", "tools/list", "", "x"},
		{"Basic a2V5", "", "http://evil.example", "", "", "", "", "=?base64?", strings.Repeat("s", 5000)},
		{"Bearer a.b.c", "localhost", "", ",;=", "application/json;", "\xff", "\x00", "ü", "\x7f"},
	} {
		f.Add(seed.authorization, seed.host, seed.origin, seed.accept, seed.content, seed.version, seed.method, seed.name, seed.session)
	}
	body := modernBody("1", "tools/call", callParams("x_echo", "{}"))
	f.Fuzz(func(t *testing.T, authorization, host, origin, accept, content, version, method, name, session string) {
		req := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		req.Host = host
		for k, v := range map[string]string{"Authorization": authorization, "Origin": origin, "Accept": accept, "Content-Type": content,
			"Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name, sessionHeader: session} {
			if v != "" {
				req.Header[http.CanonicalHeaderKey(k)] = []string{v}
			}
		}
		before := s.Executions("echo")
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		ran := s.Executions("echo") - before
		if rec.Code >= 500 {
			t.Errorf("HTTP %d: %s", rec.Code, rec.Body)
		}
		scheme, credential, _ := strings.Cut(authorization, " ")
		if ran > 0 && (!strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(credential) != "key-of-alice" || strings.Contains(origin, "evil")) {
			t.Errorf("called with %q for %q", authorization, origin)
		}
		if kind := rec.Header().Get("Content-Type"); strings.HasPrefix(kind, "application/json") && rec.Body.Len() > 0 {
			if _, err := wire.Parse(rec.Body.Bytes()); err != nil {
				t.Errorf("the answer is no message: %v: %s", err, rec.Body)
			}
		}
	})
}
