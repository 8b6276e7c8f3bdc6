package gateway

import (
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// awaitMetric waits until a metric has a value.
func (g *gate) awaitMetric(want float64, name string, labels ...string) {
	g.t.Helper()
	deadline := time.After(limit)
	for {
		got := g.metric(name, labels...)
		if got == want {
			return
		}
		select {
		case <-deadline:
			g.t.Fatalf("%s %q is %g, want %g", name, labels, got, want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestGaugesFollow what upstreams, sessions and requests do.
func TestGaugesFollow(t *testing.T) {
	b := newBlocker()
	x := &mcptest.Server{Tools: slices.Concat(mcptest.Builtin("echo"), []mcptest.Tool{b.tool}, mcptest.Builtin("echo")), ListChanged: true}
	y := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo"), ListChanged: true}
	front := y.StartHTTP(t)
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(x.StartHTTP(t)), "y": entry(front)}), Options{})
	for name, want := range map[string]float64{"headgate_upstream_up": 1, "headgate_catalogue_tools": 2, "headgate_catalogue_changes_total": 1} {
		g.awaitMetric(want, name, "headgate_upstream", "x")
	}
	if got := g.metric("headgate_catalogue_findings", "headgate_upstream", "x", "headgate_rule", "duplicate_name"); got != 1 {
		t.Errorf("%g findings", got)
	}

	x.SetTools(mcptest.Builtin("echo", "boom", "fail"))
	x.NotifyToolsChanged()
	g.awaitMetric(3, "headgate_catalogue_tools", "headgate_upstream", "x")
	g.awaitMetric(2, "headgate_catalogue_changes_total", "headgate_upstream", "x")
	g.awaitTool("x_block", false) // the metrics are ahead of what is served
	x.SetTools([]mcptest.Tool{b.tool})
	x.NotifyToolsChanged()
	g.awaitTool("x_block", true)

	session := g.open()
	g.awaitMetric(1, "headgate_sessions")
	called := make(chan reply, 1)
	go func() { called <- g.callLegacy(session, "1", "x_block", "{}") }()
	awaitServer(t, x, "the call", func() bool { return x.Executions("block") == 1 })
	g.awaitMetric(1, "headgate_requests_in_flight")
	close(b.release)
	<-called
	g.awaitMetric(0, "headgate_requests_in_flight")
	g.do(g.request("DELETE", "", session))
	g.awaitMetric(0, "headgate_sessions")
	g.awaitMetric(1, "mcp_server_session_duration_seconds", "mcp_protocol_version", "2025-11-25", "network_transport", "tcp")

	awaitServer(t, y, "the stream", func() bool { return y.Streams() == 1 })
	y.EndStreams(false)
	g.awaitMetric(1, "headgate_streams_dropped_total", "headgate_side", "upstream", "headgate_upstream", "y")
	front.Stop()
	g.awaitMetric(0, "headgate_upstream_up", "headgate_upstream", "y")
	g.awaitMetric(1, "mcp_client_session_duration_seconds", "headgate_upstream", "y", "mcp_protocol_version", "2025-11-25", "network_transport", "tcp")
	front.Start()
	g.awaitMetric(1, "headgate_upstream_up", "headgate_upstream", "y")
}

// TestStdioSessionIsCounted when it has ended.
func TestStdioSessionIsCounted(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	p := g.pipe()
	p.shakeHands()
	p.in.Close()
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	g.awaitMetric(1, "mcp_server_session_duration_seconds", "network_transport", "pipe", "mcp_protocol_version", "2025-11-25")
	g.awaitMetric(1, "mcp_server_operation_duration_seconds", "network_transport", "pipe", "mcp_protocol_version", "2025-11-25", "mcp_method_name", "initialize")
}

// TestUnknownNamesAreOneSeries: tools and methods that nobody has cannot fill memory with what they are called.
func TestUnknownNamesAreOneSeries(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session := g.open()
	const n = 300
	for i := range n {
		g.callLegacy(session, "1", fmt.Sprintf("x_nope_%d", i), "{}")
		g.post(legacyBody("1", fmt.Sprintf("nope/%d", i), ""), session)
	}
	g.awaitMetric(n, "headgate_calls_total", "gen_ai_tool_name", "_OTHER", "headgate_outcome", "protocol_error", "headgate_upstream", "")
	g.awaitMetric(n, "mcp_server_operation_duration_seconds", "mcp_method_name", "_OTHER", "error_type", "-32601")
	if got := len(g.scrape()["headgate_calls_total"].GetMetric()); got != 1 {
		t.Errorf("%d series", got)
	}
	if got := len(g.scrape()["mcp_server_operation_duration_seconds"].GetMetric()); got != 3 { // initialize, too
		t.Errorf("%d series", got)
	}
}

// TestExemplars: who reads OpenMetrics is led from a bucket to a trace.
func TestExemplars(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), "http/protobuf", Options{})
	g.traced("", "1", "x_echo", metaParent(parentOf("abc")))
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	g.Admin().ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "mcp_server_operation_duration_seconds_bucket") && strings.Contains(line, `trace_id="`+traceOf("abc")+`"`) {
			return
		}
	}
	t.Errorf("no bucket names the trace:\n%.2000s", text)
}

// TestBreakerOfWhatIsGone: a gauge that nobody will set again does not stay where it was.
func TestBreakerOfWhatIsGone(t *testing.T) {
	lost := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"plain","inputSchema":{"type":"object"}}`, Call: failing()["reset"]}}}
	upstreams := map[string]string{"x": entry(lost.StartHTTP(t), `"breaker":{"failures":1,"open_for":"1h"}`, `"retries":0`)}
	g := launchTold(t, parseConfig(t, upstreams), Options{})
	g.awaitMetric(1, "headgate_breaker_state", "headgate_upstream", "x", "headgate_breaker_state", "closed")
	g.traced("", `"lost"`, "x_plain", "")
	g.awaitMetric(1, "headgate_breaker_state", "headgate_upstream", "x", "headgate_breaker_state", "open")
	g.traced("", `"open"`, "x_plain", "")
	if line := g.accessLine("open"); line["outcome"] != "breaker_open" || line["sent"] != "not_started" || line["attempts"] != 0.0 {
		t.Errorf("the log says %v", line)
	}
	if err := g.Apply(parseConfig(t, nil)); err != nil {
		t.Fatal(err)
	}
	g.awaitMetric(0, "headgate_breaker_state", "headgate_upstream", "x", "headgate_breaker_state", "open")
}
