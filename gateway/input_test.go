package gateway

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// echoGate is a gateway in front of one server x with the tool echo.
func echoGate(t testing.TB, more ...string) (*gate, *mcptest.Server) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo", "add")}
	return launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, more...), Options{}), s
}

// TestBadMessages sends bytes that are no message, or one that two parsers could read in two ways.
func TestBadMessages(t *testing.T) {
	g, s := echoGate(t)
	session := g.open()
	call := func(params string) string { return legacyBody("7", "tools/call", params) }
	tests := []struct {
		name, body string
		code, id   string
		status     int // for modern clients, and for all where the envelope is bad
	}{
		{"nothing", ``, "-32700", "", 400},
		{"blank", " \n", "-32700", "", 400},
		{"no JSON", `hello`, "-32700", "", 400},
		{"half", `{"jsonrpc":"2.0","id":7,"method":"tools/list"`, "-32700", "", 400},
		{"two values", legacyBody("7", "tools/list", "") + `{}`, "-32700", "", 400},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}", "-32700", "", 400},
		{"batch", `[` + legacyBody("7", "tools/list", "") + `]`, "-32600", "", 400},
		{"empty batch", `[]`, "-32600", "", 400},
		{"a string", `"tools/list"`, "-32600", "", 400},
		{"null", `null`, "-32600", "", 400},
		{"no version", `{"id":7,"method":"tools/list"}`, "-32600", "7", 400},
		{"other version", `{"jsonrpc":"1.0","id":7,"method":"tools/list"}`, "-32600", "7", 400},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, "-32600", "", 400},
		{"id an object", `{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, "-32600", "", 400},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"tools/list"}`, "-32600", "", 400},
		{"method a number", `{"jsonrpc":"2.0","id":7,"method":1}`, "-32600", "7", 400},
		{"method and result", `{"jsonrpc":"2.0","id":7,"method":"tools/list","result":{}}`, "-32600", "7", 400},
		{"params a list", legacyBody("7", "tools/list", "[]"), "-32602", "7", 400},
		{"params a string", legacyBody("7", "tools/list", `"x"`), "-32602", "7", 400},
		{"two ids", `{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/list"}`, "-32600", "", 400},
		{"two methods", `{"jsonrpc":"2.0","id":7,"method":"tools/list","method":"tools/call"}`, "-32600", "7", 400},
		{"two params", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{},"params":{"name":"x_echo"}}`, "-32600", "7", 400},
		{"a name in escapes twice", `{"jsonrpc":"2.0","id":7,"method":"tools/list","\u006dethod":"tools/call"}`, "-32600", "7", 400},
		{"Method", `{"jsonrpc":"2.0","id":7,"method":"tools/list","Method":"tools/call"}`, "-32600", "7", 400},
		{"ID", `{"jsonrpc":"2.0","id":7,"method":"tools/list","ID":8}`, "-32600", "7", 400},
		{"params with a long s", `{"jsonrpc":"2.0","id":7,"method":"tools/list","paramſ":{}}`, "-32600", "7", 400},
		{"deep", legacyBody("7", "tools/call", `{"name":"x_echo","arguments":{"a":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+`}}`), "-32600", "7", 400},
		{"deep and unclosed", strings.Repeat(`{"a":`, 100_000), "-32600", "", 400},
	}
	params := []struct{ name, params string }{
		{"two names", `{"name":"x_echo","name":"x_add"}`},
		{"a name in escapes twice", `{"name":"x_echo","n\u0061me":"x_add"}`},
		{"Name", `{"name":"x_echo","Name":"x_add"}`},
		{"NAME alone", `{"NAME":"x_echo"}`},
		{"Arguments", `{"name":"x_echo","arguments":{},"Arguments":{"a":1}}`},
		{"argumentſ", `{"name":"x_echo","argumentſ":{}}`},
		{"_Meta", `{"name":"x_echo","_Meta":{}}`},
		{"unknown twice", `{"name":"x_echo","x":1,"x":2}`},
		{"_meta a list", `{"name":"x_echo","_meta":[]}`},
		{"_meta null", `{"name":"x_echo","_meta":null}`},
		{"_meta with a name twice", `{"name":"x_echo","_meta":{"a":1,"a":2}}`},
		{"ProgressToken", `{"name":"x_echo","_meta":{"progressToken":1,"ProgressToken":2}}`},
		{"progressToken in the Kelvin sign", `{"name":"x_echo","_meta":{"progressTo` + "\u212a" + `en":2}}`},
		{"progressToken an object", `{"name":"x_echo","_meta":{"progressToken":{}}}`},
		{"progressToken null", `{"name":"x_echo","_meta":{"progressToken":null}}`},
	}
	pipe := g.pipe()
	pipe.shakeHands()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, header := range [][]string{{session}, modernHeaders("tools/list"), nil} {
				r := g.post(tt.body, header...)
				if r.status != tt.status || at(t, r.body, "error", "code") != tt.code || at(t, r.body, "id") != tt.id || r.header.Get("Content-Type") != "application/json" {
					t.Errorf("%v: %d %s", header, r.status, clip(r.body))
				}
			}
			if strings.Trim(tt.body, " \n") == "" {
				return // an empty line is no message
			}
			pipe.send(tt.body)
			if got := pipe.next(); at(t, got, "error", "code") != tt.code || at(t, got, "id") != tt.id {
				t.Errorf("stdio: %s", clip(got))
			}
		})
	}
	for _, tt := range params {
		t.Run("params, "+tt.name, func(t *testing.T) {
			r := g.post(call(tt.params), session)
			if r.status != 200 || at(t, r.body, "error", "code") != "-32602" || at(t, r.body, "id") != "7" {
				t.Errorf("legacy: %d %s", r.status, r.body)
			}
			r = g.post(call(tt.params), modernHeaders("tools/call", "Mcp-Name: x_echo")...)
			if r.status != 400 || at(t, r.body, "error", "code") != "-32602" || at(t, r.body, "id") != "7" {
				t.Errorf("modern: %d %s", r.status, r.body)
			}
			if got := pipe.call("7", call(tt.params)); at(t, got, "error", "code") != "-32602" {
				t.Errorf("stdio: %s", got)
			}
		})
	}
	if n := s.Executions("echo") + s.Executions("add"); n != 0 {
		t.Errorf("%d of these reached a tool", n)
	}
}

