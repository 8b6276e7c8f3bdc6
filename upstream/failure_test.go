package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// beside starts a call that stays in flight until the returned function is called, and must succeed.
func beside(t *testing.T, s *mcptest.Server, start func() *rig) (r *rig, finish func()) {
	t.Helper()
	inCall, release := make(chan struct{}), make(chan struct{})
	s.Tools = append(s.Tools, tool("wait", func(c *mcptest.Call) {
		close(inCall)
		select {
		case <-release:
			c.Text("done")
		case <-c.Ctx.Done():
		}
	}))
	r = start()
	answer := make(chan error, 1)
	go func() {
		_, err := r.call("wait", `{}`)
		answer <- err
	}()
	<-inCall
	return r, func() {
		t.Helper()
		close(release)
		if err := <-answer; err != nil {
			t.Errorf("the call in flight: %v", err)
		}
	}
}

const html = "<html><body>secret-host:8080 exploded</body></html>"

func rawHTTP(c *mcptest.Call, text string) {
	conn := c.Hijack()
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

func TestBadAnswersOverHTTP(t *testing.T) {
	t.Parallel()
	const maxAnswer = 8 << 10
	big := `{"content":[{"type":"text","text":"` + strings.Repeat("x", maxAnswer) + `"}]}`
	for _, tt := range []struct {
		name    string
		answer  func(c *mcptest.Call)
		reason  failure.Reason
		outcome failure.Outcome
		wait    time.Duration
	}{
		{"reset", (*mcptest.Call).Reset, failure.ConnectionLost, failure.Unknown, 0},
		{"closed before headers", func(c *mcptest.Call) { rawHTTP(c, "") }, failure.ConnectionLost, failure.Unknown, 0},
		{"garbage for headers", func(c *mcptest.Call) { rawHTTP(c, "SSH-2.0-OpenSSH\r\n\r\n") }, failure.ConnectionLost, failure.Unknown, 0},
		{"half a body", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":"+c.ID+",\"result\":{")
		}, failure.ConnectionLost, failure.Unknown, 0},
		{"half a chunked body", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"jso\r\n")
		}, failure.ConnectionLost, failure.Unknown, 0},
		{"empty stream", func(c *mcptest.Call) { c.WriteSSE(":\n\n") }, failure.ConnectionLost, failure.Unknown, 0},
		{"half a stream", func(c *mcptest.Call) {
			c.WriteSSE("data: {\"jsonrpc\":\"2.0\",\"id\":" + c.ID + ",\"result\":{\"content\":[]}}\n")
		}, failure.ConnectionLost, failure.Unknown, 0},
		{"stream cut off", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: {\r\n")
		}, failure.ConnectionLost, failure.Unknown, 0},
		{"stream with a broken answer", func(c *mcptest.Call) {
			c.WriteSSE("data: {\"jsonrpc\":\"2.0\",\"id\":" + c.ID + ",\"result\":{}\n\n")
			<-c.Ctx.Done()
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"stream with an answer to another", func(c *mcptest.Call) {
			c.WriteSSE("data: {\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{}}\n\n")
		}, failure.ConnectionLost, failure.Unknown, 0},
		{"event above max_answer", func(c *mcptest.Call) {
			c.WriteSSE("data: " + big + "\n\n")
			<-c.Ctx.Done()
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"empty 200", func(c *mcptest.Call) { c.Raw(200, "application/json", "") }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"no content type", func(c *mcptest.Call) { c.Raw(200, "", "ok") }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"HTML 200", func(c *mcptest.Call) { c.Raw(200, "text/html", html) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"JSON that is no message", func(c *mcptest.Call) { c.Raw(200, "application/json", `{"Output":{}}`) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"batch", func(c *mcptest.Call) {
			c.Raw(200, "application/json", `[{"jsonrpc":"2.0","id":`+c.ID+`,"result":{}}]`)
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"wrong id", func(c *mcptest.Call) {
			c.Raw(200, "application/json", `{"jsonrpc":"2.0","id":987654,"result":{"content":[]}}`)
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"id as a string", func(c *mcptest.Call) {
			c.Raw(200, "application/json", `{"jsonrpc":"2.0","id":"`+c.ID+`","result":{"content":[]}}`)
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"result and error", func(c *mcptest.Call) {
			c.Raw(200, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"result":{},"error":{"code":1,"message":""}}`)
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"array as result", func(c *mcptest.Call) { c.Result(`[1]`) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"null as result", func(c *mcptest.Call) { c.Result(`null`) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"error without a code", func(c *mcptest.Call) { c.Error(`{"message":"x"}`) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"answer above max_answer", func(c *mcptest.Call) { c.Result(big) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"202", func(c *mcptest.Call) { c.Raw(202, "", "") }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"result with 500", func(c *mcptest.Call) {
			c.Raw(500, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"result":{"content":[]}}`)
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"HTML 500", func(c *mcptest.Call) { c.Raw(500, "text/html", html) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"HTML 524", func(c *mcptest.Call) { c.Raw(524, "text/html", strings.Repeat(html, 5000)) }, failure.BadUpstreamAnswer, failure.Unknown, 0},
		{"413", func(c *mcptest.Call) { c.Raw(413, "text/html", html) }, failure.BadUpstreamAnswer, failure.Refused, 0},
		{"429", func(c *mcptest.Call) { c.Raw(429, "text/plain", "slow down") }, failure.Overloaded, failure.Refused, 0},
		{"429 with Retry-After", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
		}, failure.Overloaded, failure.Refused, 7 * time.Second},
		{"503 with Retry-After", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 503 Unavailable\r\nRetry-After: 99999\r\nContent-Length: 0\r\n\r\n")
		}, failure.Overloaded, failure.Refused, time.Hour},
		{"503 with Retry-After and an error of nobody", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 503 Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+
				`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"busy"}}`)
		}, failure.Overloaded, failure.Refused, time.Second},
		{"503", func(c *mcptest.Call) { c.Raw(503, "text/html", html) }, failure.ConnectionLost, failure.Unknown, 0},
		{"401", func(c *mcptest.Call) { c.Raw(401, "", "") }, failure.CredentialsRefused, failure.Refused, 0},
		{"401 with an error", func(c *mcptest.Call) {
			c.Raw(401, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":{"code":-32001,"message":"token"}}`)
		}, failure.CredentialsRefused, failure.Refused, 0},
		{"403", func(c *mcptest.Call) { c.Raw(403, "text/plain", "no") }, failure.CredentialsRefused, failure.Refused, 0},
		{"302", func(c *mcptest.Call) {
			rawHTTP(c, "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n")
		}, failure.BadUpstreamAnswer, failure.Unknown, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bothEras(t, func(t *testing.T, era string) {
				s := &mcptest.Server{Era: era, Tools: []mcptest.Tool{tool("bad", tt.answer)}}
				r, finish := beside(t, s, func() *rig {
					cfg := httpAt(s.StartHTTP(t).URL)
					cfg.MaxAnswer = maxAnswer
					return up(t, cfg, Options{})
				})
				_, err := r.call("bad", `{}`)
				f := wantFailure(t, err, tt.reason, tt.outcome)
				if f.RetryAfter != tt.wait {
					t.Errorf("wait %v, want %v", f.RetryAfter, tt.wait)
				}
				if n := s.Executions("bad"); n != 1 {
					t.Errorf("executed %d times", n)
				}
				if strings.Contains(err.Error(), "secret-host") || len(err.Error()) > 500 {
					t.Errorf("the error repeats the answer: %v", err)
				}
				finish()
				if got := r.Status(); got.State != Up || got.Tries != 1 {
					t.Errorf("status %+v", got)
				}
			})
		})
	}
}

// What a server says about a request passes, whatever the status.
func TestErrorsWithStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 403, 404, 409, 500, 503} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			bothEras(t, func(t *testing.T, era string) {
				const text = `{"code":-32021,"message":"capability","data":{"requiredCapabilities":{"sampling":{}}}}`
				s := &mcptest.Server{Era: era, Tools: []mcptest.Tool{tool("no", func(c *mcptest.Call) {
					c.Raw(status, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":`+text+`}`)
				})}}
				r, finish := beside(t, s, func() *rig { return up(t, httpAt(s.StartHTTP(t).URL), Options{}) })
				if era == mcptest.Legacy && status == 404 {
					// In a session this status means that the session is gone.
					_, err := r.call("no", `{}`)
					wantFailure(t, err, failure.BadUpstreamAnswer, failure.Refused)
				} else {
					r.expect("no", "", text)
				}
				finish()
			})
		})
	}
}

