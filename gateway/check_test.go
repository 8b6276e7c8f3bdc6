package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/upstream"
)

const orderSchema = `{"type":"object","properties":{"id":{"type":"integer","minimum":1},"state":{"enum":["new","paid"]},"note":{"type":"string","maxLength":5}},"required":["id"],"additionalProperties":false}`

// checked is a server with tools of all kinds of schemas.
func checked(era string) *mcptest.Server {
	echo := mcptest.Builtin("echo")[0].Call
	tool := func(name, input string) mcptest.Tool {
		return mcptest.Tool{Def: `{"name":"` + name + `","inputSchema":` + input + `}`, Call: echo}
	}
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{
		tool("order", orderSchema),
		tool("free", `{"type":"object"}`),
		tool("draft7", `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`),
		tool("draft4", `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","required":["a"]}`),
		tool("elsewhere", `{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x.json"}}}`),
	}}
}

func TestCheckArguments(t *testing.T) {
	tests := []struct {
		name, tool, arguments string
		says                  []string // lines of the text; none: the call is made
	}{
		{"fits", "order", `{"id":9007199254740993,"state":"new"}`, nil},
		{"type", "order", `{"id":"ten"}`, []string{`id is "ten", expected an integer`}},
		{"enum", "order", `{"id":1,"state":"lost"}`, []string{`state is "lost", expected one of "new", "paid"`}},
		{"bound", "order", `{"id":0}`, []string{"id is 0, expected at least 1"}},
		{"several", "order", `{"id":0,"state":7,"note":"too long","ID":1}`, []string{
			`ID is not a member that is known here; known are "id", "note", "state"`, "id is 0, expected at least 1",
			"note has 8 characters, expected at most 5", `state is 7, expected one of "new", "paid"`}},
		{"too many", "order", `{"id":0,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}`, []string{
			`a is not a member that is known here; known are "id", "note", "state"`, `b is not a member that is known here; known are "id", "note", "state"`,
			`c is not a member that is known here; known are "id", "note", "state"`, `d is not a member that is known here; known are "id", "note", "state"`,
			`e is not a member that is known here; known are "id", "note", "state"`, "and 2 more"}},
		{"empty", "order", `{}`, []string{"id is missing; expected an integer"}},
		{"absent", "order", ``, []string{"id is missing; expected an integer"}},
		{"null", "order", `null`, []string{"id is missing; expected an integer"}},
		{"secret", "order", `{"id":"` + strings.Repeat("s", 100) + `"}`, []string{`id is "` + strings.Repeat("s", 40) + `…", expected an integer`}},
		{"draft-07", "draft7", `{"a":1}`, []string{`a is 1, expected a string`}},
		{"draft-07, empty", "draft7", `{}`, []string{`a is missing; expected a string`}},
		{"draft-04 is not checked", "draft4", `{}`, nil},
		{"what refers elsewhere is not checked", "elsewhere", `{"a":1}`, nil},
		{"nothing is asked", "free", `{"a":{"b":[1]}}`, nil},
		{"nothing is asked and given", "free", ``, nil},
		{"a name twice, below", "order", `{"id":1,"state":{"a":1,"a":2}}`, []string{"arguments have a name that stands twice; give each once"}},
		{"more than is looked at", "free", `{"a":"` + strings.Repeat("x", schema.MaxValue) + `"}`, nil},
	}
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		s := checked(era)
		var c counted
		g := launch(t, parseConfig(t, map[string]string{
			"shop": entry(s.StartHTTP(t), `"check_arguments":true`, `"repeatable":["*"]`), "in": `{"command":"embedded","check_arguments":true}`,
		}), Options{Count: c.add, Embedded: embed("in", s)})
		session, pipe := g.open(), g.pipe()
		for _, tt := range tests {
			for _, server := range []string{"shop", "in"} {
				name := server + "_" + tt.tool
				t.Run(era+" "+name+" "+tt.name, func(t *testing.T) {
					before := s.Executions(tt.tool)
					answers := map[string]string{
						"modern": g.callModern("1", name, tt.arguments).message(),
						"legacy": g.callLegacy(session, "1", name, tt.arguments).message(),
						"stdio":  pipe.call("1", modernBody("1", "tools/call", callParams(name, tt.arguments))),
					}
					if ran := s.Executions(tt.tool) - before; (tt.says == nil) != (ran == 3) || ran != 0 && ran != 3 {
						t.Errorf("ran %d times for 3 calls", ran)
					}
					for client, got := range answers {
						if tt.says == nil {
							if strings.Contains(got, "dev.headgate") || at(t, got, "result", "isError") != "" {
								t.Errorf("%s: %s", client, got)
							}
							continue
						}
						checkRefusal(t, got, client != "legacy", server, name, "invalid_arguments", "not_started", tt.says)
					}
				})
			}
		}
		if n := c.get("unchecked shop shop_draft4"); n != 3 {
			t.Errorf("%d calls of draft4 were counted", n)
		}
		var found []string
		for _, f := range g.Status().Findings {
			if f.Server == "shop" {
				found = append(found, f.Tool+" "+f.Rule+" "+f.Text)
			}
		}
		want := []string{
			`draft4 schema_unchecked arguments are not held against inputSchema: the dialect "http://json-schema.org/draft-04/schema#" is not supported; 2020-12 and draft-07 are`,
			"elsewhere schema_unchecked arguments are not held against inputSchema: the schema cannot be compiled: references into other documents are not followed"}
		if !slices.Equal(found, want) {
			t.Errorf("findings %q", found)
		}
		if n := strings.Count(g.log.String(), "upstream=shop tool=draft4 rule=schema_unchecked"); n != 1 {
			t.Errorf("the finding was logged %d times", n)
		}
		if strings.Contains(g.log.String(), "ssss") {
			t.Error("the log holds arguments")
		}
	}
}

