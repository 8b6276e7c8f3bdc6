package authz

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/headgate/headgate/configs"
)

// Authenticator finds out who sent a request: by an API key of Headgate's own, or by a token of a
// configured issuer. Both come as Authorization: Bearer.
type Authenticator struct {
	keys    []apiKey
	issuers map[string]*issuer
}

type apiKey struct {
	digest [sha256.Size]byte
	caller Caller
}

// The ways in which a request fails to say who sent it.
var (
	// ErrNoCredentials: the request carries none.
	ErrNoCredentials = errors.New("no credentials")
	// ErrBadCredentials: they are malformed, unknown, expired, or meant for somebody else.
	ErrBadCredentials = errors.New("credentials not accepted")
	// ErrCannotVerify: the issuer's keys could not be fetched, so nothing can be said of the token.
	ErrCannotVerify = errors.New("the token cannot be verified at the moment")
)

// NewAuthenticator makes an Authenticator. It does no I/O; Run fetches the issuers' keys. endpoints are URIs of this
// Headgate that a token may be meant for beside the configured audience: those of its teams.
func NewAuthenticator(cfg *configs.Auth, client *http.Client, log *slog.Logger, endpoints ...string) (*Authenticator, error) {
	a := &Authenticator{issuers: make(map[string]*issuer)}
	for _, k := range cfg.APIKeys {
		b, err := hex.DecodeString(k.SHA256)
		if err != nil || len(b) != sha256.Size {
			return nil, fmt.Errorf("the digest of API key %q is not a SHA-256 in hex", k.Name)
		}
		a.keys = append(a.keys, apiKey{
			digest: [sha256.Size]byte(b),
			caller: NewCaller(k.Subject, k.Teams, k.Scopes),
		})
	}
	for i := range cfg.JWT {
		j := cfg.JWT[i]
		a.issuers[j.Issuer] = newIssuer(j, client, log, endpoints...)
	}
	return a, nil
}

// Inherit takes over the keys that an Authenticator before has fetched, so that a new configuration refuses no token
// while it fetches its own. It is called before a is used.
func (a *Authenticator) Inherit(before *Authenticator) {
	for name, i := range a.issuers {
		if o := before.issuers[name]; o != nil && i.sameKeys(o) {
			i.keys.Store(o.keys.Load())
		}
	}
}

// Run keeps the issuers' keys until ctx ends; then it returns, and nothing of it goes on. It is called once.
func (a *Authenticator) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, i := range a.issuers {
		wg.Go(func() { i.run(ctx) })
	}
	wg.Wait()
}

// maxToken bounds what is looked at as a credential, in bytes.
const maxToken = 16 << 10

// Authenticate finds the caller of a request. A token whose key is new makes it wait for the issuer, a few seconds at
// most. The error is one of those above; what it says besides is for logs and holds no part of the credential.
func (a *Authenticator) Authenticate(h http.Header) (Caller, error) {
	values := h.Values("Authorization")
	switch {
	case len(values) == 0:
		return Caller{}, ErrNoCredentials
	case len(values) > 1:
		return Caller{}, refuse("more than one Authorization header")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return Caller{}, refuse("the scheme is not Bearer")
	case token == "" || len(token) > maxToken:
		return Caller{}, fmt.Errorf("%w: a token of %d bytes", ErrBadCredentials, len(token))
	}
	if c, ok := a.byKey(token); ok {
		return c, nil
	}
	if strings.Count(token, ".") == 2 && len(a.issuers) > 0 {
		return a.byToken(token)
	}
	return Caller{}, refuse("unknown key")
}

// byKey compares with every key, so that the time it takes tells nothing of which one came close.
func (a *Authenticator) byKey(key string) (Caller, bool) {
	digest := sha256.Sum256([]byte(key))
	found := -1
	for i := range a.keys {
		if subtle.ConstantTimeCompare(digest[:], a.keys[i].digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Caller{}, false
	}
	return a.keys[found].caller, true
}

// NewKey makes an API key and its digest, as the configuration holds it.
func NewKey() (key, digest string) {
	// Two texts of 130 bits each; the prefix lets scanners for leaked secrets know it.
	key = "hg_" + rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(key))
	return key, hex.EncodeToString(sum[:])
}
