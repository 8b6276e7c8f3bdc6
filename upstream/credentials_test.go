package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/secret"
)

// guarded is a scripted server that lets nobody in without a token for itself, and its authorization server.
type guarded struct {
	*mcptest.Server
	as       *mcptest.AuthServer
	audience string
	refuse   atomic.Pointer[string] // what is refused although it is good
	seen     sync.Map               // subject to the number of requests
}

func newGuarded(t *testing.T, s *mcptest.Server) *guarded {
	t.Helper()
	g := &guarded{Server: s, audience: "api://srv"}
	g.as = (&mcptest.AuthServer{Clients: map[string]string{"gw": "gw-secret"}}).Start(t)
	s.OnHTTP = func(w http.ResponseWriter, r *http.Request) bool {
		claims, err := g.as.Bearer(r.Header, g.audience)
		if no := g.refuse.Load(); err == nil && no != nil && strings.Contains(r.Header.Get("Authorization"), *no) {
			err = fmt.Errorf("revoked")
		}
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return true
		}
		n, _ := g.seen.LoadOrStore(claims["sub"], new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		return false
	}
	return g
}

// from is the configuration of an upstream with a grant.
func (g *guarded) from(url, grant string) *configs.Upstream {
	cfg := httpAt(url)
	cfg.OAuth = configs.OAuth{Grant: grant, TokenURL: g.as.URL + "/token", ClientID: "gw", ClientSecret: "gw-secret", Audience: g.audience}
	if grant == configs.GrantTokenExchange {
		cfg.Session = configs.SessionCaller
	}
	return cfg
}

func (g *guarded) requests(subject string) int {
	if n, ok := g.seen.Load(subject); ok {
		return int(n.(*atomic.Int32).Load())
	}
	return 0
}

// caller is somebody with a token of the authorization server for Headgate.
func (g *guarded) caller(name string) Caller {
	return Caller{Key: "as#" + name, Token: secret.New(g.as.Sign(map[string]any{"sub": name, "aud": "headgate"}))}
}

// callAs makes a call for somebody.
func (r *rig) callAs(c Caller, tool, args string) (*Reply, error) {
	call := r.toolCall(tool, args)
	call.Caller = c
	return r.Call(r.t.Context(), call)
}

// wantRefusal checks what a call that was not run came to, and whose credentials are to blame.
func wantRefusal(t *testing.T, err error, reason failure.Reason, outcome failure.Outcome, callers bool) {
	t.Helper()
	if f := wantFailure(t, err, reason, outcome); f.Callers != callers {
		t.Errorf("%v: the caller's credentials: %t", err, f.Callers)
	}
}

func TestClientCredentials(t *testing.T) {
	for _, kind := range []string{mcptest.Modern, mcptest.Legacy, "sse"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			era := kind
			if kind == "sse" {
				era = mcptest.Legacy
			}
			g := newGuarded(t, &mcptest.Server{Era: era, ListChanged: true, Tools: mcptest.Builtin("echo")})
			var h *mcptest.HTTP
			if kind == "sse" {
				h = g.StartSSE(t)
			} else {
				h = g.StartHTTP(t)
			}
			cfg := g.from(h.URL, configs.GrantClientCredentials)
			if kind == "sse" {
				cfg.Type = "sse"
			}
			r := up(t, cfg, Options{})
			awaitAt(t, g.Server, "the stream", func() bool { return g.Streams() == 1 })
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, err := r.callAs(g.caller("alice"), "echo", `{}`); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			r.stop()
			if n := g.as.CountTokens(""); n != 1 {
				t.Errorf("%d token requests", n)
			}
			for _, q := range g.Requests() {
				if _, err := g.as.Bearer(q.Header, g.audience); err != nil {
					t.Errorf("%s went out without its token: %v", q.Method, err)
				}
			}
			if kind == mcptest.Legacy && g.Count("DELETE") != 1 {
				t.Error("the session was not ended")
			}
			if g.requests("alice") != 0 {
				t.Error("the caller's token went out")
			}
		})
	}
}