// checkRefusal checks an answer that names what does not fit.
func checkRefusal(t *testing.T, got string, modern bool, server, tool, reason, outcome string, says []string) {
	t.Helper()
	var content []struct{ Type, Text string }
	unmarshal(t, at(t, got, "result", "content"), &content)
	mark := `{"server":"` + server + `","reason":"` + reason + `","outcome":"` + outcome + `","retryable":false}`
	if len(content) != 1 || content[0].Type != "text" || at(t, got, "result", "isError") != "true" ||
		at(t, got, "result", "_meta", "dev.headgate/failure") != mark || (at(t, got, "result", "resultType") == `"complete"`) != modern {
		t.Errorf("got %s", got)
		return
	}
	lines := strings.Split(content[0].Text, "\n- ")
	if !strings.Contains(lines[0], tool) || !strings.Contains(lines[0], "server "+server) || !slices.Equal(lines[1:], says) {
		t.Errorf("the text is %q\nwant %q", lines, says)
	}
}

func TestArgumentsPassUncheckedByDefault(t *testing.T) {
	s := checked(mcptest.Modern)
	g := launch(t, parseConfig(t, map[string]string{"shop": entry(s.StartHTTP(t))}), Options{})
	g.callModern("1", "shop_order", `{"id":"ten"}`)
	if n := s.Executions("order"); n != 1 {
		t.Errorf("ran %d times", n)
	}
	if f := g.Status().Findings; len(f) != 0 {
		t.Errorf("findings %v", f)
	}
}

const outputSchema = `"outputSchema":{"type":"object","properties":{"rows":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}}},"required":["rows"]}`

