package mcptest

import (
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestSDKClient lets an independent client use every transport, so that a
// script left alone is known to keep to the protocol.
func TestSDKClient(t *testing.T) {
	stdio := func(era string) func(*testing.T) mcp.Transport {
		return func(*testing.T) mcp.Transport {
			command, args, env := ChildCommand(ChildSpec{Era: era, Tools: []string{"add"}})
			cmd := exec.Command(command, args...)
			cmd.Env = []string{childEnv + "=" + env[childEnv]}
			return &mcp.CommandTransport{Command: cmd}
		}
	}
	streamable := func(s *Server) func(*testing.T) mcp.Transport {
		return func(t *testing.T) mcp.Transport {
			s.Tools = Builtin("add")
			return &mcp.StreamableClientTransport{Endpoint: s.StartHTTP(t).URL, HTTPClient: client(t)}
		}
	}
	for _, tt := range []struct {
		name      string
		transport func(*testing.T) mcp.Transport
	}{
		{"modern http", streamable(&Server{})},
		{"modern http, all SSE", streamable(&Server{ForceSSE: true})},
		{"legacy http", streamable(&Server{Era: Legacy})},
		{"legacy http, oldest version", streamable(&Server{Era: Legacy, Version: "2025-03-26"})},
		{"legacy http, stateless", streamable(&Server{Era: Legacy, Stateless: true})},
		{"legacy sse", func(t *testing.T) mcp.Transport {
			s := &Server{Era: Legacy, Version: "2024-11-05", Tools: Builtin("add")}
			return &mcp.SSEClientTransport{Endpoint: s.StartSSE(t).URL, HTTPClient: client(t)}
		}},
		{"legacy stdio", stdio(Legacy)},
		{"modern stdio", stdio(Modern)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			session, err := c.Connect(t.Context(), tt.transport(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := session.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}()
			list, err := session.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "add" {
				t.Fatalf("listed %v, %v", list, err)
			}
			got, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "add", Arguments: map[string]any{"a": 1, "b": 2}})
			if err != nil || len(got.Content) != 1 || got.Content[0].(*mcp.TextContent).Text != "3" {
				t.Errorf("called: %v, %v", got, err)
			}
		})
	}
}
