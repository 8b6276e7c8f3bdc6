package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// apartFrom is an upstream that keeps its callers or clients apart.
func apartFrom(cfg *configs.Upstream, session string) *configs.Upstream {
	cfg.Session = session
	return cfg
}

func named(name, session string) Caller { return Caller{Key: "#" + name, Session: session} }

// TestSessionsNeverChangeHands: twenty callers at once, with tokens of their own that change, on a server
// with sessions: a session sees one caller, and a caller one session.
func TestSessionsNeverChangeHands(t *testing.T) {
	for _, way := range []string{"exchanged", "forwarded"} {
		for _, transport := range []string{"http", "sse"} {
			t.Run(way+" over "+transport, func(t *testing.T) {
				t.Parallel()
				g := newGuarded(t, &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")})
				h := g.StartHTTP
				if transport == "sse" {
					h = g.StartSSE
				}
				cfg := g.from(h(t).URL, configs.GrantTokenExchange)
				own := "gw"
				if way == "forwarded" {
					g.audience, own = "headgate", "operator"
					cfg.OAuth = configs.OAuth{}
					cfg.Trust, cfg.ForwardHeaders = configs.TrustSameAudience, []string{"Authorization"}
					cfg.Headers = map[string]string{"Authorization": "Bearer " + g.as.Sign(map[string]any{"sub": own, "aud": "headgate"})}
				}
				cfg.Type, cfg.TypeGiven = transport, true
				r := up(t, cfg, Options{})
				const callers, calls = 20, 12
				var wg sync.WaitGroup
				for n := range callers {
					name := fmt.Sprintf("user-%02d", n)
					for k := range 3 {
						c := g.caller(name) // each of a caller's programs has a token of its own
						wg.Go(func() {
							for i := range calls / 3 {
								args := fmt.Sprintf(`{"from":"%s %d %d"}`, name, k, i)
								reply, err := r.callAs(c, "echo", args)
								if err != nil {
									t.Error(err)
								} else if !strings.Contains(string(reply.Result), name) {
									t.Errorf("%s got %s", name, reply.Result)
								}
							}
						})
					}
				}
				wg.Wait()
				if n := r.Status().Sessions; n != callers {
					t.Errorf("%d sessions stand", n)
				}
				holders := map[string]string{} // by session
				sessions := map[string]map[string]bool{}
				for _, q := range g.Requests() {
					claims, err := g.as.Bearer(q.Header, g.audience)
					if err != nil {
						t.Fatalf("%s: %v", q.Method, err)
					}
					who := claims["sub"].(string)
					if q.Method == "tools/call" {
						if from := fmt.Sprint(string(q.Body)); who == own || !strings.Contains(from, who) {
							t.Errorf("a call of %s: %s", who, from)
						}
					}
					id := q.Header.Get("Mcp-Session-Id")
					if id == "" {
						continue
					}
					if holders[id] == "" {
						holders[id] = who
					}
					if holders[id] != who {
						t.Errorf("the session of %s was used by %s", holders[id], who)
					}
					if sessions[who] == nil {
						sessions[who] = map[string]bool{}
					}
					sessions[who][id] = true
				}
				if transport == "http" {
					if len(sessions) != callers+1 {
						t.Errorf("%d callers have sessions", len(sessions))
					}
					for who, ids := range sessions {
						if len(ids) != 1 {
							t.Errorf("%s has %d sessions", who, len(ids))
						}
					}
				}
				if n := g.Count("initialize"); n != callers+1 {
					t.Errorf("%d sessions were opened", n)
				}
				if n := g.Count("tools/list"); n != 1 {
					t.Errorf("the catalogue was read %d times", n)
				}
				r.stop()
				if n := g.Sessions(); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			})
		}
	}
}

// TestModernServersNeedNoSessions: only the credentials differ.
func TestModernServersNeedNoSessions(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, &mcptest.Server{Tools: mcptest.Builtin("echo")})
	r := up(t, g.from(g.StartHTTP(t).URL, configs.GrantTokenExchange), Options{})
	for _, name := range []string{"alice", "bob"} {
		if _, err := r.callAs(g.caller(name), "echo", `{}`); err != nil {
			t.Error(err)
		}
	}
	if g.Count("server/discover") != 1 || r.Status().Sessions != 0 || g.requests("alice") != 1 || g.requests("bob") != 1 {
		t.Errorf("%d connections, %d sessions", g.Count("server/discover"), r.Status().Sessions)
	}
}

