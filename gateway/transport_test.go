package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

func TestContentTypeAndAccept(t *testing.T) {
	g, _ := echoGate(t)
	body := modernBody("1", "tools/call", callParams("x_echo", "{}"))
	headers := modernHeaders("tools/call", "Mcp-Name: x_echo")
	const plain, sse = "application/json", "text/event-stream"
	tests := []struct {
		header string
		status int
		kind   string
	}{
		{"Content-Type: application/json; charset=utf-8", 200, plain},
		{"Content-Type: Application/JSON", 200, plain},
		{"Content-Type: text/plain", 415, plain},
		{"Content-Type: application/x-www-form-urlencoded", 415, plain},
		{"Content-Type: application/json-rpc", 415, plain},
		{"Content-Type: ;", 415, plain},
		{"Content-Type:", 415, plain},
		{"Accept:", 200, plain},
		{"Accept: */*", 200, plain},
		{"Accept: application/json", 200, plain},
		{"Accept: application/*;q=0.5", 200, plain},
		{"Accept: text/event-stream", 200, sse},
		{"Accept: text/*", 200, sse},
		{"Accept: application/json;q=0.0, text/event-stream", 200, sse},
		{"Accept: text/html, */*;q=0.1", 200, plain},
		{"Accept: ,", 200, plain},
		{"Accept: text/html", 406, plain},
		{"Accept: application/json;q=0", 406, plain},
		{"Accept: nonsense", 406, plain},
	}
	for _, tt := range tests {
		t.Run(tt.header, func(t *testing.T) {
			r := g.post(body, append(headers, tt.header)...)
			if r.status != tt.status || r.header.Get("Content-Type") != tt.kind {
				t.Errorf("%d %s %s", r.status, r.header.Get("Content-Type"), r.body)
			}
			part := "error"
			if tt.status == 200 {
				part = "result"
			}
			if at(t, r.message(), part) == "" {
				t.Errorf("no %s: %s", part, r.body)
			}
		})
	}
}

func TestOriginAndHost(t *testing.T) {
	g, _ := echoGate(t, `"allowed_origins":["https://app.example"]`, `"allowed_hosts":["gate.example","other.example:81"]`)
	tests := []struct {
		name   string
		header []string
		ok     bool
	}{
		{"neither", nil, true},
		{"own origin", []string{"Origin: " + strings.TrimSuffix(g.url, "/mcp")}, true},
		{"localhost", []string{"Origin: http://localhost:3000"}, true},
		{"loopback v6", []string{"Origin: http://[::1]:3000"}, true},
		{"allowed origin", []string{"Origin: https://app.example"}, true},
		{"allowed origin on another port", []string{"Origin: https://app.example:444"}, false},
		{"allowed origin with another scheme", []string{"Origin: http://app.example"}, false},
		{"foreign origin", []string{"Origin: https://evil.example"}, false},
		{"null origin", []string{"Origin: null"}, false},
		{"a file", []string{"Origin: file://"}, false},
		{"a name that begins like one", []string{"Origin: http://localhost.evil.example"}, false},
		{"an address that begins like one", []string{"Origin: http://127.0.0.1.evil.example"}, false},
		{"two origins", []string{"Origin: https://app.example", "Origin: https://evil.example"}, false},
		{"host localhost", []string{"Host: LOCALHOST:1"}, true},
		{"host v6", []string{"Host: [::1]"}, true},
		{"allowed host", []string{"Host: gate.example"}, true},
		{"allowed host on any port", []string{"Host: gate.example:9999"}, true},
		{"allowed host on its port", []string{"Host: other.example:81"}, true},
		{"allowed host on another port", []string{"Host: other.example:82"}, false},
		{"foreign host", []string{"Host: evil.example"}, false},
		{"foreign host on our port", []string{"Host: evil.example:8080"}, false},
		{"foreign host and own origin", []string{"Host: evil.example", "Origin: http://localhost"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodOptions} {
				r := g.do(g.request(method, initializeBody, tt.header...))
				if forbidden := r.status == http.StatusForbidden; forbidden == tt.ok {
					t.Errorf("%s: %d %s", method, r.status, r.body)
				}
				if r.status == http.StatusForbidden && (at(t, r.body, "error", "code") != "-32600" || r.header.Get("Access-Control-Allow-Origin") != "") {
					t.Errorf("%s: %v %s", method, r.header, r.body)
				}
			}
		})
	}
}

