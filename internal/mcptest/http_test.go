package mcptest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// client returns an HTTP client whose connections end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// request builds a request; headers are "Name: value".
func request(t *testing.T, method, url, body string, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	return req
}

// do sends a request and returns its whole answer.
func do(t *testing.T, c *http.Client, req *http.Request) (resp *http.Response, body string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err != nil || cerr != nil {
		t.Fatalf("reading the answer: %v, %v", err, cerr)
	}
	return resp, string(raw)
}

func modernHeaders(method, name string) []string {
	h := []string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	if name != "" {
		h = append(h, "Mcp-Name: "+name)
	}
	return h
}

// events reads the data of an event stream's events.
type events struct {
	t *testing.T
	r *bufio.Reader
}

func (e events) next() string {
	e.t.Helper()
	var data []string
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			e.t.Fatalf("reading an event: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			data = append(data, d)
		}
		if line == "" && data != nil {
			return strings.Join(data, "\n")
		}
	}
}

func TestModernAnswers(t *testing.T) {
	echo := Builtin("echo")[0]
	region := Tool{Def: `{"name":"region","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}`}
	s := &Server{Tools: []Tool{echo, region}, PageSize: 1, TTLMs: 5, Instructions: "Use it."}
	url := s.StartHTTP(t).URL
	c := client(t)
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"n":12345678901234567890},` + meta + `}}`
	regionCall := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"region","arguments":{"r":"eu"},` + meta + `}}`
	list := `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + meta + `}}`
	tests := []struct {
		name    string
		body    string
		headers []string
		status  int
		want    string
	}{
		{"discover", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`, modernHeaders("server/discover", ""), 200,
			`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"Use it.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1.0.0"}},"ttlMs":5,"cacheScope":"public"}}`},
		{"first page", list, modernHeaders("tools/list", ""), 200, `"nextCursor":"page:1","resultType":"complete","ttlMs":5,"cacheScope":"public"`},
		{"last page", strings.Replace(list, `{"_meta"`, `{"cursor":"page:1","_meta"`, 1), modernHeaders("tools/list", ""), 200, `"tools":[` + region.Def + `],"resultType"`},
		{"bad cursor", strings.Replace(list, `{"_meta"`, `{"cursor":"x","_meta"`, 1), modernHeaders("tools/list", ""), 200, `"code":-32602`},
		{"call", call, modernHeaders("tools/call", "echo"), 200, `"structuredContent":{"n":12345678901234567890},"resultType":"complete"`},
		{"encoded name", call, modernHeaders("tools/call", "=?base64?ZWNobw==?="), 200, `"structuredContent"`},
		{"no version header", call, modernHeaders("tools/call", "echo")[1:], 400, `"code":-32020`},
		{"other version header", call, []string{"MCP-Protocol-Version: 2025-11-25", "Mcp-Method: tools/call", "Mcp-Name: echo"}, 400, `"code":-32020`},
		{"no method header", call, []string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Name: echo"}, 400, `"code":-32020`},
		{"other method header", call, modernHeaders("tools/list", "echo"), 400, `"code":-32020`},
		{"no name header", call, modernHeaders("tools/call", ""), 400, `"code":-32020`},
		{"other name header", call, modernHeaders("tools/call", "Echo"), 400, `"code":-32020`},
		{"param header", regionCall, append(modernHeaders("tools/call", "region"), "Mcp-Param-Region: eu"), 200, `"text":"ok"`},
		{"no param header", regionCall, modernHeaders("tools/call", "region"), 400, `"code":-32020`},
		{"other param header", regionCall, append(modernHeaders("tools/call", "region"), "Mcp-Param-Region: us"), 400, `"code":-32020`},
		{"no meta", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, modernHeaders("tools/list", ""), 400, `"code":-32602`},
		{"no client capabilities", strings.Replace(list, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1), modernHeaders("tools/list", ""), 400, `"code":-32602`},
		{"unknown version", strings.Replace(list, "2026-07-28", "2031-01-01", 1), []string{"MCP-Protocol-Version: 2031-01-01", "Mcp-Method: tools/list"}, 400,
			`"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2031-01-01"}`},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"no/such","params":{` + meta + `}}`, modernHeaders("no/such", ""), 404, `"code":-32601`},
		{"unknown tool", strings.Replace(call, `"echo"`, `"nope"`, 1), modernHeaders("tools/call", "nope"), 200, `"message":"Unknown tool: nope"`},
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, nil, 400, `supported versions: 2026-07-28`},
		{"not JSON", `{`, nil, 400, `"code":-32700`},
		{"a batch", `[]`, nil, 400, `"code":-32600`},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, nil, 202, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := do(t, c, request(t, "POST", url, tt.body, tt.headers...))
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("got %d %s\nwant %d with %s", resp.StatusCode, body, tt.status, tt.want)
			}
			if body != "" && !json.Valid([]byte(body)) {
				t.Errorf("answer is not JSON: %s", body)
			}
		})
	}
	for _, method := range []string{"GET", "DELETE"} {
		if resp, _ := do(t, c, request(t, method, url, "")); resp.StatusCode != 405 {
			t.Errorf("%s: got %d, want 405", method, resp.StatusCode)
		}
	}
	if n := s.Executions("echo"); n != 2 {
		t.Errorf("echo ran %d times, want 2", n)
	}
	if s.Count("GET") != 1 || s.Count("no/such") != 1 || s.Requests()[0].Header.Get("Mcp-Method") != "server/discover" {
		t.Errorf("recorded %v", s.Requests())
	}
}

func TestModernSubscription(t *testing.T) {
	for _, tt := range []struct {
		name    string
		changed bool
		want    string
	}{
		{"with list changes", true, `{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{"toolsListChanged":true}}`},
		{"without", false, `{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Server{ListChanged: tt.changed}
			body := `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
			resp, err := client(t).Do(request(t, "POST", s.StartHTTP(t).URL, body, modernHeaders("subscriptions/listen", "")...))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			ev := events{t, bufio.NewReader(resp.Body)}
			if got, want := ev.next(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`+tt.want+`}`; got != want {
				t.Fatalf("acknowledged with\n%s\nwant\n%s", got, want)
			}
			s.NotifyToolsChanged()
			s.EndStreams(true)
			if tt.changed {
				if got := ev.next(); !strings.Contains(got, "tools/list_changed") || !strings.Contains(got, `subscriptionId":"s"`) {
					t.Errorf("notified with %s", got)
				}
			}
			if got := ev.next(); !strings.Contains(got, `"id":"s","result":{"resultType":"complete"`) {
				t.Errorf("ended with %s", got)
			}
			if rest, err := io.ReadAll(ev.r); err != nil || len(rest) != 0 {
				t.Errorf("after the end: %q, %v", rest, err)
			}
		})
	}
}

