package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
)

// TestOneRequestForOneCall: in steady state a call costs the server exactly that call, and a list
// costs it nothing.
func TestOneRequestForOneCall(t *testing.T) {
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool { return mcptest.Builtin("echo", "boom", "fail") })
	session := g.open()
	for _, k := range kinds {
		before := len(k.server.Requests())
		for range 3 {
			g.modern("1", "tools/list", "")
			g.modern("1", "server/discover", "")
			g.post(legacyBody("1", "tools/list", ""), session)
			for _, tool := range []string{"echo", "boom", "fail"} {
				g.callModern("1", k.id+"_"+tool, "{}")
				g.callLegacy(session, "1", k.id+"_"+tool, "{}")
			}
		}
		var methods []string
		for _, r := range k.server.Requests()[before:] {
			methods = append(methods, r.Method)
		}
		if want := slices.Repeat([]string{"tools/call"}, 18); !slices.Equal(methods, want) {
			t.Errorf("%s was sent %v", k.id, methods)
		}
	}
}

// TestHeadersAreNotForwarded: what a client sends in its headers stays on its own hop, but for what
// the configuration lets through.
func TestHeadersAreNotForwarded(t *testing.T) {
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		t.Run(era, func(t *testing.T) {
			s := &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")}
			g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"headers":{"Authorization":"Bearer of-headgate"}`, `"forward_headers":["X-Tenant"]`)}), Options{})
			session := g.open()
			r := g.post(legacyBody("1", "tools/call", `{"name":"x_echo"}`), session, "Mcp-Protocol-Version: 2024-11-05", "Authorization: Bearer of-the-client",
				"Cookie: a=b", "X-Foo: bar", "X-Tenant: blue", "Last-Event-ID: 7", "Mcp-Method: tools/evil", "Mcp-Name: evil", "Mcp-Param-Evil: evil",
				"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1")
			if r.status != http.StatusOK || at(t, r.body, "result") == "" {
				t.Fatalf("%d %s", r.status, r.body)
			}
			requests := s.Requests()
			h := requests[len(requests)-1].Header
			allowed := []string{"Accept", "Accept-Encoding", "Authorization", "Content-Length", "Content-Type", "Mcp-Method", "Mcp-Name",
				"Mcp-Protocol-Version", "Mcp-Session-Id", "User-Agent", "X-Tenant"}
			for name := range h {
				if !slices.Contains(allowed, name) {
					t.Errorf("%s: %s reached the server", name, h.Get(name))
				}
			}
			if h.Get("Authorization") != "Bearer of-headgate" || h.Get("X-Tenant") != "blue" || h.Get("Mcp-Name") == "evil" ||
				h.Get("Mcp-Protocol-Version") == "2024-11-05" || strings.HasSuffix(session, h.Get("Mcp-Session-Id")) && h.Get("Mcp-Session-Id") != "" {
				t.Errorf("the server got %v", h)
			}
		})
	}
}

func TestAdmin(t *testing.T) {
	up := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), mcptest.Tool{Def: `{"name":"bad","inputSchema":{"type":"string"}}`})}
	down := (&mcptest.Server{}).StartHTTP(t)
	down.Stop()
	g := launch(t, parseConfig(t, map[string]string{
		"up":   entry(up.StartHTTP(t), `"headers":{"Authorization":"Bearer top-secret"}`),
		"down": entry(down, `"headers":{"Authorization":"Bearer top-secret"}`)}), Options{})
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		g.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	if w := get("/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("healthz: %d %s", w.Code, w.Body)
	}
	if w := get("/readyz"); w.Code != 200 || w.Body.String() != "ready\n" {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	w := get("/status")
	var status struct {
		Ready     bool
		Tools     int
		Upstreams []struct{ ID, State, Error string }
		Findings  []struct{ Server, Tool, Rule string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || strings.Contains(w.Body.String(), "top-secret") {
		t.Fatalf("status: %v %s", err, w.Body)
	}
	if !status.Ready || status.Tools != 1 || len(status.Upstreams) != 2 || status.Upstreams[0].ID != "down" || status.Upstreams[0].Error == "" || status.Upstreams[1].State != "up" {
		t.Errorf("status: %s", w.Body)
	}
	if fmt.Sprint(status.Findings) != "[{up bad input_schema}]" {
		t.Errorf("findings: %v", status.Findings)
	}
	if w := get("/mcp"); w.Code != 404 {
		t.Errorf("/mcp on the admin address: %d", w.Code)
	}
}

// TestLocalCall: the operator's call takes the path of a client's.
func TestLocalCall(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo", "boom", "fail")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	if a, _ := g.Call(t.Context(), authz.Anonymous(), "", "x_echo", json.RawMessage(`{"a":1.0}`)); a.Error != nil || a.IsError() || at(t, string(a.Result), "structuredContent") != `{"a":1.0}` {
		t.Errorf("echo: %s %s", a.Result, a.Error)
	}
	if a, _ := g.Call(t.Context(), authz.Anonymous(), "", "x_boom", nil); a.Error != nil || !a.IsError() {
		t.Errorf("boom: %s %s", a.Result, a.Error)
	}
	if a, _ := g.Call(t.Context(), authz.Anonymous(), "", "x_fail", nil); a.Result != nil || a.IsError() || at(t, string(a.Error), "code") != "7001" {
		t.Errorf("fail: %s %s", a.Result, a.Error)
	}
	if a, _ := g.Call(t.Context(), authz.Anonymous(), "", "none", nil); at(t, string(a.Error), "message") != `"Unknown tool: none"` {
		t.Errorf("none: %s %s", a.Result, a.Error)
	}
}
