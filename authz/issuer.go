package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/cenkalti/backoff/v5"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/configs"
)

const (
	// keyRefresh is how often an issuer's keys are read again: how long a key that was rotated away
	// may still be accepted. A key that is new is fetched when it is first seen.
	keyRefresh = 5 * time.Minute
	// keyTimeout bounds one fetch.
	keyTimeout = 10 * time.Second
	// maxMetadata bounds an issuer's metadata document, in bytes.
	maxMetadata = 1 << 20
)

// issuer verifies the tokens of one issuer.
type issuer struct {
	cfg    configs.JWT
	client *http.Client
	log    *slog.Logger
	parser *jwt.Parser
	keys   atomic.Pointer[jwt.Keyfunc] // nil until the keys' place is known
}

func newIssuer(cfg configs.JWT, client *http.Client, log *slog.Logger) *issuer {
	return &issuer{
		cfg:    cfg,
		client: client,
		log:    log.With("issuer", cfg.Issuer),
		parser: jwt.NewParser(
			jwt.WithValidMethods(cfg.Algorithms),
			jwt.WithIssuer(cfg.Issuer),
			jwt.WithAudience(cfg.Audience),
			jwt.WithExpirationRequired(),
			jwt.WithLeeway(cfg.Leeway),
			jwt.WithStrictDecoding(),
		),
	}
}

// run finds the issuer's keys, however long that takes, and keeps them until ctx ends.
func (i *issuer) run(ctx context.Context) {
	pause := backoff.NewExponentialBackOff()
	pause.MaxInterval = time.Minute
	for {
		err := i.fetch(ctx)
		if err == nil {
			break
		}
		i.log.Warn("the issuer's keys cannot be fetched; its tokens are not accepted meanwhile", "error", err.Error())
		t := time.NewTimer(pause.NextBackOff())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
	<-ctx.Done()
}

func (i *issuer) fetch(ctx context.Context) error {
	at := i.cfg.JWKSURL
	if at == "" {
		var err error
		if at, err = i.discover(ctx); err != nil {
			return err
		}
	}
	strict := false
	kf, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{at}, keyfunc.Override{
		Client:                    i.client,
		HTTPTimeout:               keyTimeout,
		NoErrorReturnFirstHTTPReq: &strict,
		RefreshInterval:           keyRefresh,
		RefreshUnknownKID:         rate.NewLimiter(rate.Every(10*time.Second), 3),
		RateLimitWaitMax:          time.Millisecond, // a made-up key id must not make anybody wait
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(_ context.Context, err error) {
				i.log.Warn("the issuer's keys could not be read again; the old ones stay", "error", err.Error())
			}
		},
	})
	if err != nil {
		return fmt.Errorf("reading the key set: %w", err)
	}
	f := jwt.Keyfunc(kf.Keyfunc)
	i.keys.Store(&f)
	return nil
}

// discover reads the issuer's metadata (OpenID Connect Discovery 1.0; RFC 8414), which must name the
// very issuer that is configured.
func (i *issuer) discover(ctx context.Context) (string, error) {
	base, err := url.Parse(i.cfg.Issuer)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(base.Path, "/")
	var errs []error
	for _, p := range []string{path + "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server" + path, "/.well-known/openid-configuration" + path} {
		u := *base
		u.Path = p
		at, err := i.metadata(ctx, u.String())
		if err == nil {
			return at, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, err))
	}
	return "", fmt.Errorf("discovery: %w", errors.Join(errs...))
}

func (i *issuer) metadata(ctx context.Context, at string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", err
	}
	resp, err := i.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("HTTP %d", resp.StatusCode)
	}
	var doc struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMetadata)).Decode(&doc); err != nil {
		return "", err
	}
	if doc.Issuer != i.cfg.Issuer {
		return "", errors.New("the document is of another issuer")
	}
	if doc.JWKSURI == "" {
		return "", errors.New("the document names no jwks_uri")
	}
	return doc.JWKSURI, nil
}

// byToken verifies a token with the issuer that it names. Nothing of it is believed before.
func (a *Authenticator) byToken(token string) (Caller, error) {
	var claims jwt.MapClaims
	if _, _, err := jwt.NewParser(jwt.WithStrictDecoding()).ParseUnverified(token, &claims); err != nil {
		return Caller{}, fmt.Errorf("%w: not a token", ErrBadCredentials)
	}
	name, _ := claims["iss"].(string)
	i := a.issuers[name]
	if i == nil {
		return Caller{}, fmt.Errorf("%w: the token is of an issuer that is not configured", ErrBadCredentials)
	}
	return i.verify(token)
}

func (i *issuer) verify(token string) (Caller, error) {
	keys := i.keys.Load()
	if keys == nil {
		return Caller{}, ErrCannotVerify
	}
	claims := jwt.MapClaims{}
	if _, err := i.parser.ParseWithClaims(token, claims, *keys); err != nil {
		return Caller{}, fmt.Errorf("%w: %w", ErrBadCredentials, err)
	}
	subject, _ := claim(claims, i.cfg.SubjectClaim).(string)
	if subject == "" {
		return Caller{}, fmt.Errorf("%w: the token has no claim %q", ErrBadCredentials, i.cfg.SubjectClaim)
	}
	return Caller{
		Subject: subject,
		Issuer:  i.cfg.Issuer,
		Teams:   set(words(claim(claims, i.cfg.TeamsClaim))),
		Scopes:  set(words(claim(claims, i.cfg.ScopesClaim))),
		Claims:  claims,
	}, nil
}

// claim returns the claim with a name, or the member that a dotted path leads to.
func claim(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok || name == "" {
		return v
	}
	head, rest, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	sub, _ := claims[head].(map[string]any)
	return claim(sub, rest)
}

// words reads a claim that is a list of strings, or one string with words in it (RFC 8693, "scope").
func words(v any) []string {
	switch v := v.(type) {
	case string:
		return strings.Fields(v)
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