// TestWhoSharesASession: with caller and with client, over HTTP and as processes of their own.
func TestWhoSharesASession(t *testing.T) {
	calls := []Caller{named("alice", "s1"), named("alice", "s2"), named("alice", ""), named("alice", ""), named("bob", "s3"), named("bob", "s3"), named("bob", "")}
	for _, c := range []struct {
		session string
		want    string // the session of each call
	}{{"shared", "0000000"}, {"caller", "0000111"}, {"client", "0122334"}} {
		for _, transport := range []string{"http", "stdio legacy", "stdio modern", "pipe"} {
			t.Run(c.session+" over "+transport, func(t *testing.T) {
				t.Parallel()
				s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo", "pid")}
				var r *rig
				tool := "pid"
				switch transport {
				case "http":
					tool = "whose"
					s.Tools = []mcptest.Tool{{Def: `{"name":"whose","inputSchema":{"type":"object"}}`,
						Call: func(c *mcptest.Call) { c.Text(c.Header.Get("Mcp-Session-Id")) }}}
					r = up(t, apartFrom(httpAt(s.StartHTTP(t).URL), c.session), Options{})
				case "pipe":
					cfg := apartFrom(settings(), c.session)
					cfg.Type = "stdio"
					var mu sync.Mutex
					connections := 0
					tool = "whose"
					r = up(t, cfg, numbered(&mu, &connections))
				default:
					r = up(t, apartFrom(childOf(mcptest.ChildSpec{Era: strings.TrimPrefix(transport, "stdio "), Tools: []string{"pid"}}), c.session), Options{})
				}
				seen := map[string]int{}
				got := ""
				for _, who := range calls {
					reply, err := r.callAs(who, tool, `{}`)
					if err != nil {
						t.Fatal(err)
					}
					n, ok := seen[string(reply.Result)]
					if !ok {
						n = len(seen)
						seen[string(reply.Result)] = n
					}
					got += fmt.Sprint(n)
				}
				if got != c.want {
					t.Errorf("sessions %s, want %s", got, c.want)
				}
			})
		}
	}
}

// TestAClientsSessionEndsWithIt, and not while a call of it is under way.
func TestAClientsSessionEndsWithIt(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: append(mcptest.Builtin("echo"), tool("slow", func(c *mcptest.Call) {
		<-release
		c.Text("done")
	}))}
	r := up(t, apartFrom(httpAt(s.StartHTTP(t).URL), configs.SessionClient), Options{})
	for _, session := range []string{"s1", "s2", ""} {
		if _, err := r.callAs(named("alice", session), "echo", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Sessions(); n != 4 {
		t.Fatalf("%d sessions", n)
	}
	r.EndSession("")
	r.EndSession("unknown")
	r.EndSession("s1")
	awaitAt(t, s, "the end of s1", func() bool { return s.Sessions() == 3 && s.Count("DELETE") == 1 })

	answered := make(chan error, 1)
	go func() {
		_, err := r.callAs(named("alice", "s2"), "slow", `{}`)
		answered <- err
	}()
	awaitAt(t, s, "the call", func() bool { return s.Executions("slow") == 1 })
	r.EndSession("s2")
	if s.Sessions() != 3 {
		t.Error("a session was ended under its call")
	}
	close(release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	awaitAt(t, s, "the end of s2", func() bool { return s.Sessions() == 2 && s.Count("DELETE") == 2 })
	if n := r.Status().Sessions; n != 1 {
		t.Errorf("%d sessions stand", n)
	}
}

// address is the origin of a URL.
func address(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// numbered serves a tool that tells which connection it is on.
func numbered(mu *sync.Mutex, connections *int) Options {
	return Options{Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		mu.Lock()
		*connections++
		n := *connections
		mu.Unlock()
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("whose", func(c *mcptest.Call) { c.Text(fmt.Sprint(n)) })}}
		return s.ServeLines(ctx, in, out)
	}}
}

func TestIdleSessionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		connections := 0
		cfg := apartFrom(settings(), configs.SessionCaller)
		cfg.Type = "stdio"
		r := up(t, cfg, numbered(&mu, &connections))
		for _, name := range []string{"alice", "bob"} {
			if _, err := r.callAs(named(name, ""), "whose", `{}`); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(25 * time.Minute)
		if _, err := r.callAs(named("alice", ""), "whose", `{}`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := r.Status().Sessions; n != 1 {
			t.Errorf("%d sessions stand", n)
		}
		time.Sleep(30 * time.Minute)
		if n := r.Status().Sessions; n != 0 {
			t.Errorf("%d sessions stand", n)
		}
		if _, err := r.callAs(named("alice", ""), "whose", `{}`); err != nil || connections != 4 {
			t.Errorf("%v after %d connections", err, connections)
		}
		r.stop()
	})
}

