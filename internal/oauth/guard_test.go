package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/document"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/secret"
)

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1": false, "127.8.8.8": false, "::1": false, "0.0.0.0": false, "0.1.2.3": false, "::": false,
		"10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "100.64.0.1": false, "100.127.255.255": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false, "fc00::1": false, "fec0::1": false,
		"224.0.0.1": false, "239.1.1.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false, "198.18.0.1": false, "192.0.0.8": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false, "::7f00:1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2002:a00:1::1": false, "2001::1": false,
		"1.1.1.1": true, "172.32.0.1": true, "100.63.0.1": true, "2606:4700::1111": true, "::ffff:1.1.1.1": true, "64:ff9b::101:101": true, "2002:101:101::1": true,
	} {
		if got := public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
	if public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestURLsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	g := newGuard([]string{"idp.internal", "dev.local:8443", "[::1]", "127.0.0.1"})
	for raw, want := range map[string]bool{
		"https://idp.example.com/x": true, "https://169.254.169.254/": true, // where it leads is seen at the dial
		"http://idp.example.com/": false, "http://idp.internal/": true, "http://IDP.internal./": true, "http://idp.internal:99/": true,
		"http://dev.local:8443/": true, "http://dev.local/": false, "http://[::1]:80/": true, "http://127.0.0.1/": true,
		"https://user:x@idp.example.com/": false, "file:///etc/passwd": false, "gopher://idp.internal/": false, "/token": false, "https:///x": false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.check(u); (got == nil) != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

// TestTheDialIsGuarded: what counts is the address that a name stands for when it is dialled, whatever a
// proxy in the environment would do.
func TestTheDialIsGuarded(t *testing.T) {
	var hits atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inside.Close()
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTP_PROXY", inside.URL)
	t.Setenv("HTTPS_PROXY", inside.URL)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		client, tr := newGuard(nil).client()
		defer tr.CloseIdleConnections()
		if tr.Proxy != nil {
			t.Error("learned URLs go to a proxy")
		}
		for _, scheme := range []string{"http", "https"} {
			resp, err := client.Get(scheme + "://" + host + ":" + port + "/")
			if err == nil {
				resp.Body.Close()
			}
			if !errors.Is(err, errPrivate) {
				t.Errorf("%s by %s: %v", host, scheme, err)
			}
		}
	}
	if n := hits.Load(); n != 0 {
		t.Fatalf("%d requests came through", n)
	}
	client, tr := newGuard([]string{"localhost"}).client()
	defer tr.CloseIdleConnections()
	resp, err := client.Get("http://localhost:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if hits.Load() != 1 {
		t.Error("the host that is allowed was not reached")
	}
}

// protected is a resource on a loopback port that refuses everything, with a metadata document.
type protected struct {
	*httptest.Server
	challenge string
	document  string
	asked     atomic.Int32 // for the document
}

func newProtected(t *testing.T) *protected {
	p := &protected{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/redirect"):
			to := r.URL.Query().Get("to")
			if r.URL.Path == "/redirect/loop" {
				to = r.URL.Path
			}
			http.Redirect(w, r, to, http.StatusFound)
		case strings.Contains(r.URL.Path, "oauth-protected-resource"):
			p.asked.Add(1)
			if strings.HasSuffix(r.URL.Path, "/mcp") || r.URL.Path == "/elsewhere/oauth-protected-resource" {
				fmt.Fprint(w, p.document)
				return
			}
			http.NotFound(w, r)
		default:
			if p.challenge != "" {
				w.Header().Set("WWW-Authenticate", p.challenge)
			}
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(p.Close)
	p.document = fmt.Sprintf(`{"resource":%q}`, p.URL+"/mcp")
	return p
}

// tokensFor finds its endpoint by the metadata of a resource.
func tokensFor(t *testing.T, p *protected, allowed ...string) *Tokens {
	tokens := New(Config{ClientID: "gw", ClientSecret: secret.New("gw-secret"), Resource: p.URL + "/mcp", AllowedHosts: allowed,
		Challenge: func(ctx context.Context) []string {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/mcp", nil)
			resp, err := p.Client().Do(req)
			if err != nil {
				return nil
			}
			resp.Body.Close()
			return resp.Header.Values("Www-Authenticate")
		}})
	t.Cleanup(tokens.Close)
	return tokens
}

// TestTokensAreForThePublishedResource: a server whose metadata led to the token endpoint is named there as its metadata
// names it, to the letter.
func TestTokensAreForThePublishedResource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ published, audience, sent string }{
		{"/mcp", "", "/mcp"},
		{"/mcp/", "", "/mcp/"},
		{"", "", ""},
		{"/", "", "/"},
		{"?tenant=7", "", "?tenant=7"},
		{"", "https://api.example.com", "https://api.example.com"},
	} {
		t.Run(c.published+" "+c.audience, func(t *testing.T) {
			t.Parallel()
			as, p := gateway().Start(t), newProtected(t)
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+c.published, as.URL)
			tokens := tokensFor(t, p, "127.0.0.1")
			tokens.cfg.Audience = c.audience
			if _, err := tokens.Own(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := c.sent
			if c.audience == "" {
				want = p.URL + c.sent
			}
			if got := as.TokenRequests()[0].Get("resource"); got != want {
				t.Errorf("the resource is %q, want %q", got, want)
			}
		})
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	as := gateway().Start(t)
	other := newProtected(t)
	for _, c := range []struct {
		name   string
		change func(p *protected)
		says   string // "" for success
	}{
		{"by the challenge", func(p *protected) {
			p.challenge = `Bearer error="invalid_token", resource_metadata="` + p.URL + `/elsewhere/oauth-protected-resource"`
		}, ""},
		{"at the well-known place", func(*protected) {}, ""},
		{"after a scheme of another kind", func(p *protected) {
			p.challenge = `Basic realm="x", Bearer resource_metadata="` + p.URL + `/elsewhere/oauth-protected-resource"`
		}, ""},
		{"by a redirect", func(p *protected) {
			p.challenge = `Bearer resource_metadata="` + p.URL + `/redirect?to=` + url.QueryEscape(p.URL+"/elsewhere/oauth-protected-resource") + `"`
		}, ""},
		{"a challenge that makes no sense", func(p *protected) { p.challenge = `Bearer =,"` }, ""},
		{"the second of two servers", func(p *protected) {
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q,%q]}`, p.URL+"/mcp", other.URL, as.URL)
		}, ""},
		{"metadata of another resource", func(p *protected) {
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, "https://bank.example.com/mcp", as.URL)
		}, "another resource"},
		{"metadata of a neighbour", func(p *protected) {
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+"/mc", as.URL)
		}, "another resource"},
		{"metadata of a part of a resource", func(p *protected) {
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+"/mcp#a", as.URL)
		}, "another resource"},
		{"metadata of the whole origin", func(p *protected) {
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL, as.URL)
		}, ""},
		{"no authorization server", func(p *protected) { p.document = fmt.Sprintf(`{"resource":%q}`, p.URL+"/mcp") }, "names no authorization server"},
		{"a server of another name", func(p *protected) {
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+"/mcp", strings.Replace(as.URL, "127.0.0.1", "localhost", 1))
		}, "another issuer"},
		{"by a redirect to plain http", func(p *protected) {
			p.challenge = `Bearer resource_metadata="` + p.URL + `/redirect?to=` + url.QueryEscape("http://192.0.2.1/") + `"`
		}, "a redirect is not followed: not an https URL"},
		{"by redirects without end", func(p *protected) {
			p.challenge = `Bearer resource_metadata="` + p.URL + `/redirect/loop"`
		}, "there are too many"},
		{"by plain http", func(p *protected) { p.challenge = `Bearer resource_metadata="http://192.0.2.1/"` }, "not an https URL"},
		{"not JSON", func(p *protected) { p.document = "<html>" }, "not the JSON"},
		{"endless", func(p *protected) { p.document = `"` + strings.Repeat("x", document.MaxSize+1) }, "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t)
			p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+"/mcp", as.URL)
			c.change(p)
			tokens := tokensFor(t, p, "127.0.0.1", "localhost")
			v, err := tokens.Own(t.Context())
			if c.says != "" {
				var e *Error
				if !errors.As(err, &e) || e.Refused || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			claims, err := as.Verify(v.Reveal())
			if aud, _ := claims["aud"].(string); err != nil || aud != p.URL+"/mcp" && (aud != p.URL || !strings.Contains(p.document, `"`+p.URL+`",`)) {
				t.Errorf("%v %v", claims, err)
			}
			if asked := p.asked.Load(); asked != 1 {
				t.Errorf("the metadata was asked for %d times", asked)
			}
		})
	}
}

