package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// wantFailure checks the reason and the outcome of a failed call.
func wantFailure(t *testing.T, err error, reason failure.Reason, outcome failure.Outcome) *failure.Failure {
	t.Helper()
	f := failure.As(err)
	if f == nil {
		t.Fatalf("got %v, want %s with outcome %s", err, reason, outcome)
	}
	if f.Reason != reason || f.Outcome != outcome || f.Server != "srv" {
		t.Errorf("got %v, want %s with outcome %s", err, reason, outcome)
	}
	return f
}

func TestDownAtStart(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		s := &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")}
		h := s.StartHTTP(t)
		h.Stop()
		r := run(t, httpAt(h.URL), Options{})
		r.await("two attempts", func() bool { return r.Status().Tries >= 2 })
		if r.Catalogue() != nil || !r.Settled() {
			t.Error("a catalogue from nowhere")
		}
		_, err := r.call("echo", `{}`)
		wantFailure(t, err, failure.Unavailable, failure.NotStarted)
		h.Start()
		r.awaitUp()
		r.mustCall("echo", `{}`)
	})
}

func TestRestartedServer(t *testing.T) {
	t.Parallel()
	for _, announces := range []bool{false, true} {
		bothEras(t, func(t *testing.T, era string) {
			s := &mcptest.Server{Era: era, ListChanged: announces, Tools: mcptest.Builtin("echo")}
			h := s.StartHTTP(t)
			r := up(t, httpAt(h.URL), Options{})
			r.mustCall("echo", `{}`)
			h.Stop()
			s.Forget()
			h.Start()
			r.mustCall("echo", `{}`)
			if n := s.Executions("echo"); n != 2 {
				t.Errorf("%d executions of 2 calls", n)
			}
		})
	}
}

func TestLostSession(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		body   string
	}{
		{"404", 404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`},
		{"404 text", 404, `no such session`},
		{"400 without id", 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`},
		{"400 text", 400, `Bad session`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var forgotten atomic.Pointer[string]
			var told atomic.Int32
			inCall, finish, allTold := make(chan struct{}), make(chan struct{}), make(chan struct{})
			const callers = 20
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: append(mcptest.Builtin("echo"), tool("wait", func(c *mcptest.Call) {
				close(inCall)
				<-finish
				c.Text("done")
			}))}
			s.OnHTTP = func(w http.ResponseWriter, r *http.Request) bool {
				old := forgotten.Load()
				if old == nil || r.Header.Get("Mcp-Session-Id") != *old {
					return false
				}
				// All calls meet the loss before any of them learns of it.
				n := told.Add(1)
				if n == callers {
					close(allTold)
				}
				<-allTold
				if n == callers {
					// The last one hears of it when the new session is in use.
					_ = s.Await(r.Context(), func() bool { return s.Executions("echo") == callers })
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return true
			}
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			r.mustCall("echo", `{}`)
			inFlight := make(chan error, 1)
			go func() {
				_, err := r.call("wait", `{}`)
				inFlight <- err
			}()
			<-inCall
			forgotten.Store(new(last(s, "tools/call").Header.Get("Mcp-Session-Id")))

			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					if _, err := r.call("echo", `{}`); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			close(finish)
			if err := <-inFlight; err != nil {
				t.Errorf("the call in flight: %v", err)
			}
			if s.Count("initialize") != 2 || s.Executions("echo") != callers+1 {
				t.Errorf("%d sessions, %d executions", s.Count("initialize"), s.Executions("echo"))
			}
		})
	}
}

func TestSecondLossIsReturned(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Raw(404, "text/plain", "no such session")
		return true
	}}
	r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
	_, err := r.call("echo", `{}`)
	wantFailure(t, err, failure.BadUpstreamAnswer, failure.Refused)
	if n := s.Count("tools/call"); n != 2 {
		t.Errorf("sent %d times", n)
	}
	// What is the tool's own way of refusing costs a new session once, not at every call.
	opened := s.Count("initialize")
	for range 3 {
		_, err = r.call("echo", `{}`)
		wantFailure(t, err, failure.BadUpstreamAnswer, failure.Refused)
	}
	if n := s.Count("initialize"); n != opened {
		t.Errorf("%d more sessions for 3 calls", n-opened)
	}
}

