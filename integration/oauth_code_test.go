package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/headgate/headgate/internal/mcptest"
)

// browser plays the user's browser: it follows the URL of the authorization server up to the redirect to the
// client, and takes the code from there.
func browser(t *testing.T, visited *[]url.Values) auth.AuthorizationCodeFetcher {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		at, err := url.Parse(args.URL)
		if err != nil {
			return nil, err
		}
		*visited = append(*visited, at.Query())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		back, err := resp.Location()
		if err != nil {
			return nil, fmt.Errorf("HTTP %d: %w", resp.StatusCode, err)
		}
		if !strings.HasPrefix(back.String(), clientURL+"?") {
			t.Errorf("the user is sent to %s", back)
		}
		return &auth.AuthorizationResult{Code: back.Query().Get("code"), State: back.Query().Get("state")}, nil
	}
}

const clientURL = "http://localhost:53682/callback"

// TestAuthorizationCode has the SDK's client take a user through the whole flow: the challenge, the metadata of
// the endpoint and of the authorization server, a client that is known there or registers itself, a code and
// its proof, the list, a call, and another code for a tool that needs one more scope. What the server behind
// Headgate gets to see is a token for itself, exchanged for the user's.
func TestAuthorizationCode(t *testing.T) {
	idp := (&mcptest.AuthServer{Clients: map[string]string{"gw": "gw-secret", "known": "known-secret"}, Subject: "ann",
		Claims: map[string]any{"groups": []string{"people"}}}).Start(t)
	up := &mcptest.Server{Tools: mcptest.Builtin("echo", "add", "boom"), OnHTTP: func(w http.ResponseWriter, r *http.Request) bool {
		_, err := idp.Bearer(r.Header, "api://up")
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return err != nil
	}}
	server := up.StartHTTP(t)
	front := httptest.NewUnstartedServer(nil)
	public := "http://" + front.Listener.Addr().String() + "/mcp"
	g := runGate(t, front, fmt.Sprintf(`{"public_url":%q,"auth":{"jwt":{"issuer":%q,"audience":%[1]q}},"upstreams":{"up":{"url":%[3]q,"oauth":
		{"grant":"token_exchange","token_url":"%[2]s/token","client_id":"gw","client_secret":"gw-secret","audience":"api://up"}}},
		"teams":{"people":{"upstreams":["up"],"rules":[{"allow":["up_echo"]},{"allow":["up_add"],"require_scope":["sums:add"]}]}}}`,
		public, idp.URL, server.URL))
	awaitKeys(t, g, idp.Sign(map[string]any{"sub": "x", "aud": public}))

	for name, change := range map[string]func(*auth.AuthorizationCodeHandlerConfig){
		"known client": func(c *auth.AuthorizationCodeHandlerConfig) {
			c.PreregisteredClient = &oauthex.ClientCredentials{ClientID: "known", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "known-secret"}}
		},
		"client that registers": func(c *auth.AuthorizationCodeHandlerConfig) {
			c.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName: "test", RedirectURIs: []string{clientURL}, GrantTypes: []string{"authorization_code"}}}
		},
	} {
		for _, path := range []string{"/mcp", "/teams/people/mcp"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				var visited []url.Values
				config := &auth.AuthorizationCodeHandlerConfig{RedirectURL: clientURL, AuthorizationCodeFetcher: browser(t, &visited)}
				change(config)
				// Scopes that rules ask for are taken one by one here, as a client may that wants to ask for little.
				config.ScopeFilter = func(discovered []string) []string {
					if len(visited) == 0 {
						return nil
					}
					return discovered
				}
				oauth, err := auth.NewAuthorizationCodeHandler(config)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				before := len(up.Requests())
				endpoint := strings.Replace(public, "/mcp", path, 1)
				session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx,
					&mcp.StreamableClientTransport{Endpoint: endpoint, OAuthHandler: oauth}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				list, err := session.ListTools(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, tool := range list.Tools {
					names = append(names, tool.Name)
				}
				if !slices.Equal(names, []string{"up_add", "up_echo"}) {
					t.Errorf("the list is %v", names)
				}
				for _, tool := range names {
					result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"a": 1, "b": 2}})
					if err != nil || result.IsError {
						t.Errorf("%s: %+v %v", tool, result, err)
					}
				}
				if len(visited) != 2 || visited[0].Get("scope") != "" || visited[1].Get("scope") != "sums:add" {
					t.Errorf("the user was asked %v", visited)
				}
				for _, q := range visited {
					if q.Get("resource") != endpoint || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" {
						t.Errorf("the code is asked for with %v", q)
					}
				}
				calls := 0
				for _, q := range up.Requests()[before:] {
					claims, err := idp.Bearer(q.Header, "api://up")
					if q.Method == "tools/call" {
						calls++
						if err != nil || claims["sub"] != "ann" {
							t.Errorf("a call came as %v, %v", claims["sub"], err)
						}
					}
				}
				if calls != 2 {
					t.Errorf("%d calls came through", calls)
				}
			})
		}
	}
	for _, r := range idp.TokenRequests() {
		if r.Get("grant_type") == mcptest.GrantCode && (r.Get("code_verifier") == "" || !strings.HasPrefix(r.Get("resource"), "http://"+front.Listener.Addr().String())) {
			t.Errorf("a code was exchanged with %v", r)
		}
	}
}
