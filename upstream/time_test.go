package upstream

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// transports are the ways to a server whose calls can be given up.
var transports = []struct {
	name, era string
	notified  bool // the server is told by notifications/cancelled, else by the closed stream
	connect   func(*testing.T, *mcptest.Server) (*configs.Upstream, Options)
}{
	{"modern HTTP", mcptest.Modern, false, overHTTP},
	{"legacy HTTP", mcptest.Legacy, true, overHTTP},
	{"modern pipes", mcptest.Modern, true, overPipes},
	{"legacy pipes", mcptest.Legacy, true, overPipes},
	{"HTTP+SSE", mcptest.Legacy, true, listeners[4].connect},
}

// hanging is a server with calls that hang until they are cancelled; each reports its id when it
// begins and again when it ends.
func hanging(era string) (s *mcptest.Server, begun, ended chan string) {
	begun, ended = make(chan string, 10), make(chan string, 10)
	hang := func(c *mcptest.Call) {
		begun <- c.ID
		<-c.Ctx.Done()
		ended <- c.ID
	}
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{tool("hang", hang), tool("echo", nil)}}, begun, ended
}

func TestCallTimeout(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, begun, ended := hanging(tt.era)
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			alarms := r.byHand()
			failed := r.inBackground(r.toolCall("hang", `{}`))
			id, alarm := <-begun, <-alarms
			alarm.ring()
			f := wantFailure(t, <-failed, failure.Timeout, failure.Unknown)
			if f.Limit != cfg.CallTimeout || alarm.d != cfg.CallTimeout {
				t.Errorf("limit %v, after %v", f.Limit, alarm.d)
			}
			if got := <-ended; got != id {
				t.Errorf("call %s ended, want %s", got, id)
			}
			if tt.notified {
				awaitAt(t, s, "the cancellation", func() bool { return len(s.Cancelled()) == 1 && s.Cancelled()[0] == id })
			} else if len(s.Cancelled()) != 0 {
				t.Error("a modern HTTP server was sent a cancellation")
			}
			r.mustCall("echo", `{}`)
		})
	}
}

func TestClientCancelsOneCall(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, begun, ended := hanging(tt.era)
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			type call struct {
				id     string
				cancel context.CancelFunc
				err    chan error
			}
			var calls []call
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := call{cancel: cancel, err: make(chan error, 1)}
				go func() {
					_, err := r.Call(ctx, r.toolCall("hang", `{}`))
					c.err <- err
				}()
				c.id = <-begun
				calls = append(calls, c)
			}
			for _, i := range []int{1, 0, 2} {
				calls[i].cancel()
				if err := <-calls[i].err; !errors.Is(err, context.Canceled) || failure.As(err) != nil {
					t.Errorf("call %d: %v", i, err)
				}
				if got := <-ended; got != calls[i].id {
					t.Errorf("call %s ended, want %s", got, calls[i].id)
				}
			}
			if len(ended) != 0 {
				t.Error("another call ended")
			}
		})
	}
}

func TestProgressExtendsTheLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const steps = 8
			s := &mcptest.Server{Era: tt.era, Tools: []mcptest.Tool{tool("steps", func(c *mcptest.Call) {
				for i := range steps {
					c.Progress(float64(i+1), steps, "")
				}
				c.Text("done")
			})}}
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			alarms := r.byHand()
			c := r.toolCall("steps", `{}`)
			c.Progress = []byte(`1`)
			if _, err := r.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			(<-alarms).wantSet(t, steps, cfg.CallTimeout)
		})
	}
}

func TestProgressExtendsNotForEver(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("slow")}
	cfg := httpAt(s.StartHTTP(t).URL)
	cfg.CallTimeout, cfg.MaxCallTimeout = 2*time.Second, 3*time.Second
	r := up(t, cfg, Options{})
	c := r.toolCall("slow", `{"ms":60000}`)
	c.Progress = []byte(`"p"`)
	_, err := r.Call(t.Context(), c)
	f := wantFailure(t, err, failure.Timeout, failure.Unknown)
	if f.Limit != cfg.MaxCallTimeout && f.Limit != cfg.CallTimeout {
		t.Errorf("limit %v", f.Limit)
	}
}

func TestCallClock(t *testing.T) {
	run := func(t *testing.T, name string, steps []time.Duration, after, limit time.Duration) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := settings()
				cfg.CallTimeout, cfg.MaxCallTimeout = 10*time.Second, 25*time.Second
				u := New(cfg, Options{})
				began := time.Now()
				ctx, clock := u.startClock(t.Context())
				defer clock.stop()
				for _, d := range steps {
					time.Sleep(d)
					clock.progress()
				}
				<-ctx.Done()
				var got *limitError
				if !errors.As(context.Cause(ctx), &got) || got.d != limit || time.Since(began) != after {
					t.Errorf("%v after %v", context.Cause(ctx), time.Since(began))
				}
			})
		})
	}
	s := time.Second
	run(t, "no progress", nil, 10*s, 10*s)
	run(t, "one step", []time.Duration{6 * s}, 16*s, 10*s)
	run(t, "many steps", []time.Duration{9 * s, 9 * s, 6 * s}, 25*s, 25*s)
	run(t, "too late", []time.Duration{11 * s}, 11*s, 10*s)
}

// gated reads only while nobody holds it.
type gated struct {
	io.ReadCloser
	hold sync.RWMutex
}

func (g *gated) Read(p []byte) (int, error) {
	g.hold.RLock()
	defer g.hold.RUnlock()
	n, err := g.ReadCloser.Read(p[:min(len(p), 16)]) // little by little, so that a message is never read whole
	return n, err
}

// A request that was never written has not been started, whatever ended it.
func TestNeverSent(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("written", nil), tool("queued", nil), tool("after", nil)}}
	gates := make(chan *gated, 1)
	r := up(t, settings(), Options{Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		g := &gated{ReadCloser: in}
		gates <- g
		return s.ServeLines(ctx, g, out)
	}})
	// The reader waits for the next message inside Read; it takes the start of it and stops there.
	g := <-gates
	locked := make(chan struct{})
	go func() {
		g.hold.Lock()
		close(locked)
	}()
	for g.hold.TryRLock() { // until the lock is asked for, and the next Read will be the last
		g.hold.RUnlock()
		runtime.Gosched()
	}
	alarms := r.byHand()
	first := r.inBackground(r.toolCall("written", `{}`))
	<-locked
	release := sync.OnceFunc(g.hold.Unlock)
	t.Cleanup(release) // a test that fails must not leave the server waiting
	written := <-alarms
	second := r.inBackground(r.toolCall("queued", `{}`))
	queue := r.link.transport.(*embedded).out
	eventually(t, "the second call to wait for the first", func() bool { return len(queue) == 1 })
	(<-alarms).ring()
	wantFailure(t, <-second, failure.Timeout, failure.NotStarted)
	written.ring()
	wantFailure(t, <-first, failure.Timeout, failure.Unknown)
	release()
	r.mustCall("after", `{}`)
	if n := s.Executions("queued"); n != 0 {
		t.Errorf("%d executions", n)
	}
}