// resultTests are results of a tool with outputSchema.
var resultTests = []struct {
	name, result string
	says         []string // nil: it fits, or there is nothing to fit
}{
	{"fits", `{"content":[],"structuredContent":{ "rows":[{"id":9007199254740993, "more":1.0}] }}`, nil},
	{"missing", `{"content":[{"type":"text","text":"{}"}]}`, []string{"structuredContent is missing, and the tool has an outputSchema"}},
	{"null", `{"content":[],"structuredContent":null}`, []string{"structuredContent is null, expected an object"}},
	{"a list", `{"content":[],"structuredContent":[]}`, []string{"structuredContent is an array, expected an object"}},
	{"wrong", `{"content":[],"structuredContent":{"rows":[{"id":"hunter2"},{}]}}`,
		[]string{"structuredContent.rows[].id is a string, expected an integer", "structuredContent.rows[].id is missing; expected an integer"}},
	{"isError", `{"content":[],"structuredContent":{"rows":7},"isError":true}`, nil},
	{"asks for input", `{"resultType":"input_required","inputRequests":{}}`, nil},
	{"a name twice", `{"content":[],"structuredContent":{"rows":7,"rows":8}}`, nil},
	{"too large", `{"content":[],"structuredContent":{"rows":"` + strings.Repeat("x", schema.MaxValue) + `"}}`, nil},
}

func TestCheckResultsReject(t *testing.T) {
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		s := &mcptest.Server{Era: era, Tools: []mcptest.Tool{answering("list", outputSchema, `"annotations":{"readOnlyHint":true}`), answering("plain")}}
		g := launch(t, parseConfig(t, map[string]string{"db": entry(s.StartHTTP(t), `"check_results":"reject"`, `"guard":{"tools":["*"]}`)}), Options{})
		session := g.open()
		calls := 0
		for _, tt := range resultTests {
			t.Run(era+" "+tt.name, func(t *testing.T) {
				args := `{"raw":` + string(quoteJSON(tt.result)) + `}`
				modern := g.callModern("1", "db_list", args).message()
				calls++
				if tt.name == "asks for input" {
					// What a modern server demands is never a result for a legacy client.
					if got := at(t, modern, "result"); got != tt.result {
						t.Errorf("got %.200s", got)
					}
					return
				}
				legacy := g.callLegacy(session, "1", "db_list", args).message()
				calls++
				if tt.says != nil {
					checkRefusal(t, legacy, false, "db", "db_list", "invalid_result", "unknown", tt.says)
					checkRefusal(t, modern, true, "db", "db_list", "invalid_result", "unknown", tt.says)
					if !strings.Contains(legacy, "was run by server db") || !strings.Contains(legacy, "has most likely been done. Do not repeat the call.") {
						t.Errorf("the text hides what was done: %s", legacy)
					}
					return
				}
				if got := at(t, legacy, "result"); got != tt.result {
					t.Errorf("got %.200s", got)
				}
			})
		}
		if n := s.Executions("list"); n != calls {
			t.Errorf("ran %d times for %d calls", n, calls)
		}
		const odd = `{"content":[],"structuredContent":7}`
		if got := at(t, g.callLegacy(session, "1", "db_plain", `{"raw":`+string(quoteJSON(odd))+`}`).message(), "result"); got != odd {
			t.Errorf("a tool without outputSchema: %s", got)
		}
		if got := at(t, g.callLegacy(session, "1", "db_list", `{"error":"{\"code\":7,\"message\":\"no\"}"}`).message(), "error"); got != `{"code":7,"message":"no"}` {
			t.Errorf("an error: %s", got)
		}
	}
}

