package gateway

import (
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/mcptest"
)

// schemas are the compiled definitions of one protocol version.
type schemas struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	url      string
	prefix   string // of a definition
}

func loadSchemas(t *testing.T, version string) *schemas {
	t.Helper()
	file, err := os.Open("testdata/schema/" + version + ".json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	doc, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &schemas{t: t, compiler: jsonschema.NewCompiler(), url: "mem:///" + version + ".json", prefix: "#/$defs/"}
	if _, old := doc.(map[string]any)["definitions"]; old {
		s.prefix = "#/definitions/"
	}
	if err := s.compiler.AddResource(s.url, doc); err != nil {
		t.Fatal(err)
	}
	return s
}

// check holds a message, or a part of one, against definitions.
func (s *schemas) check(what, text string, definitions ...string) {
	s.t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		s.t.Errorf("%s: %v: %s", what, err, text)
		return
	}
	for _, d := range definitions {
		compiled, err := s.compiler.Compile(s.url + s.prefix + d)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := compiled.Validate(value); err != nil {
			s.t.Errorf("%s is no %s: %v\n%s", what, d, err, text)
		}
	}
}

// refutes checks that the definitions can tell right from wrong at all.
func (s *schemas) refutes(definition, text string) {
	s.t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	compiled, err := s.compiler.Compile(s.url + s.prefix + definition)
	if err != nil {
		s.t.Fatal(err)
	}
	if compiled.Validate(value) == nil {
		s.t.Errorf("%s accepts %s", definition, text)
	}
}

