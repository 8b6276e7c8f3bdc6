package authz

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/configs"
)

// idp is an issuer on a real socket, whose keys and documents a test can change.
type idp struct {
	*httptest.Server
	mu       sync.Mutex // guards all below
	keys     []map[string]any
	document map[string]any // metadata; nil for the usual one
	down     bool
	fetches  int
	fetched  chan struct{} // gets a value after every answer with keys
}

const audience = "https://gw.example.com/mcp"

func newIDP(t *testing.T, keys ...signer) *idp {
	t.Helper()
	p := &idp{fetched: make(chan struct{}, 1024)}
	for _, k := range keys {
		p.keys = append(p.keys, k.jwk)
	}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	return p
}

func (p *idp) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var doc any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		doc = map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys"}
		if p.document != nil {
			doc = p.document
		}
	case "/keys":
		p.fetches++
		doc = map[string]any{"keys": p.keys}
	default:
		http.NotFound(w, r)
		return
	}
	if p.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc)
	if r.URL.Path == "/keys" {
		p.fetched <- struct{}{}
	}
}

// set changes the issuer under its lock.
func (p *idp) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// signer is a private key and what the issuer publishes of it.
type signer struct {
	kid    string
	method jwt.SigningMethod
	key    crypto.Signer
	jwk    map[string]any
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func newRSA(t *testing.T, kid string, method jwt.SigningMethod) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, method, key, map[string]any{
		"kty": "RSA", "kid": kid, "use": "sig", "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes()),
	}}
}

func newEC(t *testing.T, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, jwt.SigningMethodES256, key, map[string]any{
		"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "x": b64(point[1:33]), "y": b64(point[33:]),
	}}
}

func newEd(t *testing.T, kid string) signer {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, jwt.SigningMethodEdDSA, key, map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(public)}}
}

// token signs claims; those that are nil are left out of the usual ones.
func (s signer) token(t *testing.T, issuer string, change map[string]any) string {
	t.Helper()
	tok := jwt.NewWithClaims(s.method, usual(issuer, change))
	if s.kid != "" {
		tok.Header["kid"] = s.kid
	}
	text, err := tok.SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func usual(issuer string, change map[string]any) jwt.MapClaims {
	claims := jwt.MapClaims{
		"iss": issuer, "aud": audience, "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(),
		"groups": []string{"payments", "support"}, "scope": "repo:read repo:write",
	}
	for k, v := range change {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	return claims
}

func jwtConfig(issuer string) configs.JWT {
	return configs.JWT{Issuer: issuer, Audience: audience, Algorithms: configs.DefaultAlgorithms(), SubjectClaim: "sub",
		TeamsClaim: "groups", ScopesClaim: "scope", Leeway: 30 * time.Second}
}

// logBuffer is a log that a test can read while it is written.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newAuth makes an Authenticator that is not running.
func newAuth(t *testing.T, cfg *configs.Auth, log *logBuffer) *Authenticator {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	a, err := NewAuthenticator(cfg, &http.Client{Transport: transport}, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// start runs an Authenticator until the test ends or stop is called.
func start(t *testing.T, a *Authenticator) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// ready waits until an issuer's keys are there.
func ready(t *testing.T, a *Authenticator, issuers ...string) {
	t.Helper()
	await(t, func() bool {
		return !slices.ContainsFunc(issuers, func(name string) bool { return a.issuers[name].keys.Load() == nil })
	})
}

func await(t *testing.T, holds func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal("it does not come to hold")
		}
	}
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