// TestCORS: a page of an allowed origin can read every answer, refusals too.
func TestCORS(t *testing.T) {
	g, _ := echoGate(t, `"allowed_origins":["https://app.example"]`)
	const origin = "Origin: https://app.example"
	preflight := g.do(g.request(http.MethodOptions, "", origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type, mcp-protocol-version"))
	if preflight.status != http.StatusNoContent || preflight.header.Get("Access-Control-Allow-Methods") != "POST, GET, DELETE" ||
		preflight.header.Get("Access-Control-Allow-Headers") != "content-type, mcp-protocol-version" {
		t.Errorf("preflight: %d %v", preflight.status, preflight.header)
	}
	answers := map[string]reply{
		"preflight":    preflight,
		"initialize":   g.post(initializeBody, origin),
		"bad JSON":     g.post("{", origin),
		"bad type":     g.post("{}", origin, "Content-Type: text/plain"),
		"no session":   g.post(legacyBody("1", "tools/list", ""), origin),
		"bad method":   g.do(g.request(http.MethodPut, "", origin)),
		"unknown tool": g.post(modernBody("1", "tools/call", `"name":"no"`), modernHeaders("tools/call", "Mcp-Name: no", origin)...),
	}
	for name, r := range answers {
		if r.header.Get("Access-Control-Allow-Origin") != "https://app.example" || r.header.Get("Vary") != "Origin" ||
			!strings.Contains(r.header.Get("Access-Control-Expose-Headers"), sessionHeader) {
			t.Errorf("%s: %d %v", name, r.status, r.header)
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	g, _ := echoGate(t)
	base := strings.TrimSuffix(g.url, "/mcp")
	tests := []struct {
		method, path string
		status       int
		allow        string
	}{
		{"POST", "/mcp", 200, ""},
		{"POST", "/mcp/", 200, ""},
		{"POST", "/mcp/more", 404, ""},
		{"POST", "/", 404, ""},
		{"GET", "/", 404, ""},
		{"POST", "/sse", 404, ""},
		{"GET", "/mcp", 405, "POST"},
		{"GET", "/mcp/", 405, "POST"},
		{"DELETE", "/mcp", 405, "POST"},
		{"PUT", "/mcp", 405, "POST, GET, DELETE"},
		{"PATCH", "/mcp", 405, "POST, GET, DELETE"},
		{"HEAD", "/mcp", 405, "POST, GET, DELETE"},
		{"OPTIONS", "/mcp", 204, "POST, GET, DELETE, OPTIONS"},
		{"GET", "/healthz", 200, ""},
		{"POST", "/healthz", 405, "GET"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			g := *g
			g.url = base + tt.path
			r := g.do(g.request(tt.method, initializeBody))
			if r.status != tt.status || r.header.Get("Allow") != tt.allow {
				t.Errorf("%d, Allow %q, %s", r.status, r.header.Get("Allow"), r.body)
			}
			if tt.status >= 400 && tt.method != "HEAD" && at(t, r.body, "error", "message") == "" {
				t.Errorf("no message: %s", r.body)
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	g, s := echoGate(t)
	big := legacyBody("1", "tools/call", `{"name":"x_echo","arguments":{"a":"`+strings.Repeat("x", 5<<20)+`"}}`)
	t.Run("with a length", func(t *testing.T) {
		if r := g.post(big); r.status != 413 || at(t, r.body, "error", "code") != "-32600" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("in chunks", func(t *testing.T) {
		req := g.request(http.MethodPost, big)
		req.ContentLength = -1
		if r := g.do(req); r.status != 413 || at(t, r.body, "error", "code") != "-32600" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("on stdio", func(t *testing.T) {
		p := g.pipe()
		p.shakeHands()
		p.send(big)
		if got := p.next(); at(t, got, "error", "code") != "-32600" || at(t, got, "id") != "" {
			t.Errorf("%s", got)
		}
		if got := p.call("2", legacyBody("2", "ping", "")); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
			t.Errorf("the next line: %s", got)
		}
	})
	t.Run("just below", func(t *testing.T) {
		args := `{"a":"` + strings.Repeat("x", 4<<20-1000) + `"}`
		if r := g.callModern("1", "x_echo", args); r.status != 200 || at(t, r.body, "result", "structuredContent") != args {
			t.Errorf("%d %s", r.status, clip(r.body))
		}
	})
	if n := s.Executions("echo"); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
}

// dial opens a bare connection to the front.
func (g *gate) dial() net.Conn {
	g.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(g.url, "http://"), "/mcp"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(limit))
	return conn
}

func postHead(length int, more string) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", length, more)
}

// TestSlowBody: a client that does not send what it announced is told so and let go, and one that did
// may wait for its answer for longer than that.
func TestSlowBody(t *testing.T) {
	s := &mcptest.Server{}
	answer := make(chan struct{})
	s.Tools = []mcptest.Tool{{Def: `{"name":"wait","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		select {
		case <-answer:
			c.Text("late")
		case <-c.Ctx.Done():
		}
	}}}
	g := makeGateway(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	g.bodyTime = 100 * time.Millisecond
	gate := serve(t, g)
	gate.settle()

	quick := gate.dial()
	body := modernBody("1", "tools/call", `"name":"x_wait"`)
	fmt.Fprint(quick, postHead(len(body), strings.Join(modernHeaders("tools/call", "Mcp-Name: x_wait"), "\r\n")+"\r\n")+body)
	awaitServer(t, s, "the call", func() bool { return s.Executions("wait") == 1 })

	for name, tt := range map[string]struct {
		head   string
		status int
	}{
		"wanted":     {postHead(100, ""), http.StatusRequestTimeout},
		"unwanted":   {strings.Replace(postHead(100, ""), "application/json", "text/plain", 1), http.StatusUnsupportedMediaType},
		"other path": {strings.Replace(postHead(100, ""), "/mcp", "/other", 1), http.StatusNotFound},
		"forbidden":  {postHead(100, "Origin: https://evil.example\r\n"), http.StatusForbidden},
	} {
		slow := gate.dial()
		fmt.Fprint(slow, tt.head+`{"jsonrpc"`)
		resp, err := http.ReadResponse(bufio.NewReader(slow), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tt.status || !resp.Close || at(t, string(text), "error", "code") != "-32600" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
	// The time of the slow ones is over by now; the quick one still waits.
	close(answer)
	reader := bufio.NewReader(quick)
	for id := 1; id <= 2; id++ {
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", id, err)
		}
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || !strings.Contains(string(text), "late") {
			t.Errorf("answer %d: %d %s", id, resp.StatusCode, text)
		}
		if id == 1 { // and the connection is good for more
			fmt.Fprint(quick, postHead(len(body), strings.Join(modernHeaders("tools/call", "Mcp-Name: x_wait"), "\r\n")+"\r\n")+body)
		}
	}
}

func TestClientAbortsItsBody(t *testing.T) {
	g, s := echoGate(t)
	for range 10 {
		conn := g.dial()
		fmt.Fprint(conn, postHead(1000, "")+`{"jsonrpc":"2.0"`)
		conn.Close()
	}
	if r := g.callModern("1", "x_echo", "{}"); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if n := s.Executions("echo"); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
	if strings.Contains(g.log.String(), "level=ERROR") || strings.Contains(g.log.String(), "panic") {
		t.Errorf("log: %s", g.log.String())
	}
}

// TestLogLinesCannotBeForged sends line breaks wherever a caller can put text.
func TestLogLinesCannotBeForged(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"x\ny","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		c.Raw(500, "text/plain", "boom\nlevel=ERROR msg=forged")
	}}}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	name := g.tools()[0].Name
	g.callModern("1", name, `{"a":"\nlevel=ERROR msg=forged"}`)
	g.callModern("1", "no\nlevel=ERROR msg=forged", "{}")
	g.post(legacyBody(`"\nlevel=ERROR"`, `x\nlevel=ERROR msg=forged`, ""), g.open(), "X-A: b")
	for line := range strings.Lines(g.log.String()) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, "level=ERROR") && !strings.Contains(line, `"`) {
			t.Errorf("a line of the log: %s", line)
		}
	}
}
