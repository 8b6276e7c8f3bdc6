package gateway

import (
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// counted collects what Options.Count is told.
type counted struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

func (c *counted) add(event, server, tool string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[event+" "+server+" "+tool] += n
}

func (c *counted) get(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

func TestLeakFilter(t *testing.T) {
	tests := []struct{ name, result, want string }{ // want "" means as it is
		{"text", `{"content":[{"type":"text","text":"dial tcp 10.0.0.5:5432: refused"}],"isError":true}`,
			`{"content":[{"type":"text","text":"dial tcp [removed]: refused"}],"isError":true}`},
		{"configured secret", `{ "isError":true , "n":9007199254740993,"content":[ {"text":"key hunter2-hunter2 is bad","type":"text","x":1.0}, {"type":"image","data":"aHVudGVy"} ]}`,
			`{"isError":true,"n":9007199254740993,"content":[ {"text":"key [removed] is bad","type":"text","x":1.0}, {"type":"image","data":"aHVudGVy"} ]}`},
		{"own host", `{"content":[{"type":"text","text":"http://127.0.0.1:99/mcp is down"}],"isError":true}`,
			`{"content":[{"type":"text","text":"http://[removed]/mcp is down"}],"isError":true}`},
		{"trace", `{"content":[{"type":"text","text":"Traceback (most recent call last):\n  File \"/srv/a.py\", line 1, in f\n    g()\nValueError: no"}],"isError":true}`,
			`{"content":[{"type":"text","text":"[removed]\nValueError: no"}],"isError":true}`},
		{"structured", `{"content":[],"structuredContent":{"q":"SELECT a FROM b","k":{"h":["db.internal"]}},"isError":true}`,
			`{"content":[],"structuredContent":{"q":"[removed]","k":{"h":["[removed]"]}},"isError":true}`},
		{"with guidance, on what the server wrote", `{"content":[{"type":"text","text":"no such table: users"}],"isError":true}`,
			`{"content":[{"type":"text","text":"[removed]"},{"type":"text","text":"Ask 10.0.0.1."}],"isError":true,"_meta":{"dev.headgate/guidance":{"blocks":[1]}}}`},
		{"nothing found", `{ "content" : [ { "type" : "text", "text" : "Order \u0037 is \ud800 gone" } ] , "isError" : true }`, ""},
		{"no error", `{"content":[{"type":"text","text":"10.0.0.5 SELECT a FROM b hunter2-hunter2"}],"structuredContent":{"a":"10.0.0.5"}}`, ""},
		{"isError false", `{"content":[{"type":"text","text":"10.0.0.5"}],"isError":false}`, ""},
	}
	errors := []struct{ name, err, want string }{
		{"message", `{"code":-32000,"message":"pq: password authentication failed"}`, `{"code":-32000,"message":"[removed]"}`},
		{"data", `{"code":7, "message":"no","data":{"trace":["at x (/srv/a.js:1:2)"],"n":1.0,"host":"a.svc.cluster.local"}}`,
			`{"code":7, "message":"no","data":{"trace":["[removed]"],"n":1.0,"host":"[removed]"}}`},
		{"nothing", `{"code":7, "message":"no such order", "data" : {"a":[1.0]}}`, ""},
	}
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		t.Run(era, func(t *testing.T) {
			s := &mcptest.Server{Era: era, Tools: []mcptest.Tool{answering("run")}}
			h := s.StartHTTP(t)
			var c counted
			g := launch(t, parseConfig(t, map[string]string{
				"db": entry(h, `"leak_filter":true`, `"headers":{"X-Key":"hunter2-hunter2"}`, `"guidance":[{"match":"no such table","append":"Ask 10.0.0.1."}]`),
				"in": `{"command":"embedded","leak_filter":true,"env":{"KEY":"hunter2-hunter2"},"guidance":[{"match":"no such table","append":"Ask 10.0.0.1."}]}`,
				"no": entry(h),
			}), Options{Count: c.add, Embedded: embed("in", s)})
			session := g.open()
			both := func(name, tool, args, member, was, want string) {
				t.Helper()
				if want == "" {
					want = was
				}
				if got := at(t, g.callLegacy(session, "1", tool, args).message(), member); got != want {
					t.Errorf("%s, %s:\n got %s\nwant %s", name, tool, got, want)
				}
				if era == mcptest.Legacy && member == "result" {
					want = `{"resultType":"complete",` + strings.TrimPrefix(want, "{")
				}
				if got := at(t, g.callModern("1", tool, args).message(), member); got != want {
					t.Errorf("%s, %s, modern:\n got %s\nwant %s", name, tool, got, want)
				}
			}
			for _, tt := range tests {
				args := `{"raw":` + string(quoteJSON(tt.result)) + `}`
				both(tt.name, "db_run", args, "result", tt.result, tt.want)
				both(tt.name, "in_run", args, "result", tt.result, tt.want)
				both(tt.name, "no_run", args, "result", tt.result, "")
			}
			for _, tt := range errors {
				args := `{"error":` + string(quoteJSON(tt.err)) + `}`
				both(tt.name, "db_run", args, "error", tt.err, tt.want)
				both(tt.name, "in_run", args, "error", tt.err, tt.want)
				both(tt.name, "no_run", args, "error", tt.err, "")
			}
			if n := c.get("leak db db_run"); n != 24 { // twelve parts (three of them in the trace), each told to clients of both eras
				t.Errorf("%d leaks were counted", n)
			}
			log := g.log.String()
			for _, kind := range []string{"host", "secret", "sql", "stack_trace"} {
				if n := strings.Count(log, "an error text was masked\" upstream=db tool=db_run kind="+kind+" "); n != 1 {
					t.Errorf("%s was logged %d times: %s", kind, n, log)
				}
			}
			for _, secret := range []string{"hunter2", "10.0.0.5", "users", "a.py"} {
				if strings.Contains(log, secret) {
					t.Errorf("the log holds %s: %s", secret, log)
				}
			}
		})
	}
}

func TestNoticesAreBounded(t *testing.T) {
	n := newNotices(discard(), nil)
	for i := range maxNoticed + 10 {
		n.first(notice{what: "x", tool: string(rune(i))})
	}
	if len(n.said) > maxNoticed {
		t.Errorf("%d things are remembered", len(n.said))
	}
	if n.first(notice{what: "x", tool: string(rune(1))}) {
		t.Error("a thing is said twice")
	}
}

// FuzzTreat: whatever a server answers, treating it does not panic and leaves JSON, and what is no error the same
// bytes.
func FuzzTreat(f *testing.F) {
	for _, s := range []string{
		`{"content":[{"type":"text","text":"at 10.0.0.1"}],"isError":true,"_meta":{"a":1}}`,
		`{"content":[{"type":"text","text":"\ud800 SELECT a FROM b"},7,null,[]],"isError":true,"_meta":null}`,
		` {"isError":true,"content":[ ],"structuredContent":{"a":["x.internal"]}} `,
		`{"isError":false,"content":[{"type":"text","text":"10.0.0.1"}]}`, `{}`, `{"content":7,"isError":true}`, `{"isError":true,"isError":true}`,
	} {
		f.Add(s)
	}
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{answering("run", outputSchema)}}
	g := launch(f, parseConfig(f, map[string]string{"db": entry(s.StartHTTP(f), `"leak_filter":true`, `"check_results":"reject"`, `"guidance":[{"match":".","append":"a"}]`)}), Options{})
	run := g.snapshot.Load().tool("db_run")
	f.Fuzz(func(t *testing.T, result string) {
		obj, err := wire.ParseObject([]byte(result))
		if err != nil {
			return
		}
		reply := &upstream.Reply{Result: []byte(result), Era: upstream.Legacy}
		for _, problem := range g.badResultProblems(run, reply) {
			if len(problem) > 5000 {
				t.Errorf("a long problem: %s", problem)
			}
		}
		got := g.treat(&exchange{era: upstream.Legacy}, run, reply).result
		if !isErrorResult(obj) && string(got) != result {
			t.Errorf("%s became %s", result, got)
		}
		if _, err := wire.ParseObject(got); err != nil {
			t.Errorf("%s became %s: %v", result, got, err)
		}
		errObj := g.treat(&exchange{era: upstream.Legacy}, run, &upstream.Reply{Error: []byte(result)}).err
		if _, err := wire.ParseObject(errObj); err != nil {
			t.Errorf("error %s became %s: %v", result, errObj, err)
		}
	})
}

// badResultProblems is what badResult says of a result.
func (g *gate) badResultProblems(t *tool, reply *upstream.Reply) []string {
	if f := g.badResult(t, reply); f != nil {
		return f.Problems
	}
	return nil
}
