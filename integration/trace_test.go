package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/internal/otlptest"
)

// built builds commands of this module, and returns where they are.
func built(t *testing.T, packages ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var out []string
	for _, p := range packages {
		file := filepath.Join(dir, filepath.Base(p))
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, p)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", p, err, text)
		}
		out = append(out, file)
	}
	return out
}

// TestTraceJoinsUp follows one call from a client through Headgate to its server and finds one trace: over HTTP and over
// stdio, on both sides, and through either protocol of the collector. Client and server are on the SDK and carry
// context in _meta.
func TestTraceJoinsUp(t *testing.T) {
	bin := built(t, "../cmd/headgate", "./traced")
	headgate, traced := bin[0], bin[1]
	r := otlptest.Start(t)
	variables := []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=50"}
	overHTTP := append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.HTTP, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"}, variables...)
	overGRPC := append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.GRPC, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, variables...)

	address := startPrinting(t, exec.Command(traced, "127.0.0.1:0"), overHTTP, func(line string) string {
		if strings.HasPrefix(line, "http://") {
			return strings.TrimSpace(line)
		}
		return ""
	})
	env := map[string]string{}
	for _, kv := range overHTTP {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	config, err := json.Marshal(map[string]any{
		"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "log": map[string]any{"format": "json"},
		"upstreams": map[string]any{"web": map[string]any{"url": address}, "pipe": map[string]any{"command": traced, "env": env}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "headgate.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	ready := startPrinting(t, exec.Command(headgate, "serve", "--config", file), overGRPC, func(line string) string {
		var m struct{ Msg, Listen, Admin string }
		if json.Unmarshal([]byte(line), &m) == nil && m.Msg == "ready" {
			return m.Listen + " " + m.Admin
		}
		return ""
	})
	endpoint, admin, _ := strings.Cut(ready, " ")
	stdio := exec.Command(headgate, "stdio", "--config", file)
	stdio.Env = append(os.Environ(), overGRPC...)

	for client, transport := range map[string]mcp.Transport{"http": &mcp.StreamableClientTransport{Endpoint: endpoint}, "stdio": &mcp.CommandTransport{Command: stdio}} {
		t.Run(client, func(t *testing.T) {
			session := connectTraced(t, transport)
			for _, server := range []string{"web", "pipe"} {
				for _, fails := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%t", server, fails), func(t *testing.T) { followTrace(t, r, session, client, server, fails) })
				}
			}
		})
	}
	resp, err := http.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`headgate_calls_total{gen_ai_tool_name="web_work",headgate_outcome="ok",headgate_upstream="web"} 1`,
		`headgate_calls_total{gen_ai_tool_name="pipe_work",headgate_outcome="tool_error",headgate_upstream="pipe"} 1`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("/metrics does not say %s", want)
		}
	}
}

// connectTraced is a client that puts the context of its calls into _meta.
func connectTraced(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, nil)
	c.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/call" {
				carrier := propagation.MapCarrier{}
				propagation.TraceContext{}.Inject(ctx, carrier)
				meta := req.GetParams().GetMeta()
				if meta == nil {
					meta = map[string]any{}
				}
				for k, v := range carrier {
					meta[k] = v
				}
				meta["baggage"] = "tenant=blue"
				req.GetParams().SetMeta(meta)
			}
			return next(ctx, method, req)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	session, err := c.Connect(ctx, transport, nil)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = session.Close() })
	listed := func() bool {
		n := 0
		for _, err := range session.Tools(ctx, nil) {
			if err != nil {
				t.Fatalf("listing: %v", err)
			}
			n++
		}
		return n == 2
	}
	for !listed() {
		select {
		case <-ctx.Done():
			t.Fatal("the servers do not come up")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return session
}

func followTrace(t *testing.T, r *otlptest.Receiver, session *mcp.ClientSession, client, server string, fails bool) {
	provider := sdktrace.NewTracerProvider() // nobody exports the client's own span; its ids are enough
	ctx, span := provider.Tracer("client").Start(t.Context(), "the client", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: server + "_work", Arguments: map[string]any{"fail": fails}})
	if err != nil || result.IsError != fails {
		t.Fatalf("the call: %+v, %v", result, err)
	}
	own := span.SpanContext().TraceID().String()
	var chain []otlptest.Span
	r.Await(t, "the three spans of the call", func() bool {
		chain = nil
		parent := span.SpanContext().SpanID().String()
		for range 3 {
			for _, s := range r.Spans() {
				if s.Trace == own && s.Parent == parent {
					chain = append(chain, s)
					parent = s.ID
					break
				}
			}
		}
		return len(chain) == 3
	})
	var names []string
	for _, s := range chain {
		names = append(names, s.Kind+" "+s.Name)
	}
	if got, want := strings.Join(names, ", "), "SERVER tools/call "+server+"_work, CLIENT tools/call work, SERVER the tool itself"; got != want {
		t.Errorf("the spans are %s, want %s", got, want)
	}
	outcome, failure := "ok", ""
	if fails {
		outcome, failure = "tool_error", "tool_error"
	}
	near, far := map[string]string{"http": "tcp", "stdio": "pipe"}[client], map[string]string{"web": "tcp", "pipe": "pipe"}[server]
	for i, transport := range []string{near, far} {
		s := chain[i]
		if s.Attributes["network.transport"] != transport || s.Attributes["headgate.outcome"] != outcome || s.Attributes["error.type"] != failure || s.Failed != fails {
			t.Errorf("%s: %v, ERROR is %t", s.Name, s.Attributes, s.Failed)
		}
	}
	if got := chain[2].Attributes["baggage"]; got != "tenant=blue" {
		t.Errorf("the server has the baggage %q", got)
	}
}

// startPrinting runs a program until the end of the test, and waits for a line that it prints.
func startPrinting(t *testing.T, cmd *exec.Cmd, env []string, find func(line string) string) string {
	t.Helper()
	cmd.Env = append(os.Environ(), env...)
	own := ownGroup(t, cmd)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	own()
	found := make(chan string, 1)
	done := make(chan struct{})
	var text bytes.Buffer
	go func() {
		defer close(done)
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			fmt.Fprintln(&text, lines.Text())
			if v := find(lines.Text()); v != "" {
				select {
				case found <- v:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			_ = r.SetReadDeadline(time.Now().Add(time.Second))
			<-done
			t.Logf("%s printed\n%s", filepath.Base(cmd.Path), text.String())
		}
		r.Close()
		<-done
	})
	select {
	case v := <-found:
		return v
	case <-done:
		t.Fatalf("%s ended:\n%s", cmd.Path, text.String())
	case <-time.After(patience):
		t.Fatalf("%s does not say that it is ready", cmd.Path)
	}
	return ""
}