func TestLegacySession(t *testing.T) {
	s := &Server{Era: Legacy, Tools: Builtin("echo"), ListChanged: true}
	url := s.StartHTTP(t).URL
	c := client(t)
	post := func(body string, headers ...string) (*http.Response, string) {
		t.Helper()
		return do(t, c, request(t, "POST", url, body, headers...))
	}
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if resp, body := post(list); resp.StatusCode != 400 || strings.Contains(body, "-3202") {
		t.Fatalf("without a session: %d %s", resp.StatusCode, body)
	}
	resp, body := post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	sid := resp.Header.Get("Mcp-Session-Id")
	if sid == "" || !strings.Contains(body, `"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}}`) {
		t.Fatalf("initialize answered %q %s", sid, body)
	}
	session := "Mcp-Session-Id: " + sid
	if _, body := post(list, session); !strings.Contains(body, "before initialization") {
		t.Errorf("before initialized: %s", body)
	}
	if resp, _ := post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, session); resp.StatusCode != 202 {
		t.Errorf("initialized: %d", resp.StatusCode)
	}
	for _, tt := range []struct{ method, want string }{
		{"ping", `{"jsonrpc":"2.0","id":2,"result":{}}`},
		{"logging/setLevel", `{"jsonrpc":"2.0","id":2,"result":{}}`},
		{"tools/list", `{"jsonrpc":"2.0","id":2,"result":{"tools":[` + Builtin("echo")[0].Def + `]}}`},
		{"no/such", `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`},
	} {
		resp, body := post(`{"jsonrpc":"2.0","id":2,"method":"`+tt.method+`"}`, session, "MCP-Protocol-Version: 2025-06-18")
		if resp.StatusCode != 200 || body != tt.want {
			t.Errorf("%s: %d %s, want %s", tt.method, resp.StatusCode, body, tt.want)
		}
	}
	if resp, body := post(list, session, "MCP-Protocol-Version: 2026-07-28"); resp.StatusCode != 400 || strings.Contains(body, "-3202") {
		t.Errorf("modern version: %d %s", resp.StatusCode, body)
	}
	if resp, _ := post(list, "Mcp-Session-Id: other"); resp.StatusCode != 404 {
		t.Errorf("other session: %d, want 404", resp.StatusCode)
	}

	stream, err := c.Do(request(t, "GET", url, "", session))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	s.NotifyToolsChanged()
	ev := events{t, bufio.NewReader(stream.Body)}
	if got := ev.next(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("stream carried %s", got)
	}
	if resp, _ := do(t, c, request(t, "DELETE", url, "", session)); resp.StatusCode != 204 {
		t.Errorf("DELETE: %d, want 204", resp.StatusCode)
	}
	if _, err := io.ReadAll(ev.r); err != nil {
		t.Errorf("stream ended with %v", err)
	}
	if resp, _ := post(list, session); resp.StatusCode != 404 {
		t.Errorf("after DELETE: %d, want 404", resp.StatusCode)
	}
}

