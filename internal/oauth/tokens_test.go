package oauth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/secret"
)

const resource = "https://mcp.example.com/mcp"

// tokensOf are those of client gw at a server.
func tokensOf(t *testing.T, s *mcptest.AuthServer, change func(*Config)) *Tokens {
	t.Helper()
	cfg := Config{TokenURL: s.URL + "/token", ClientID: "gw", ClientSecret: secret.New("gw-secret"), Resource: resource}
	if change != nil {
		change(&cfg)
	}
	tokens := New(cfg)
	t.Cleanup(tokens.Close)
	return tokens
}

func gateway() *mcptest.AuthServer {
	return &mcptest.AuthServer{Clients: map[string]string{"gw": "gw-secret"}}
}

func TestOwnTokenIsAskedForOnce(t *testing.T) {
	t.Parallel()
	as := gateway().Start(t)
	tokens := tokensOf(t, as, func(c *Config) { c.Scopes = []string{"read", "write"} })
	var wg sync.WaitGroup
	got := make([]string, 50)
	for i := range got {
		wg.Go(func() {
			v, err := tokens.Own(t.Context())
			if err != nil {
				t.Error(err)
			}
			got[i] = v.Reveal()
		})
	}
	wg.Wait()
	for _, v := range got {
		if v == "" || v != got[0] {
			t.Fatalf("tokens differ: %q %q", v, got[0])
		}
	}
	asked := as.TokenRequests()
	if len(asked) != 1 || asked[0].Get("scope") != "read write" || asked[0].Get("client_secret") != "" {
		t.Errorf("the server was asked %v", asked)
	}
}

func TestWhatTokensAreFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, audience, sentAudience, sentResource string }{
		{"nothing configured", "", "", resource},
		{"a URI", "https://api.example.com/", "https://api.example.com/", "https://api.example.com/"},
		{"a name", "payments", "payments", ""},
		{"a scheme without a host", "api:payments", "api:payments", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			as := gateway().Start(t)
			tokens := tokensOf(t, as, func(cfg *Config) { cfg.Audience = c.audience })
			if _, err := tokens.Own(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked := as.TokenRequests()[0]
			if asked.Get("audience") != c.sentAudience || asked.Get("resource") != c.sentResource || len(asked["resource"]) > 1 {
				t.Errorf("asked for %v", asked)
			}
		})
	}
}

func TestExchangeIsOnePerCaller(t *testing.T) {
	t.Parallel()
	as := gateway().Start(t)
	tokens := tokensOf(t, as, func(c *Config) { c.Audience = "api" })
	var wg sync.WaitGroup
	for n := range 8 {
		name := fmt.Sprintf("user-%d", n)
		mine := secret.New(as.Sign(map[string]any{"sub": name, "aud": "gw"}))
		for range 10 {
			wg.Go(func() {
				v, err := tokens.For(t.Context(), mine)
				if err != nil {
					t.Error(err)
					return
				}
				claims, err := as.Verify(v.Reveal())
				if err != nil || claims["sub"] != name || claims["aud"] != "api" {
					t.Errorf("%s got a token with %v, %v", name, claims, err)
				}
			})
		}
	}
	wg.Wait()
	if n := as.CountTokens(mcptest.GrantExchange); n != 8 {
		t.Errorf("%d exchanges for 8 callers", n)
	}
	asked := as.TokenRequests()[0]
	if asked.Get("subject_token_type") != typeAccessToken || asked.Get("requested_token_type") != typeAccessToken {
		t.Errorf("asked %v", asked)
	}
	var e *Error
	if _, err := tokens.For(t.Context(), secret.Text{}); !errors.As(err, &e) || !e.Refused {
		t.Errorf("a caller without a token: %v", err)
	}
}

func TestCallersAreForgotten(t *testing.T) {
	t.Parallel()
	tokens := New(Config{})
	defer tokens.Close()
	tokens.mu.Lock()
	defer tokens.mu.Unlock()
	own := tokens.entry(key{})
	first := tokens.entry(keyOf(secret.New("0")))
	for n := range 2 * maxTokens {
		tokens.entry(keyOf(secret.New(fmt.Sprint(n))))
		tokens.entry(keyOf(secret.New("0")))
	}
	if len(tokens.entries) != maxTokens+1 || tokens.order.Len() != maxTokens {
		t.Errorf("%d entries, %d in order", len(tokens.entries), tokens.order.Len())
	}
	if tokens.entry(key{}) != own || tokens.entry(first.key) != first {
		t.Error("the client's own, or the latest used, is gone")
	}
}

