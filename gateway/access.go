package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/telemetry"
)

// access is who may come in, and what they may use: everything that a configuration says of callers.
// It is immutable but for the keys that its authenticator keeps.
type access struct {
	cfg    *configs.Auth
	auth   *authz.Authenticator // nil: every caller is anonymous
	policy *authz.Policy        // nil: everybody may use everything
	scopes []string             // what rules ask for, sorted

	// stop ends what start began, and waits for it. Both do nothing without an authenticator.
	once    sync.Once
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// metadataPath is where clients look for the metadata of a protected resource (RFC 9728, section 3).
const metadataPath = "/.well-known/oauth-protected-resource"

// newAccess makes the access of a configuration. What before holds and the configuration has not
// changed is taken over. g.mu is held, or g is not in use yet.
func (g *Gateway) newAccess(cfg *configs.Config, before *access) (*access, error) {
	a := &access{cfg: cfg.Auth}
	if cfg.Teams != nil {
		var err error
		if a.policy, err = authz.NewPolicy(cfg.Teams); err != nil {
			return nil, err
		}
		for _, t := range cfg.Teams {
			for _, r := range t.Rules {
				a.scopes = append(a.scopes, r.RequireScope...)
			}
		}
		slices.Sort(a.scopes)
		a.scopes = slices.Compact(a.scopes)
	}
	if cfg.Auth != nil {
		var err error
		if a.auth, err = authz.NewAuthenticator(cfg.Auth, g.issuers, telemetry.For(g.opts.Logger, telemetry.LogAuthz), teamResources(cfg)...); err != nil {
			return nil, fmt.Errorf("auth: %w", err)
		}
		if before != nil && before.auth != nil {
			a.auth.Inherit(before.auth)
		}
	}
	g.limiter.Apply(cfg.Teams)
	return a, nil
}

// start keeps the keys of the issuers until stop or the end of ctx.
func (a *access) start(ctx context.Context) {
	if a.auth == nil {
		return
	}
	a.once.Do(func() {
		ctx, a.cancel = context.WithCancel(ctx)
		a.running.Go(func() { a.auth.Run(ctx) })
	})
}

func (a *access) stop() {
	if a.cancel != nil {
		a.cancel()
	}
	a.running.Wait()
}

// authenticate finds out who sent a request, or refuses it.
func (g *Gateway) authenticate(w http.ResponseWriter, r *http.Request, s *snapshot, at endpoint) (authz.Caller, bool) {
	if s.access.auth == nil {
		return authz.Anonymous(), true
	}
	caller, err := s.access.auth.Authenticate(r.Header)
	switch {
	case err == nil:
		return caller, true
	case errors.Is(err, authz.ErrCannotVerify):
		g.log.Warn("a token could not be verified, since its issuer's keys are not known")
		w.Header().Set("Retry-After", "10")
		g.refuse(w, telemetry.RefusedUnverified, http.StatusServiceUnavailable, "tokens cannot be verified at the moment")
	case errors.Is(err, authz.ErrNoCredentials):
		challenge(w, s, r, at, "", s.access.scopes)
		g.refuse(w, telemetry.RefusedAnonymous, http.StatusUnauthorized, "credentials are required")
	default:
		g.log.Info("credentials refused", "error", err.Error())
		challenge(w, s, r, at, "invalid_token", s.access.scopes)
		g.refuse(w, telemetry.RefusedCredentials, http.StatusUnauthorized, "the credentials are not accepted")
	}
	return authz.Caller{}, false
}

// Identify finds out who holds a credential: an API key or a token. Without authentication everybody is
// anonymous, whatever they hold. Errors are those of authz.Authenticator; while Run is not running,
// tokens cannot be verified.
func (g *Gateway) Identify(credential string) (authz.Caller, error) {
	s := g.snapshot.Load()
	if s.access.auth == nil {
		return authz.Anonymous(), nil
	}
	h := http.Header{}
	if credential != "" {
		h.Set("Authorization", "Bearer "+credential)
	}
	return s.access.auth.Authenticate(h)
}

// challenge tells a client how to get the credentials it lacks (2026-07-28, basic/authorization; RFC
// 6750, section 3).
func challenge(w http.ResponseWriter, s *snapshot, r *http.Request, at endpoint, code string, scopes []string) {
	parts := []string{`resource_metadata="` + metadataURL(s.cfg, r, at) + `"`}
	if code != "" {
		parts = append([]string{`error="` + code + `"`}, parts...)
	}
	if len(scopes) > 0 {
		parts = append(parts, `scope="`+strings.Join(scopes, " ")+`"`)
	}
	w.Header().Set("WWW-Authenticate", "Bearer "+strings.Join(parts, ", "))
}

// configuredBase is the external URL of the gateway without the path of an endpoint, as the
// configuration says it, or "".
func configuredBase(cfg *configs.Config) string {
	for _, configured := range append([]string{cfg.PublicURL}, audiences(cfg)...) {
		if u, err := url.Parse(configured); err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") {
			return u.Scheme + "://" + u.Host + strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/mcp")
		}
	}
	return ""
}

