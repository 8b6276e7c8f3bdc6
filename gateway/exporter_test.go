package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/upstream"
)

// badExporters are collectors that are no use, by what they do to whoever exports to them.
var badExporters = map[string]struct {
	protocol string
	start    func(t testing.TB) (endpoint string)
}{
	"down, http":  {"http/protobuf", closedPort},
	"down, grpc":  {"grpc", closedPort},
	"hangs, http": {"http/protobuf", silentPort},
	"hangs, grpc": {"grpc", silentPort},
	"refuses": {"http/protobuf", func(t testing.TB) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "go away "+plantedResult, http.StatusForbidden)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}},
	"resets": {"http/protobuf", func(t testing.TB) string {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		t.Cleanup(s.Close)
		return s.URL
	}},
}

func closedPort(t testing.TB) string {
	return "http://" + mcptest.Reserve(t)
}

// silentPort accepts connections and never says a word.
func silentPort(t testing.TB) string {
	return "http://" + mcptest.ListenRaw(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
}

// withUser puts credentials into an endpoint, where some collectors want them.
func withUser(endpoint string) string {
	return strings.Replace(endpoint, "http://", "http://user:"+plantedPassword+"@", 1)
}

// TestUselessExporters: calls go on as if nothing were wrong, spans beyond the queue are dropped and counted, and
// one warning without a secret says so.
func TestUselessExporters(t *testing.T) {
	for name, e := range badExporters {
		t.Run(name, func(t *testing.T) {
			exportTo(t, withUser(e.start(t)), e.protocol)
			for k, v := range map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8", "OTEL_BSP_EXPORT_TIMEOUT": "300",
				"OTEL_EXPORTER_OTLP_TIMEOUT": "300", "OTEL_BSP_SCHEDULE_DELAY": "10", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=" + plantedHeader} {
				t.Setenv(k, v)
			}
			s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
			g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
			const calls = 300 // two spans each: many times what the queue holds
			for i := range calls {
				passes(t, "a call", g.traced("", fmt.Sprint(i), "x_echo", metaParent(parentOf("1"))))
			}
			deadline := time.After(limit)
			for g.metric("headgate_telemetry_spans_dropped_total", "headgate_reason", "export_failed") == 0 {
				select {
				case <-deadline:
					t.Fatal("no span is counted as lost")
				case <-time.After(10 * time.Millisecond):
				}
			}
			if strings.HasPrefix(name, "hangs") {
				poll(t, "spans that are dropped at the queue", func() bool {
					if g.metric("headgate_telemetry_spans_dropped_total", "headgate_reason", "queue_full") > 0 {
						return true
					}
					g.traced("", "more", "x_echo", metaParent(parentOf("1"))) // faster than they are given up
					return false
				})
			}
			log := g.log.String()
			if n := strings.Count(log, "telemetry is not exported"); n != 1 {
				t.Errorf("%d warnings", n)
			}
			for _, secret := range []string{plantedPassword, plantedHeader, plantedResult, "user:"} {
				if strings.Contains(log, secret) {
					t.Errorf("the log holds %s", secret)
				}
			}
		})
	}
}

// BenchmarkCall measures a tools/call through the handler with a server in process.
func BenchmarkCall(b *testing.B) {
	for _, how := range []struct {
		name      string
		telemetry bool
		variables map[string]string
	}{
		{"none", false, nil},
		{"log", false, map[string]string{}},
		{"metrics", true, map[string]string{"OTEL_TRACES_EXPORTER": "none"}},
		{"1%", true, map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}},
		{"100%", true, map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}},
		{"down", true, map[string]string{"OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_ENDPOINT": closedPort(b)}},
		{"hangs", true, map[string]string{"OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_ENDPOINT": silentPort(b), "OTEL_BSP_EXPORT_TIMEOUT": "1000"}},
	} {
		b.Run(how.name, func(b *testing.B) {
			g, call := benchmarkCall(b, how.telemetry, how.variables)
			b.ReportAllocs()
			for b.Loop() {
				if w := call(); w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			runtime.KeepAlive(g)
		})
	}
}

func benchmarkCall(b testing.TB, withTelemetry bool, variables map[string]string) (*gate, func() *httptest.ResponseRecorder) {
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(sink.Close)
	exportTo(b, sink.URL, "http/protobuf")
	b.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1000")
	for k, v := range variables {
		b.Setenv(k, v)
	}
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	cfg := parseConfig(b, map[string]string{"x": embeddedEntry}, `"log":{"level":"error"}`)
	o := Options{Embedded: map[string]upstream.ServeFunc{"x": serveLines(s)}}
	var g *gate
	if withTelemetry {
		g = launchTold(b, cfg, o)
	} else {
		o.Logger = slog.New(slog.DiscardHandler)
		if variables != nil {
			o.Logger = telemetry.NewLogger(io.Discard, telemetry.JSON, new(telemetry.Levels))
		}
		g = launch(b, cfg, o)
	}
	handler := g.Handler()
	body := modernBody("1", "tools/call", callParams("x_echo", `{"a":1}`))
	header := g.request(http.MethodPost, body, modernHeaders("tools/call", "Mcp-Name: x_echo")...).Header
	return g, func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
}
