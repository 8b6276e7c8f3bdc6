//go:build integration

package integration

//lint:file-ignore SA1019 sampling is deprecated, and servers that use it are to be served all the same

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestRealQuestions has the everything server ask clients of both eras for input and for a model's words, all at the
// same time, behind one Headgate and over each transport: every client is asked what its own call caused, and the
// answer is that of the client that called.
func TestRealQuestions(t *testing.T) {
	for transport, upstream := range map[string]func() map[string]any{
		"stdio": func() map[string]any { return entry([]string{"node", script("everything"), "stdio"}, nil) },
		"sse": func() map[string]any {
			return map[string]any{"type": "sse", "url": "http://" + startNodeServer(t, "sse") + "/sse"}
		},
		"http": func() map[string]any {
			return map[string]any{"url": "http://" + startNodeServer(t, "streamableHttp") + "/mcp"}
		},
	} {
		t.Run(transport, func(t *testing.T) {
			server := upstream()
			server["session"] = "client"
			text, err := json.Marshal(map[string]any{"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "upstreams": map[string]any{"x": server}})
			if err != nil {
				t.Fatal(err)
			}
			config := filepath.Join(t.TempDir(), "headgate.json")
			if err := os.WriteFile(config, text, 0o600); err != nil {
				t.Fatal(err)
			}
			p := startHeadgate(t, config)
			askAll(t, p.endpoint)
			p.stop(t)
		})
	}
}

// askAll has two legacy clients and a modern one call the tools that ask. No question is answered before all are put.
// When one fails the others are given up.
func askAll(t *testing.T, endpoint string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	versions := []string{"2025-06-18", "2025-11-25", "2026-07-28"}
	var asked sync.WaitGroup
	asked.Add(len(versions))
	var clients sync.WaitGroup
	defer clients.Wait()
	for _, version := range versions {
		name := "client of " + version
		together := sync.OnceFunc(asked.Done)
		c := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}, Sampling: &mcp.SamplingCapabilities{}},
			ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				together()
				met := make(chan struct{})
				go func() { asked.Wait(); close(met) }()
				select {
				case <-met:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
			},
			CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
				if said, err := json.Marshal(r.Params.Messages); err != nil || !strings.Contains(string(said), "prompt of "+name) {
					t.Errorf("%s is asked %s", name, said)
				}
				return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: "words of " + name}}, nil
			},
		})
		clients.Go(func() {
			defer func() {
				if t.Failed() {
					cancel()
				}
			}()
			s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for _, call := range []struct {
				tool string
				args map[string]any
				want string
			}{
				{"trigger-elicitation-request", map[string]any{}, "- Name: " + name},
				{"trigger-sampling-request", map[string]any{"prompt": "prompt of " + name, "maxTokens": 10}, "words of " + name},
			} {
				r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "x_" + call.tool, Arguments: call.args})
				if err != nil {
					t.Errorf("%s, %s: %v", name, call.tool, err)
					return
				}
				text, err := json.Marshal(r.Content)
				if err != nil || !strings.Contains(string(text), call.want) || strings.Count(string(text), "client of ") != strings.Count(string(text), name) {
					t.Errorf("%s, %s: %v: %s", name, call.tool, err, text)
				}
			}
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("%s speaks %s", name, got)
			}
		})
	}
}