// ownWords is a gateway that has something of its own to say: two servers, one of them down.
func ownWords(t *testing.T) *gate {
	var tools []mcptest.Tool
	for _, s := range samples(t, "tools") {
		if s.name != "unicode" && s.name != "escapes" { // half pairs, which no schema library reads
			tools = append(tools, mcptest.Tool{Def: s.raw})
		}
	}
	up := &mcptest.Server{ListChanged: true, Instructions: "Use it.", Tools: tools}
	down := &mcptest.Server{Era: mcptest.Legacy, Capabilities: `{"logging":{}}`, Tools: []mcptest.Tool{
		{Def: `{"name":"gone","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"odd","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Result(`"odd"`) }},
	}}
	downHTTP := down.StartHTTP(t)
	g := launch(t, parseConfig(t, map[string]string{"up": entry(up.StartHTTP(t)), "down": entry(downHTTP)}), Options{Version: "1.2.3"})
	if got := at(t, g.callModern("1", "down_odd", "{}").body, "error", "data", "headgate", "reason"); got != `"bad_upstream_answer"` {
		t.Fatalf("down_odd: %s", got)
	}
	downHTTP.Stop()
	return g
}

func TestModernSchema(t *testing.T) {
	s := loadSchemas(t, "2026-07-28")
	s.refutes("ListToolsResultResponse", `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[]}}`)
	s.refutes("JSONRPCErrorResponse", `{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}`)
	g := ownWords(t)
	s.check("discover", g.modern("1", "server/discover", "").body, "DiscoverResultResponse", "JSONRPCResultResponse")
	s.check("list", g.modern(`"a"`, "tools/list", "").body, "ListToolsResultResponse", "JSONRPCResultResponse")
	s.check("a failure of Headgate's", g.callModern("1", "down_gone", "{}").body, "CallToolResultResponse", "JSONRPCResultResponse")
	s.check("unknown tool", g.callModern("1", "none", "{}").body, "JSONRPCErrorResponse")
	s.check("unknown tool, the error", at(t, g.callModern("1", "none", "{}").body, "error"), "InvalidParamsError")
	// JSON-RPC wants a null id where none could be read; the schema knows only its absence.
	s.check("bad JSON", g.post("{").body, "JSONRPCErrorResponse")
	s.check("bad JSON, the error", at(t, g.post("{").body, "error"), "ParseError")
	s.check("batch, the error", at(t, g.post("[]").body, "error"), "InvalidRequestError")
	s.check("unknown method, the error", at(t, g.modern("1", "no/such", "").body, "error"), "MethodNotFoundError")
	s.check("headers", g.post(modernBody("1", "tools/list", ""), "Mcp-Protocol-Version: 2026-07-28").body, "HeaderMismatchError")
	version := modernBody("1", "tools/list", "")
	version = strings.Replace(version, "2026-07-28", "2030-01-01", 1)
	s.check("version", g.post(version, "Mcp-Protocol-Version: 2030-01-01").body, "UnsupportedProtocolVersionError")

	whole := g.snapshot.Load()
	g.snapshot.Store(whole.ownerless())
	s.check("incident", g.callModern("1", "broken", "{}").body, "JSONRPCErrorResponse")
	s.check("incident, the error", at(t, g.callModern("1", "broken", "{}").body, "error"), "InternalError")
	g.snapshot.Store(whole)

	listen := g.listenStream("5", `{"toolsListChanged":true}`)
	s.check("acknowledged", listen.next(), "SubscriptionsAcknowledgedNotification", "JSONRPCNotification")
	g.disturb()
	s.check("list_changed", listen.next(), "ToolListChangedNotification", "JSONRPCNotification")
	g.Drain()
	s.check("the end of the subscription", listen.next(), "SubscriptionsListenResultResponse", "JSONRPCResultResponse")
}

func TestPageSchema(t *testing.T) {
	up := &mcptest.Server{Tools: mcptest.Builtin("a", "b", "c")}
	g := launch(t, parseConfig(t, map[string]string{"up": entry(up.StartHTTP(t))}, `"lists":{"page_size":2}`), Options{})
	loadSchemas(t, "2026-07-28").check("a page", g.modern("1", "tools/list", "").body, "ListToolsResultResponse")
	loadSchemas(t, "2025-11-25").check("a page", at(t, g.post(legacyBody("1", "tools/list", ""), g.open()).body, "result"), "ListToolsResult")
}

func TestLegacySchemas(t *testing.T) {
	for _, version := range legacyVersions {
		t.Run(version, func(t *testing.T) {
			s := loadSchemas(t, version)
			s.refutes("InitializeResult", `{"protocolVersion":"x","capabilities":{}}`)
			response, failed := "JSONRPCResponse", "JSONRPCError"
			if version == "2025-11-25" {
				response, failed = "JSONRPCResultResponse", "JSONRPCErrorResponse"
			}
			g := ownWords(t)
			r := g.post(strings.Replace(initializeBody, "2025-11-25", version, 1))
			s.check("initialize", r.body, response)
			s.check("initialize", at(t, r.body, "result"), "InitializeResult")
			if got := at(t, r.body, "result", "protocolVersion"); got != `"`+version+`"` {
				t.Errorf("version %s", got)
			}
			session := sessionHeader + ": " + r.header.Get(sessionHeader)
			post := func(method, params string) string {
				return g.post(legacyBody("1", method, params), session).body
			}
			s.check("list", post("tools/list", ""), response)
			s.check("list", at(t, post("tools/list", ""), "result"), "ListToolsResult")
			s.check("ping", at(t, post("ping", ""), "result"), "EmptyResult")
			s.check("setLevel", at(t, post("logging/setLevel", `{"level":"info"}`), "result"), "EmptyResult")
			s.check("a failure of Headgate's", at(t, post("tools/call", `{"name":"down_gone"}`), "result"), "CallToolResult")
			s.check("unknown tool", post("tools/call", `{"name":"none"}`), failed)
			s.check("unknown method", post("no/such", ""), failed)
			s.check("bad params", post("tools/call", `{}`), failed)
			s.check("no session", g.post(legacyBody("1", "ping", "")).body, failed)
			s.check("unknown session", g.post(legacyBody("1", "ping", ""), sessionHeader+": x").body, failed)
			stream := g.get(session)
			g.disturb()
			s.check("list_changed", stream.next(), "ToolListChangedNotification", "JSONRPCNotification")
		})
	}
}