// TestSessionsAreBounded: the one that has not been used for the longest time makes room, and never one in
// use.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := apartFrom(settings(), configs.SessionCaller)
		cfg.Type, cfg.CallTimeout, cfg.MaxCallTimeout = "stdio", time.Hour, time.Hour
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: append(mcptest.Builtin("echo"), tool("hold", func(c *mcptest.Call) { <-c.Ctx.Done() }))}
		r := up(t, cfg, piped(s))
		var wg sync.WaitGroup
		hold := func(name string) {
			wg.Go(func() {
				call := r.toolCall("hold", `{}`)
				call.Caller = named(name, "")
				_, _ = r.Call(t.Context(), call)
			})
			synctest.Wait()
		}
		hold("first")
		for n := range 3 * maxChildren {
			if _, err := r.callAs(named(fmt.Sprint(n), ""), "echo", `{}`); err != nil {
				t.Fatalf("caller %d: %v", n, err)
			}
			time.Sleep(time.Second)
			if n := r.Status().Sessions; n > maxChildren {
				t.Fatalf("%d sessions", n)
			}
		}
		r.apart.mu.Lock()
		held := r.apart.all[apartKey{caller: "#first"}]
		newest := r.apart.all[apartKey{caller: fmt.Sprintf("#%d", 3*maxChildren-1)}]
		oldest := r.apart.all[apartKey{caller: "#0"}]
		r.apart.mu.Unlock()
		if held == nil || newest == nil || oldest != nil {
			t.Errorf("in use %t, newest %t, oldest %t", held != nil, newest != nil, oldest != nil)
		}
		for n := range maxChildren - 1 {
			hold(fmt.Sprint("holder-", n))
		}
		_, err := r.callAs(named("late", ""), "echo", `{}`)
		if f := wantFailure(t, err, failure.Overloaded, failure.NotStarted); f.RetryAfter != apartWait {
			t.Errorf("%+v", f)
		}
		r.stop()
		wg.Wait()
	})
}

// TestALostSessionIsItsCallersAffair: one caller's session is lost and opened again, another's is refused,
// and nobody else notices.
func TestALostSessionIsItsCallersAffair(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")})
	r := up(t, g.from(g.StartHTTP(t).URL, configs.GrantTokenExchange), Options{})
	alice, bob := g.caller("alice"), g.caller("bob")
	for range 3 {
		for _, c := range []Caller{alice, bob} {
			if _, err := r.callAs(c, "echo", `{}`); err != nil {
				t.Fatal(err)
			}
		}
		g.Forget()
	}
	if n := g.Executions("echo"); n != 6 {
		t.Errorf("%d executions of 6 calls", n)
	}
	if n := r.Status().Sessions; n != 2 {
		t.Errorf("%d sessions", n)
	}
}

// TestARefusedCallerIsNotTriedAtEveryCall, but with another token it is.
func TestARefusedCallerIsNotTriedAtEveryCall(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")})
	g.audience = "headgate"
	cfg := httpAt(g.StartHTTP(t).URL)
	cfg.Headers = map[string]string{"Authorization": "Bearer " + g.as.Sign(map[string]any{"sub": "operator", "aud": "headgate"})}
	cfg.Trust, cfg.ForwardHeaders, cfg.Session = configs.TrustSameAudience, []string{"Authorization"}, configs.SessionCaller
	r := up(t, cfg, Options{})
	refused := g.caller("alice")
	token := refused.Token.Reveal()
	g.refuse.Store(&token)
	for range 20 {
		_, err := r.callAs(refused, "echo", `{}`)
		wantRefusal(t, err, failure.CredentialsRefused, failure.NotStarted, true)
	}
	tried := 0
	for _, q := range g.Requests() {
		if strings.Contains(q.Header.Get("Authorization"), token) {
			tried++
		}
	}
	if tried == 0 || tried > 3 { // one attempt asks in more than one way what the server speaks
		t.Errorf("%d requests with a token that is refused", tried)
	}
	eventually(t, "a new token to be tried", func() bool {
		_, err := r.callAs(g.caller("alice"), "echo", `{}`)
		return err == nil
	})
	if r.Status().State != Up {
		t.Errorf("%+v", r.Status())
	}
}