// teamResources are the canonical URIs of the teams' endpoints. Only what the configuration says
// counts: a Host header must not decide what a token may be meant for.
func teamResources(cfg *configs.Config) []string {
	base := configuredBase(cfg)
	if base == "" {
		return nil
	}
	var out []string
	for name := range cfg.Teams {
		out = append(out, base+endpoint(name).path())
	}
	return out
}

// base is the same, with what the request says where the configuration is silent.
func base(cfg *configs.Config, r *http.Request) string {
	if b := configuredBase(cfg); b != "" {
		return b
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

func audiences(cfg *configs.Config) []string {
	if cfg.Auth == nil {
		return nil
	}
	var out []string
	for _, j := range cfg.Auth.JWT {
		out = append(out, j.Audience)
	}
	return out
}

// path is the path of an endpoint, as it stands in a URL: the name is whatever a client asked for.
func (at endpoint) path() string {
	if at == "" {
		return "/mcp"
	}
	return "/teams/" + url.PathEscape(string(at)) + "/mcp"
}

// resource is the canonical URI of an endpoint (RFC 8707): what a token must be meant for.
func resource(cfg *configs.Config, r *http.Request, at endpoint) string {
	return base(cfg, r) + at.path()
}

func metadataURL(cfg *configs.Config, r *http.Request, at endpoint) string {
	u, err := url.Parse(base(cfg, r))
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + metadataPath + u.EscapedPath() + at.path()
}

// noSuchPath answers for everything that is no endpoint of the caller's.
func (g *Gateway) noSuchPath(w http.ResponseWriter) {
	g.refuse(w, telemetry.RefusedPath, http.StatusNotFound, "no such path; the MCP endpoint is /mcp")
}

// serveMetadata answers with the metadata of an endpoint (RFC 9728, section 3.2). It is the same for
// every team name, existing or not, since it needs no caller.
func (g *Gateway) serveMetadata(w http.ResponseWriter, r *http.Request) {
	s := g.snapshot.Load()
	if ok, why := allowed(s.cfg, r); !ok {
		g.refuse(w, telemetry.RefusedForbidden, http.StatusForbidden, "Forbidden: "+why)
		return
	}
	cors(w, r)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		g.methodNotAllowed(w, "GET")
		return
	}
	at, ok := endpointOf(strings.TrimPrefix(r.URL.Path, metadataPath))
	if !ok || s.access.auth == nil {
		g.noSuchPath(w)
		return
	}
	doc := struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers,omitempty"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
		Name     string   `json:"resource_name"`
	}{
		Resource: resource(s.cfg, r, at),
		Scopes:   s.access.scopes,
		Methods:  []string{"header"},
		Name:     "Headgate",
	}
	for _, j := range s.cfg.Auth.JWT {
		doc.Servers = append(doc.Servers, j.Issuer)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, refusal("", "internal error"))
		return
	}
	w.Header().Set("Cache-Control", "max-age=300")
	writeJSON(w, http.StatusOK, b)
}

// endpointOf reads the path of an endpoint; the empty path stands for /mcp.
func endpointOf(path string) (endpoint, bool) {
	path = strings.TrimSuffix(path, "/")
	if path == "" || path == "/mcp" {
		return "", true
	}
	name, ok := strings.CutPrefix(path, "/teams/")
	name, suffix := strings.CutSuffix(name, "/mcp")
	return endpoint(name), ok && suffix && name != "" && !strings.Contains(name, "/")
}
