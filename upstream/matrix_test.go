package upstream

import (
	"testing"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
)

// oddAnswers are results and errors that a reader with ideas of its own would change.
var oddAnswers = []struct {
	name          string
	result, error string
}{
	{name: "plain", result: `{"content":[{"type":"text","text":"hello"}]}`},
	{name: "is_error", result: `{"content":[{"type":"text","text":"no"}],"isError":true}`},
	{name: "numbers", result: `{"content":[],"structuredContent":{"a":1.0,"b":9007199254740993,"c":-0,"d":1e400,"e":0.10}}`},
	{name: "twice", result: `{"content":[],"structuredContent":{"x":1,"x":2,"y":{"z":1,"z":2}}}`},
	{name: "surrogate", result: `{"content":[{"type":"text","text":"\ud800 \u0041 \/ \u2028 é"}]}`},
	{name: "order", result: `{"zeta":1,"content":null,"_meta":{"b":1,"a":{"x.y/z":null}},"alpha":[ ],"resultType":"of the future"}`},
	{name: "spaces", result: `{ "content" : [ ] , "isError" : false }`},
	{name: "unknown_block", result: `{"content":[{"type":"hologram","data":{"deep":[[[]]]}}],"execution":{}}`},
	{name: "error", error: `{"code":-32602,"message":"Unknown tool: x"}`},
	{name: "error_more", error: `{"hint":"ü","code":-32042,"message":"\u00e9","data":{"n":1.0,"n":2,"big":12345678901234567890},"more":null}`},
	{name: "error_not_found", error: `{"code":-32601,"message":"","data":null}`},
	{name: "error_spaces", error: `{ "message" : "m" , "code" : 7 }`},
}

// prettyAnswers have line breaks, which only HTTP can carry.
var prettyAnswers = []struct{ name, result string }{
	{"pretty", "{\n  \"content\": [\n    {\"type\": \"text\",\n     \"text\": \"x\"}\n  ]\n}"},
	{"pretty_tabs", "{\n\t\"content\":\t[\n\n]}"},
}

func oddServer(era string) *mcptest.Server {
	s := &mcptest.Server{Era: era}
	for _, a := range oddAnswers {
		s.Tools = append(s.Tools, tool(a.name, func(c *mcptest.Call) {
			if a.error != "" {
				c.Error(a.error)
				return
			}
			c.Result(a.result)
		}))
	}
	for _, a := range prettyAnswers {
		s.Tools = append(s.Tools, tool(a.name, func(c *mcptest.Call) { c.Result(a.result) }))
	}
	return s
}

func TestAnswersPassUnchanged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		era     string
		pretty  bool
		connect func(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options)
	}{
		{"modern HTTP", mcptest.Modern, true, overHTTP},
		{"legacy HTTP", mcptest.Legacy, true, overHTTP},
		{"modern HTTP, all SSE", mcptest.Modern, true, overEvents},
		{"legacy HTTP, all SSE", mcptest.Legacy, true, overEvents},
		{"HTTP+SSE", mcptest.Legacy, true, func(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
			cfg := httpAt(s.StartSSE(t).URL)
			cfg.Type = "sse"
			return cfg, Options{}
		}},
		{"modern child", mcptest.Modern, false, overChild},
		{"legacy child", mcptest.Legacy, false, overChild},
		{"modern pipes", mcptest.Modern, false, overPipes},
		{"legacy pipes", mcptest.Legacy, false, overPipes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, opts := tt.connect(t, oddServer(tt.era))
			r := up(t, cfg, opts)
			if got := r.Status().Era; got != tt.era {
				t.Fatalf("the era is %s, want %s", got, tt.era)
			}
			if got, want := len(r.Catalogue().Tools), len(oddAnswers)+len(prettyAnswers); got != want {
				t.Errorf("%d tools, want %d", got, want)
			}
			for _, a := range oddAnswers {
				r.expect(a.name, a.result, a.error)
			}
			if !tt.pretty {
				return
			}
			for _, a := range prettyAnswers {
				r.expect(a.name, a.result, "")
			}
		})
	}
}

func overHTTP(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
	return httpAt(s.StartHTTP(t).URL), Options{}
}

func overEvents(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
	s.ForceSSE = true
	return overHTTP(t, s)
}

func overChild(_ *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
	return ownChild(s.Era), Options{}
}

func overPipes(_ *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
	return settings(), piped(s)
}

func (r *rig) expect(name, result, rpcError string) {
	r.t.Helper()
	reply, err := r.call(name, `{}`)
	if err != nil {
		r.t.Errorf("%s: %v", name, err)
		return
	}
	if string(reply.Result) != result || string(reply.Error) != rpcError {
		r.t.Errorf("%s: got result %s, error %s\nwant result %s, error %s", name, reply.Result, reply.Error, result, rpcError)
	}
}