// TestARevokedTokenIsReplaced: a 401 with a token that is still good by its dates costs nobody an answer.
func TestARevokedTokenIsReplaced(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		g := newGuarded(t, &mcptest.Server{Era: era, NoGET: true, Tools: mcptest.Builtin("echo")})
		r := up(t, g.from(g.StartHTTP(t).URL, configs.GrantClientCredentials), Options{})
		old := strings.TrimPrefix(g.Requests()[len(g.Requests())-1].Header.Get("Authorization"), "Bearer ")
		g.refuse.Store(&old)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := r.call("echo", `{}`); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := g.as.CountTokens(""); n != 2 {
			t.Errorf("%d token requests", n)
		}
		if g.Executions("echo") != 50 {
			t.Errorf("%d executions", g.Executions("echo"))
		}
		// A server that refuses everything gets each request once more at the most, and asks for no token after token.
		all := "."
		g.refuse.Store(&all)
		for range 5 {
			_, err := r.call("echo", `{}`)
			wantRefusal(t, err, failure.CredentialsRefused, failure.Refused, false)
		}
		if n := g.as.CountTokens(""); n > 3 {
			t.Errorf("%d token requests", n)
		}
	})
}

func TestTokenEndpointFailures(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *guarded, cfg *configs.Upstream)
		reason failure.Reason
		asked  int // token requests at the most
	}{
		{"secret refused", func(_ *guarded, cfg *configs.Upstream) { cfg.OAuth.ClientSecret = "wrong-wrong" }, failure.CredentialsRefused, 2},
		{"audience refused", func(g *guarded, _ *configs.Upstream) { g.as.Audiences = []string{"other"} }, failure.CredentialsRefused, 1},
		{"nobody there", func(_ *guarded, cfg *configs.Upstream) { cfg.OAuth.TokenURL = "http://127.0.0.1:1/token" }, failure.Unavailable, 0},
		{"failing", func(_ *guarded, cfg *configs.Upstream) { cfg.OAuth.TokenURL += "/none" }, failure.Unavailable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, &mcptest.Server{Tools: mcptest.Builtin("echo")})
			cfg := g.from(g.StartHTTP(t).URL, configs.GrantClientCredentials)
			c.change(g, cfg)
			r := run(t, cfg, Options{})
			r.await("the first attempt", r.Settled)
			for range 20 {
				_, err := r.call("echo", `{}`)
				wantRefusal(t, err, c.reason, failure.NotStarted, false)
			}
			if n := g.as.CountTokens(""); n > c.asked {
				t.Errorf("%d token requests", n)
			}
			if n := len(g.Requests()); n != 0 {
				t.Errorf("%d requests went out without a token", n)
			}
		})
	}
}

// TestATokenForAnotherServerIsOfNoUse: what the authorization server gave is not what this server takes.
func TestATokenForAnotherServerIsOfNoUse(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, &mcptest.Server{Tools: mcptest.Builtin("echo")})
	cfg := g.from(g.StartHTTP(t).URL, configs.GrantClientCredentials)
	cfg.OAuth.Audience = "api://other"
	r := run(t, cfg, Options{MaxBackoff: 0})
	r.await("the first attempt", r.Settled)
	_, err := r.call("echo", `{}`)
	wantRefusal(t, err, failure.CredentialsRefused, failure.NotStarted, false)
	if n := g.as.CountTokens(""); n > 2 {
		t.Errorf("%d token requests", n)
	}
}

func TestTokenExchange(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		g := newGuarded(t, &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")})
		r := up(t, g.from(g.StartHTTP(t).URL, configs.GrantTokenExchange), Options{})
		if g.requests("gw") == 0 || g.as.CountTokens(mcptest.GrantExchange) != 0 {
			t.Error("the catalogue is not read with a token of Headgate's own")
		}
		own := g.requests("gw")
		alice := g.caller("alice")
		for range 3 {
			if _, err := r.callAs(alice, "echo", `{}`); err != nil {
				t.Error(err)
			}
		}
		if n := g.as.CountTokens(mcptest.GrantExchange); n != 1 {
			t.Errorf("%d exchanges", n)
		}
		if g.requests("alice") < 3 || g.requests("gw") != own {
			t.Errorf("%d requests as the caller, %d more as Headgate", g.requests("alice"), g.requests("gw")-own)
		}
		before := len(g.Requests())
		_, err := r.callAs(Caller{Key: "#key-holder"}, "echo", `{}`)
		wantRefusal(t, err, failure.CredentialsRefused, failure.NotStarted, true)
		// A token that the authorization server does not know: its caller's affair alone.
		for range 5 {
			_, err = r.callAs(Caller{Key: "as#mallory", Token: secret.New("made.up.token")}, "echo", `{}`)
			wantRefusal(t, err, failure.CredentialsRefused, failure.NotStarted, true)
		}
		if n := g.as.CountTokens(mcptest.GrantExchange); n != 2 {
			t.Errorf("%d exchanges", n)
		}
		if _, err := r.callAs(alice, "echo", `{}`); err != nil {
			t.Error(err)
		}
		if r.Status().State != Up {
			t.Errorf("%+v", r.Status())
		}
		if era == mcptest.Modern && len(g.Requests()) != before+1 {
			t.Errorf("%d requests", len(g.Requests())-before)
		}
	})
}

