package mcptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The grants that an AuthServer knows, as they stand in its requests.
const (
	GrantClient   = "client_credentials"
	GrantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	GrantCode     = "authorization_code"
)

// AuthServer is an OAuth authorization server on a loopback port: metadata (RFC 8414 and OpenID
// Connect), keys, client credentials, token exchange (RFC 8693), the authorization code with PKCE and
// dynamic registration. Set its fields before it is started; it adds to Clients those that register.
type AuthServer struct {
	// URL is the issuer, set by Start.
	URL string
	// Clients are the secrets of clients by id.
	Clients map[string]string
	// Life is how long tokens are good, by default an hour.
	Life time.Duration
	// Audiences are those that clients may name; nil for all.
	Audiences []string
	// Audience is that of tokens for which none was named.
	Audience string
	// Subject is whom the authorization code is for, by default "alice".
	Subject string
	// Claims are put into every token of the authorization code.
	Claims map[string]any
	// OnToken looks at every token request first, and answers true when it has dealt with it. The form
	// has been parsed.
	OnToken func(w http.ResponseWriter, r *http.Request) bool

	t   testing.TB
	key *ecdsa.PrivateKey
	mux *http.ServeMux

	mu       sync.Mutex // guards the fields below
	requests []url.Values
	codes    map[string]url.Values // what was asked of /authorize, by code
	issued   int
}

// Start serves until the test ends.
func (s *AuthServer) Start(t testing.TB) *AuthServer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.t, s.key, s.codes = t, key, map[string]url.Values{}
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("/.well-known/oauth-authorization-server", s.metadata)
	s.mux.HandleFunc("/.well-known/openid-configuration", s.metadata)
	s.mux.HandleFunc("/keys", s.keys)
	s.mux.HandleFunc("/token", s.token)
	s.mux.HandleFunc("/authorize", s.authorize)
	s.mux.HandleFunc("/register", s.register)
	front := httptest.NewServer(s.mux)
	t.Cleanup(front.Close)
	s.URL = front.URL
	return s
}

// Handle adds a handler of the test's own, at a path that is not in use.
func (s *AuthServer) Handle(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, h) }

// TokenRequests are the forms of the token requests so far, in order; the client's id is in client_id
// however it came.
func (s *AuthServer) TokenRequests() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// CountTokens says how many token requests had a grant; "" stands for any.
func (s *AuthServer) CountTokens(grant string) (n int) {
	for _, r := range s.TokenRequests() {
		if grant == "" || r.Get("grant_type") == grant {
			n++
		}
	}
	return n
}

func (s *AuthServer) metadata(w http.ResponseWriter, _ *http.Request) {
	s.write(w, http.StatusOK, map[string]any{
		"issuer": s.URL, "jwks_uri": s.URL + "/keys", "token_endpoint": s.URL + "/token", "authorization_endpoint": s.URL + "/authorize",
		"registration_endpoint": s.URL + "/register", "response_types_supported": []string{"code"},
		"grant_types_supported": []string{GrantClient, GrantExchange, GrantCode}, "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "none"},
	})
}

func (s *AuthServer) keys(w http.ResponseWriter, _ *http.Request) {
	point, err := s.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		s.t.Error(err)
		return
	}
	b64 := base64.RawURLEncoding.EncodeToString
	s.write(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
		"kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "use": "sig", "x": b64(point[1:33]), "y": b64(point[33:])}}})
}

