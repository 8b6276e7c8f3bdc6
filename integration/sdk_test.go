package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// library is a server on the SDK with prompts, resources, templates, completions and subscriptions.
func library() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Ref.Type, r.Params.Ref.Name + r.Params.Ref.URI, r.Params.Argument.Value}}}, nil
		},
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: []*mcp.PromptArgument{{Name: "whom", Required: true}}}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "d", Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello " + r.Params.Arguments["whom"]}},
			{Role: "user", Content: &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "shelf://1", Text: "t"}}}}}, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		if strings.HasSuffix(r.Params.URI, "/gone") {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: "text/plain", Text: "text of " + r.Params.URI},
			{URI: r.Params.URI + "#blob", Blob: []byte{0, 1, 2, 255}}}}, nil
	}
	s.AddResource(&mcp.Resource{URI: "shelf://1", Name: "one", Title: "One"}, read)
	s.AddResource(&mcp.Resource{URI: "shelf://2", Name: "two"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "book:///{shelf}/{title}", Name: "book"}, read)
	return s
}

// gateTo runs a gateway in front of servers and returns the URL of its endpoint.
func gateTo(t *testing.T, upstreams string) string {
	t.Helper()
	front := httptest.NewUnstartedServer(nil)
	g := runGate(t, front, `{"upstreams":`+upstreams+`}`)
	wait, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := g.WaitSettled(wait); err != nil {
		t.Fatal(err)
	}
	return front.URL + "/mcp"
}

// collect runs every request about prompts and resources, and returns what the client was given.
func collect(t *testing.T, s *mcp.ClientSession, prompt string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := map[string]string{}
	take := func(what string, v any, err error) {
		b, _ := json.Marshal(v)
		// Which era asks decides whether there is a resultType.
		out[what] = fmt.Sprintf("%s %v", strings.NewReplacer(`"resultType":"complete",`, "", `,"resultType":"complete"`, "").Replace(string(b)), err)
	}
	prompts, err := s.ListPrompts(ctx, nil)
	if err == nil {
		prompts.Prompts[0].Name = strings.TrimPrefix(prompts.Prompts[0].Name, "lib_")
		prompts.Cacheable, prompts.Meta = mcp.Cacheable{}, nil
	}
	take("prompts", prompts, err)
	resources, err := s.ListResources(ctx, nil)
	if err == nil {
		resources.Cacheable, resources.Meta = mcp.Cacheable{}, nil
	}
	take("resources", resources, err)
	templates, err := s.ListResourceTemplates(ctx, nil)
	if err == nil {
		templates.Cacheable, templates.Meta = mcp.Cacheable{}, nil
	}
	take("templates", templates, err)
	got, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompt, Arguments: map[string]string{"whom": "world"}})
	take("get", got, err)
	for _, uri := range []string{"shelf://1", "shelf://2", "book:///a/b"} {
		read, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err == nil {
			read.Cacheable = mcp.Cacheable{}
			read.Meta = nil
		}
		take(uri, read, err)
	}
	for _, ref := range []*mcp.CompleteReference{{Type: "ref/prompt", Name: prompt}, {Type: "ref/resource", URI: "book:///{shelf}/{title}"}} {
		c, err := s.Complete(ctx, &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "whom", Value: "w"}})
		take(ref.Type, c, err)
		out[ref.Type] = strings.ReplaceAll(out[ref.Type], "lib_", "")
	}
	return out
}

// TestSDKPromptsAndResources puts a Headgate between a client and a server on the SDK, in all combinations
// of eras: what the client is given through it is what it is given directly.
func TestSDKPromptsAndResources(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		server := library()
		upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: era == "modern"}))
		t.Cleanup(func() {
			upstream.CloseClientConnections()
			upstream.Close()
		})
		through := gateTo(t, fmt.Sprintf(`{"lib":{"url":%q,"era":%q}}`, upstream.URL, era))
		own := map[string]string{"modern": "2026-07-28", "legacy": "2025-11-25"}[era]
		connect := func(t *testing.T, url, version string, updated chan string) *mcp.ClientSession {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			client := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, &mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI }})
			s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18"} {
			t.Run("server "+era+", client "+version, func(t *testing.T) {
				want := collect(t, connect(t, upstream.URL, own, nil), "greet")
				updated := make(chan string, 1024)
				s := connect(t, through, version, updated)
				if got := s.InitializeResult(); got.ProtocolVersion != version || got.Capabilities.Prompts == nil || got.Capabilities.Completions == nil ||
					got.Capabilities.Resources == nil || !got.Capabilities.Resources.Subscribe {
					t.Errorf("it is told %+v", got)
				}
				got := collect(t, s, "lib_greet")
				for what := range want {
					if got[what] != want[what] || strings.HasPrefix(want[what], "null") {
						t.Errorf("%s:\n got %s\nwant %s", what, got[what], want[what])
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				code := map[bool]int64{true: -32602, false: -32002}[version == "2026-07-28"]
				_, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: "book:///a/gone"})
				var missing *jsonrpc.Error
				if !errors.As(err, &missing) || missing.Code != code || !strings.Contains(string(missing.Data), "book:///a/gone") {
					t.Errorf("a resource that is not there: %+v", missing)
				}
				if err := s.Subscribe(ctx, &mcp.SubscribeParams{URI: "shelf://1"}); err != nil {
					t.Fatal(err)
				}
				// The client returns before its subscription stands, so the update is repeated.
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for heard := ""; heard == ""; {
					if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "shelf://1"}); err != nil {
						t.Fatal(err)
					}
					select {
					case heard = <-updated:
						if heard != "shelf://1" {
							t.Errorf("heard of %s", heard)
						}
					case <-tick.C:
					case <-ctx.Done():
						t.Fatal("no update came")
					}
				}
			})
		}
	}
}