// TestIDsComeBackAsTheyWere: every legal id, byte for byte, in results and in errors.
func TestIDsComeBackAsTheyWere(t *testing.T) {
	g, _ := echoGate(t)
	session, pipe := g.open(), g.pipe()
	pipe.shakeHands()
	for _, id := range []string{`1`, `0`, `-0`, `-1`, `1.0`, `1.5`, `1e3`, `1E+3`, `9007199254740993`, `123456789012345678901234567890`, `1e400`,
		`""`, `"1"`, `" "`, `"\u0061"`, `"a\/b"`, `"\ud83d\ude00"`, `"😀"`, `"\ud800"`, `"\u0000"`, `"null"`, `"` + strings.Repeat("x", 1000) + `"`} {
		result := `{"jsonrpc":"2.0","id":` + id + `,"result":{`
		failed := `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"Unknown tool: none"}}`
		for name, got := range map[string]string{
			"modern": g.callModern(id, "x_echo", "{}").body,
			"legacy": g.callLegacy(session, id, "x_echo", "{}").body,
			"stdio":  pipe.call(id, legacyBody(id, "tools/call", `{"name":"x_echo"}`)),
			"list":   g.modern(id, "tools/list", "").body,
		} {
			if !strings.HasPrefix(got, result) {
				t.Errorf("%s: %s", name, clip(got))
			}
		}
		for name, got := range map[string]string{
			"modern": g.callModern(id, "none", "{}").body,
			"legacy": g.callLegacy(session, id, "none", "{}").body,
			"stdio":  pipe.call(id, legacyBody(id, "tools/call", `{"name":"none"}`)),
		} {
			if got != failed {
				t.Errorf("%s, error: %s", name, clip(got))
			}
		}
	}
}

