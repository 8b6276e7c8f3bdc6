package gateway

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/otlptest"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
)

// observed is a gateway of which a test sees what operators see: spans as a collector receives them, metrics as
// Prometheus reads them, and the log.
type observed struct {
	*gate
	*otlptest.Receiver
}

// exportTo sets the standard variables.
func exportTo(t testing.TB, endpoint, protocol string) {
	t.Helper()
	for name, v := range map[string]string{
		"OTEL_TRACES_EXPORTER":        "otlp",
		"OTEL_METRICS_EXPORTER":       "none",
		"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
		"OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
		"OTEL_BSP_SCHEDULE_DELAY":     "20",
	} {
		t.Setenv(name, v)
	}
}

// launchObserved runs a gateway that exports to a receiver.
func launchObserved(t testing.TB, cfg *configs.Config, protocol string, o Options) *observed {
	t.Helper()
	r := otlptest.Start(t)
	exportTo(t, map[string]string{"grpc": r.GRPC, "http/protobuf": r.HTTP}[protocol], protocol)
	return &observed{gate: launchTold(t, cfg, o), Receiver: r}
}

// launchTold runs a gateway with telemetry as the variables want it.
func launchTold(t testing.TB, cfg *configs.Config, o Options) *gate {
	t.Helper()
	logs := new(logBuffer)
	levels := new(telemetry.Levels)
	levels.Set(cfg.Log.Level, cfg.Log.PartLevels())
	o.Logger = telemetry.NewLogger(logs, telemetry.JSON, levels)
	o.Telemetry = openTelemetry(t, telemetry.Options{Version: "1.2.3", Errors: telemetry.NewErrors(o.Logger)})
	g := launch(t, cfg, o)
	g.log = logs
	return g
}

// openTelemetry is ended after everything that is started later in the test.
func openTelemetry(t testing.TB, o telemetry.Options) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = tel.Shutdown(ctx) // an exporter may be one that fails on purpose
	})
	return tel
}

// parentOf is a traceparent of a trace with this number, and traceOf its trace id.
func parentOf(n string) string { return "00-" + traceOf(n) + "-00000000000000aa-01" }

func traceOf(n string) string { return strings.Repeat("0", 32-len(n)) + n }

// spans waits for the SERVER span of a trace, and returns it with its children in the order in which they ended.
func (o *observed) spans(trace string) (server otlptest.Span, children []otlptest.Span) {
	o.t.Helper()
	o.Await(o.t, "the span of trace "+trace, func() bool {
		children = nil
		found := false
		for _, s := range o.Spans() {
			switch {
			case s.Trace != trace:
			case s.Kind == "SERVER":
				server, found = s, true
			default:
				children = append(children, s)
			}
		}
		return found
	})
	return server, children
}

// scrape reads /metrics as Prometheus does.
func (g *gate) scrape() map[string]*dto.MetricFamily {
	g.t.Helper()
	w := httptest.NewRecorder()
	g.Admin().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return families
}

// metric sums the metrics of a family that have these labels: counters and gauges by value, histograms by count.
func (g *gate) metric(name string, labels ...string) float64 {
	g.t.Helper()
	sum := 0.0
	for _, m := range g.scrape()[name].GetMetric() {
		if hasLabels(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		got := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == labels[i] {
				got = l.GetValue()
			}
		}
		if got != labels[i+1] {
			return false
		}
	}
	return true
}

// accessLine waits for the line of a request id.
func (g *gate) accessLine(id string) map[string]any {
	g.t.Helper()
	var found map[string]any
	poll(g.t, "the line of request "+id, func() bool {
		for line := range strings.Lines(g.log.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				g.t.Fatalf("%s: %v", line, err)
			}
			if m["request_id"] == id {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// traced is a modern call with trace context in _meta, by a caller with a key, or by nobody.
func (g *gate) traced(caller, id, tool, meta string, header ...string) reply {
	g.t.Helper()
	h := modernHeaders("tools/call", append(header, "Mcp-Name: "+wire.EncodeHeaderValue(tool))...)
	if caller != "" {
		h = append(h, bearer(caller))
	}
	var more []string
	if meta != "" {
		more = append(more, meta)
	}
	return g.post(modernBody(id, "tools/call", callParams(tool, `{"secret":"`+plantedArgument+`"}`), more...), h...)
}

func metaParent(parent string) string { return `"traceparent":"` + parent + `"` }

// What must never show anywhere.
const (
	plantedArgument = "planted-argument-5521"
	plantedResult   = "planted-result-8812"
	plantedHeader   = "planted-header-9403"
	plantedQuery    = "planted-query-3317"
	plantedPassword = "planted-password-7730"
)
