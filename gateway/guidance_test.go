package gateway

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// answering is a tool that answers a call with arguments.raw as its result, or with arguments.error.
func answering(name string, more ...string) mcptest.Tool {
	def := `{"name":"` + name + `",` + strings.Join(append(more, `"inputSchema":{"type":"object"}`), ",") + `}`
	return mcptest.Tool{Def: def, Call: func(c *mcptest.Call) {
		args := stringsOf(c.Member("arguments"))
		if raw := args["error"]; raw != "" {
			c.Error(raw)
			return
		}
		c.Result(args["raw"])
	}}
}

func TestGuidance(t *testing.T) {
	const rules = `"guidance":[
		{"tools":["get_*"],"match":"(?i)not found","append":"Ids above 1000 are in the <archive>."},
		{"match":"^row \\d+","append":"Ask \"owner\"."}]`
	const first = `{"type":"text","text":"Ids above 1000 are in the <archive>."}`
	const second = `{"type":"text","text":"Ask \"owner\"."}`
	mark := func(blocks string) string { return `"dev.headgate/guidance":{"blocks":[` + blocks + `]}` }
	tests := []struct {
		name, tool, result, want string // want "" means as it is
	}{
		{"one rule", "get_row", `{"content":[{"type":"text","text":"Not Found"}],"isError":true}`,
			`{"content":[{"type":"text","text":"Not Found"},` + first + `],"isError":true,"_meta":{` + mark("1") + `}}`},
		{"two rules", "get_row", `{"isError":true,"content":[{"type":"text","text":"row 7"},{"type":"text","text":"not found"}]}`,
			`{"isError":true,"content":[{"type":"text","text":"row 7"},{"type":"text","text":"not found"},` + first + `,` + second + `],"_meta":{` + mark("2,3") + `}}`},
		{"odd spelling stays", "get_row", `{ "x" : 9007199254740993 , "isError" : true , "content" : [ { "text":"n\u006ft found" , "type":"text" , "y":1.0 } ] , "_meta" : { "a" : 1e2 } }`,
			`{"x":9007199254740993,"isError":true,"content":[ { "text":"n\u006ft found" , "type":"text" , "y":1.0 } ,` + first + `],"_meta":{"a":1e2,` + mark("1") + `}}`},
		{"other blocks are counted", "get_row", `{"content":[{"type":"hologram","q":1},{"type":"text","text":"not found"}],"isError":true,"_meta":{"` + metaGuidance + `":7,"b":2}}`,
			`{"content":[{"type":"hologram","q":1},{"type":"text","text":"not found"},` + first + `],"isError":true,"_meta":{` + mark("2") + `,"b":2}}`},
		{"half a pair", "get_row", `{"content":[{"type":"text","text":"\ud800 not found"}],"isError":true}`,
			`{"content":[{"type":"text","text":"\ud800 not found"},` + first + `],"isError":true,"_meta":{` + mark("1") + `}}`},
		{"other tool", "set_row", `{"content":[{"type":"text","text":"not found"}],"isError":true}`, ""},
		{"no match", "get_row", `{"content":[{"type":"text","text":"a row 7"}],"isError":true}`, ""},
		{"no isError", "get_row", `{"content":[{"type":"text","text":"not found"}]}`, ""},
		{"isError false", "get_row", `{"content":[{"type":"text","text":"not found"}],"isError":false}`, ""},
		{"isError text", "get_row", `{"content":[{"type":"text","text":"not found"}],"isError":"true"}`, ""},
		{"content a string", "get_row", `{"content":"not found","isError":true}`, ""},
		{"no content", "get_row", `{"isError":true}`, ""},
		{"no blocks", "get_row", `{"content":[],"isError":true}`, ""},
		{"not in a text block", "get_row", `{"content":[{"type":"resource","text":"not found"}],"isError":true}`, ""},
		{"_meta that is none", "get_row", `{"content":[{"type":"text","text":"not found"}],"isError":true,"_meta":[1]}`, ""},
		{"a name twice", "get_row", `{"content":[{"type":"text","text":"not found"}],"isError":true,"isError":true}`, ""},
		{"beyond what is looked at", "get_row", `{"content":[{"type":"text","text":"` + strings.Repeat("x", maxMatched) + `not found"}],"isError":true}`, ""},
		{"just within", "get_row", `{"content":[{"type":"text","text":"` + strings.Repeat("x", maxMatched-9) + `not found"}],"isError":true}`,
			`{"content":[{"type":"text","text":"` + strings.Repeat("x", maxMatched-9) + `not found"},` + first + `],"isError":true,"_meta":{` + mark("1") + `}}`},
	}
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		s := &mcptest.Server{Era: era, Tools: []mcptest.Tool{answering("get_row"), answering("set_row")}}
		g := launch(t, parseConfig(t, map[string]string{"db": entry(s.StartHTTP(t), rules)}), Options{})
		session := g.open()
		for _, tt := range tests {
			t.Run(era+" server, "+tt.name, func(t *testing.T) {
				want := tt.want
				if want == "" {
					want = tt.result
				}
				args := `{"raw":` + string(quoteJSON(tt.result)) + `}`
				if got := at(t, g.callLegacy(session, "1", "db_"+tt.tool, args).message(), "result"); got != want {
					t.Errorf("\n got %s\nwant %s", got, want)
				}
				if era == mcptest.Legacy && tt.name != "a name twice" {
					want = `{"resultType":"complete",` + strings.TrimPrefix(want, "{")
				}
				if got := at(t, g.callModern("1", "db_"+tt.tool, args).message(), "result"); got != want {
					t.Errorf("modern:\n got %s\nwant %s", got, want)
				}
			})
		}
	}
}

func TestGuidanceLeavesErrorsAlone(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{answering("get_row")}}
	g := launch(t, parseConfig(t, map[string]string{"db": entry(s.StartHTTP(t), `"guidance":[{"match":".","append":"a"}]`)}), Options{})
	const raw = `{"code":7,"message":"not found","data":{"isError":true}}`
	if got := at(t, g.callModern("1", "db_get_row", `{"error":`+string(quoteJSON(raw))+`}`).message(), "error"); got != raw {
		t.Errorf("got %s", got)
	}
}