// TestTheFirstCallWaitsForItsSession: it may take longer than calls wait for a server that is down.
func TestTheFirstCallWaitsForItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := apartFrom(settings(), configs.SessionCaller)
		cfg.Type, cfg.CallTimeout, cfg.MaxCallTimeout, cfg.StartTimeout = "stdio", time.Minute, 2*time.Minute, 50*time.Second
		first := true
		var mu sync.Mutex
		r := up(t, cfg, Options{Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
			mu.Lock()
			slow := !first
			first = false
			mu.Unlock()
			if slow {
				time.Sleep(8 * time.Second)
			}
			return (&mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}).ServeLines(ctx, in, out)
		}})
		if _, err := r.callAs(named("alice", ""), "echo", `{}`); err != nil {
			t.Error(err)
		}
		r.stop()
	})
}

// TestAServerThatTurnsLegacy: calls that were sent side by side to a modern server get sessions of their own
// once it has them.
func TestAServerThatTurnsLegacy(t *testing.T) {
	t.Parallel()
	modern := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	legacy := newGuarded(t, &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")})
	before, after := address(t, modern.StartHTTP(t).URL), address(t, legacy.StartHTTP(t).URL)
	var turned atomic.Bool
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(before)
		if turned.Load() {
			r.SetURL(after)
		}
	}})
	t.Cleanup(front.Close)
	cfg := legacy.from(front.URL+"/mcp", configs.GrantTokenExchange)
	r := up(t, cfg, Options{})
	if _, err := r.callAs(legacy.caller("alice"), "echo", `{}`); err != nil {
		t.Fatal(err)
	}
	turned.Store(true)
	for _, name := range []string{"alice", "bob"} {
		if _, err := r.callAs(legacy.caller(name), "echo", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range legacy.Requests() {
		claims, err := legacy.as.Bearer(q.Header, legacy.audience)
		if err == nil && q.Method == "tools/call" && claims["sub"] == "gw" {
			t.Error("a call went out as Headgate's own")
		}
	}
	if n := r.Status().Sessions; n != 2 {
		t.Errorf("%d sessions", n)
	}
}

// TestARefusalIsForgivenInTime: it is put to the test again after a pause that grows, when a call asks for it.
func TestARefusalIsForgivenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := New(httpAt("http://127.0.0.1:1/mcp"), Options{})
		defer u.creds.close()
		u.creds.forward = true // without a token, nothing reaches the network
		s := u.newApart()
		s.hold(&Caller{Key: "#alice"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.runApart(ctx)
		}()
		attempts := func(want int) {
			t.Helper()
			_, err := s.Call(t.Context(), &Call{Method: "tools/call"})
			wantFailure(t, err, failure.CredentialsRefused, failure.NotStarted)
			if got := s.Status().Tries; got != want {
				t.Errorf("%d attempts, want %d", got, want)
			}
		}
		attempts(1)
		time.Sleep(29 * time.Second)
		attempts(1)
		time.Sleep(2 * time.Second)
		attempts(2)
		time.Sleep(59 * time.Second)
		attempts(2)
		time.Sleep(2 * time.Second)
		attempts(3)
		time.Sleep(time.Hour)
		if got := s.Status().Tries; got != 3 {
			t.Errorf("%d attempts without a call", got)
		}
		cancel()
		<-done
	})
}

// TestDoubtsAreTheParentsToSettle: a call on a session of its own that makes Headgate doubt what the server
// speaks has the catalogue read again where it is kept.
func TestDoubtsAreTheParentsToSettle(t *testing.T) {
	t.Parallel()
	const answer = `{"code":-32602,"message":"bad arguments"}`
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("picky", func(c *mcptest.Call) {
		c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":`+answer+`}`)
	})}}
	r := up(t, apartFrom(httpAt(s.StartHTTP(t).URL), configs.SessionCaller), Options{ListTimeout: time.Hour})
	reply, err := r.callAs(named("alice", ""), "picky", `{}`)
	if err != nil || string(reply.Error) != answer {
		t.Errorf("%+v %v", reply, err)
	}
	if n := s.Count("tools/list"); n != 2 {
		t.Errorf("the catalogue was read %d times", n)
	}
}
