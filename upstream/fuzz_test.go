package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// FuzzRetryAfter: whatever a server says, the wait is neither negative nor without end.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "7", "99999999999999999999", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", " 3"} {
		f.Add(s)
	}
	now := time.Date(2026, 10, 21, 7, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d, ok := retryAfter(s, now); d < 0 || d > time.Hour || !ok && d != 0 {
			t.Errorf("%q is %v, %t", s, d, ok)
		}
	})
}

// FuzzEndpoint: no endpoint event leads to another origin, where the configured credentials would go too.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"event: endpoint\ndata: /messages?sessionId=1\n\n", "event: endpoint\ndata: http://other.example/m\n\n",
		"event: endpoint\ndata: //other.example/m\n\n", "event: endpoint\r\ndata: http://up.example:80@other.example/\r\n\r\n", "data: /x\n\n", "event: endpoint\ndata: \\\\other\n\n", ""} {
		f.Add([]byte(s))
	}
	const base = "http://up.example:80/sse"
	f.Fuzz(func(t *testing.T, stream []byte) {
		got, err := readEndpoint(wire.NewEventReader(strings.NewReader(string(stream)), 1<<16), base)
		if err != nil {
			return
		}
		if u, err := url.Parse(got); err != nil || u.Scheme != "http" || u.Host != "up.example:80" {
			t.Errorf("%q leads to %q, %v", stream, got, err)
		}
	})
}

// FuzzListPage: a page of a list costs what is wrong with it and no more: whatever stands in a catalogue is
// JSON under a name that stands there once.
func FuzzListPage(f *testing.F) {
	for _, s := range []string{`{"tools":[{"name":"a","inputSchema":{}},{"name":"a"},{},null,7],"ttlMs":5,"nextCursor":"x"}`,
		`{"tools":{}}`, `{"tools":[{"name":"\u0000"}],"ttlMs":-99999999999999999999}`, `{"tools":[[[]]],"ttlMs":9223372036854775807}`, `[]`, `{"tools":[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		result, err := wire.ParseObject(slices.Clone(page))
		if err != nil {
			return
		}
		c := &Catalogue{TTL: -1}
		limitTTL(&c.TTL, result)
		if c.TTL < -1 || c.TTL > 24*time.Hour {
			t.Errorf("the TTL is %v", c.TTL)
		}
		raw, _ := result.Get("tools")
		defs, err := wire.Array(raw)
		if err != nil {
			return
		}
		list := readingTools("x", c)
		for _, def := range defs {
			list.take(def)
		}
		seen := map[string]bool{}
		for _, tool := range c.Tools {
			if seen[tool.Name] || !tool.Definition.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
				t.Errorf("tool %q: %s", tool.Name, tool.Definition)
			}
			seen[tool.Name] = true
		}
		if len(c.Tools) < len(defs) && len(list.findings) == 0 {
			t.Errorf("%d of %d tools, and no finding", len(c.Tools), len(defs))
		}
	})
}

// FuzzParamHeaders: the headers that this hop makes of arguments are those that it accepts itself, and can
// be sent.
func FuzzParamHeaders(f *testing.F) {
	tool, _, err := inspectTool(jsontext.Value(`{"name":"x","inputSchema":{"type":"object","properties":{` +
		`"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"},"b":{"type":"boolean","x-mcp-header":"B"}}}}`))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{"arguments":{"s":"a","i":1,"b":true}}`, `{"arguments":{"s":" ü\n","i":1e3}}`, `{"arguments":{"s":null,"i":"1"}}`,
		`{"arguments":{"s":"=?base64?eA==?=","i":-0}}`, `{"arguments":[]}`, `{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		params, err := wire.ParseObject(slices.Clone(raw))
		if err != nil {
			return
		}
		h := http.Header{}
		paramHeaders(h, &tool, params)
		for name, values := range h {
			for _, v := range values {
				if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) || strings.TrimSpace(v) != v {
					t.Errorf("%s cannot be sent: %q", name, v)
				}
			}
		}
		if why := tool.CheckHeaders(h, params); why != "" {
			t.Errorf("%s: %v is refused: %s", raw, h, why)
		}
	})
}

// FuzzAnswer has a server answer a call with arbitrary bytes, as a body and as a stream. It comes to a reply
// of valid JSON or to a failure with a reason, and the next call is answered.
func FuzzAnswer(f *testing.F) {
	good := `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
	f.Add(uint16(0), false, []byte(good))
	f.Add(uint16(0), true, []byte("data: "+good+"\n\n"))
	f.Add(uint16(0), true, []byte(": x\r\n\r\nid: 1\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":ID}}\n\ndata: "+good+"\n\n"))
	f.Add(uint16(200), false, []byte(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"m"}}`))
	f.Add(uint16(303), false, []byte("<html>"))
	f.Add(uint16(2), false, []byte(nil))
	var answer atomic.Pointer[func(c *mcptest.Call)]
	s := &mcptest.Server{Forgetful: true, Tools: []mcptest.Tool{tool("bad", func(c *mcptest.Call) { (*answer.Load())(c) }), tool("good", nil)}}
	cfg := httpAt(s.StartHTTP(f).URL)
	cfg.CallTimeout, cfg.MaxAnswer, cfg.Breaker.Failures = 5*time.Second, 1<<16, 0
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	changed := make(chan struct{}, 1)
	u := New(cfg, Options{MaxBackoff: 10 * time.Millisecond, OnChange: func() { signal(changed) }})
	running.Go(func() { u.Run(ctx) })
	f.Cleanup(func() {
		cancel()
		running.Wait()
	})
	awaitUp := func() {
		for u.Status().State != Up {
			<-changed
		}
	}
	call := func(t *testing.T, name string) (*Reply, error) {
		params := wire.Object{{Name: "name", Raw: jsontext.Value(`"name"`), Value: jsontext.Value(`"srv_` + name + `"`)}}
		return u.Call(t.Context(), &Call{Method: "tools/call", Params: params, Name: name})
	}
	f.Fuzz(func(t *testing.T, status uint16, stream bool, body []byte) {
		awaitUp()
		play := func(c *mcptest.Call) {
			text := strings.ReplaceAll(string(body), "ID", c.ID)
			if stream {
				c.WriteSSE(text)
			} else {
				c.Raw(200+int(status)%400, "application/json", text)
			}
		}
		answer.Store(&play)
		reply, err := call(t, "bad")
		switch {
		case err != nil:
			var failed *failure.Failure
			if !errors.As(err, &failed) || failed.Reason == "" || failed.Outcome == "" {
				t.Errorf("no failure: %v", err)
			}
		case (reply.Result == nil) == (reply.Error == nil), reply.Result != nil && !jsontext.Value(reply.Result).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)):
			t.Errorf("the reply is %s, %s", reply.Result, reply.Error)
		}
		awaitUp() // a status may say that the hop has to be set up again
		if _, err := call(t, "good"); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}
