package upstream

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// flaky is a server whose calls fail while it is bad; it counts what asks for a sign of life.
type flaky struct {
	mcptest.Server
	bad    atomic.Bool
	probes atomic.Int64
}

func newFlaky(era string) *flaky {
	f := &flaky{}
	f.Era = era
	f.Tools = []mcptest.Tool{
		tool("call", func(c *mcptest.Call) {
			if f.bad.Load() {
				c.Reset()
				return
			}
			c.Text("ok")
		}),
		tool("error", func(c *mcptest.Call) { c.Error(`{"code":-32000,"message":"no"}`) }),
		tool("isError", func(c *mcptest.Call) { c.ToolError("no") }),
		tool("hang", func(c *mcptest.Call) { <-c.Ctx.Done() }),
	}
	f.OnRequest = func(c *mcptest.Call) bool {
		if c.Method == "ping" || c.Method == "server/discover" {
			f.probes.Add(1)
			if f.bad.Load() {
				c.Reset()
				return true
			}
		}
		return false
	}
	return f
}

// TestBreaker: after failures in a row calls are turned away unsent, probes of Headgate's own find out
// when the server is back, and then calls are sent again.
func TestBreaker(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		f := newFlaky(era)
		cfg, opts := overHTTP(t, &f.Server)
		cfg.Breaker.Failures, cfg.Breaker.OpenFor = 3, 300*time.Millisecond
		r := up(t, cfg, opts)
		f.bad.Store(true)
		for range 3 {
			_, err := r.call("call", `{}`)
			wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
		}
		ran := f.Executions("call")
		_, err := r.call("call", `{}`)
		if got := wantFailure(t, err, failure.BreakerOpen, failure.NotStarted); got.RetryAfter < time.Second || got.RetryAfter > time.Minute {
			t.Errorf("retry after %v", got.RetryAfter)
		}
		if s := r.Status().Breaker; s == "closed" {
			t.Errorf("the breaker is %s", s)
		}
		// Only probes reach the server, and while they fail nothing else does.
		before := f.probes.Load()
		awaitAt(t, &f.Server, "two probes", func() bool { return f.probes.Load() >= before+2 })
		_, err = r.call("call", `{}`)
		wantFailure(t, err, failure.BreakerOpen, failure.NotStarted)
		if n := f.Executions("call"); n != ran {
			t.Errorf("%d calls reached a server whose breaker is open", n-ran)
		}
		f.bad.Store(false)
		r.await("the breaker to close", func() bool { return r.Status().Breaker == "closed" })
		r.mustCall("call", `{}`)
	})
}

// TestWhatOpensNoBreaker: what the server says is no failure of the hop, nor is a call that its client
// gave up or that was slow while others were not.
func TestWhatOpensNoBreaker(t *testing.T) {
	t.Parallel()
	f := newFlaky(mcptest.Modern)
	cfg, opts := overHTTP(t, &f.Server)
	cfg.Breaker.Failures, cfg.Breaker.OpenFor, cfg.CallTimeout = 2, time.Minute, 3*time.Second
	r := up(t, cfg, opts)
	for range 3 {
		r.mustCall("isError", `{}`)
		if reply, err := r.call("error", `{}`); err != nil || reply.Error == nil {
			t.Errorf("%v %v", reply, err)
		}
	}
	var hanging sync.WaitGroup
	for range 3 {
		hanging.Go(func() {
			_, err := r.call("hang", `{}`)
			if got := failure.As(err); got == nil || got.Reason != failure.Timeout {
				t.Errorf("got %v, want a timeout", err)
			}
		})
	}
	awaitAt(t, &f.Server, "the hanging calls", func() bool { return f.Executions("hang") == 3 })
	r.mustCall("call", `{}`)
	hanging.Wait()
	r.mustCall("call", `{}`)
	if s := r.Status().Breaker; s != "closed" {
		t.Errorf("the breaker is %s", s)
	}
	for range 2 { // nothing is answered meanwhile: now it is the server that hangs
		_, err := r.call("hang", `{}`)
		wantFailure(t, err, failure.Timeout, failure.Unknown)
	}
	_, err := r.call("call", `{}`)
	wantFailure(t, err, failure.BreakerOpen, failure.NotStarted)
}

func TestConcurrencyCap(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := &mcptest.Server{Tools: []mcptest.Tool{tool("wait", func(c *mcptest.Call) {
		select {
		case <-release:
		case <-c.Ctx.Done():
		}
		c.Text("done")
	})}}
	cfg, opts := overHTTP(t, s)
	cfg.Concurrent, cfg.QueueTimeout = 2, 300*time.Millisecond
	r := up(t, cfg, opts)
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() { r.mustCall("wait", `{}`) })
	}
	awaitAt(t, s, "two calls", func() bool { return s.Executions("wait") == 2 })
	_, err := r.call("wait", `{}`)
	wantFailure(t, err, failure.Overloaded, failure.NotStarted)

	// Whoever waits has its turn when a place is free, and more than can hope for one are turned away
	// at once.
	r.slots.patience = patience
	results := make(chan error, 2*queueFactor+10)
	for range cap(results) {
		running.Go(func() {
			_, err := r.call("wait", `{}`)
			results <- err
		})
	}
	for range cap(results) - 2*queueFactor {
		wantFailure(t, <-results, failure.Overloaded, failure.NotStarted)
	}
	if n := s.Executions("wait"); n != 2 || r.Status().InFlight < 2 || r.Status().Waiting != 2*queueFactor {
		t.Errorf("%d calls at the server, status %+v", n, r.Status())
	}
	close(release)
	for range 2 * queueFactor {
		if err := <-results; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
	}
	running.Wait()
	if n := s.Executions("wait"); n != 2+2*queueFactor {
		t.Errorf("%d executions", n)
	}
}

// TestHopOutcome: the reasons that count against a server.
func TestHopOutcome(t *testing.T) {
	u := New(settings(), Options{})
	for reason, counts := range map[failure.Reason]bool{
		failure.Unavailable: true, failure.ConnectionLost: true, failure.Timeout: true, failure.Overloaded: false,
		failure.CredentialsRefused: false, failure.BadUpstreamAnswer: false,
	} {
		err := u.hopOutcome(&failure.Failure{Reason: reason}, time.Now())
		if counted := !errors.Is(err, errNeutral); counted != counts {
			t.Errorf("%s counts: %t", reason, counted)
		}
	}
}
