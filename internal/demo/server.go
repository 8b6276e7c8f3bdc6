package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listTTL is how long clients may keep the lists, which never change.
const listTTL = time.Hour

// Server is one embedded server. It may serve any number of clients at once;
// what its tools remember is shared between them.
type Server struct {
	// ID is the upstream id under which Headgate offers the server.
	ID string

	title        string
	instructions string
	tools        []tool
}

// tool is a definition with what it does. run checks the arguments itself and
// returns an error only when the call was cut short.
type tool struct {
	def mcp.Tool
	run func(ctx context.Context, call *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error)
}

// Servers returns the embedded servers, flights and then ledger. now tells
// the time to what depends on today's date; it must be safe for concurrent
// use.
func Servers(now func() time.Time) []Server {
	return []Server{flights(now), ledger()}
}

// Serve serves one client by newline-delimited JSON-RPC in either protocol era
// (2026-07-28, stdio; 2025-11-25, stdio). It returns nil once ctx has ended or
// in has come to its end, after the calls in flight have been cancelled and
// have returned. It closes in and out, perhaps more than once. After closing
// in, a client reads or closes out, or answers on their way to it block.
func (s Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The SDK closes the pipes only when no call is left, and a call may hang
	// on a client that no longer reads.
	defer context.AfterFunc(ctx, func() {
		_ = in.Close()
		_ = out.Close()
	})()
	err := s.build(ctx).Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", s.ID, err)
}

// build makes the SDK's server for one client. Calls end when stop does.
func (s Server) build(stop context.Context) *mcp.Server {
	srv := mcp.NewServer(&mcp.Implementation{Name: s.ID, Title: s.title, Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: s.instructions,
		Logger:       slog.New(slog.DiscardHandler),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
			c.TTLMs, c.CacheScope = int(listTTL.Milliseconds()), "public"
		},
	})
	for _, t := range s.tools {
		srv.AddTool(&t.def, func(ctx context.Context, call *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			// The SDK waits for calls when it closes a session but does not
			// tell them.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(stop, cancel)()
			return t.run(ctx, call, parseArguments(call.Params.Arguments))
		})
	}
	return srv
}

// refusal is a result that tells the model what is wrong and what to do.
func refusal(text string) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
}

// answer is a result with v as structured content and the same JSON as text.
func answer(v any) (*mcp.CallToolResult, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	return &mcp.CallToolResult{
		StructuredContent: json.RawMessage(raw),
		Content:           []mcp.Content{&mcp.TextContent{Text: string(raw)}},
	}, nil
}

// readOnly annotates a tool that changes nothing.
func readOnly() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: new(false), OpenWorldHint: new(false)}
}

// adding annotates a tool that adds something; repeatable says whether a
// second call with the same arguments adds nothing more.
func adding(repeatable bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{IdempotentHint: repeatable, DestructiveHint: new(false), OpenWorldHint: new(false)}
}

// sentences joins the parts of a text.
func sentences(parts ...string) string { return strings.Join(parts, " ") }