func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	h := s.StartHTTP(t)
	r := up(t, httpAt(h.URL), Options{})
	h.Stop()
	_, err := r.call("echo", `{}`)
	wantFailure(t, err, failure.Unavailable, failure.NotStarted)
	if n := s.Executions("echo"); n != 0 {
		t.Errorf("%d executions", n)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	other := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	otherURL := other.StartHTTP(t).URL
	for _, tt := range []struct {
		name, location string
		status         int
		followed       bool
	}{
		{"307 on the same origin", "/mcp", 307, true},
		{"308 on the same origin", "/mcp", 308, true},
		{"307 to another origin", otherURL, 307, false},
		{"308 to another origin", otherURL, 308, false},
		{"303", "/mcp", 303, false},
		{"301", "/mcp", 301, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &mcptest.Server{Tools: mcptest.Builtin("echo"), OnHTTP: func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/old" {
					return false
				}
				w.Header().Set("Location", tt.location)
				w.WriteHeader(tt.status)
				return true
			}}
			cfg := httpAt(strings.TrimSuffix(s.StartHTTP(t).URL, "/mcp") + "/old")
			cfg.Headers = map[string]string{"Authorization": "Bearer our-own-secret"}
			r := run(t, cfg, Options{})
			r.await("an end", r.Settled)
			if !tt.followed {
				if got := r.Status(); got.State == Up || !strings.Contains(got.Error, "a redirect to another place") {
					t.Errorf("status %+v", got)
				}
				if len(other.Requests()) != 0 {
					t.Error("the other server was asked")
				}
				return
			}
			r.awaitUp()
			r.mustCall("echo", `{}`)
			if got := last(s, "tools/call").Header.Get("Authorization"); got != "Bearer our-own-secret" {
				t.Errorf("Authorization %q", got)
			}
		})
	}
}

