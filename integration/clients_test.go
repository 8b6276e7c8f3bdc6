//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// seen is what a client program was given. The clients run the same five steps, and what they are
// given is the same whichever of them asks, in whichever era and over whichever transport.
type seen struct {
	Version   string // of the protocol
	Tools     []string
	Text      string // of a call
	Structure map[string]any
	ToolError string // the text of a result with isError
	Code      int64  // of a protocol error
	Message   string // of a protocol error
	// Progress is what a long call reported. The TypeScript SDK drops the last one where it arrives in
	// one piece with the answer.
	Progress []int64
}

// nodeClients are the programs in npm/ on the TypeScript SDK, how they are told which era to speak, and the version that
// comes of it in front of Headgate.
var nodeClients = []struct{ driver, mode, version string }{
	{"client-v1.mjs", "legacy", "2025-11-25"},
	{"client-v2.mjs", "legacy", "2025-11-25"},
	{"client-v2.mjs", "auto", "2026-07-28"},
	{"client-v2.mjs", "2026-07-28", "2026-07-28"},
}

func TestRealClients(t *testing.T) {
	w := newWorld(t)
	p := startHeadgate(t, w.config)
	tools := toolNames(t, modern(p.endpoint))
	withAsking := withAsking(tools)
	stdio := []string{binary, "stdio", "--config", w.config}

	check := func(t *testing.T, got seen, tools []string, version string, typescript bool) {
		t.Helper()
		if got.Version != version {
			t.Errorf("it speaks %q, want %q", got.Version, version)
		}
		if !slices.Equal(got.Tools, tools) {
			t.Errorf("it lists %q, want %q", got.Tools, tools)
		}
		if got.Text != "Echo: hello" {
			t.Errorf("the call says %q", got.Text)
		}
		if got.Structure["conditions"] != "Cloudy" {
			t.Errorf("the structured content is %v", got.Structure)
		}
		if !strings.Contains(got.ToolError, "Access denied") {
			t.Errorf("the error result says %q", got.ToolError)
		}
		if got.Code != -32602 || !strings.Contains(got.Message, "Unknown tool: no_such_tool") {
			t.Errorf("the protocol error is %d %q", got.Code, got.Message)
		}
		if !slices.Equal(got.Progress, []int64{1, 2, 3}) && !(typescript && slices.Equal(got.Progress, []int64{1, 2})) {
			t.Errorf("progress is %v", got.Progress)
		}
	}

	for _, version := range mcp.SupportedProtocolVersions() {
		t.Run("go-sdk/"+version+"/http", func(t *testing.T) {
			check(t, runGoSDK(t, version, &mcp.StreamableClientTransport{Endpoint: p.endpoint}), tools, version, false)
		})
		t.Run("go-sdk/"+version+"/stdio", func(t *testing.T) {
			check(t, runGoSDK(t, version, &mcp.CommandTransport{Command: exec.Command(stdio[0], stdio[1:]...)}), withAsking, version, false)
		})
	}
	for _, c := range nodeClients {
		t.Run(c.driver+"/"+c.mode+"/http", func(t *testing.T) {
			check(t, runCalls(t, c.driver, c.mode, p.endpoint), tools, c.version, true)
		})
		t.Run(c.driver+"/"+c.mode+"/stdio", func(t *testing.T) {
			check(t, runCalls(t, c.driver, append([]string{c.mode}, stdio...)...), withAsking, c.version, true)
		})
	}
	p.stop(t)
}

// runCalls has one of the programs in npm/ go through the steps about tools.
func runCalls(t *testing.T, driver string, args ...string) (got seen) {
	t.Helper()
	out := runNode(t, nil, driver, append([]string{"calls"}, args...)...)
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v: %s", driver, err, out)
	}
	return got
}

// runNode runs one of the programs in npm/ on the TypeScript SDK, and returns what it prints.
func runNode(t *testing.T, env []string, driver string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{filepath.Join(npm, driver)}, args...)...)
	cmd.Dir = npm
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", driver, err, out)
	}
	return out
}

func runGoSDK(t *testing.T, version string, transport mcp.Transport) (got seen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	progress := make(chan int64, 16)
	c := mcp.NewClient(&mcp.Implementation{Name: "integration", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			progress <- int64(r.Params.Progress)
		},
	})
	s, err := c.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}()
	got.Version = s.InitializeResult().ProtocolVersion

	await(t, nil, "the list", func() bool {
		got.Tools = nil
		for tool, err := range s.Tools(ctx, nil) {
			if err != nil {
				t.Fatalf("listing: %v", err)
			}
			got.Tools = append(got.Tools, tool.Name)
		}
		return hasAll(got.Tools)
	})
	call := func(name string, arguments map[string]any) *mcp.CallToolResult {
		params := &mcp.CallToolParams{Name: name, Arguments: arguments}
		params.SetProgressToken("token of " + name)
		r, err := s.CallTool(ctx, params)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return r
	}
	text := func(r *mcp.CallToolResult) string {
		if len(r.Content) == 0 {
			return ""
		}
		if c, ok := r.Content[0].(*mcp.TextContent); ok {
			return c.Text
		}
		return fmt.Sprintf("%T", r.Content[0])
	}
	got.Text = text(call("everything_echo", map[string]any{"message": "hello"}))
	got.Structure, _ = call("everything_get-structured-content", map[string]any{"location": "New York"}).StructuredContent.(map[string]any)
	if r := call("files_read_text_file", map[string]any{"path": "/etc/passwd"}); r.IsError {
		got.ToolError = text(r)
	}
	_, err = s.CallTool(ctx, &mcp.CallToolParams{Name: "no_such_tool", Arguments: map[string]any{}})
	var rpc *jsonrpc.Error
	if !errors.As(err, &rpc) {
		t.Fatalf("an unknown tool: %v", err)
	}
	got.Code, got.Message = rpc.Code, rpc.Message
	call("everything_trigger-long-running-operation", map[string]any{"duration": 0.3, "steps": 3})
	// The SDK hands notifications over beside the result.
	for range 3 {
		select {
		case n := <-progress:
			got.Progress = append(got.Progress, n)
		case <-ctx.Done():
			t.Fatal("the progress does not arrive")
		}
	}
	return got
}

// hasAll reports whether every server is in a list: one that was just started may still be missing.
func hasAll(tools []string) bool {
	for _, id := range []string{"everything_", "files_", "memory_", "old_", "web_"} {
		if !slices.ContainsFunc(tools, func(name string) bool { return strings.HasPrefix(name, id) }) {
			return false
		}
	}
	return true
}