// TestLearnedURLsDoNotLeadInside: none of the steps of discovery, and no redirect of theirs, reaches a
// private address that the configuration does not open.
func TestLearnedURLsDoNotLeadInside(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(inside.Close)
	target := strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)
	for _, address := range []string{inside.URL, target, strings.Replace(inside.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1), "https://169.254.169.254/latest", "https://10.0.0.1"} {
		for _, c := range []struct {
			name   string
			change func(p *protected, as *mcptest.AuthServer)
		}{
			{"metadata", func(p *protected, _ *mcptest.AuthServer) { p.challenge = `Bearer resource_metadata="` + address + `"` }},
			{"redirect of metadata", func(p *protected, _ *mcptest.AuthServer) {
				p.challenge = `Bearer resource_metadata="` + p.URL + `/redirect?to=` + url.QueryEscape(address) + `"`
			}},
			{"authorization server", func(p *protected, _ *mcptest.AuthServer) {
				p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+"/mcp", address)
			}},
			{"token endpoint", func(p *protected, as *mcptest.AuthServer) {
				// The server's word is believed; its endpoint is somewhere else.
				as.Handle("/inside/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
					fmt.Fprintf(w, `{"issuer":%q,"token_endpoint":%q}`, as.URL+"/inside", address)
				})
				p.document = fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q]}`, p.URL+"/mcp", as.URL+"/inside")
			}},
		} {
			t.Run(c.name+" at "+address, func(t *testing.T) {
				t.Parallel()
				p, as := newProtected(t), gateway().Start(t)
				c.change(p, as)
				// What the test itself stands on is opened by its port, the target is not.
				tokens := tokensFor(t, p, p.Listener.Addr().String(), strings.TrimPrefix(as.URL, "http://"))
				_, err := tokens.Own(t.Context())
				var e *Error
				if !errors.As(err, &e) || e.Refused || !strings.Contains(err.Error(), "allowed_private_hosts") {
					t.Errorf("%v", err)
				}
			})
		}
	}
	t.Cleanup(func() {
		if n := hits.Load(); n != 0 {
			t.Errorf("%d requests came through", n)
		}
	})
}

// TestRedirectsOfTheTokenEndpoint: a secret is not sent on to where its endpoint points.
func TestRedirectsOfTheTokenEndpoint(t *testing.T) {
	t.Parallel()
	var hits atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer inside.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{inside.URL, "http://169.254.169.254/latest/meta-data", strings.Replace(inside.URL, "127.0.0.1", "localhost", 1)} {
			as := gateway()
			as.OnToken = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, to, status)
				return true
			}
			as.Start(t)
			var e *Error
			if _, err := tokensOf(t, as, nil).Own(t.Context()); !errors.As(err, &e) || e.Refused || !strings.Contains(err.Error(), "redirect") {
				t.Errorf("HTTP %d to %s: %v", status, to, err)
			}
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
}
