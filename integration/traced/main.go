// Command traced is an MCP server on the SDK that takes part in traces: the context in _meta of a call is the parent of its
// span, which goes where the standard variables say. With an argument it serves HTTP at that address and prints the one
// that it got; without, stdin and stdout. Tests run it as an upstream.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return err
	}
	// Each span is exported before its call is answered, so that a test which has the answer need not wait.
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	server := mcp.NewServer(&mcp.Implementation{Name: "traced", Version: "1"}, nil)
	type in struct {
		Fail bool `json:"fail"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "work"}, func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
		if in.Fail {
			return nil, nil, errors.New("failed on purpose")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
	})
	server.AddReceivingMiddleware(tracing(provider.Tracer("traced")))
	if len(args) == 0 {
		return server.Run(ctx, &mcp.StdioTransport{})
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	context.AfterFunc(ctx, func() { _ = l.Close() })
	return http.Serve(l, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

// tracing makes a SERVER span of every call.
func tracing(tracer trace.Tracer) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method != "tools/call" {
				return next(ctx, method, req)
			}
			carrier := propagation.MapCarrier{}
			for k, v := range req.GetParams().GetMeta() {
				if s, ok := v.(string); ok {
					carrier[k] = s
				}
			}
			w3c := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
			ctx, span := tracer.Start(w3c.Extract(ctx, carrier), "the tool itself", trace.WithSpanKind(trace.SpanKindServer))
			span.SetAttributes(attribute.String("baggage", carrier["baggage"]))
			defer span.End()
			return next(ctx, method, req)
		}
	}
}
