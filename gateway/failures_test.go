package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
)

// outcome is what a row of the failure table comes to.
type outcome struct {
	reason, outcome string
	retryable       bool
	retryAfter      string
	channel         string // "result" or "error"
	says            string // a part of the text that tells this row from the others
}

// failing are servers that fail a call in every way of the failure table that needs no credentials of
// the caller. Each has two tools: "plain" and "safe", which only reads.
func failing() map[string]func(c *mcptest.Call) {
	return map[string]func(c *mcptest.Call){
		"unauthorized": func(c *mcptest.Call) { c.Raw(http.StatusUnauthorized, "text/plain", "who are you") },
		"forbidden":    func(c *mcptest.Call) { c.Raw(http.StatusForbidden, "text/html", "<p>secret-host.example</p>") },
		"silent":       func(c *mcptest.Call) { <-c.Ctx.Done() },
		"reset":        func(c *mcptest.Call) { c.Reset() },
		"half":         func(c *mcptest.Call) { c.WriteSSE("data: {\"jsonrpc\":\"2.0\""); _ = c.Hijack().Close() },
		"ended":        func(c *mcptest.Call) { c.WriteSSE(": nothing\n\n") },
		"html":         func(c *mcptest.Call) { c.Raw(http.StatusOK, "text/html", "<h1>secret-host.example</h1>") },
		"empty":        func(c *mcptest.Call) { c.Raw(http.StatusOK, "application/json", "") },
		"error500":     func(c *mcptest.Call) { c.Raw(http.StatusInternalServerError, "text/plain", "goroutine 1 [running]") },
		"badgateway":   func(c *mcptest.Call) { c.Raw(http.StatusBadGateway, "text/html", "<h1>secret-host.example</h1>") },
		"unready":      func(c *mcptest.Call) { c.Raw(http.StatusServiceUnavailable, "text/plain", "") },
		"gone":         func(c *mcptest.Call) { c.Raw(http.StatusGatewayTimeout, "text/plain", "") },
		"notmcp":       func(c *mcptest.Call) { c.Raw(http.StatusOK, "application/json", `{"Output":"secret-host.example"}`) },
		"string":       func(c *mcptest.Call) { c.Result(`"just a string"`) },
		"badutf8":      func(c *mcptest.Call) { c.Result("{\"content\":\"\xff\"}") },
		"toomany":      func(c *mcptest.Call) { retryAfter(c, http.StatusTooManyRequests, "7") },
		"toomanybare":  func(c *mcptest.Call) { c.Raw(http.StatusTooManyRequests, "text/plain", "") },
		"busy":         func(c *mcptest.Call) { retryAfter(c, http.StatusServiceUnavailable, "120") },
	}
}

// timeFor is the time limit, as a member of an entry, of a server that fails in this way: long enough for a machine that
// stands still for a moment, and less than the Retry-After of any.
func timeFor(id string) string {
	if id == "silent" {
		return `"call_timeout":"1500ms"`
	}
	return `"call_timeout":"6s"`
}