func TestKilledChild(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		starts := filepath.Join(t.TempDir(), "starts")
		r := up(t, childOf(mcptest.ChildSpec{Era: era, StartsFile: starts}), Options{})
		pid := r.pid()
		process, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.await("the loss", func() bool { return r.logged("signal: killed") })
		if now := r.pid(); now == pid {
			t.Error("the same process answers")
		}
		if n := lines(t, starts); n != 2 {
			t.Errorf("%d processes were started", n)
		}
	})
}

func (r *rig) pid() int {
	r.t.Helper()
	_, text, _ := strings.Cut(r.mustCall("pid", `{}`), `"text":"`)
	digits, _, _ := strings.Cut(text, `"`)
	pid, err := strconv.Atoi(digits)
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

func TestChildThatDiesInACall(t *testing.T) {
	t.Parallel()
	r := up(t, childOf(mcptest.ChildSpec{ExitOnCall: true}), Options{})
	_, err := r.call("die", `{}`)
	wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
	if !strings.Contains(err.Error(), "the process ended: exit status 1") {
		t.Errorf("error %v", err)
	}
	if got := r.Status(); got.State == Up && got.Restarts == 0 {
		t.Error("the call was told of the loss, and the server still counts as up")
	}
	r.mustCall("echo", `{}`)
}

func TestCrashLoopBacksOff(t *testing.T) {
	t.Parallel()
	var starts atomic.Int32
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
	r := run(t, settings(), Options{MaxBackoff: time.Hour, Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		n := int(starts.Add(1))
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			// It leaves as soon as it is up.
			if s.Await(ctx, func() bool { return s.Count("tools/list") >= n }) == nil {
				cancel()
			}
		}()
		_ = s.ServeLines(ctx, in, out)
		return errors.New("crashed")
	}})
	r.await("a pause", func() bool { return r.Status().State == Down })
	if n := starts.Load(); n > 6 {
		t.Errorf("%d starts without a pause", n)
	}
}

func TestToolsOfAServerThatIsGone(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Tools: mcptest.Builtin("echo"), ListChanged: true}
	for _, tt := range []struct {
		name    string
		stale   time.Duration
		dropped bool
	}{{"kept for a while", time.Hour, false}, {"dropped then", 50 * time.Millisecond, true}} {
		t.Run(tt.name, func(t *testing.T) {
			h := s.StartHTTP(t)
			r := listening(t, s, func(*testing.T, *mcptest.Server) (*configs.Upstream, Options) {
				return httpAt(h.URL), Options{StaleFor: tt.stale}
			}, false)
			h.Stop()
			r.await("the loss", func() bool { return r.Status().State == Down })
			if tt.dropped {
				r.await("the tools to go", func() bool { return r.Catalogue() == nil })
			} else if r.Catalogue().Tool("echo") == nil {
				t.Error("the tools are gone")
			}
			_, err := r.Call(t.Context(), &Call{Method: "tools/call", Name: "echo"})
			wantFailure(t, err, failure.Unavailable, failure.NotStarted)
			h.Start()
			r.awaitUp()
			r.awaitTool("echo")
			want := 0
			if tt.dropped {
				want = 1
			}
			if n := strings.Count(r.log.String(), "its tools are withdrawn"); n != want {
				t.Errorf("withdrawn %d times", n)
			}
		})
	}
}