// played makes the tokens talk to a handler without a network, as time in a bubble needs it.
func played(t *testing.T, cfg Config, h http.HandlerFunc) *Tokens {
	t.Helper()
	cfg.TokenURL, cfg.ClientID, cfg.ClientSecret = "http://as.example.com/token", "gw", secret.New("s")
	tokens := New(cfg)
	tokens.given.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h(w, r)
		return w.Result(), nil
	})
	return tokens
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTokensAreRenewedBeforeTheyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, down := 0, false
		tokens := played(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
			if down {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			n++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"t%d","token_type":"bearer","expires_in":100}`, n)
		})
		defer tokens.Close()
		expect := func(want string) {
			t.Helper()
			got, err := tokens.Own(t.Context())
			if got.Reveal() != want || want != "" && err != nil {
				t.Errorf("after %d requests: %q %v, want %q", n, got.Reveal(), err, want)
			}
		}
		expect("t1")
		time.Sleep(79 * time.Second)
		expect("t1")
		time.Sleep(2 * time.Second) // within a fifth of its life
		expect("t2")
		down = true
		time.Sleep(85 * time.Second)
		expect("t2") // the old one is good to its end
		time.Sleep(16 * time.Second)
		expect("")
		down = false
		time.Sleep(unreachedMost)
		expect("t3")
	})
}

func TestRefusalsAreNotRepeatedInALoop(t *testing.T) {
	for _, c := range []struct {
		name, body    string
		status        int
		refused       bool
		requests      int           // of the first attempt
		first, second time.Duration // pauses
		others        int           // requests for another caller in the pause
	}{
		{"client", `{"error":"invalid_client"}`, 401, true, 2, 30 * time.Second, 60 * time.Second, 0},
		{"no body", `nothing`, 401, true, 2, 30 * time.Second, 60 * time.Second, 0},
		{"caller", `{"error":"invalid_grant"}`, 400, true, 1, 30 * time.Second, 60 * time.Second, 1},
		{"target", `{"error":"invalid_target"}`, 400, true, 1, 30 * time.Second, 60 * time.Second, 1},
		{"error with 200", `{"error":"access_denied"}`, 200, true, 1, 30 * time.Second, 60 * time.Second, 1},
		{"down", `{"error":"invalid_client"}`, 503, false, 1, time.Second, 2 * time.Second, 1},
		{"busy", ``, 429, false, 1, time.Second, 2 * time.Second, 1},
		{"nonsense", `<html>`, 200, false, 1, time.Second, 2 * time.Second, 1},
		{"no token", `{}`, 200, false, 1, time.Second, 2 * time.Second, 1},
		{"no bearer", `{"access_token":"x","token_type":"mac"}`, 200, false, 1, time.Second, 2 * time.Second, 1},
		{"line break", `{"access_token":"x\r\nX-A: b","token_type":"bearer"}`, 200, false, 1, time.Second, 2 * time.Second, 1},
		{"redirect", ``, 307, false, 1, time.Second, 2 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				tokens := played(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
					n++
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Location", "http://127.0.0.1:1/")
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.body)
				})
				defer tokens.Close()
				alice, bob := secret.New("alice"), secret.New("bob")
				try := func(who secret.Text, requests int) {
					t.Helper()
					before := n
					_, err := tokens.For(t.Context(), who)
					var e *Error
					if !errors.As(err, &e) || e.Refused != c.refused {
						t.Errorf("%v", err)
					}
					if n-before != requests {
						t.Errorf("%d requests, want %d", n-before, requests)
					}
				}
				try(alice, c.requests)
				for range 100 {
					try(alice, 0)
				}
				try(bob, c.others)
				time.Sleep(c.first)
				try(alice, c.requests)
				time.Sleep(c.second - time.Millisecond)
				try(alice, 0)
				time.Sleep(time.Millisecond)
				try(alice, c.requests)
				time.Sleep(time.Hour)
				try(alice, c.requests)
				time.Sleep(refusedMost)
				try(alice, c.requests)
			})
		})
	}
}

// TestARefusedTokenIsReplacedOnce: a server that refuses whatever it gets does not make Headgate ask for
// token after token.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tokens := played(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
			n++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"bearer","expires_in":86400}`, n)
		})
		defer tokens.Close()
		own := func() secret.Text {
			t.Helper()
			v, err := tokens.Own(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		first := own()
		for range 2 { // two requests that were refused together
			if !tokens.Drop(secret.Text{}, first) {
				t.Error("the first refusal is not worth another try")
			}
		}
		second := own()
		if n != 2 || !tokens.Drop(secret.Text{}, first) {
			t.Errorf("%d requests", n)
		}
		for range 10 {
			if tokens.Drop(secret.Text{}, second) {
				t.Error("the second refusal is worth another try")
			}
		}
		if own().Reveal() != second.Reveal() || n != 2 {
			t.Errorf("%d requests", n)
		}
		if got := tokens.Mask("a token-1 and a token-2"); got != "a *** and a ***" {
			t.Errorf("masked: %s", got)
		}
		time.Sleep(refusedFirst)
		if !tokens.Drop(secret.Text{}, second) || own().Reveal() != "token-3" {
			t.Error("it is never tried again")
		}
	})
}

