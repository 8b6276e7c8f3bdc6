package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/otlptest"
)

// variables sets those of OpenTelemetry, which its libraries read of the process.
func variables(t *testing.T, pairs ...string) {
	t.Helper()
	for _, kv := range pairs {
		name, v, _ := strings.Cut(kv, "=")
		t.Setenv(name, v)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLastSpansAreExported: what is in the queue when the program ends is not lost.
func TestLastSpansAreExported(t *testing.T) {
	r := otlptest.Start(t)
	variables(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+r.HTTP, "OTEL_BSP_SCHEDULE_DELAY=3600000", "OTEL_METRIC_EXPORT_INTERVAL=3600000", "OTEL_SERVICE_NAME=front")
	p, endpoint := serve(t)
	p.log.await(t, `"msg":"the server is up","upstream":"ledger"`)
	if answer, err := callTool(endpoint, "ledger_list_ledgers"); err != nil || !strings.Contains(answer, `"result"`) {
		t.Fatalf("answer %q, %v", answer, err)
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
	found := map[string]bool{}
	for _, s := range r.Spans() {
		if s.Resource["service.name"] == "front" {
			found[s.Kind+" "+s.Name] = true
		}
	}
	for _, want := range []string{"SERVER tools/call ledger_list_ledgers", "CLIENT tools/call list_ledgers", "CLIENT tools/list"} {
		if !found[want] {
			t.Errorf("there is no span %s: %v", want, found)
		}
	}
	if len(r.Metrics()) == 0 {
		t.Error("no metrics were exported")
	}
}

// TestReloadsAreCounted, and levels of the log change with them.
func TestReloadsAreCounted(t *testing.T) {
	dir := t.TempDir()
	const config = "upstreams: {}\nlog: {levels: {access: %}}\n"
	file := write(t, dir, "c.yaml", strings.Replace(config, "%", "error", 1))
	p, endpoint := serve(t, "--config", file)
	admin := member(t, p.log.await(t, `"msg":"ready"`), "admin")
	if _, err := callTool(endpoint, "none"); err != nil {
		t.Fatal(err)
	}
	writeUntil(t, p, dir, "listenn: x\n", "reload failed")
	write(t, dir, "c.yaml", strings.Replace(config, "%", "info", 1))
	p.log.await(t, "configuration reloaded")
	if strings.Contains(p.log.String(), `"msg":"call"`) {
		t.Error("the first call was logged")
	}
	if _, err := callTool(endpoint, "none"); err != nil {
		t.Fatal(err)
	}
	p.log.await(t, `"msg":"call"`)
	page := get(t, admin+"/metrics")
	for _, want := range []string{`headgate_config_reloads_total{headgate_result="error"} `, `headgate_calls_total{gen_ai_tool_name="_OTHER",headgate_outcome="protocol_error"} 2`,
		"headgate_config_reload_time_seconds ", "go_goroutines ", `target_info{service_name="headgate"`} {
		if !strings.Contains(page, "\n"+want) {
			t.Errorf("/metrics does not say %s", want)
		}
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}

// writeUntil writes a file again and again, each time a little longer, until the log says something: a change that comes
// before the file is watched goes unseen.
func writeUntil(t *testing.T, p *program, dir, text, want string) {
	t.Helper()
	again := time.NewTicker(400 * time.Millisecond)
	defer again.Stop()
	limit := time.After(patience)
	for !strings.Contains(p.log.String(), want) {
		text += "#\n"
		write(t, dir, "c.yaml", text)
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("%q was not printed", want)
		}
	}
}

// TestConsoleLeavesStdoutAlone, which is the client's.
func TestConsoleLeavesStdoutAlone(t *testing.T) {
	variables(t, "OTEL_TRACES_EXPORTER=console", "OTEL_METRICS_EXPORTER=console")
	in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"
	p := start(t, strings.NewReader(in), nil, "stdio")
	if err := p.end(t); err != nil {
		t.Error(err)
	}
	out := p.out.String()
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, `{"jsonrpc":"2.0",`) {
			t.Errorf("stdout has a line that is no message: %q", line)
		}
	}
	if !strings.Contains(out, `"id":1,"result"`) {
		t.Errorf("there is no answer: %q", out)
	}
	if !strings.Contains(p.log.String(), `"Name":"initialize"`) {
		t.Error("the span is not printed")
	}
}

// TestCollectorGone: the end comes in time, and the log tells once for each signal.
func TestCollectorGone(t *testing.T) {
	variables(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://user:hunter2222@127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT=300", "OTEL_BSP_EXPORT_TIMEOUT=300",
		"OTEL_BSP_SCHEDULE_DELAY=10", "OTEL_METRIC_EXPORT_INTERVAL=20", "OTEL_METRIC_EXPORT_TIMEOUT=300", "OTEL_TRACES_SAMPLER=no_such_sampler")
	p, endpoint := serve(t)
	for range 5 {
		if _, err := callTool(endpoint, "none"); err != nil {
			t.Fatal(err)
		}
	}
	p.log.await(t, `"signal":"traces"`)
	p.log.await(t, `"signal":"metrics"`)
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
	p.log.await(t, `"signal":"sdk"`) // the sampler
	for line := range strings.Lines(p.log.String()) {
		member(t, line, "msg")
	}
	if n := strings.Count(p.log.String(), "telemetry is not exported"); n != 3 {
		t.Errorf("%d warnings", n)
	}
	if strings.Contains(p.log.String(), "hunter2222") {
		t.Error("the log holds the password")
	}
}
