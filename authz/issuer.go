package authz

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/secret"
)

// issuer verifies the tokens of one issuer.
type issuer struct {
	cfg     configs.JWT
	client  *http.Client
	log     *slog.Logger
	parser  *jwt.Parser
	refresh time.Duration               // how often the keys are read again
	keys    atomic.Pointer[jwt.Keyfunc] // nil until the keys were fetched once

	wake chan struct{} // asks run for a fetch
	over chan struct{} // closed when run has ended
	pace *rate.Limiter // of what tokens may ask for

	mu      sync.Mutex // guards pending
	pending *fetching  // what tokens wait for; nil if none does
}

func newIssuer(cfg configs.JWT, client *http.Client, log *slog.Logger, endpoints ...string) *issuer {
	return &issuer{
		cfg:     cfg,
		client:  secured(client),
		log:     log.With("issuer", cfg.Issuer),
		refresh: keyRefresh,
		wake:    make(chan struct{}, 1),
		over:    make(chan struct{}),
		pace:    newPace(),
		parser: jwt.NewParser(
			jwt.WithValidMethods(cfg.Algorithms),
			jwt.WithIssuer(cfg.Issuer),
			jwt.WithAudience(append(slices.Clone(endpoints), cfg.Audience)...),
			jwt.WithExpirationRequired(),
			jwt.WithLeeway(cfg.Leeway),
			jwt.WithStrictDecoding(),
		),
	}
}

// sameKeys reports that two issuers get their keys from one place.
func (i *issuer) sameKeys(o *issuer) bool {
	return i.cfg.Issuer == o.cfg.Issuer && i.cfg.JWKSURL == o.cfg.JWKSURL
}

// byToken verifies a token with the issuer that it names. Nothing of it is believed before.
func (a *Authenticator) byToken(token string) (Caller, error) {
	var claims jwt.MapClaims
	t, _, err := jwt.NewParser(jwt.WithStrictDecoding()).ParseUnverified(token, &claims)
	if err != nil {
		return Caller{}, refuse("it is not a token")
	}
	name, _ := claims["iss"].(string)
	i := a.issuers[name]
	if i == nil {
		return Caller{}, refuse("the token is of an issuer that is not configured")
	}
	if !slices.Contains(i.cfg.Algorithms, t.Method.Alg()) {
		return Caller{}, refuse("the token's algorithm is not accepted")
	}
	return i.verify(token)
}

func refuse(why string) error { return fmt.Errorf("%w: %s", ErrBadCredentials, why) }

func (i *issuer) verify(token string) (Caller, error) {
	claims, err := i.parse(token)
	// The key may be new, or another one under an id that is known.
	if errors.Is(err, jwkset.ErrKeyNotFound) || errors.Is(err, jwt.ErrTokenSignatureInvalid) {
		fetched, stale := i.again()
		switch {
		case stale != nil:
			return Caller{}, fmt.Errorf("%w: %w", ErrCannotVerify, stale)
		case fetched:
			claims, err = i.parse(token)
		}
	}
	if errors.Is(err, ErrCannotVerify) {
		return Caller{}, err
	}
	if err != nil {
		return Caller{}, refuse(reason(err))
	}
	subject, _ := claim(claims, i.cfg.SubjectClaim).(string)
	if subject == "" {
		return Caller{}, fmt.Errorf("%w: the token has no claim %q that is a text", ErrBadCredentials, i.cfg.SubjectClaim)
	}
	return Caller{
		Subject: subject,
		Issuer:  i.cfg.Issuer,
		Teams:   set(names(claim(claims, i.cfg.TeamsClaim))),
		Scopes:  set(words(claim(claims, i.cfg.ScopesClaim))),
		Claims:  claims,
		token:   secret.New(token),
	}, nil
}

func (i *issuer) parse(token string) (jwt.MapClaims, error) {
	keys := i.keys.Load()
	if keys == nil {
		return nil, ErrCannotVerify
	}
	claims := jwt.MapClaims{}
	_, err := i.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		// An extension that must be understood is one that we do not (RFC 7515, section 4.1.11).
		if _, has := t.Header["crit"]; has {
			return nil, errCritical
		}
		return (*keys)(t)
	})
	return claims, err
}

var errCritical = errors.New("a critical header")

// reasons are what is said of a refused token: the library's own texts may repeat parts of it.
var reasons = []struct {
	err  error
	text string
}{
	{jwt.ErrTokenMalformed, "it is not a token"},
	{jwkset.ErrKeyNotFound, "the token is signed with a key that the issuer does not have"},
	{errCritical, "the token needs an extension that is not supported"},
	{jwt.ErrTokenUnverifiable, "the token's key cannot be used for it"},
	{jwt.ErrTokenSignatureInvalid, "the token's signature is wrong"},
	{jwt.ErrTokenExpired, "the token has expired"},
	{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
	{jwt.ErrTokenInvalidAudience, "the token is meant for another audience"},
	{jwt.ErrTokenInvalidIssuer, "the token is of another issuer"},
	{jwt.ErrTokenRequiredClaimMissing, "the token lacks a claim that is needed, such as exp or aud"},
}

func reason(err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.text
		}
	}
	return "the token is not valid"
}

// claim returns the claim with a name, or the member that a dotted path leads to.
func claim(claims map[string]any, name string) any {
	if name == "" {
		return nil
	}
	if v, ok := claims[name]; ok {
		return v
	}
	head, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	sub, _ := claims[head].(map[string]any)
	return claim(sub, rest)
}

// names reads a claim that is a list of names, or a single one.
func names(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// words reads a claim that is a list of names, or one text with names in it (RFC 8693, "scope").
func words(v any) []string {
	if s, ok := v.(string); ok {
		return strings.Fields(s)
	}
	return names(v)
}
