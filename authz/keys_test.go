package authz

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/document"
)

// TestRotation goes through an issuer's change of keys.
func TestRotation(t *testing.T) {
	first, second := newRSA(t, "1", jwt.SigningMethodRS256), newEC(t, "2")
	reused := newRSA(t, "1", jwt.SigningMethodRS256)
	p := newIDP(t, first)
	a := newAuth(t, &configs.Auth{JWT: []configs.JWT{jwtConfig(p.URL)}}, &logBuffer{})
	i := a.issuers[p.URL]
	i.pace = rate.NewLimiter(rate.Every(time.Hour), keyBurst) // which does not fill up while a slow machine thinks
	start(t, a)
	ready(t, a, p.URL)
	accepted := func(s signer) bool {
		t.Helper()
		_, err := a.Authenticate(bearer(s.token(t, p.URL, nil)))
		if err != nil && !errors.Is(err, ErrBadCredentials) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !accepted(first) {
		t.Fatal("the first key is refused")
	}
	if accepted(second) {
		t.Fatal("a key that is not published is accepted")
	}
	p.set(func() { p.keys = append(p.keys, second.jwk) })
	if !accepted(second) || !accepted(first) {
		t.Fatal("a new key or the old one is refused")
	}
	p.set(func() { p.keys = []map[string]any{reused.jwk} })
	if !accepted(reused) {
		t.Fatal("a new key under an old id is refused")
	}
	if accepted(first) || accepted(second) {
		t.Fatal("keys that were rotated away are accepted after a refresh")
	}

	// The burst is used up: made-up key ids cause no more fetches.
	for range keyBurst {
		accepted(signer{kid: "made up", method: first.method, key: first.key})
	}
	p.mu.Lock()
	before := p.fetches
	p.mu.Unlock()
	for range 20 {
		if accepted(signer{kid: "made up", method: first.method, key: first.key}) {
			t.Fatal("a made-up key is accepted")
		}
	}
	if p.mu.Lock(); p.fetches != before {
		t.Errorf("%d fetches for made-up key ids", p.fetches-before)
	}
	p.mu.Unlock()
	if i.pace.Tokens() >= 1 {
		t.Errorf("the pace still allows %v", i.pace.Tokens())
	}
}

// TestRefresh holds that a key that was rotated away is refused after the next regular fetch, with nobody asking.
func TestRefresh(t *testing.T) {
	first, second := newRSA(t, "1", jwt.SigningMethodRS256), newEC(t, "2")
	p := newIDP(t, first, second)
	log := &logBuffer{}
	a := newAuth(t, &configs.Auth{JWT: []configs.JWT{jwtConfig(p.URL)}}, log)
	a.issuers[p.URL].refresh = 10 * time.Millisecond
	start(t, a)
	ready(t, a, p.URL)
	token := first.token(t, p.URL, nil)
	if _, err := a.Authenticate(bearer(token)); err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.down = true })
	await(t, func() bool { return strings.Contains(log.String(), "those known stay in use") })
	if _, err := a.Authenticate(bearer(token)); err != nil {
		t.Fatalf("with the issuer down: %v", err)
	}
	p.set(func() { p.down, p.keys = false, []map[string]any{second.jwk} })
	await(t, func() bool {
		_, err := a.Authenticate(bearer(token))
		return errors.Is(err, ErrBadCredentials)
	})
	if _, err := a.Authenticate(bearer(second.token(t, p.URL, nil))); err != nil {
		t.Errorf("the key that stayed: %v", err)
	}
	// An empty set is a set: nothing is accepted any more.
	p.set(func() { p.keys = []map[string]any{} })
	await(t, func() bool {
		_, err := a.Authenticate(bearer(second.token(t, p.URL, nil)))
		return errors.Is(err, ErrBadCredentials)
	})
}

