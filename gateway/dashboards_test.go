package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/telemetry"
)

// everyMetric is a gateway of which every metric has been counted at least once.
func everyMetric(t *testing.T) *gate {
	t.Helper()
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "100")
	exportTo(t, closedPort(t), "http/protobuf")
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: slices.Concat(mcptest.Builtin("echo", "boom"), mcptest.Builtin("echo"))}
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("ann", "t")),
		`"teams":{"t":{"upstreams":["x"],"limits":{"per_tool":{"x_boom":{"calls_per_minute":1}}},"rules":[{"allow":["*"]}]}}`), Options{})
	session := g.openAs("ann")
	g.do(g.request("DELETE", "", session, bearer("ann")))
	s.Forget() // the next call is sent twice, on a new session
	for range 4 {
		g.callAs("ann", "", "x_echo")
		g.callAs("ann", "", "x_boom")
	}
	g.post("{}") // by nobody
	// What has no place yet from which it is told, or happens in other processes.
	tel := g.opts.Telemetry
	tel.Queued(t.Context(), nil, "x", time.Millisecond)
	tel.Breaker("x", telemetry.BreakerClosed)
	tel.Reloaded(true, time.Millisecond)
	tel.StreamDropped(telemetry.SideUpstream, "x")
	tel.MessageDropped(telemetry.TransportPipe)
	return g
}

// words are the names in an expression of PromQL, without what stands in quotes and without variables.
func words(expr string) []string {
	expr = regexp.MustCompile(`"[^"]*"|\$\w+`).ReplaceAllString(expr, `""`)
	return regexp.MustCompile(`\b[a-zA-Z_][a-zA-Z0-9_]*\b`).FindAllString(expr, -1)
}

// promQL are the words of the language that the expressions use.
var promQL = []string{"sum", "by", "rate", "increase", "topk", "min", "max", "histogram_quantile", "time", "and", "label_values"}

// TestDashboardsNameWhatExists: every word of every expression is one of PromQL, a metric or a label as a scrape has them.
func TestDashboardsNameWhatExists(t *testing.T) {
	g := everyMetric(t)
	known := map[string]bool{"le": true}
	for _, w := range promQL {
		known[w] = true
	}
	for name, family := range g.scrape() {
		known[name] = true
		for _, m := range family.GetMetric() {
			if m.GetHistogram() != nil {
				known[name+"_bucket"], known[name+"_sum"], known[name+"_count"] = true, true, true
			}
			for _, l := range m.GetLabel() {
				known[l.GetName()] = true
			}
		}
	}
	for page, list := range expressions(t) {
		if len(list) < 10 {
			t.Errorf("%s has %d expressions", page, len(list))
		}
		used := 0
		for _, expr := range list {
			for _, w := range words(expr) {
				if !known[w] {
					t.Errorf("%s: %s does not exist, in %s", page, w, expr)
				}
				if strings.HasPrefix(w, "headgate_") || strings.HasPrefix(w, "mcp_") {
					used++
				}
			}
			if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
				t.Errorf("%s: unbalanced: %s", page, expr)
			}
		}
		if used < len(list) {
			t.Errorf("%s names %d metrics and labels in %d expressions", page, used, len(list))
		}
	}
}

// expressions are those of the dashboard and of the alerts.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("../docs/observability", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	if err := json.Unmarshal(read("dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out["dashboard.json"] = append(out["dashboard.json"], target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			out["dashboard.json"] = append(out["dashboard.json"], fmt.Sprint(q["query"]))
		}
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(read("alerts.yaml"), &alerts); err != nil {
		t.Fatal(err)
	}
	for _, group := range alerts.Groups {
		for _, r := range group.Rules {
			if r.Alert == "" || r.Expr == "" {
				t.Errorf("a rule without a name or an expression: %+v", r)
			}
			out["alerts.yaml"] = append(out["alerts.yaml"], r.Expr)
		}
	}
	return out
}

// TestPageListsEverySignal: docs/observability.md has each metric that a scrape has, and no other; each key of the access
// line; and each attribute and event that internal/telemetry knows.
func TestPageListsEverySignal(t *testing.T) {
	b, err := os.ReadFile("../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	written := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z][a-z0-9_.]*)`").FindAllStringSubmatch(page, -1) {
		written[m[1]] = true
	}
	g := everyMetric(t)
	scraped := map[string]bool{}
	for name := range g.scrape() {
		if strings.HasPrefix(name, "headgate_") || strings.HasPrefix(name, "mcp_") {
			scraped[name] = true
			if !written[name] {
				t.Errorf("the page does not list %s", name)
			}
		}
	}
	for name := range written {
		if (strings.HasPrefix(name, "headgate_") || strings.HasPrefix(name, "mcp_")) && !scraped[name] {
			t.Errorf("the page lists %s, which a scrape does not have", name)
		}
	}
	if len(scraped) < 20 {
		t.Errorf("only %d metrics: %q", len(scraped), slices.Sorted(maps.Keys(scraped)))
	}

	names, err := os.ReadFile("../internal/telemetry/names.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`"([a-z_]+(?:\.[a-z_]+)+)"`).FindAllStringSubmatch(string(names), -1)
	if len(all) < 40 {
		t.Errorf("only %d names", len(all))
	}
	source, err := os.ReadFile("../internal/telemetry/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	refusals := regexp.MustCompile(`Refusal += "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(refusals) < 10 {
		t.Errorf("only %d reasons of refusals", len(refusals))
	}
	for _, m := range append(all, refusals...) {
		if !written[m[1]] {
			t.Errorf("the page does not list %s", m[1])
		}
	}

	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"html","inputSchema":{"type":"object"}}`, Call: failing()["html"]}}}
	told := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("ann", "t")), `"teams":{"t":{"upstreams":["x"],"rules":[{"allow":["*"]}]}}`), Options{})
	told.traced("ann", `"html"`, "x_html", metaParent(parentOf("1")))
	line := told.accessLine("html")
	if len(line) < 18 {
		t.Errorf("the line has only %v", line)
	}
	for key := range line {
		if !written[key] {
			t.Errorf("the page does not list the key %s", key)
		}
	}
}