// retryAfter answers with a Retry-After header, for which there is no other way.
func retryAfter(c *mcptest.Call, status int, after string) {
	conn := c.Hijack()
	fmt.Fprintf(conn, "HTTP/1.1 %d x\r\nRetry-After: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status, after)
	_ = conn.Close()
}

func failureRows(id string, safe bool) outcome {
	unknown := outcome{outcome: "unknown", retryable: safe, channel: "result", says: "outcome of this call is unknown"}
	if safe {
		unknown.says = "safe to repeat"
	}
	bad := outcome{reason: "bad_upstream_answer", outcome: "unknown", channel: "error", says: "not valid MCP"}
	refused := outcome{reason: "credentials_refused", outcome: "refused", channel: "result", says: "Repeating the call will not help"}
	overloaded := outcome{reason: "overloaded", outcome: "refused", retryable: true, channel: "result", says: "turning requests away"}
	switch id {
	case "unauthorized", "forbidden":
		return refused
	case "silent":
		unknown.reason = "timeout"
		return unknown
	case "reset", "half", "ended", "badgateway", "unready", "gone":
		unknown.reason = "connection_lost"
		return unknown
	case "toomany":
		overloaded.retryAfter, overloaded.says = "7000", "Wait 7 seconds"
		return overloaded
	case "toomanybare":
		return overloaded
	case "busy":
		overloaded.retryAfter, overloaded.says = "120000", "Wait 120 seconds"
		return overloaded
	case "down":
		return outcome{reason: "unavailable", outcome: "not_started", retryable: true, channel: "result", says: "was not started"}
	}
	return bad
}

// check compares one answer with a row.
func (o outcome) check(t *testing.T, r reply, server, tool string, modern bool) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Errorf("HTTP %d", r.status)
	}
	mark := `{"server":"` + server + `","reason":"` + o.reason + `","outcome":"` + o.outcome + `","retryable":` + fmt.Sprint(o.retryable)
	if o.retryAfter != "" {
		mark += `,"retryAfterMs":` + o.retryAfter
	}
	mark += "}"
	var text string
	message := r.message()
	switch o.channel {
	case "error":
		text = at(t, message, "error", "message")
		if got, want := at(t, message, "error"), `{"code":-32603,"message":`+text+`,"data":{"headgate":`+mark+`}}`; got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	case "result":
		result := at(t, message, "result")
		resultType := ""
		if modern {
			resultType = `"resultType":"complete",`
		}
		head := `{` + resultType + `"content":[{"type":"text","text":`
		tail := `}],"isError":true,"_meta":{"dev.headgate/failure":` + mark + `}}`
		if !strings.HasPrefix(result, head) || !strings.HasSuffix(result, tail) {
			t.Errorf("\n got %s\nwant %s…%s", message, head, tail)
			return
		}
		text = strings.TrimSuffix(strings.TrimPrefix(result, head), tail)
	}
	if !strings.Contains(text, o.says) {
		t.Errorf("the text does not say %q: %s", o.says, text)
	}
	for _, must := range []string{"server " + server, "tool " + tool} {
		if !strings.Contains(strings.ToLower(text), must) {
			t.Errorf("the text does not name %s: %s", must, text)
		}
	}
	for _, leak := range []string{"127.0.0.1", "localhost", "http", "/mcp", "secret-host", "goroutine", "EOF", "dial", "connection refused", "context", "{", "%!"} {
		if strings.Contains(strings.Trim(text, `"`), leak) {
			t.Errorf("the text holds %q: %s", leak, text)
		}
	}
}

