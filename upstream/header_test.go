package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

func TestHeadersOfTheHop(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		s := &mcptest.Server{Era: era, ListChanged: true, Tools: []mcptest.Tool{
			{Def: `{"name":"grüße","inputSchema":{"type":"object","properties":{` +
				`"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"},"b":{"type":"boolean","x-mcp-header":"B"},` +
				`"n":{"type":["string","null"],"x-mcp-header":"N"},"o":{"type":"object","properties":{"p":{"type":"string","x-mcp-header":"P"}}}}}}`},
		}}
		cfg := httpAt(s.StartHTTP(t).URL)
		cfg.Headers = map[string]string{"authorization": "Bearer our-own-secret", "X-Ours": "1"}
		cfg.ForwardHeaders = []string{"X-Request-Id", "X-Many"}
		r := up(t, cfg, Options{})
		awaitAt(t, s, "the stream", func() bool { return s.Streams() == 1 })
		c := r.toolCall("grüße", `{"s":" ä","i":42,"b":true,"n":null,"o":{"p":"plain"}}`)
		c.Header = http.Header{}
		for _, name := range []string{"Authorization", "Cookie", "X-Foo", "Mcp-Session-Id", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name",
			"Mcp-Param-S", "Last-Event-Id", "Host", "Content-Length", "Content-Type", "Accept", "User-Agent", "Traceparent", "X-Forwarded-For", "Origin"} {
			c.Header.Set(name, "of-the-client")
		}
		c.Header.Set("X-Request-Id", "r-1")
		c.Header["X-Many"] = []string{"a", "b"}
		reply, err := r.Call(t.Context(), c)
		if err != nil || reply.Error != nil {
			t.Fatalf("%s, %v", reply.Error, err)
		}
		got := last(s, "tools/call").Header
		for name, values := range got {
			if strings.Contains(strings.Join(values, " "), "of-the-client") {
				t.Errorf("%s: %v", name, values)
			}
		}
		want := map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-Ours": "1", "X-Request-Id": "r-1",
			"Mcp-Method": "tools/call", "Mcp-Name": wire.EncodeHeaderValue("grüße"), "Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Param-S": wire.EncodeHeaderValue(" ä"), "Mcp-Param-I": "42", "Mcp-Param-B": "true", "Mcp-Param-N": "", "Mcp-Param-P": "plain", "Mcp-Session-Id": "",
		}
		if !strings.HasPrefix(want["Mcp-Name"], "=?base64?") || !strings.HasPrefix(want["Mcp-Param-S"], "=?base64?") {
			t.Error("the test encodes nothing")
		}
		if era == mcptest.Legacy {
			for name := range want {
				if strings.HasPrefix(name, "Mcp-") {
					want[name] = ""
				}
			}
			want["Mcp-Protocol-Version"] = "2025-11-25"
			want["Mcp-Session-Id"] = got.Get("Mcp-Session-Id")
			if want["Mcp-Session-Id"] == "" {
				t.Error("no session id")
			}
		}
		for name, value := range want {
			if strings.Join(got.Values(name), "|") != value {
				t.Errorf("%s is %q, want %q", name, got.Values(name), value)
			}
		}
		if many := strings.Join(got.Values("X-Many"), " "); many != "a b" {
			t.Errorf("X-Many %q", many)
		}
		r.stop()
		methods := map[string]bool{}
		for _, q := range s.Requests() {
			methods[q.Method] = true
			if auth := q.Header.Values("Authorization"); len(auth) != 1 || auth[0] != "Bearer our-own-secret" {
				t.Errorf("%s: Authorization %q", q.Method, auth)
			}
		}
		if era == mcptest.Legacy && !(methods["GET"] && methods["DELETE"] && methods["notifications/initialized"]) {
			t.Errorf("requests %v", methods)
		}
		if s.Sessions() != 0 {
			t.Error("a session is left")
		}
	})
}

