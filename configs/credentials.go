package configs

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// TrustSameAudience is the value of Upstream.Trust that lets a caller's Authorization through.
const TrustSameAudience = "same-audience"

// Values of Upstream.Session.
const (
	SessionShared = "shared"
	SessionCaller = "caller"
	SessionClient = "client"
)

// Grants of OAuth.Grant.
const (
	GrantClientCredentials = "client_credentials"
	GrantTokenExchange     = "token_exchange"
)

// OAuth says how Headgate gets tokens for an upstream. Printing it in any usual way does not print the secret.
type OAuth struct {
	// Grant is "client_credentials" (Headgate's own tokens), "token_exchange" (the caller's), or empty.
	Grant string
	// TokenURL is the token endpoint; empty means that it is found by the upstream's metadata, which is never so where
	// callers' tokens are sent.
	TokenURL string
	// ClientID and ClientSecret are Headgate's at the authorization server; neither is empty.
	ClientID, ClientSecret string
	// Scopes are asked for with every token.
	Scopes []string
	// Audience is what the tokens are for, as the authorization server knows it; empty means the upstream's URL.
	Audience string
}

// String prints what identifies the client.
func (o OAuth) String() string {
	if o.Grant == "" {
		return "no oauth"
	}
	return fmt.Sprintf("%s as %q", o.Grant, o.ClientID)
}

// GoString is String, so that %#v does not show the secret either.
func (o OAuth) GoString() string { return o.String() }

// MarshalText writes String, for JSON and logs.
func (o OAuth) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

func (o *OAuth) equal(p *OAuth) bool {
	return o.Grant == p.Grant && o.TokenURL == p.TokenURL && o.ClientID == p.ClientID && o.ClientSecret == p.ClientSecret &&
		slices.Equal(o.Scopes, p.Scopes) && o.Audience == p.Audience
}

// ForwardsAuthorization reports whether a caller's Authorization goes to the upstream with its calls.
func (u *Upstream) ForwardsAuthorization() bool {
	return slices.Contains(u.ForwardHeaders, "Authorization")
}

// CallersCredentials reports whether calls carry a credential of the caller's own.
func (u *Upstream) CallersCredentials() bool {
	return u.OAuth.Grant == GrantTokenExchange || u.ForwardsAuthorization()
}

// forwardedToken checks an Authorization in forward_headers. Connecting and the catalogue have no caller, so that
// headers may have one too.
func (l *loader) forwardedToken(path, at, shown string, u *Upstream, seen map[string]bool) {
	switch {
	case seen["Authorization"]:
		l.problem(at, "%sis there twice", shown)
	case l.inTeamFile(path):
		// The token opens to its holder whatever the caller may use, in every team.
		l.problem(at, "%sis the caller's token, which a team's own file cannot have sent to a server of the team's; the operator has to "+
			"define that server in the configuration itself, with trust: %s", shown, TrustSameAudience)
	case u.Trust != TrustSameAudience:
		l.problem(at, "%sis the caller's token, which is meant for Headgate alone; it is forwarded only with trust: %s, for a server that "+
			"accepts tokens of this very audience; oauth with grant %s gives the server a token of its own", shown, TrustSameAudience, GrantTokenExchange)
	case u.OAuth.Grant != "":
		l.problem(at, "%sis also put in by oauth; keep one of them", shown)
	}
}

func (l *loader) inTeamFile(path string) bool {
	_, team := l.place(path)
	return team != ""
}

// credentials checks how an upstream is shown who is calling.
func (l *loader) credentials(path string, u *upstreamSource) {
	if u.Trust != "" || u.given["trust"] && u.Type != TypeStdio {
		l.oneOf(path+".trust", u.Trust, TrustSameAudience)
	}
	for i, host := range u.AllowedPrivateHosts {
		u.AllowedPrivateHosts[i] = l.allowedHost(index(path+".allowed_private_hosts", i), host)
	}
	if u.given["oauth"] {
		l.oauth(path, u)
	}
	l.oneOf(path+".session", u.Session, SessionShared, SessionCaller, SessionClient)
	if !u.CallersCredentials() {
		return
	}
	if u.Session == SessionShared {
		if u.given["session"] {
			l.problem(path+".session", "must not be %s where the credentials are the caller's (oauth with grant %s, or Authorization in forward_headers): "+
				"one caller's session must not serve another; set %s or %s, or leave it out", SessionShared, GrantTokenExchange, SessionCaller, SessionClient)
		}
		u.Session = SessionCaller
	}
	if l.auth == nil || len(l.auth.JWT) == 0 {
		l.warn(path, "calls need a token of the caller, and without auth.jwt no caller has one: all of them will be refused")
	}
}

func (l *loader) oauth(path string, u *upstreamSource) {
	o, at := &u.OAuth, path+".oauth"
	if u.Type == TypeStdio || l.failed[at] {
		return // said already
	}
	if o.Grant == "" && !l.failed[at+".grant"] {
		l.problem(at+".grant", "must be one of %s %s", GrantClientCredentials, GrantTokenExchange)
	} else {
		l.oneOf(at+".grant", o.Grant, GrantClientCredentials, GrantTokenExchange)
	}
	if o.Grant == GrantTokenExchange && l.inTeamFile(path) {
		// Whoever names the token endpoint is sent the tokens of callers, each of which opens to its holder whatever its
		// caller may use, in every team.
		l.problem(at+".grant", "%s sends the tokens of callers to token_url, which a team's own file cannot have done; the operator has to define "+
			"that server in the configuration itself", GrantTokenExchange)
	}
	for name, v := range map[string]string{"client_id": o.ClientID, "client_secret": o.ClientSecret} {
		switch {
		case v == "":
			l.problem(at+"."+name, "must not be empty: Headgate itself is a client of the authorization server")
		case strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }):
			l.problem(at+"."+name, "has a control character, such as a line break")
		}
	}
	if o.TokenURL == "" && o.Grant == GrantTokenExchange {
		l.problem(at+".token_url", "must be set with grant %s: callers' tokens are sent there, so that it must not be for the upstream to say where", GrantTokenExchange)
	}
	if o.TokenURL != "" && l.url(at+".token_url", o.TokenURL) {
		t, err := url.Parse(o.TokenURL)
		if err == nil && t.Scheme != "https" && !IsLoopback(t.Hostname()) && !u.opens(t) {
			l.problem(at+".token_url", "must be https, since the client's secret goes there; http is accepted for loopback hosts, and for hosts in allowed_private_hosts")
		}
	}
	l.scopes(at+".scopes", o.Scopes)
	for name := range u.Headers {
		if strings.EqualFold(name, "Authorization") {
			l.problem(join(path+".headers", name), "is also put in by oauth; keep one of them")
		}
	}
}

// opens reports whether allowed_private_hosts names the host of a URL.
func (u *Upstream) opens(t *url.URL) bool {
	return slices.Contains(u.AllowedPrivateHosts, strings.ToLower(t.Hostname())) || slices.Contains(u.AllowedPrivateHosts, strings.ToLower(t.Host))
}