// TestFailureTable goes through the rows for clients of both eras, and for tools that are safe to
// repeat and that are not.
func TestFailureTable(t *testing.T) {
	entries := map[string]string{}
	servers := map[string]*mcptest.Server{}
	for id, fail := range failing() {
		servers[id] = &mcptest.Server{Tools: []mcptest.Tool{
			{Def: `{"name":"plain","inputSchema":{"type":"object"}}`, Call: fail},
			{Def: `{"name":"safe","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, Call: fail},
		}}
		entries[id] = entry(servers[id].StartHTTP(t), timeFor(id))
	}
	down := &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"plain","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"safe","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}`},
	}}
	downHTTP := down.StartHTTP(t)
	entries["down"] = entry(downHTTP)
	g := launch(t, parseConfig(t, entries), Options{})
	downHTTP.Stop()
	session := g.open()
	for id := range entries {
		t.Run(id, func(t *testing.T) {
			for _, name := range []string{"plain", "safe"} {
				tool := id + "_" + name
				row := failureRows(id, name == "safe")
				t.Run("modern "+name, func(t *testing.T) { row.check(t, g.callModern("1", tool, "{}"), id, tool, true) })
				t.Run("legacy "+name, func(t *testing.T) { row.check(t, g.callLegacy(session, "1", tool, "{}"), id, tool, false) })
				// Once for each client, whatever came of it; what is safe to repeat, and failed in a way that
				// may pass, is sent twice more.
				want := 2
				if name == "safe" && slices.Contains([]string{"reset", "half", "ended", "toomanybare", "badgateway", "unready", "gone"}, id) {
					want *= 3
				}
				if s := servers[id]; s != nil && s.Executions(name) != want {
					t.Errorf("%s ran %d times for two calls, want %d", name, s.Executions(name), want)
				}
			}
		})
	}
	if !strings.Contains(g.log.String(), "outcome=connection_lost reason=connection_lost sent=unknown") {
		t.Errorf("the log names no reason: %s", g.log.String())
	}
}

// TestUnknownToolIsOneAnswer: the answer to a name that is not exposed tells nothing but that name.
func TestUnknownToolIsOneAnswer(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session, pipe := g.open(), g.pipe()
	for _, name := range []string{"no_such", "echo", "X_echo", "x_Echo", "x_echo ", "x.echo", "", "x_", "a\nb", "Å", "<&>"} {
		raw := strings.ReplaceAll(name, "\n", `\n`)
		want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: ` + raw + `"}}`
		modern, legacy := g.callModern("1", name, "{}"), g.callLegacy(session, "1", name, "{}")
		if modern.status != 200 || modern.body != want {
			t.Errorf("%q, modern: %d %s", name, modern.status, modern.body)
		}
		if legacy.status != 200 || legacy.body != want {
			t.Errorf("%q, legacy: %d %s", name, legacy.status, legacy.body)
		}
		if got := pipe.call("1", modernBody("1", "tools/call", `"name":"`+raw+`"`)); got != want {
			t.Errorf("%q, stdio: %s", name, got)
		}
	}
	if n := s.Executions("echo"); n != 0 {
		t.Errorf("the tool ran %d times", n)
	}
}

func TestBadCallParams(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session := g.open()
	for name, params := range map[string]string{
		"no name":          `"arguments":{}`,
		"name null":        `"name":null`,
		"name a number":    `"name":7`,
		"half a pair":      `"name":"\ud800"`,
		"arguments a list": `"name":"x_echo","arguments":[]`,
		"arguments text":   `"name":"x_echo","arguments":"{}"`,
	} {
		t.Run(name, func(t *testing.T) {
			modern := g.modern("1", "tools/call", params, "Mcp-Name: x_echo")
			if modern.status != 400 || at(t, modern.body, "error", "code") != "-32602" {
				t.Errorf("modern: %d %s", modern.status, modern.body)
			}
			legacy := g.post(legacyBody("1", "tools/call", "{"+params+"}"), session)
			if legacy.status != 200 || at(t, legacy.body, "error", "code") != "-32602" {
				t.Errorf("legacy: %d %s", legacy.status, legacy.body)
			}
		})
	}
	if n := s.Executions("echo"); n != 0 {
		t.Errorf("the tool ran %d times", n)
	}
}

// TestPanic has a call meet a tool without an owner. The caller gets an incident id that is in the
// log, and everything goes on.
func TestPanic(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	g.snapshot.Store(g.snapshot.Load().ownerless())
	session, pipe := g.open(), g.pipe()
	local, _ := g.Call(t.Context(), authz.Anonymous(), "", "broken", nil)
	answers := map[string]reply{
		"modern": g.callModern("1", "broken", "{}"),
		"legacy": g.callLegacy(session, "1", "broken", "{}"),
		"stdio":  {status: http.StatusInternalServerError, body: pipe.call("1", modernBody("1", "tools/call", `"name":"broken"`))},
		"local":  {status: http.StatusInternalServerError, body: `{"id":1,"error":` + string(local.Error) + `}`},
	}
	for client, r := range answers {
		id := strings.Trim(at(t, r.body, "error", "data", "incident"), `"`)
		if r.status != http.StatusInternalServerError || at(t, r.body, "error", "code") != "-32603" || id == "" || at(t, r.body, "id") != "1" {
			t.Errorf("%s: %d %s", client, r.status, r.body)
			continue
		}
		if got := at(t, r.body, "error", "data", "headgate"); got != `{"reason":"internal","outcome":"unknown","retryable":false}` {
			t.Errorf("%s: %s", client, got)
		}
		if !strings.Contains(r.body, "incident "+id) || !strings.Contains(g.log.String(), "incident="+id) || strings.Contains(r.body, "nil pointer") {
			t.Errorf("%s: incident %s: %s", client, id, r.body)
		}
	}
	if r := g.callModern("2", "x_echo", `{"a":1}`); r.status != 200 || at(t, r.body, "result", "structuredContent") != `{"a":1}` {
		t.Errorf("the next call: %d %s", r.status, r.body)
	}
	if r := g.callLegacy(session, "2", "x_echo", `{"a":1}`); at(t, r.body, "result", "structuredContent") != `{"a":1}` {
		t.Errorf("the next call of the session: %d %s", r.status, r.body)
	}
	if got := pipe.call("2", modernBody("2", "tools/call", `"name":"x_echo","arguments":{"a":1}`)); at(t, got, "result", "structuredContent") != `{"a":1}` {
		t.Errorf("the next call on stdio: %s", got)
	}
}
