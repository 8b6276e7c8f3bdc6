package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/oauth"
	"github.com/headgate/headgate/internal/secret"
)

// Caller is on whose behalf a call is made. The zero value is somebody of whom nothing is known.
type Caller struct {
	// Key tells callers apart: those with the same key are one.
	Key string
	// Token is the bearer token that the caller has shown to Headgate; empty if it came with none.
	Token secret.Text
	// Session tells a caller's clients apart: the client's session with Headgate, or "" for a client that
	// has none. See EndSession.
	Session string
	// Capabilities are what the caller's client can be asked for, as an object of the protocol's client capabilities;
	// nil for nothing. A session of one client's own begins with them, unless they are PerRequest.
	Capabilities jsontext.Value
	// PerRequest says that the client tells its capabilities with each request, and not once: they may differ the next
	// time.
	PerRequest bool
}

// credentials puts into every request to a server what the server is to see of who is asking.
type credentials struct {
	server  string
	forward bool          // the caller's own token goes out with its calls
	tokens  *oauth.Tokens // nil without oauth
	perCall bool          // the token is what the caller's was exchanged for
	// holder is whose session it is; it holds nil where the session is shared.
	holder *atomic.Pointer[Caller]
}

func newCredentials(u *Upstream) *credentials {
	o := u.cfg.OAuth
	c := &credentials{server: u.cfg.ID, forward: u.cfg.ForwardsAuthorization(), perCall: o.Grant == configs.GrantTokenExchange, holder: &u.holder}
	if o.Grant != "" {
		c.tokens = oauth.New(oauth.Config{TokenURL: o.TokenURL, ClientID: o.ClientID, ClientSecret: secret.New(o.ClientSecret), Scopes: o.Scopes,
			Audience: o.Audience, Resource: canonical(u.cfg.URL), Challenge: u.challenge, AllowedHosts: u.cfg.AllowedPrivateHosts})
	}
	return c
}

// of are the same credentials on a session that belongs to one caller.
func (c *credentials) of(holder *atomic.Pointer[Caller]) *credentials {
	own := *c
	own.holder = holder
	return &own
}

func (c *credentials) close() {
	if c.tokens != nil {
		c.tokens.Close()
	}
}

// canonical is a server's URL as the name of a resource (2026-07-28, basic/authorization, "Canonical Server
// URI").
func canonical(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host), Path: u.Path, RawPath: u.RawPath}).String()
}

// challenge asks the server something without a token, to be told where tokens come from.
func (u *Upstream) challenge(ctx context.Context) []string {
	client, tr := newHTTPClient(u.cfg)
	defer tr.CloseIdleConnections()
	method, body := http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"ping"}`
	if u.cfg.Type == configs.TypeSSE {
		method, body = http.MethodGet, ""
	}
	req, err := http.NewRequestWithContext(ctx, method, u.cfg.URL, strings.NewReader(body))
	if err != nil {
		return nil
	}
	req.Header = configuredHeaders(u.cfg.Headers)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		return nil
	}
	return resp.Header.Values("Www-Authenticate")
}

// shown is the token that a request carries, if Headgate has got it from an authorization server.
type shown struct{ token, subject secret.Text }

// put returns the headers of one request with the credentials in them. r is nil for what is no request of
// the protocol.
func (c *credentials) put(ctx context.Context, h http.Header, r *request) (http.Header, shown, error) {
	caller := c.holder.Load()
	if r != nil && r.caller != nil {
		caller = r.caller
	}
	var s shown
	var err error
	switch {
	case c.tokens != nil && c.perCall && caller != nil:
		s.subject = caller.Token
		s.token, err = c.tokens.For(ctx, caller.Token)
	case c.tokens != nil:
		s.token, err = c.tokens.Own(ctx)
	case c.forward && caller != nil:
		if err = c.complete(caller); err == nil {
			return authorized(h, caller.Token), shown{}, nil
		}
	default:
		return h, s, nil
	}
	if err != nil {
		return nil, s, c.failure(err)
	}
	return authorized(h, s.token), s, nil
}

// authorized copies headers, since whoever has sent them before may still read them.
func authorized(h http.Header, token secret.Text) http.Header {
	h = h.Clone()
	h["Authorization"] = []string{"Bearer " + token.Reveal()}
	return h
}

// complete refuses a caller that lacks the token which its calls need.
func (c *credentials) complete(caller *Caller) error {
	if (c.forward || c.perCall) && caller.Token.IsZero() {
		return c.failure(errNoToken)
	}
	return nil
}

var errNoToken = errors.New("the caller came without a token, and this server is shown the caller's")

// credentialError says that a request was not sent for want of credentials. It tells nothing of the server.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return "credentials: " + e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }

func (c *credentials) failure(err error) error {
	var asked *oauth.Error
	reason := failure.CredentialsRefused
	switch {
	case failure.As(err) != nil:
		return err
	case errors.As(err, &asked):
		if !asked.Refused {
			reason = failure.Unavailable
		}
	case !errors.Is(err, errNoToken):
		return err // the context's
	}
	return &failure.Failure{Server: c.server, Reason: reason, Outcome: failure.NotStarted, Cause: &credentialError{err}}
}

// renew reports whether a request that the server refused is to be sent again with another token. It was not
// run, so once is allowed.
func (c *credentials) renew(s shown, resp *http.Response) bool {
	if c.tokens == nil || s.token.IsZero() || resp.StatusCode != http.StatusUnauthorized || !c.tokens.Drop(s.subject, s.token) {
		return false
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4096) // so that the connection can be used again
	resp.Body.Close()
	return true
}

// blame marks a refusal of credentials that are the caller's own, so that its answer says who can act.
func (u *Upstream) blame(err error) {
	f := failure.As(err)
	if f == nil || f.Reason != failure.CredentialsRefused || !u.cfg.CallersCredentials() {
		return
	}
	var asked *oauth.Error
	f.Callers = !errors.As(err, &asked) || !asked.Client
}

// masker masks in texts for logs whatever must not stand there: configured secrets, the tokens that are in
// use, and everything that looks like a signed token.
type masker struct {
	fixed  *strings.Replacer
	tokens *oauth.Tokens // nil without oauth
}

// signedToken matches a JSON Web Token, or the part of one that is left of a text that was cut.
var signedToken = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*){0,2}`)

// Replace returns the text with "***" in the place of secrets.
func (m *masker) Replace(s string) string {
	if m.tokens != nil {
		s = m.tokens.Mask(s)
	}
	return signedToken.ReplaceAllLiteralString(m.fixed.Replace(s), "***")
}

// clip masks a text that a server wrote before it cuts it, which could leave half of a secret.
func (m *masker) clip(s string, n int) string {
	return clip(m.Replace(s[:min(len(s), 16<<10)]), n)
}
