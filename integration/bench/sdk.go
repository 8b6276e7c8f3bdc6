package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkSessions is where the SDK's gateway serves legacy clients.
const sdkSessions = "/sessions"

// newSDKGateway is a gateway as one would write it with the SDK: a client that is connected to the server, and a
// server whose tools call those of the other. target is a URL, or the number of tools of a child process.
func newSDKGateway(ctx context.Context, target string) (http.Handler, func(), error) {
	info := &mcp.Implementation{Name: "sdk-gateway", Version: "1"}
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: target, HTTPClient: &http.Client{Transport: newTransport()}}
	if !strings.HasPrefix(target, "http") {
		exe, err := os.Executable()
		if err != nil {
			return nil, nil, err
		}
		transport = &mcp.CommandTransport{Command: exec.Command(exe, "-role", "stdio", "-target", target)}
	}
	session, err := mcp.NewClient(info, nil).Connect(ctx, transport, nil)
	if err != nil {
		return nil, nil, err
	}
	server := mcp.NewServer(info, &mcp.ServerOptions{PageSize: 100_000})
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, nil, err
		}
		exposed := *t
		exposed.Name = prefix(0) + t.Name
		server.AddTool(&exposed, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return session.CallTool(ctx, &mcp.CallToolParams{Name: t.Name, Arguments: req.Params.Arguments})
		})
	}
	// A handler with sessions does not speak the modern revision.
	serve := func(*http.Request) *mcp.Server { return server }
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(serve, &mcp.StreamableHTTPOptions{JSONResponse: true, Stateless: true}))
	mux.Handle(sdkSessions, mcp.NewStreamableHTTPHandler(serve, &mcp.StreamableHTTPOptions{JSONResponse: true}))
	return mux, func() { _ = session.Close() }, nil
}