func TestParamsOfTheHop(t *testing.T) {
	modern := &peer{era: Modern, version: "2026-07-28", clientInfo: jsontext.Value(`{"name":"headgate","version":"0"}`)}
	legacy := &peer{era: Legacy, version: "2025-11-25"}
	const fields = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"headgate","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}`
	const theirs = `"io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientInfo":1,"io.modelcontextprotocol/clientCapabilities":{"a":1},"io.modelcontextprotocol/logLevel":"debug"`
	for _, tt := range []struct {
		name string
		peer *peer
		in   string // "" for no params
		want string
	}{
		{"modern, nothing", modern, ``, `{"_meta":{` + fields + `}}`},
		{"modern, members as they stood", modern, `{"z":1.0,"arguments":{ "b":9007199254740993,"b":2},"a":null}`,
			`{"z":1.0,"arguments":{ "b":9007199254740993,"b":2},"a":null,"_meta":{` + fields + `}}`},
		{"modern, _meta in its place", modern, `{"_meta":{"x.y/z":1.0,"progressToken":"theirs"},"a":1}`, `{"_meta":{"x.y/z":1.0,` + fields + `},"a":1}`},
		{"modern, the client's fields are replaced", modern, `{"_meta":{` + theirs + `}}`, `{"_meta":{` + fields + `}}`},
		{"legacy, nothing", legacy, ``, ``},
		{"legacy, the client's fields go", legacy, `{"a":1,"_meta":{` + theirs + `,"progressToken":1}}`, `{"a":1}`},
		{"legacy, the rest of _meta stays", legacy, `{"_meta":{"k":"v",` + theirs + `}}`, `{"_meta":{"k":"v"}}`},
		{"legacy, an empty _meta stays", legacy, `{"_meta":{},"a":1}`, `{"_meta":{},"a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var in wire.Object
			if tt.in != "" {
				var err error
				if in, err = wire.ParseObject(jsontext.Value(tt.in)); err != nil {
					t.Fatal(err)
				}
			}
			if got := string(tt.peer.params(in, nil, nil)); got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
	hop := &hopFields{capabilities: jsontext.Value(`{"elicitation":{}}`), logLevel: "info", progress: jsontext.Value(`7`)}
	if got := string(modern.params(nil, nil, hop)); !strings.Contains(got, `"progressToken":7`) || !strings.Contains(got, `clientCapabilities":{"elicitation":{}}`) ||
		!strings.Contains(got, `logLevel":"info"`) {
		t.Errorf("got %s", got)
	}
	if got := string(legacy.params(nil, nil, hop)); got != `{"_meta":{"progressToken":7}}` {
		t.Errorf("got %s", got)
	}
}

func TestHeaderArguments(t *testing.T) {
	for value, want := range map[string]string{
		`"a"`: "a", `""`: "", `7`: "7", `7.0`: "7", `-0`: "0", `1e3`: "1000", `9007199254740993`: "9007199254740993", `true`: "true", `false`: "false",
	} {
		if got, _, ok := headerArgument(jsontext.Value(`{"p":`+value+`}`), []string{"p"}); !ok || got != want {
			t.Errorf("%s: %q, %v", value, got, ok)
		}
	}
	for _, value := range []string{`null`, `"\ud800"`, `{}`, `[]`, `1.5`, `1e300`, `1e400`} {
		if got, _, ok := headerArgument(jsontext.Value(`{"p":`+value+`}`), []string{"p"}); ok {
			t.Errorf("%s: %q", value, got)
		}
	}
	if _, _, ok := headerArgument(jsontext.Value(`{"p":"x"}`), []string{"p", "q"}); ok {
		t.Error("an argument inside a string")
	}
	if _, _, ok := headerArgument(jsontext.Value(`{"p":"x","p":"y"}`), []string{"p"}); ok {
		t.Error("an argument that stands twice")
	}
}

func TestCheckHeaders(t *testing.T) {
	tool, _, err := inspectTool(jsontext.Value(`{"name":"x","inputSchema":{"type":"object","properties":{` +
		`"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, args string
		header     http.Header
		bad        bool
	}{
		{"right", `{"s":"a","i":1}`, http.Header{"Mcp-Param-S": {"a"}, "Mcp-Param-I": {"1"}}, false},
		{"encoded", `{"s":"ä"}`, http.Header{"Mcp-Param-S": {"=?base64?w6Q=?="}}, false},
		{"another spelling of the number", `{"i":1}`, http.Header{"Mcp-Param-I": {"1.0"}}, false},
		{"nothing", `{}`, http.Header{}, false},
		{"null", `{"s":null}`, http.Header{}, false},
		{"missing", `{"s":"a"}`, http.Header{}, true},
		{"without an argument", `{}`, http.Header{"Mcp-Param-S": {"a"}}, true},
		{"different", `{"s":"a"}`, http.Header{"Mcp-Param-S": {"b"}}, true},
		{"different number", `{"i":1}`, http.Header{"Mcp-Param-I": {"2"}}, true},
		{"twice", `{"s":"a"}`, http.Header{"Mcp-Param-S": {"a", "a"}}, true},
		{"broken encoding", `{"s":"a"}`, http.Header{"Mcp-Param-S": {"=?base64?***?="}}, true},
	} {
		params, err := wire.ParseObject(jsontext.Value(`{"arguments":` + tt.args + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := tool.CheckHeaders(tt.header, params); (got != "") != tt.bad {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