func TestLegacyVariants(t *testing.T) {
	t.Run("stateless", func(t *testing.T) {
		s := &Server{Era: Legacy, Stateless: true, Tools: Builtin("add"), NoGET: true}
		url := s.StartHTTP(t).URL
		resp, body := do(t, client(t), request(t, "POST", url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`))
		if resp.StatusCode != 200 || !strings.Contains(body, `"text":"3"`) {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
		if resp, _ := do(t, client(t), request(t, "GET", url, "")); resp.StatusCode != 405 {
			t.Errorf("GET: %d, want 405", resp.StatusCode)
		}
	})
	t.Run("silent before initialize", func(t *testing.T) {
		s := &Server{Era: Legacy, SilentDiscover: true}
		ctx, cancel := context.WithCancel(t.Context())
		req := request(t, "POST", s.StartHTTP(t).URL, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`).WithContext(ctx)
		done := make(chan error)
		c := client(t)
		go func() {
			_, err := c.Do(req)
			done <- err
		}()
		if err := s.Await(t.Context(), func() bool { return s.Count("server/discover") == 1 }); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("got an answer")
		}
	})
	t.Run("forgotten sessions", func(t *testing.T) {
		s := &Server{Era: Legacy}
		h := s.StartHTTP(t)
		c := client(t)
		resp, _ := do(t, c, request(t, "POST", h.URL, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`))
		session := "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id")
		ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
		h.Stop()
		h.Start()
		c.CloseIdleConnections()
		if resp, _ := do(t, c, request(t, "POST", h.URL, ping, session)); resp.StatusCode != 200 {
			t.Errorf("after a restart: %d, want 200", resp.StatusCode)
		}
		s.Forget()
		if resp, _ := do(t, c, request(t, "POST", h.URL, ping, session)); resp.StatusCode != 404 || s.Sessions() != 0 {
			t.Errorf("after Forget: %d, want 404", resp.StatusCode)
		}
	})
}

func TestScriptedAnswers(t *testing.T) {
	gone := make(chan struct{})
	tools := map[string]func(*Call){
		"raw":    func(c *Call) { c.Raw(503, "text/html", "<p>no</p>") },
		"exact":  func(c *Call) { c.Result(`{ "z":1.0, "a":[ ]}`) },
		"error":  func(c *Call) { c.Error(`{"code":-32601,"message":"m","x":1}`) },
		"notify": func(c *Call) { c.Progress(1, 2, ""); c.Result("{\n}") },
		"reset":  func(c *Call) { c.Reset() },
		"half":   func(c *Call) { c.WriteSSE("data: {\"jso"); _ = c.Hijack().Close() },
		"none":   func(*Call) {},
		"wait":   func(c *Call) { c.Notify("n", ""); <-c.Ctx.Done(); close(gone) },
	}
	s := &Server{Era: Legacy, Stateless: true}
	for name, f := range tools {
		s.Tools = append(s.Tools, Tool{Name: name, Call: f})
	}
	url := s.StartHTTP(t).URL
	c := client(t)
	send := func(t *testing.T, name string) (*http.Response, error) {
		t.Helper()
		return c.Do(request(t, "POST", url, `{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{"name":"`+name+`","_meta":{"progressToken":"p"}}}`))
	}
	for _, tt := range []struct {
		name   string
		status int
		kind   string
		body   string
	}{
		{"raw", 503, "text/html", "<p>no</p>"},
		{"exact", 200, "application/json", `{"jsonrpc":"2.0","id":"i","result":{ "z":1.0, "a":[ ]}}`},
		{"error", 200, "application/json", `{"jsonrpc":"2.0","id":"i","error":{"code":-32601,"message":"m","x":1}}`},
		{"notify", 200, "text/event-stream", `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2}}` + "\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":\"i\",\"result\":{\ndata: }}\n\n"},
		{"none", 200, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := send(t, tt.name)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.kind || string(body) != tt.body {
				t.Errorf("got %d %s %q, %v", resp.StatusCode, resp.Header.Get("Content-Type"), body, err)
			}
		})
	}
	t.Run("reset", func(t *testing.T) {
		if resp, err := send(t, "reset"); err == nil {
			_ = resp.Body.Close()
			t.Error("got an answer")
		}
		if n := s.Executions("reset"); n != 1 {
			t.Errorf("ran %d times, want 1", n)
		}
	})
	t.Run("half", func(t *testing.T) {
		resp, err := send(t, "half")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil || !strings.HasPrefix(string(body), `data: {"jso`) {
			t.Errorf("got %q, %v", body, err)
		}
	})
	t.Run("disconnect", func(t *testing.T) {
		resp, err := send(t, "wait")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		<-gone
	})
}