// TestExchangeIsDown: nobody's fault but the authorization server's, and no reason to connect anew.
func TestExchangeIsDown(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		g := newGuarded(t, &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")})
		var down atomic.Bool
		g.as.OnToken = func(w http.ResponseWriter, r *http.Request) bool {
			if down.Load() {
				w.WriteHeader(http.StatusBadGateway)
			}
			return down.Load()
		}
		r := up(t, g.from(g.StartHTTP(t).URL, configs.GrantTokenExchange), Options{})
		alice := g.caller("alice")
		if _, err := r.callAs(alice, "echo", `{}`); err != nil {
			t.Fatal(err)
		}
		down.Store(true)
		connected := g.Count("server/discover") + g.Count("initialize")
		for range 3 {
			_, err := r.callAs(g.caller("bob"), "echo", `{}`)
			wantRefusal(t, err, failure.Unavailable, failure.NotStarted, false)
		}
		if _, err := r.callAs(alice, "echo", `{}`); err != nil {
			t.Errorf("a token that is cached: %v", err)
		}
		if now := g.Count("server/discover") + g.Count("initialize"); now != connected {
			t.Errorf("connected %d times more", now-connected)
		}
	})
}

func TestForwardedAuthorization(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		g := newGuarded(t, &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")})
		g.audience = "headgate"
		cfg := httpAt(g.StartHTTP(t).URL)
		cfg.Headers = map[string]string{"Authorization": "Bearer " + g.as.Sign(map[string]any{"sub": "operator", "aud": "headgate"})}
		cfg.Trust, cfg.ForwardHeaders, cfg.Session = configs.TrustSameAudience, []string{"Authorization", "X-Request-Id"}, configs.SessionCaller
		r := up(t, cfg, Options{})
		if g.requests("operator") == 0 {
			t.Error("the catalogue is not read with the configured headers")
		}
		own := g.requests("operator")
		call := r.toolCall("echo", `{}`)
		call.Caller = g.caller("alice")
		// What counts is the token that was verified, not what stands in a header beside it.
		call.Header = http.Header{"Authorization": {"Bearer other"}, "X-Request-Id": {"7"}}
		if _, err := r.Call(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		last := g.Requests()[len(g.Requests())-1]
		if g.requests("alice") == 0 || g.requests("operator") != own || last.Header.Get("X-Request-Id") != "7" {
			t.Errorf("%d requests as the caller, %d more as the operator, %v", g.requests("alice"), g.requests("operator")-own, last.Header)
		}
		_, err := r.callAs(Caller{Key: "#key-holder"}, "echo", `{}`)
		wantRefusal(t, err, failure.CredentialsRefused, failure.NotStarted, true)
		bad := g.caller("bob")
		token := bad.Token.Reveal()
		g.refuse.Store(&token)
		_, err = r.callAs(bad, "echo", `{}`)
		outcome := failure.Refused
		if era == mcptest.Legacy {
			outcome = failure.NotStarted // the session was not opened
		}
		wantRefusal(t, err, failure.CredentialsRefused, outcome, true)
		if _, err := r.callAs(g.caller("alice"), "echo", `{}`); err != nil {
			t.Error(err)
		}
	})
}

// TestTokenEndpointIsFound: without token_url the server's own metadata says where tokens come from, if the
// configuration lets Headgate go there.
func TestTokenEndpointIsFound(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, &mcptest.Server{Tools: mcptest.Builtin("echo")})
	inner := g.OnHTTP
	var url string
	g.OnHTTP = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/prm" {
			fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, url, g.as.URL)
			return true
		}
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="http://`+r.Host+`/prm"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return inner(w, r)
	}
	url = g.StartHTTP(t).URL
	cfg := g.from(url, configs.GrantClientCredentials)
	cfg.OAuth.TokenURL, cfg.OAuth.Audience = "", ""
	g.audience = url
	closed := run(t, cfg, Options{})
	closed.await("the first attempt", closed.Settled)
	if closed.Status().State == Up || !strings.Contains(closed.Status().Error, "allowed_private_hosts") {
		t.Errorf("%+v", closed.Status())
	}
	opened := *cfg
	opened.AllowedPrivateHosts = []string{"127.0.0.1"}
	r := up(t, &opened, Options{})
	r.mustCall("echo", `{}`)
	if asked := g.as.TokenRequests(); len(asked) != 1 || asked[0].Get("resource") != url {
		t.Errorf("%v", asked)
	}
}