// TestGivingUpIsOnesOwn: a caller that waits no longer takes nothing from those who do.
func TestGivingUpIsOnesOwn(t *testing.T) {
	t.Parallel()
	as := gateway()
	reached, release := make(chan struct{}, 1), make(chan struct{})
	as.OnToken = func(http.ResponseWriter, *http.Request) bool {
		reached <- struct{}{}
		<-release
		return false
	}
	as.Start(t)
	tokens := tokensOf(t, as, nil)
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := tokens.Own(ctx)
		gaveUp <- err
	}()
	<-reached
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := tokens.Own(t.Context())
		got <- err
	}()
	close(release)
	if err := <-got; err != nil || as.CountTokens("") != 1 {
		t.Errorf("%v after %d requests", err, as.CountTokens(""))
	}
}

func TestSecretInTheBody(t *testing.T) {
	t.Parallel()
	as := gateway()
	as.OnToken = func(w http.ResponseWriter, r *http.Request) bool {
		if _, _, basic := r.BasicAuth(); basic {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	as.Start(t)
	tokens := tokensOf(t, as, nil)
	if _, err := tokens.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.For(t.Context(), secret.New(as.Sign(map[string]any{"sub": "a"}))); err != nil {
		t.Fatal(err)
	}
	if n := as.CountTokens(""); n != 3 {
		t.Errorf("%d requests: the way that works is not remembered", n)
	}
}

func TestErrorsHoldNothingThatAServerSaid(t *testing.T) {
	t.Parallel()
	const mark = "pl4nted"
	for _, body := range []string{`{"error":"` + mark + `","error_description":"` + mark + `"}`, mark, `{"error":"invalid_client","error_uri":"` + mark + `"}`,
		`{"access_token":{"` + mark + `":1}}`, `{"access_token":"` + mark + `","token_type":"` + mark + `"}`} {
		for _, status := range []int{200, 302, 400, 401, 500} {
			as := gateway()
			as.OnToken = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Location", "http://"+mark+".example.com/"+mark)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				fmt.Fprint(w, body)
				return true
			}
			as.Start(t)
			tokens := tokensOf(t, as, func(c *Config) { c.ClientSecret = secret.New(mark + "-client"); c.TokenURL += "?key=" + mark })
			_, err := tokens.Own(t.Context())
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, errors.Unwrap(err)), mark) {
				t.Errorf("HTTP %d %s: %v", status, body, err)
			}
		}
	}
	for _, answer := range []string{mark, "HTTP/1.1 200 " + mark + "\r\n" + mark + " : x\r\n\r\n", "HTTP/1.1 " + mark + "\r\n\r\n",
		"HTTP/1.1 307 x\r\nLocation: ://" + mark + "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: " + mark + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + mark + "\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + mark} {
		raw := listenRaw(t, answer)
		tokens := New(Config{TokenURL: raw, Resource: resource})
		_, err := tokens.Own(t.Context())
		if err == nil || strings.Contains(err.Error(), mark) {
			t.Errorf("%q: %v", answer, err)
		}
		tokens.Close()
		found := New(Config{Resource: raw + "/mcp", AllowedHosts: []string{"127.0.0.1"}})
		_, err = found.Own(t.Context())
		if err == nil || strings.Contains(err.Error(), mark) {
			t.Errorf("%q to a GET: %v", answer, err)
		}
		found.Close()
	}
	tokens := New(Config{TokenURL: "http://127.0.0.1:1/token?key=" + mark, ClientSecret: secret.New(mark)})
	defer tokens.Close()
	if _, err := tokens.Own(t.Context()); err == nil || strings.Contains(fmt.Sprintf("%v", err), mark) {
		t.Errorf("nobody there: %v", err)
	}
}

// listenRaw answers every connection with the same bytes and ends it.
func listenRaw(t *testing.T, answer string) (url string) {
	t.Helper()
	return "http://" + mcptest.ListenRaw(t, func(c net.Conn) {
		defer c.Close()
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, answer)
		}
	})
}

// FuzzChallenge: nothing that a server says of where tokens come from makes Headgate panic.
func FuzzChallenge(f *testing.F) {
	for _, seed := range []string{"Bearer resource_metadata=\"https://a/b\"", "Basic x, Bearer a=\"\\\"\", resource_metadata=x", "=,\"", "Bearer =", "\"", "Bearer a=\"", ",,", "Bearer a=b,"} {
		f.Add(seed)
	}
	at, _ := url.Parse(resource)
	f.Fuzz(func(t *testing.T, header string) {
		tokens := New(Config{Resource: resource, Challenge: func(context.Context) []string { return []string{header} }})
		defer tokens.Close()
		for _, place := range tokens.places(t.Context(), at) {
			if place == "" {
				t.Errorf("no place in %q", header)
			}
		}
	})
}
