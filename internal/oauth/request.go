package oauth

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/headgate/headgate/internal/secret"
)

// Error says why there is no token.
type Error struct {
	// Refused says that the authorization server, or a rule of Headgate's, said no: asking again changes
	// nothing until somebody acts. Otherwise the server could not be reached or made no sense.
	Refused bool
	// Client says that it is the client that is refused, whoever the token is for.
	Client bool
	err    error
}

// Error describes it for logs.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

func unavailable(format string, args ...any) *Error { return &Error{err: fmt.Errorf(format, args...)} }

// The values of RFC 8693, sections 2.1 and 3.
const (
	grantExchange   = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
)

// endpoint is a token endpoint and how it is reached.
type endpoint struct {
	url    string
	client *http.Client
	style  oauth2.AuthStyle // how the client shows its secret; AuthStyleAutoDetect until it is known
	// resource is what the server calls itself in the metadata that led here; empty where none did.
	resource string
}

// token is an access token and how long it is good.
type token struct {
	value  secret.Text
	expiry time.Time
}

// unlimited is how long a token is kept whose server does not say how long it is good.
const unlimited = 10 * time.Minute

// request asks an endpoint for one token. subject is the token to exchange; empty asks for one of the
// client's own. It returns the way of authentication that was accepted.
func (t *Tokens) request(ctx context.Context, at endpoint, subject secret.Text) (token, oauth2.AuthStyle, *Error) {
	styles := []oauth2.AuthStyle{at.style}
	if at.style == oauth2.AuthStyleAutoDetect {
		// Every server takes the header (RFC 6749, section 2.3.1); some say so and do not.
		styles = []oauth2.AuthStyle{oauth2.AuthStyleInHeader, oauth2.AuthStyleInParams}
	}
	var failed *Error
	for _, style := range styles {
		began := time.Now()
		conf := clientcredentials.Config{ClientID: t.cfg.ClientID, ClientSecret: t.cfg.ClientSecret.Reveal(), TokenURL: at.url,
			Scopes: t.cfg.Scopes, EndpointParams: t.params(at, subject), AuthStyle: style}
		got, err := conf.Token(context.WithValue(ctx, oauth2.HTTPClient, at.client))
		if err == nil {
			tok, err := accept(got, began)
			return tok, style, err
		}
		if failed = sortError(err); !failed.Client {
			break
		}
	}
	return token{}, at.style, failed
}

// params are the parameters beside grant and scope: whom the token is for. audience is sent as it is
// configured; resource (RFC 8707) is the audience if that is a URI. If no audience is configured it is the server's name
// as its metadata spells it, since that is what the authorization server compares (RFC 9728, section 3.3), or else its
// URL.
func (t *Tokens) params(at endpoint, subject secret.Text) url.Values {
	v := url.Values{}
	resource := cmp.Or(at.resource, t.cfg.Resource)
	if a := t.cfg.Audience; a != "" {
		v.Set("audience", a)
		resource = ""
		if u, err := url.Parse(a); err == nil && u.IsAbs() && u.Host != "" && u.Fragment == "" {
			resource = a
		}
	}
	if resource != "" {
		v.Set("resource", resource)
	}
	if !subject.IsZero() {
		v.Set("grant_type", grantExchange)
		v.Set("subject_token", subject.Reveal())
		v.Set("subject_token_type", typeAccessToken)
		v.Set("requested_token_type", typeAccessToken)
	}
	return v
}

// maxToken bounds what is kept and sent as a token, in bytes.
const maxToken = 16 << 10

func accept(got *oauth2.Token, began time.Time) (token, *Error) {
	if !strings.EqualFold(got.TokenType, "bearer") {
		return token{}, unavailable("the token endpoint gave a token that is no bearer token")
	}
	if strings.ContainsFunc(got.AccessToken, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return token{}, unavailable("the token endpoint gave a token that cannot stand in a header")
	}
	if len(got.AccessToken) > maxToken {
		return token{}, unavailable("the token endpoint gave a token of more than %d bytes", maxToken)
	}
	expiry := got.Expiry
	if expiry.IsZero() {
		expiry = began.Add(unlimited)
	}
	return token{secret.New(got.AccessToken), expiry}, nil
}

// codes are the error codes that are repeated in logs; what else a server says is not.
var codes = map[string]struct{ refused, client bool }{
	"invalid_client":          {true, true},
	"unauthorized_client":     {true, true},
	"unsupported_grant_type":  {true, true},
	"invalid_grant":           {true, false},
	"invalid_request":         {true, false},
	"invalid_scope":           {true, false},
	"invalid_target":          {true, false},
	"access_denied":           {true, false},
	"server_error":            {false, false},
	"temporarily_unavailable": {false, false},
}

// reached drops from an error of the HTTP client what the other side may have put into it.
func reached(err error) error {
	var (
		op      *net.OpError
		cert    *tls.CertificateVerificationError
		refused *redirectError
	)
	switch {
	case errors.As(err, &op):
		return op
	case errors.As(err, &cert):
		return errors.New("its certificate is not trusted")
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("it takes too long")
	}
	return errors.New("what it answers is not HTTP as it should be, or nothing at all")
}

// sortError makes an Error of what the library says, and leaves out what the server said.
func sortError(err error) *Error {
	var answered *oauth2.RetrieveError
	if !errors.As(err, &answered) {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			return unavailable("the token endpoint cannot be reached: %w", reached(u.Err))
		}
		return unavailable("the token endpoint's answer is not one of a token endpoint")
	}
	status := answered.Response.StatusCode
	if known, ok := codes[answered.ErrorCode]; ok && status < 500 && status != http.StatusTooManyRequests {
		return &Error{Refused: known.refused, Client: known.client, err: fmt.Errorf("the token endpoint says %s (HTTP %d)", answered.ErrorCode, status)}
	}
	switch {
	case status >= 300 && status < 400:
		return unavailable("the token endpoint answered HTTP %d, a redirect, which is not followed with a secret; set oauth.token_url to where it really is", status)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &Error{Refused: true, Client: status == http.StatusUnauthorized, err: fmt.Errorf("the token endpoint answered HTTP %d", status)}
	case status == http.StatusBadRequest:
		return &Error{Refused: true, err: fmt.Errorf("the token endpoint answered HTTP %d", status)}
	}
	return unavailable("the token endpoint answered HTTP %d", status)
}
