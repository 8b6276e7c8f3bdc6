package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/otlptest"
)

// TestMetricsAreExported over both protocols, beside /metrics.
func TestMetricsAreExported(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			r := otlptest.Start(t)
			endpoint := r.HTTP
			if protocol == "grpc" {
				endpoint = r.GRPC
			}
			// The endpoint alone asks for both signals.
			tel := open(t, Options{}, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol})
			ctx, span := tel.StartServer(t.Context(), "tools/call", &Account{})
			tel.EndServer(ctx, span, call("echo"), time.Millisecond)
			shutdown(t, tel)
			if len(r.Spans()) != 1 || r.Spans()[0].Name != "tools/call echo" {
				t.Errorf("spans: %+v", r.Spans())
			}
			if !slices.ContainsFunc(r.Metrics(), func(m otlptest.Metric) bool {
				return m.Name == "mcp.server.operation.duration" && len(m.Points) == 1 && m.Points[0]["gen_ai.tool.name"] == "echo" &&
					m.Points[0]["headgate.outcome"] == "ok" && m.Points[0]["network.transport"] == "tcp"
			}) {
				t.Errorf("metrics: %+v", r.Metrics())
			}
			if scrape(t, tel) == nil {
				t.Error("nothing to scrape")
			}
		})
	}
}

// TestNobodyAsks: without a variable nothing is exported, and no span is begun.
func TestNobodyAsks(t *testing.T) {
	for name, variables := range map[string]map[string]string{
		"nothing set":       nil,
		"none":              {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"disabled":          {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"},
		"of another signal": {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "none"},
		"unknown":           {"OTEL_TRACES_EXPORTER": "zipkin"},
		"a bad protocol":    {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			tel := open(t, Options{Errors: NewErrors(slog.New(slog.NewTextHandler(&log, nil)))}, variables)
			if tel.tracer != nil {
				t.Error("spans are made")
			}
			if warned := strings.Contains(log.String(), "WARN"); warned != (name == "unknown" || name == "a bad protocol") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// TestConsole writes where it is told, which is never the standard output.
func TestConsole(t *testing.T) {
	var out bytes.Buffer
	tel := open(t, Options{Console: &out}, map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"})
	ctx, span := tel.StartServer(t.Context(), "tools/call", &Account{})
	tel.EndServer(ctx, span, call("echo"), time.Millisecond)
	shutdown(t, tel)
	for _, want := range []string{`"Name":"tools/call echo"`, `"mcp.server.operation.duration"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %s", want)
		}
	}
}

// TestShutdownIsBounded by its context, whatever the collector does.
func TestShutdownIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tel := open(t, Options{}, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + l.Addr().String(), "OTEL_EXPORTER_OTLP_TIMEOUT": "2000", "OTEL_BSP_EXPORT_TIMEOUT": "2000"})
	ctx, span := tel.StartServer(t.Context(), "tools/call", &Account{})
	tel.EndServer(ctx, span, call("echo"), time.Millisecond)
	stop, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tel.Shutdown(stop); err == nil {
		t.Error("it says that everything was exported")
	}
}

// TestTroubleIsToldOnce, again after it was over for a while, and without secrets.
func TestTroubleIsToldOnce(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abcdefgh,x=y")
	var log bytes.Buffer
	r := NewErrors(slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		r.failed("traces", errors.New("first"))
	}
	r.failed("metrics", errors.New("other"))
	r.worked("traces")
	r.worked("traces")
	r.failed("traces", errors.New("too soon"))
	r.worked("traces")
	r.seen["traces"].told = time.Now().Add(-2 * tellAgain)
	r.failed("traces", errors.New("later"))
	if got := strings.Count(log.String(), "WARN"); got != 3 || strings.Contains(log.String(), "too soon") || strings.Count(log.String(), "exported again") != 2 {
		t.Errorf("log:\n%s", log.String())
	}
	for in, want := range map[string]error{
		"dial failed": &url.Error{Op: "Post", URL: "http://u:p@h/?k=v", Err: errors.New("dial failed")},
		"failed to send to https://h:1 403 Forbidden (":               errors.New("failed to send to https://u:p@h:1/v1/traces?k=v: 403 Forbidden (body: secret)"),
		"rpc error: code = PermissionDenied":                          errors.New("rpc error: code = PermissionDenied desc = secret"),
		`rpc error: code = Unavailable desc = connection error: desc`: errors.New(`rpc error: code = Unavailable desc = connection error: desc`),
		"got *** from https://h":                                      errors.New("got Bearer abcdefgh from https://h/x"),
		"*** ***":                                                     fmt.Errorf("Bearer%%20abcdefgh http://%%zz"),
	} {
		if got := r.describe(want); got != in {
			t.Errorf("%q is worded %q, want %q", want, got, in)
		}
	}
}
