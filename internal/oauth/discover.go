package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/headgate/headgate/internal/document"
)

// maxServers bounds how many authorization servers of one resource are tried.
const maxServers = 4

// discover finds the token endpoint of the server that Headgate needs tokens for (2026-07-28, basic/
// authorization, "Authorization Server Discovery"): the server names its metadata when it refuses a request,
// or has it at the well-known place; that names authorization servers, and their metadata the endpoint.
// Everything on this way is learned from others, so all of it goes through the guard.
func (t *Tokens) discover(ctx context.Context) (endpoint, *Error) {
	resource, servers, err := t.servers(ctx)
	if err != nil {
		return endpoint{}, unavailable("finding the token endpoint: %w", err)
	}
	var errs []error
	for _, issuer := range servers[:min(len(servers), maxServers)] {
		at, err := t.metadata(ctx, issuer)
		if err == nil {
			at.resource = resource
			return at, nil
		}
		errs = append(errs, err)
	}
	return endpoint{}, unavailable("finding the token endpoint: %w", errors.Join(errs...))
}

// servers reads the metadata of the protected resource (RFC 9728): by what name it is known, and its authorization
// servers.
func (t *Tokens) servers(ctx context.Context) (resource string, issuers []string, err error) {
	at, err := url.Parse(t.cfg.Resource)
	if err != nil {
		return "", nil, errors.New("the server's URL is not one that metadata can belong to")
	}
	var errs []error
	for _, place := range t.places(ctx, at) {
		var doc oauthex.ProtectedResourceMetadata
		err := t.fetch(ctx, place, &doc)
		switch {
		case err != nil:
		case !covers(doc.Resource, at):
			err = errors.New("the document is of another resource")
		case len(doc.AuthorizationServers) == 0:
			err = errors.New("the document names no authorization server")
		default:
			return doc.Resource, doc.AuthorizationServers, nil
		}
		errs = append(errs, fmt.Errorf("metadata of the server: %w", err))
	}
	return "", nil, errors.Join(errs...)
}

// places are where the metadata of the resource may be, the server's own word first.
func (t *Tokens) places(ctx context.Context, at *url.URL) []string {
	if t.cfg.Challenge != nil {
		if headers := t.cfg.Challenge(ctx); headers != nil {
			challenges, err := oauthex.ParseWWWAuthenticate(headers)
			for _, c := range challenges {
				if place := c.Params["resource_metadata"]; err == nil && c.Scheme == "bearer" && place != "" {
					return []string{place}
				}
			}
		}
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	root := at.Scheme + "://" + at.Host + wellKnown
	if path := strings.TrimSuffix(at.EscapedPath(), "/"); path != "" {
		return []string{root + path, root}
	}
	return []string{root}
}

// covers reports whether metadata of a resource is about the server: it names the very URL, or one above
// it at the same origin. A resource has no fragment (RFC 9728, section 1.2).
func covers(resource string, at *url.URL) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Fragment != "" || !strings.EqualFold(r.Scheme, at.Scheme) || !strings.EqualFold(r.Host, at.Host) {
		return false
	}
	above := strings.TrimSuffix(r.EscapedPath(), "/")
	return above == strings.TrimSuffix(at.EscapedPath(), "/") || strings.HasPrefix(at.EscapedPath(), above+"/")
}

// metadata reads the metadata of an authorization server (RFC 8414; OpenID Connect Discovery 1.0).
func (t *Tokens) metadata(ctx context.Context, issuer string) (endpoint, error) {
	base, err := url.Parse(issuer)
	if err != nil || base.RawQuery != "" || base.Fragment != "" {
		return endpoint{}, errors.New("the authorization server's name is not a URL")
	}
	path := strings.TrimSuffix(base.EscapedPath(), "/")
	root := base.Scheme + "://" + base.Host
	places := []string{root + "/.well-known/oauth-authorization-server" + path, root + "/.well-known/openid-configuration" + path}
	if path != "" {
		places = append(places, root+path+"/.well-known/openid-configuration")
	}
	var errs []error
	for _, place := range places {
		var doc struct {
			Issuer  string   `json:"issuer"`
			Token   string   `json:"token_endpoint"`
			Methods []string `json:"token_endpoint_auth_methods_supported"`
		}
		err := t.fetch(ctx, place, &doc)
		if err == nil && doc.Issuer != issuer {
			err = errors.New("the document is of another issuer")
		}
		if err == nil {
			err = t.follow(doc.Token)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("metadata of the authorization server: %w", err))
			continue
		}
		at := endpoint{url: doc.Token, client: t.learned}
		if slices.Contains(doc.Methods, "client_secret_post") && !slices.Contains(doc.Methods, "client_secret_basic") {
			at.style = oauth2.AuthStyleInParams
		}
		return at, nil
	}
	return endpoint{}, errors.Join(errs...)
}

func (t *Tokens) follow(learned string) error {
	u, err := url.Parse(learned)
	if err != nil {
		return errors.New("not a URL that can be followed")
	}
	return t.guard.check(u)
}

// fetch reads a JSON document from a learned URL. Nothing of the document, and nothing of the URL, gets into
// the error.
func (t *Tokens) fetch(ctx context.Context, at string, to any) error {
	if err := t.follow(at); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return errors.New("not a URL that can be followed")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := t.learned.Do(req)
	if err != nil {
		return reached(err)
	}
	return document.Read(resp, to)
}