func TestIssuerThatIsDown(t *testing.T) {
	key := newRSA(t, "1", jwt.SigningMethodRS256)
	p := newIDP(t, key)
	p.set(func() { p.down = true })
	log := &logBuffer{}
	a := newAuth(t, &configs.Auth{JWT: []configs.JWT{jwtConfig(p.URL)}}, log)
	a.issuers[p.URL].refresh = 10 * time.Millisecond
	token := key.token(t, p.URL, nil)
	stop := start(t, a)
	await(t, func() bool { return strings.Contains(log.String(), "not accepted meanwhile") })
	if _, err := a.Authenticate(bearer(token)); !errors.Is(err, ErrCannotVerify) || errors.Is(err, ErrBadCredentials) {
		t.Errorf("while it is down: %v", err)
	}
	if _, err := a.Authenticate(bearer(rewrite(token, `{"alg":"none"}`))); !errors.Is(err, ErrBadCredentials) {
		t.Errorf("a token that nothing could make good: %v", err)
	}
	p.set(func() { p.down = false })
	ready(t, a, p.URL)
	if _, err := a.Authenticate(bearer(token)); err != nil {
		t.Errorf("once it is up: %v", err)
	}
	// A key that is not known may be a new one, and nobody can tell.
	p.set(func() { p.down = true })
	await(t, func() bool { return strings.Contains(log.String(), "those known stay in use") })
	other := newEC(t, "2").token(t, p.URL, nil)
	if _, err := a.Authenticate(bearer(other)); !errors.Is(err, ErrCannotVerify) {
		t.Errorf("an unknown key while it is down again: %v", err)
	}
	stop()
	if _, err := a.Authenticate(bearer(other)); !errors.Is(err, ErrCannotVerify) {
		t.Errorf("an unknown key after the end: %v", err)
	}
	if _, err := a.Authenticate(bearer(token)); err != nil {
		t.Errorf("a known key after the end: %v", err)
	}
}

func TestInherit(t *testing.T) {
	key := newRSA(t, "1", jwt.SigningMethodRS256)
	p := newIDP(t, key)
	cfg := &configs.Auth{JWT: []configs.JWT{jwtConfig(p.URL)}}
	before := newAuth(t, cfg, &logBuffer{})
	stop := start(t, before)
	ready(t, before, p.URL)
	stop()
	token := bearer(key.token(t, p.URL, nil))
	after := newAuth(t, cfg, &logBuffer{})
	if _, err := after.Authenticate(token); !errors.Is(err, ErrCannotVerify) {
		t.Errorf("without keys: %v", err)
	}
	after.Inherit(before)
	if _, err := after.Authenticate(token); err != nil {
		t.Errorf("with keys taken over: %v", err)
	}
	elsewhere := jwtConfig(p.URL)
	elsewhere.JWKSURL = p.URL + "/other"
	moved := newAuth(t, &configs.Auth{JWT: []configs.JWT{elsewhere}}, &logBuffer{})
	moved.Inherit(before)
	if _, err := moved.Authenticate(token); !errors.Is(err, ErrCannotVerify) {
		t.Errorf("with keys from elsewhere: %v", err)
	}
}

func TestDiscovery(t *testing.T) {
	key := newRSA(t, "1", jwt.SigningMethodRS256)
	p := newIDP(t, key)
	tests := []struct {
		name     string
		document map[string]any
		want     string
	}{
		{"another issuer", map[string]any{"issuer": "https://other.example.com", "jwks_uri": p.URL + "/keys"}, "another issuer"},
		{"with a slash more", map[string]any{"issuer": p.URL + "/", "jwks_uri": p.URL + "/keys"}, "another issuer"},
		{"no keys", map[string]any{"issuer": p.URL}, "no jwks_uri"},
		{"keys over plain http", map[string]any{"issuer": p.URL, "jwks_uri": "http://idp.example.com/keys"}, "not an https URL"},
		{"keys in a file", map[string]any{"issuer": p.URL, "jwks_uri": "file:///etc/passwd"}, "not an https URL"},
		{"not the right types", map[string]any{"issuer": 7}, "not the JSON"},
		{"keys that are no set", map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/.well-known/openid-configuration"}, "has no keys"},
		{"too large", map[string]any{"issuer": p.URL, "x": strings.Repeat("x", document.MaxSize)}, "more than"},
	}
	a := newAuth(t, &configs.Auth{JWT: []configs.JWT{jwtConfig(p.URL)}}, &logBuffer{})
	i := a.issuers[p.URL]
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.set(func() { p.document = tt.document })
			err := i.fetch(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || i.keys.Load() != nil {
				t.Errorf("error = %v", err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := i.fetch(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("redirect to http", func(t *testing.T) {
		check := secured(http.DefaultClient).CheckRedirect
		from, _ := http.NewRequest(http.MethodGet, "https://idp.example.com/keys", nil)
		to, _ := http.NewRequest(http.MethodGet, "http://idp.example.com/keys", nil)
		if check(to, []*http.Request{from}) == nil || check(from, []*http.Request{from}) != nil || check(to, []*http.Request{to}) != nil {
			t.Error("only the redirect from https to http is refused")
		}
	})
}