func TestForcedSSEAndCatalogue(t *testing.T) {
	s := &Server{Era: Legacy, Stateless: true, ForceSSE: true, Tools: Builtin("a")}
	s.OnList = func(cursor string) (string, bool) { return `{"tools":"odd"}`, cursor == "odd" }
	s.Methods = map[string]func(*Call){"resources/list": func(c *Call) { c.Result(`{"resources":[]}`) }}
	s.OnRequest = func(c *Call) bool {
		if c.Method != "mine" {
			return false
		}
		c.Raw(418, "text/plain", "teapot")
		return true
	}
	url := s.StartHTTP(t).URL
	send := func(body string) string {
		resp, answer := do(t, client(t), request(t, "POST", url, body))
		return resp.Header.Get("Content-Type") + " " + answer
	}
	if got, want := send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), "text/event-stream data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"; got != want {
		t.Errorf("ping: %q, want %q", got, want)
	}
	if got := send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"odd"}}`); !strings.Contains(got, `"tools":"odd"`) {
		t.Errorf("OnList: %q", got)
	}
	if got := send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`); !strings.Contains(got, `"resources":[]`) {
		t.Errorf("Methods: %q", got)
	}
	if got := send(`{"jsonrpc":"2.0","id":1,"method":"mine"}`); got != "text/plain teapot" {
		t.Errorf("OnRequest: %q", got)
	}
	s.SetTools(Builtin("b", "c"))
	names := slices.Collect(func(yield func(string) bool) {
		for _, tool := range s.catalogue() {
			yield(tool.name())
		}
	})
	if !slices.Equal(names, []string{"b", "c"}) {
		t.Errorf("after SetTools: %v", names)
	}
}

// TestStopIsHeard: Stop returns after the clients have ended their connections too, however long they take to
// look.
func TestStopIsHeard(t *testing.T) {
	h := (&Server{}).StartHTTP(t)
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(h.URL, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	var heard atomic.Bool
	go func() {
		_, _ = in.ReadByte()
		time.Sleep(50 * time.Millisecond)
		heard.Store(true)
		_ = c.Close()
	}()
	h.Stop()
	if !heard.Load() {
		t.Error("the client's connection is still open")
	}
}