// idLast moves the id of an answer behind its result, as servers of the TypeScript SDK write it.
type idLast struct{ io.Writer }

func (w idLast) Write(p []byte) (int, error) {
	if head, result, ok := bytes.Cut(p, []byte(`,"result":`)); ok {
		_, id, _ := bytes.Cut(head, []byte(`"id":`))
		line := `{"result":` + strings.TrimSuffix(string(result), "}\n") + `,"jsonrpc":"2.0","id":` + string(id) + "}\n"
		if _, err := io.WriteString(w.Writer, line); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return w.Writer.Write(p)
}

func TestBadAnswersOnAStream(t *testing.T) {
	t.Parallel()
	const maxAnswer = 8 << 10
	big := `{"content":[{"type":"text","text":"` + strings.Repeat("x", maxAnswer) + `"},{"id":1}]}`
	type answer struct {
		name, result string
	}
	answers := []answer{{"above max_answer", big}, {"array as result", `[1]`}, {"broken JSON", `{"content":[}`}, {"string as result", `"x"`}}
	overPipesIDLast := func(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
		return settings(), Options{Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
			return s.ServeLines(ctx, in, idLast{out})
		}}
	}
	for _, tt := range []struct {
		name    string
		connect func(*testing.T, *mcptest.Server) (*configs.Upstream, Options)
	}{{"pipes", overPipes}, {"pipes, id last", overPipesIDLast}, {"HTTP+SSE", listeners[4].connect}} {
		for _, a := range answers {
			if tt.name == "HTTP+SSE" && a.name == "above max_answer" {
				continue // see TestBigEventOnASharedStream
			}
			t.Run(tt.name+", "+a.name, func(t *testing.T) {
				t.Parallel()
				s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("bad", func(c *mcptest.Call) { c.Result(a.result) })}}
				r, finish := beside(t, s, func() *rig {
					cfg, opts := tt.connect(t, s)
					cfg.MaxAnswer = maxAnswer
					return up(t, cfg, opts)
				})
				_, err := r.call("bad", `{}`)
				wantFailure(t, err, failure.BadUpstreamAnswer, failure.Unknown)
				if n := s.Executions("bad"); n != 1 {
					t.Errorf("executed %d times", n)
				}
				finish()
				if got := r.Status(); got.State != Up || got.Tries != 1 {
					t.Errorf("status %+v", got)
				}
			})
		}
	}
}

// The reader of events keeps nothing of one that is too large. Alone in flight, the call is failed;
// with others it cannot be told which one it was, and none is harmed.
func TestBigEventOnASharedStream(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("big", "echo")}
	cfg, opts := listeners[4].connect(t, s)
	cfg.MaxAnswer = 8 << 10
	r := up(t, cfg, opts)
	_, err := r.call("big", `{"bytes":9000}`)
	wantFailure(t, err, failure.BadUpstreamAnswer, failure.Unknown)
	r.mustCall("echo", `{}`)
}

func TestLostStreamFailsItsCalls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		connect func(*testing.T, *mcptest.Server) (*configs.Upstream, Options)
	}{{"HTTP+SSE", listeners[4].connect}} {
		t.Run(tt.name, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy}
			s.Tools = []mcptest.Tool{tool("end", func(*mcptest.Call) { s.EndStreams(false) }), tool("echo", nil)}
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			_, err := r.call("end", `{}`)
			wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
			r.mustCall("echo", `{}`)
			if n := s.Executions("end"); n != 1 {
				t.Errorf("executed %d times", n)
			}
		})
	}
}

func TestPostRefusedOverSSE(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status  int
		reason  failure.Reason
		outcome failure.Outcome
	}{
		{401, failure.CredentialsRefused, failure.Refused},
		{429, failure.Overloaded, failure.Refused},
		{500, failure.BadUpstreamAnswer, failure.Unknown},
	} {
		t.Run(http.StatusText(tt.status), func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
			s.OnHTTP = func(w http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(`"tools/call"`)) && bytes.Contains(body, []byte(`"refuse"`)) {
					w.WriteHeader(tt.status)
					return true
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				return false
			}
			r, finish := beside(t, s, func() *rig {
				cfg, opts := listeners[4].connect(t, s)
				return up(t, cfg, opts)
			})
			_, err := r.call("refuse", `{}`)
			wantFailure(t, err, tt.reason, tt.outcome)
			finish()
		})
	}
}
