package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/wire"
)

// FuzzCursor: nothing but what was handed out is taken for a cursor.
func FuzzCursor(f *testing.F) {
	c := newCursors()
	f.Add(c.make("tools/list", "anonymous", "x_echo"), "x_echo")
	f.Add("", "")
	f.Add("AAAAAAAAAAAAAAAAAAAAAA", "a")
	f.Add(strings.Repeat("A", 2000), "\x00\xff")
	f.Fuzz(func(t *testing.T, cursor, name string) {
		if last, err := c.read("tools/list", "anonymous", cursor); err == nil && c.make("tools/list", "anonymous", last) != cursor {
			t.Errorf("%q was taken for the cursor of %q", cursor, last)
		}
		own := c.make("tools/list", "anonymous", name)
		last, err := c.read("tools/list", "anonymous", own)
		if len(own) <= 1024 && (err != nil || last != name) {
			t.Errorf("the cursor of %q gives %q, %v", name, last, err)
		}
		if _, err := c.read("prompts/list", "anonymous", own); err == nil {
			t.Error("a cursor of another method was taken")
		}
	})
}

// messageSeeds are messages of every kind, well-formed and not.
func messageSeeds() []string {
	return []string{
		initializeBody,
		legacyBody("1", "tools/list", ""),
		legacyBody("1", "tools/list", `{"cursor":"x"}`),
		legacyBody(`"a"`, "tools/call", `{"name":"x_echo","arguments":{"a":1.0}}`),
		legacyBody("1", "tools/call", `{"name":"x_echo","Name":"x_add"}`),
		legacyBody("1", "tools/call", `{"name":7}`),
		legacyBody("1", "logging/setLevel", `{"level":"info"}`),
		legacyBody("1", "ping", ""),
		modernBody("1", "server/discover", ""),
		modernBody("1", "tools/list", `"cursor":null`),
		modernBody("1", "tools/call", `"name":"x_echo","arguments":{}`, `"progressToken":1`),
		modernBody("1", "tools/call", `"name":"x_add","arguments":{"a":1,"b":2}`, `"io.modelcontextprotocol/logLevel":"debug"`),
		strings.Replace(modernBody("1", "tools/list", ""), "2026-07-28", "2027-01-01", 1),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`,
		`[]`, `{}`, `null`, ``, `{"jsonrpc":"2.0","id":{},"method":"x"}`, "\xff", `{"a":` + strings.Repeat("[", 2000),
	}
}

// FuzzHTTPBody posts arbitrary bytes, as clients of both eras and of none. Whatever comes, the answer
// can be read, and it is never that the server is at fault.
func FuzzHTTPBody(f *testing.F) {
	g, _ := echoGate(f)
	h := g.Handler()
	session := strings.TrimPrefix(g.open(), sessionHeader+": ")
	for _, s := range messageSeeds() {
		for kind := range byte(3) {
			f.Add([]byte(s), kind)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, kind byte) {
		if m, err := wire.Parse(body); err == nil && m.Method == "subscriptions/listen" {
			return // an open end
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		switch kind % 3 {
		case 1:
			r.Header.Set(sessionHeader, session)
		case 2:
			r.Header.Set("Mcp-Protocol-Version", modernVersion)
			if m, err := wire.Parse(body); err == nil {
				params, _ := wire.ParseObject(m.Params)
				raw, _ := params.Get("name")
				name, _ := wire.String(raw)
				r.Header.Set("Mcp-Method", m.Method)
				r.Header.Set("Mcp-Name", wire.EncodeHeaderValue(name))
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		answer := reply{w.Code, w.Header(), w.Body.String()}
		if w.Code == http.StatusAccepted && answer.body == "" {
			return
		}
		if m, err := wire.Parse([]byte(answer.message())); err != nil || m.Kind != wire.KindResponse {
			t.Errorf("%d %q: %v", w.Code, answer.body, err)
		}
	})
}

// FuzzStdioLine sends arbitrary lines over stdin: every line that comes back is a message.
func FuzzStdioLine(f *testing.F) {
	g, _ := echoGate(f)
	for _, s := range messageSeeds() {
		f.Add([]byte(s))
		f.Add([]byte(initializeBody + "\n" + s + "\r\n" + s))
	}
	f.Add([]byte(modernBody("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`) + "\n"))
	f.Fuzz(func(t *testing.T, input []byte) {
		var out bytes.Buffer
		if err := g.ServeStdio(t.Context(), authz.Anonymous(), bytes.NewReader(input), &out); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out.Bytes()) {
			if _, err := wire.Parse(line); err != nil || !bytes.HasSuffix(line, []byte("\n")) {
				t.Errorf("%q: %v", line, err)
			}
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); n > bytes.Count(input, []byte("\n"))*2+2 {
			t.Errorf("%d lines for %q", n, input)
		}
	})
}