func (s *AuthServer) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		s.refuse(w, http.StatusBadRequest, "invalid_request")
		return
	}
	form := r.PostForm
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
		form.Set("client_id", id)
	} else {
		id, secret = form.Get("client_id"), form.Get("client_secret")
	}
	s.mu.Lock()
	s.requests = append(s.requests, form)
	s.mu.Unlock()
	if s.OnToken != nil && s.OnToken(w, r) {
		return
	}
	s.mu.Lock()
	want, known := s.Clients[id]
	s.mu.Unlock()
	if !known || want != secret {
		s.refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	audience := form.Get("audience")
	if audience == "" {
		audience = form.Get("resource")
	}
	if audience == "" {
		audience = s.Audience
	}
	if s.Audiences != nil && !slices.Contains(s.Audiences, audience) {
		s.refuse(w, http.StatusBadRequest, "invalid_target")
		return
	}
	claims := jwt.MapClaims{"aud": audience, "client_id": id, "sub": id}
	if scope := form.Get("scope"); scope != "" {
		claims["scope"] = scope
	}
	switch form.Get("grant_type") {
	case GrantClient:
	case GrantExchange:
		subject, err := s.Verify(form.Get("subject_token"))
		if err != nil {
			s.refuse(w, http.StatusBadRequest, "invalid_request")
			return
		}
		claims["sub"] = subject["sub"]
	case GrantCode:
		if !s.redeem(form, claims) {
			s.refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
	default:
		s.refuse(w, http.StatusBadRequest, "unsupported_grant_type")
		return
	}
	answer := map[string]any{"access_token": s.Sign(claims), "token_type": "Bearer", "expires_in": int(s.life().Seconds())}
	if form.Get("grant_type") == GrantExchange {
		answer["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
	}
	s.write(w, http.StatusOK, answer)
}

// redeem checks a code and its proof (RFC 7636), and fills in what it stands for.
func (s *AuthServer) redeem(form url.Values, claims jwt.MapClaims) bool {
	s.mu.Lock()
	asked := s.codes[form.Get("code")]
	delete(s.codes, form.Get("code"))
	s.mu.Unlock()
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	if asked == nil || asked.Get("client_id") != form.Get("client_id") || asked.Get("redirect_uri") != form.Get("redirect_uri") ||
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		return false
	}
	claims["sub"] = "alice"
	if s.Subject != "" {
		claims["sub"] = s.Subject
	}
	claims["scope"] = asked.Get("scope")
	for k, v := range s.Claims {
		claims[k] = v
	}
	return true
}

// authorize gives a code without asking anybody.
func (s *AuthServer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	s.mu.Lock()
	_, known := s.Clients[q.Get("client_id")]
	s.mu.Unlock()
	if err != nil || !known || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "not a request for a code", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	s.mu.Lock()
	s.codes[code] = q
	s.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// register takes any client (RFC 7591).
func (s *AuthServer) register(w http.ResponseWriter, r *http.Request) {
	var asked map[string]any
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		s.refuse(w, http.StatusBadRequest, "invalid_client_metadata")
		return
	}
	s.mu.Lock()
	if s.Clients == nil {
		s.Clients = map[string]string{}
	}
	id, secret := "client-"+strconv.Itoa(len(s.Clients)+1), rand.Text()
	s.Clients[id] = secret
	s.mu.Unlock()
	asked["client_id"], asked["client_secret"], asked["client_secret_expires_at"] = id, secret, 0
	s.write(w, http.StatusCreated, asked)
}

func (s *AuthServer) life() time.Duration {
	if s.Life == 0 {
		return time.Hour
	}
	return s.Life
}

// Sign makes a token of the server; iss, exp and jti are filled in where they are missing.
func (s *AuthServer) Sign(claims map[string]any) string {
	s.mu.Lock()
	s.issued++
	all := jwt.MapClaims{"iss": s.URL, "exp": time.Now().Add(s.life()).Unix(), "jti": strconv.Itoa(s.issued)}
	s.mu.Unlock()
	for k, v := range claims {
		all[k] = v
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, all)
	token.Header["kid"] = "k1"
	signed, err := token.SignedString(s.key)
	if err != nil {
		s.t.Error(err)
	}
	return signed
}

// Verify reads a token of the server, whatever its audience.
func (s *AuthServer) Verify(token string) (map[string]any, error) {
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return &s.key.PublicKey, nil },
		jwt.WithIssuer(s.URL), jwt.WithExpirationRequired())
	return claims, err
}

// Bearer reads the token of a request and checks its audience.
func (s *AuthServer) Bearer(h http.Header, audience string) (map[string]any, error) {
	values := h.Values("Authorization")
	const scheme = "Bearer "
	if len(values) != 1 || len(values[0]) < len(scheme) || values[0][:len(scheme)] != scheme {
		return nil, errors.New("no bearer token")
	}
	claims, err := s.Verify(values[0][len(scheme):])
	if err == nil && claims["aud"] != audience {
		err = errors.New("a token for another audience")
	}
	return claims, err
}

func (s *AuthServer) refuse(w http.ResponseWriter, status int, code string) {
	s.write(w, status, map[string]string{"error": code})
}

func (s *AuthServer) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone
}