// TestCheckResultsWarn: results pass as they are, and what does not fit becomes a finding, once.
func TestCheckResultsWarn(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{answering("list", outputSchema)}}
	events := make(chan string, 100)
	g := launch(t, parseConfig(t, map[string]string{"db": entry(s.StartHTTP(t), `"check_results":"warn"`)}),
		Options{Count: func(event, server, tool string, n int) { events <- fmt.Sprint(event, " ", server, " ", tool, " ", n) }})
	session := g.open()
	for range 2 {
		for _, tt := range resultTests {
			args := `{"raw":` + string(quoteJSON(tt.result)) + `}`
			call := func() reply { return g.callLegacy(session, "1", "db_list", args) }
			if tt.name == "asks for input" {
				call = func() reply { return g.callModern("1", "db_list", args) }
			}
			if got := at(t, call().message(), "result"); got != tt.result {
				t.Errorf("%s: got %.200s", tt.name, got)
			}
			want := ""
			if tt.says != nil {
				want = "drift db db_list 1"
			} else if tt.name == "a name twice" || tt.name == "too large" {
				want = "unchecked db db_list 1"
			}
			if want != "" {
				select {
				case got := <-events:
					if got != want {
						t.Errorf("%s: counted %s", tt.name, got)
					}
				case <-time.After(limit):
					t.Fatalf("%s: nothing was counted", tt.name)
				}
			}
		}
	}
	want := []upstream.Finding{
		{Server: "db", Tool: "list", Rule: "output_drift", Text: "a result does not fit outputSchema: structuredContent is missing, and the tool has an outputSchema"},
		{Server: "db", Tool: "list", Rule: "output_drift", Text: "a result does not fit outputSchema: structuredContent.rows[].id is a string, expected an integer"},
	}
	if got := g.Status().Findings; !slices.Equal(got, want) {
		t.Errorf("findings %v", got)
	}
	if log := g.log.String(); strings.Count(log, "rule=output_drift") != 2 || strings.Contains(log, "hunter2") {
		t.Errorf("log: %s", log)
	}
	// Findings of a tool that is no longer checked are gone.
	cfg := *g.config()
	db := *cfg.Upstreams["db"]
	db.CheckResults = "off"
	cfg.Upstreams = map[string]*configs.Upstream{"db": &db}
	if err := g.Apply(&cfg); err != nil {
		t.Fatal(err)
	}
	if got := g.Status().Findings; len(got) != 0 {
		t.Errorf("findings %v", got)
	}
}

// TestDriftQueueIsBounded: without anybody to look at them, results beyond the bound are dropped and counted.
func TestDriftQueueIsBounded(t *testing.T) {
	var c counted
	n := newNotices(discard(), c.add)
	q := make(driftQueue, maxWaiting)
	s := &mcptest.Server{Tools: []mcptest.Tool{answering("list", outputSchema)}}
	g := launch(t, parseConfig(t, map[string]string{"db": entry(s.StartHTTP(t))}), Options{})
	tool := g.snapshot.Load().tool("db_list")
	for range maxWaiting + 7 {
		q.offer(n, drift{tool, jsontext.Value("{}")})
	}
	if len(q) != maxWaiting || c.get("check_dropped db db_list") != 7 {
		t.Errorf("%d wait, %d were dropped", len(q), c.get("check_dropped db db_list"))
	}
	for i := range 100 {
		n.drift(fmt.Sprint(i), upstream.Finding{Server: "db", Tool: "list"})
	}
	for i := range 2 * maxDrifts {
		n.drift("", upstream.Finding{Server: "db", Tool: fmt.Sprint(i)})
	}
	if n.ofTool[[2]string{"db", "list"}] != maxDriftsOfTool || len(n.drifts) != maxDrifts {
		t.Errorf("%d findings of one tool, %d in all", n.ofTool[[2]string{"db", "list"}], len(n.drifts))
	}
}

// TestChecksAreCompiledOnce: a new snapshot of the same catalogue compiles nothing again.
func TestChecksAreCompiledOnce(t *testing.T) {
	s := checked(mcptest.Modern)
	g := launch(t, parseConfig(t, map[string]string{"shop": entry(s.StartHTTP(t), `"check_arguments":true`)}), Options{})
	before, _ := g.snapshot.Load().tool("shop_order").definition.InputSchema()
	g.disturb()
	g.rebuild()
	after, err := g.snapshot.Load().tool("shop__order").definition.InputSchema()
	if before == nil || before != after || err != nil {
		t.Errorf("%p, then %p: %v", before, after, err)
	}
}