// TestModernHeaders holds the headers of a request against its body (2026-07-28, "Server Validation").
func TestModernHeaders(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"plain","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"Å ä","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"region","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"},"b":{"type":"boolean","x-mcp-header":"Flag"}}}}`},
	}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	const v, m = "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"
	const plain, region = "Mcp-Name: x_plain", "Mcp-Name: x_region"
	tests := []struct {
		name, tool, args string
		header           []string
		ok               bool
	}{
		{"all", "x_plain", "{}", []string{v, m, plain}, true},
		{"name in base64", "x_plain", "{}", []string{v, m, "Mcp-Name: =?base64?eF9wbGFpbg==?="}, true},
		{"name with spaces around", "x_plain", "{}", []string{v, m, "Mcp-Name:   x_plain  "}, true},
		{"no version", "x_plain", "{}", []string{m, plain}, false},
		{"version of the other era", "x_plain", "{}", []string{"Mcp-Protocol-Version: 2025-11-25", m, plain}, false},
		{"version twice", "x_plain", "{}", []string{v, v, m, plain}, false},
		{"version in base64", "x_plain", "{}", []string{"Mcp-Protocol-Version: =?base64?MjAyNi0wNy0yOA==?=", m, plain}, false},
		{"no method", "x_plain", "{}", []string{v, plain}, false},
		{"other method", "x_plain", "{}", []string{v, "Mcp-Method: tools/list", plain}, false},
		{"method in capitals", "x_plain", "{}", []string{v, "Mcp-Method: TOOLS/CALL", plain}, false},
		{"method twice", "x_plain", "{}", []string{v, m, m, plain}, false},
		{"method in base64", "x_plain", "{}", []string{v, "Mcp-Method: =?base64?dG9vbHMvY2FsbA==?=", plain}, false},
		{"no name", "x_plain", "{}", []string{v, m}, false},
		{"other name", "x_plain", "{}", []string{v, m, region}, false},
		{"name twice", "x_plain", "{}", []string{v, m, plain, plain}, false},
		{"name twice in one", "x_plain", "{}", []string{v, m, "Mcp-Name: x_plain, x_plain"}, false},
		{"name in bad base64", "x_plain", "{}", []string{v, m, "Mcp-Name: =?base64?eF9wbGFpbg?="}, false},
		{"name not in ASCII", "x_plain", "{}", []string{v, m, "Mcp-Name: x_pläin"}, false},
		{"arguments in headers", "x_region", `{"region":"eu","n":42,"b":true}`, []string{v, m, region, "Mcp-Param-Region: eu", "Mcp-Param-Count: 42", "Mcp-Param-Flag: true"}, true},
		{"argument in base64", "x_region", `{"region":"Malmö"}`, []string{v, m, region, "Mcp-Param-Region: =?base64?TWFsbcO2?="}, true},
		{"arguments that are not given", "x_region", `{}`, []string{v, m, region}, true},
		{"argument null", "x_region", `{"region":null}`, []string{v, m, region}, true},
		{"no header for an argument", "x_region", `{"region":"eu"}`, []string{v, m, region}, false},
		{"header without the argument", "x_region", `{}`, []string{v, m, region, "Mcp-Param-Region: eu"}, false},
		{"header for null", "x_region", `{"region":null}`, []string{v, m, region, "Mcp-Param-Region: null"}, false},
		{"other argument", "x_region", `{"region":"eu"}`, []string{v, m, region, "Mcp-Param-Region: us"}, false},
		{"argument twice", "x_region", `{"region":"eu"}`, []string{v, m, region, "Mcp-Param-Region: eu", "Mcp-Param-Region: eu"}, false},
		{"argument in bad base64", "x_region", `{"region":"eu"}`, []string{v, m, region, "Mcp-Param-Region: =?base64?!?="}, false},
		{"number by value", "x_region", `{"n":42.0}`, []string{v, m, region, "Mcp-Param-Count: 42"}, true},
		{"number by value, the other way", "x_region", `{"n":42}`, []string{v, m, region, "Mcp-Param-Count: 42.0"}, true},
		{"other number", "x_region", `{"n":42}`, []string{v, m, region, "Mcp-Param-Count: 43"}, false},
		{"strings that are equal as numbers", "x_region", `{"region":"42"}`, []string{v, m, region, "Mcp-Param-Region: 42.0"}, false},
		{"boolean as a number", "x_region", `{"b":true}`, []string{v, m, region, "Mcp-Param-Flag: 1"}, false},
		{"unknown Mcp-Param", "x_plain", "{}", []string{v, m, plain, "Mcp-Param-Other: x"}, true},
	}
	ran := func() int { return s.Executions("plain") + s.Executions("region") }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := ran()
			r := g.post(modernBody("1", "tools/call", callParams(tt.tool, tt.args)), tt.header...)
			switch {
			case tt.ok && (r.status != 200 || at(t, r.body, "result") == "" || ran() != before+1):
				t.Errorf("%d %s", r.status, r.body)
			case !tt.ok && (r.status != 400 || at(t, r.body, "error", "code") != "-32020" || at(t, r.body, "id") != "1" || ran() != before):
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	t.Run("name that no header can hold", func(t *testing.T) {
		name := g.tools()[0].Name
		if r := g.callModern("1", name, "{}"); r.status != 200 || at(t, r.body, "result") == "" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	})
	t.Run("list", func(t *testing.T) {
		r := g.post(modernBody("1", "tools/list", ""), v, m)
		if r.status != 400 || at(t, r.body, "error", "code") != "-32020" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	// Clients of the other era send none of these, and stdio has no headers.
	if r := g.callLegacy(g.open(), "1", "x_region", `{"region":"eu"}`); at(t, r.body, "result") == "" {
		t.Errorf("legacy: %s", r.body)
	}
	if got := g.pipe().call("1", modernBody("1", "tools/call", callParams("x_region", `{"region":"eu"}`))); at(t, got, "result") == "" {
		t.Errorf("stdio: %s", got)
	}
}

// TestModernFields: the fields of _meta that every modern request has.
func TestModernFields(t *testing.T) {
	g, _ := echoGate(t)
	pipe := g.pipe()
	const version, caps = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`
	unsupported := `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}`
	tests := []struct {
		name, meta, header string
		code, data         string
		httpOnly           bool
	}{
		{"no version", caps, "2026-07-28", "-32602", "", true},
		{"no _meta members", ``, "2026-07-28", "-32602", "", true},
		{"version a number", `"io.modelcontextprotocol/protocolVersion":7,` + caps, "2026-07-28", "-32602", "", false},
		{"no capabilities", version, "2026-07-28", "-32602", "", false},
		{"capabilities null", version + `,"io.modelcontextprotocol/clientCapabilities":null`, "2026-07-28", "-32602", "", false},
		{"clientInfo a string", version + "," + caps + `,"io.modelcontextprotocol/clientInfo":"me"`, "2026-07-28", "-32602", "", false},
		{"logLevel wrong", version + "," + caps + `,"io.modelcontextprotocol/logLevel":"loud"`, "2026-07-28", "-32602", "", false},
		{"logLevel a number", version + "," + caps + `,"io.modelcontextprotocol/logLevel":1`, "2026-07-28", "-32602", "", false},
		{"unknown version", `"io.modelcontextprotocol/protocolVersion":"2027-01-01",` + caps, "2027-01-01", "-32022", unsupported, false},
		{"unknown version in the header alone", ``, "2027-01-01", "-32022", unsupported, true},
		{"legacy version in both", `"io.modelcontextprotocol/protocolVersion":"2025-11-25",` + caps, "2025-11-25", "-32022", strings.Replace(unsupported, "2027-01-01", "2025-11-25", 1), false},
		{"fields in other case", version + "," + caps + `,"io.modelcontextprotocol/ProtocolVersion":"2025-11-25"`, "2026-07-28", "-32602", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + tt.meta + `}}}`
			r := g.post(body, "Mcp-Protocol-Version: "+tt.header, "Mcp-Method: tools/list")
			if r.status != 400 || at(t, r.body, "error", "code") != tt.code || at(t, r.body, "error", "data") != tt.data {
				t.Errorf("%d %s", r.status, r.body)
			}
			if tt.httpOnly {
				return
			}
			if got := pipe.call("1", body); at(t, got, "error", "code") != tt.code || at(t, got, "error", "data") != tt.data {
				t.Errorf("stdio: %s", got)
			}
		})
	}
	t.Run("stdio without any era", func(t *testing.T) {
		for method, code := range map[string]string{"tools/list": "-32600", "server/discover": "-32602", "tools/call": "-32600"} {
			if got := pipe.call("1", legacyBody("1", method, "")); at(t, got, "error", "code") != code {
				t.Errorf("%s: %s", method, got)
			}
		}
		if got := pipe.call("1", legacyBody("1", "ping", "")); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("ping: %s", got)
		}
	})
}

func TestUnknownMethods(t *testing.T) {
	g, _ := echoGate(t)
	session := g.open()
	for _, method := range []string{"tools/unknown", "Tools/List", "ping", "initialize", "logging/setLevel", "resources/list", "prompts/get", "tasks/get"} {
		r := g.modern("1", method, "", "Mcp-Name: x")
		if r.status != 404 || at(t, r.body, "error", "code") != "-32601" {
			t.Errorf("modern %q: %d %s", method, r.status, r.body)
		}
	}
	for _, method := range []string{"tools/unknown", "Tools/List", "server/discover", "subscriptions/listen", "resources/list", strings.Repeat("å", 200)} {
		r := g.post(legacyBody("1", method, ""), session)
		if r.status != 200 || at(t, r.body, "error", "code") != "-32601" || len(r.body) > 400 {
			t.Errorf("legacy %q: %d %s", method, r.status, r.body)
		}
	}
}