func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 407} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			s := &mcptest.Server{OnHTTP: func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"who are you"}}`)
				return true
			}}
			r := run(t, httpAt(s.StartHTTP(t).URL), Options{MaxBackoff: time.Hour})
			r.await("the refusal", func() bool { return r.Status().State == Down })
			for range 10 {
				_, err := r.Call(t.Context(), &Call{Method: "tools/call", Name: "echo"})
				wantFailure(t, err, failure.CredentialsRefused, failure.NotStarted)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
			if !strings.Contains(r.Status().Error, "credentials_refused") {
				t.Errorf("status %+v", r.Status())
			}
		})
	}
}

// A server that comes back in the other era is recognised by the first call.
func TestChangedEra(t *testing.T) {
	t.Parallel()
	servers := map[string]*mcptest.Server{}
	urls := map[string]*url.URL{}
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		servers[era] = &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")}
		urls[era], _ = url.Parse(servers[era].StartHTTP(t).URL)
	}
	for _, way := range [][2]string{{mcptest.Modern, mcptest.Legacy}, {mcptest.Legacy, mcptest.Modern}} {
		t.Run(way[0]+" to "+way[1], func(t *testing.T) {
			var era atomic.Pointer[string]
			era.Store(&way[0])
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			front := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL = urls[*era.Load()] }})
			defer front.Close()
			r := up(t, httpAt(front.URL+"/mcp"), Options{})
			defer r.stop()
			r.mustCall("echo", `{}`)
			if got := r.Status().Era; got != way[0] {
				t.Errorf("at first %s", got)
			}
			era.Store(&way[1])
			r.mustCall("echo", `{}`)
			if got := r.Status().Era; got != way[1] {
				t.Errorf("in the end %s", got)
			}
		})
		t.Run("pipes, "+way[0]+" to "+way[1], func(t *testing.T) {
			var starts atomic.Int32
			ended := make(chan struct{})
			r := up(t, settings(), Options{Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				n := starts.Add(1)
				if n == 1 {
					go func() {
						select {
						case <-ended:
							cancel()
						case <-ctx.Done():
						}
					}()
				}
				return servers[way[min(n-1, 1)]].ServeLines(ctx, in, out)
			}})
			r.mustCall("echo", `{}`)
			close(ended)
			r.await("the loss", func() bool { return r.logged("the server is not available") })
			r.mustCall("echo", `{}`)
			if got := r.Status().Era; got != way[1] || starts.Load() != 2 {
				t.Errorf("in the end %s, after %d starts", got, starts.Load())
			}
		})
	}
}

// An error that a legacy server sends with status 400 is about the call, and reaches the client.
func TestDoubtfulErrorPasses(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":{"code":-32602,"message":"bad date"}}`)
		return true
	}}
	r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
	for range 3 {
		r.expect("echo", "", `{"code":-32602,"message":"bad date"}`)
	}
	// One of them had the era verified.
	if s.Count("tools/call") != 3 || s.Count("initialize") != 1 || s.Count("tools/list") != 2 {
		t.Errorf("%d calls, %d sessions, %d lists", s.Count("tools/call"), s.Count("initialize"), s.Count("tools/list"))
	}
}

func TestChangedHeaderSchema(t *testing.T) {
	t.Parallel()
	with := func(header string) []mcptest.Tool {
		return []mcptest.Tool{{Def: `{"name":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"` + header + `"}}}}`}}
	}
	s := &mcptest.Server{Tools: with("Old")}
	r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
	r.mustCall("x", `{"a":"v"}`)
	s.SetTools(with("New"))
	r.mustCall("x", `{"a":"v"}`)
	h := last(s, "tools/call").Header
	if h.Get("Mcp-Param-New") != "v" || h.Get("Mcp-Param-Old") != "" || s.Executions("x") != 2 || s.Count("tools/call") != 3 {
		t.Errorf("headers %v, %d executions", h, s.Executions("x"))
	}

	t.Run("only once", func(t *testing.T) {
		s := &mcptest.Server{Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":{"code":-32020,"message":"mismatch"}}`)
			return true
		}}
		r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
		_, err := r.call("echo", `{}`)
		wantFailure(t, err, failure.BadUpstreamAnswer, failure.Refused)
		if n := s.Count("tools/call"); n != 2 {
			t.Errorf("sent %d times", n)
		}
	})
}
