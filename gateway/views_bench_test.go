package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// BenchmarkViews: 10,000 tools, 1,000 callers in 20 teams, 20 distinct views. "first" is the first list
// of all 20 views after a new snapshot; "later" is one list of one caller, whose view is there; "served" is
// the whole of a caller's request for one, its key looked for among all 1,000, up to the write.
func BenchmarkViews(b *testing.B) {
	const tools, teams, callers = 10_000, 20, 1000
	var defs []mcptest.Tool
	for n := range tools {
		defs = append(defs, mcptest.Tool{Def: fmt.Sprintf(`{"name":"tool_%d_%d","description":%q,"inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`,
			n%teams, n, strings.Repeat("What it is good for. ", 8))})
	}
	s := &mcptest.Server{Tools: defs}
	var rules []string
	for n := range teams {
		rules = append(rules, fmt.Sprintf(`"t%d":{"upstreams":["x"],"rules":[{"allow":["x_tool_*"],"when":"tool.name != 'x_none'"},{"deny":["x_tool_%d_*"]}]}`, n, n))
	}
	var entries []string
	for n := range callers {
		entries = append(entries, keyEntry(fmt.Sprint("c", n), fmt.Sprint("t", n%teams)))
	}
	g := launch(b, parseConfig(b, map[string]string{"x": entry(s.StartHTTP(b))}, keys(entries...), `"teams":{`+strings.Join(rules, ",")+`}`), Options{})
	var all []authz.Caller
	for n := range callers {
		all = append(all, authz.NewCaller(fmt.Sprint("c", n), []string{fmt.Sprint("t", n%teams)}, nil))
	}
	list := func(c authz.Caller) int {
		at, _ := g.admit(c, "")
		return len(at.v.list(upstream.Modern))
	}
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.rebuild()
			for _, c := range all[:teams] {
				if list(c) == 0 {
					b.Fatal("no list")
				}
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
	})
	b.Run("later", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			list(all[n%callers])
			n++
		}
	})
	b.Run("find", func(b *testing.B) {
		at, _ := g.admit(all[0], "")
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := at.v.find("x_tool_7_4507"); !ok {
				b.Fatal("no such tool")
			}
			if _, ok := at.v.find("x_tool_0_4500"); ok {
				b.Fatal("a tool that is hidden")
			}
		}
	})
	b.Run("served", func(b *testing.B) {
		b.ReportAllocs()
		body := modernBody("1", "tools/list", "")
		handler := g.Handler()
		n := 0
		for b.Loop() {
			r := httptest.NewRequest(http.MethodPost, g.url, strings.NewReader(body))
			for _, h := range modernHeaders("tools/list", bearer(fmt.Sprint("c", n%callers)), "Content-Type: application/json") {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
			w := &counter{header: http.Header{}}
			handler.ServeHTTP(w, r)
			if w.n < 1<<20 {
				b.Fatalf("%d bytes were written", w.n)
			}
			n++
		}
	})
}

// counter is an answer of which only the size is kept.
type counter struct {
	header http.Header
	n      int
}

func (c *counter) Header() http.Header { return c.header }

func (c *counter) WriteHeader(int) {}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}
