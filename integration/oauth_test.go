package integration

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/headgate/headgate/internal/mcptest"
)

// authorizationServer is an OAuth server for one client: metadata (RFC 8414), keys (RFC 7517), and
// tokens for the resource and the scopes that are asked for (RFC 6749, section 4.4; RFC 8707).
type authorizationServer struct {
	*httptest.Server
	t        *testing.T
	key      *rsa.PrivateKey
	audience string // of tokens for which no resource was named

	mu     sync.Mutex // guards issued
	issued []string   // scopes asked for, one entry a token
}

func startAuthorizationServer(t *testing.T) *authorizationServer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := &authorizationServer{t: t, key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		s.write(w, map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys", "token_endpoint": s.URL + "/token", "authorization_endpoint": s.URL + "/authorize",
			"response_types_supported": []string{"code"}, "grant_types_supported": []string{"client_credentials"}, "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		number := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
		s.write(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256",
			"n": number(key.N), "e": number(big.NewInt(int64(key.E)))}}})
	})
	mux.HandleFunc("/token", s.token)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *authorizationServer) write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Error(err)
	}
}

func (s *authorizationServer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if id != "robot" || secret != "robot-secret" || r.FormValue("grant_type") != "client_credentials" {
		w.WriteHeader(http.StatusUnauthorized)
		s.write(w, map[string]string{"error": "invalid_client"})
		return
	}
	s.mu.Lock()
	s.issued = append(s.issued, r.FormValue("scope"))
	s.mu.Unlock()
	audience := r.FormValue("resource")
	if audience == "" {
		audience = s.audience // the SDK's client of this grant names no resource
	}
	signed := s.sign(jwt.MapClaims{"sub": id, "aud": audience, "groups": []string{"robots"}, "scope": r.FormValue("scope")})
	s.write(w, map[string]any{"access_token": signed, "token_type": "Bearer", "expires_in": 3600, "scope": r.FormValue("scope")})
}

func (s *authorizationServer) scopes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.issued)
}

func (s *authorizationServer) sign(claims jwt.MapClaims) string {
	claims["iss"], claims["exp"] = s.URL, time.Now().Add(time.Hour).Unix()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = "k1"
	signed, err := token.SignedString(s.key)
	if err != nil {
		s.t.Error(err)
	}
	return signed
}

// TestOAuthFlow has a real client find its way from a 401 to a tool: the metadata of the endpoint, the
// authorization server that it names, a token for that endpoint, the list and the call. A tool that
// needs another scope makes the client ask for it.
func TestOAuthFlow(t *testing.T) {
	idp := startAuthorizationServer(t)
	up := &mcptest.Server{Tools: mcptest.Builtin("echo", "add", "boom")}
	upstream := up.StartHTTP(t)
	front := httptest.NewUnstartedServer(nil)
	public := "http://" + front.Listener.Addr().String() + "/mcp"
	idp.audience = public
	g := runGate(t, front, fmt.Sprintf(`{"public_url":%q,"auth":{"jwt":{"issuer":%q,"audience":%q}},"upstreams":{"up":{"url":%q}},
		"teams":{"robots":{"upstreams":["up"],"rules":[{"allow":["up_echo"]},{"allow":["up_add"],"require_scope":["sums:add"]}]}}}`,
		public, idp.URL, public, upstream.URL))
	awaitKeys(t, g, idp.sign(jwt.MapClaims{"sub": "x", "aud": public}))

	// The first challenge names no scope that the client may do without.
	resp, err := http.Post(public, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("Www-Authenticate"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(got, "/.well-known/oauth-protected-resource/mcp") {
		t.Fatalf("%d %s", resp.StatusCode, got)
	}

	for _, path := range []string{"/mcp", "/teams/robots/mcp"} {
		t.Run(path, func(t *testing.T) {
			oauth, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{Credentials: &oauthex.ClientCredentials{
				ClientID: "robot", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "robot-secret"}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			before := len(idp.scopes())
			client := mcp.NewClient(&mcp.Implementation{Name: "robot", Version: "1"}, nil)
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: strings.Replace(public, "/mcp", path, 1), OAuthHandler: oauth}, nil)
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
			for _, tool := range []string{"up_echo", "up_add"} {
				result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"a": 1, "b": 2}})
				if err != nil || result.IsError {
					t.Errorf("%s: %+v %v", tool, result, err)
				}
			}
			if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "up_boom"}); err == nil || !strings.Contains(err.Error(), "Unknown tool: up_boom") {
				t.Errorf("a hidden tool: %v", err)
			}
			if got := idp.scopes()[before:]; len(got) == 0 || !strings.Contains(got[len(got)-1], "sums:add") {
				t.Errorf("the client asked for the scopes %q", got)
			}
		})
	}
}
