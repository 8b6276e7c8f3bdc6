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

// flaky is a server whose calls fail while it is bad.
type flaky struct {
	mcptest.Server
	bad  atomic.Bool
	deaf atomic.Bool // what asks for a sign of life hangs
}

// probes counts what asked for a sign of life.
func (f *flaky) probes() int { return f.Count("ping") + f.Count("server/discover") }

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
			switch {
			case f.bad.Load():
				c.Reset()
				return true
			case f.deaf.Load():
				<-c.Ctx.Done()
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
		before := f.probes()
		awaitAt(t, &f.Server, "two probes", func() bool { return f.probes() >= before+2 })
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
// gave up or that was slow by itself.
func TestWhatOpensNoBreaker(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		f := newFlaky(era)
		cfg, opts := overHTTP(t, &f.Server)
		cfg.Breaker.Failures, cfg.Breaker.OpenFor = 2, time.Hour
		r := up(t, cfg, opts)
		for range 3 {
			r.mustCall("isError", `{}`)
			if reply, err := r.call("error", `{}`); err != nil || reply.Error == nil {
				t.Errorf("%v %v", reply, err)
			}
		}
		alarms := r.byHand()
		hang := func(n int) (*handAlarm, <-chan error) {
			failed := r.inBackground(r.toolCall("hang", `{}`))
			awaitAt(t, &f.Server, "the hanging call", func() bool { return f.Executions("hang") == n })
			return <-alarms, failed
		}
		// While others are answered, nothing is asked.
		probes := f.probes()
		var rings []*handAlarm
		var failures []<-chan error
		for n := range 3 {
			alarm, failed := hang(n + 1)
			rings, failures = append(rings, alarm), append(failures, failed)
		}
		r.mustCall("call", `{}`)
		<-alarms
		for i := range rings {
			rings[i].ring()
			wantFailure(t, <-failures[i], failure.Timeout, failure.Unknown)
		}
		r.mustCall("call", `{}`)
		<-alarms
		if n := f.probes(); n != probes || r.Status().Breaker != "closed" {
			t.Errorf("%d probes, and the breaker is %s", n-probes, r.Status().Breaker)
		}
		// With nothing else in flight the server is asked, and answers: the tool hangs, and it does not.
		for n := range 5 {
			alarm, failed := hang(4 + n)
			rung := time.Now().UnixNano()
			alarm.ring()
			wantFailure(t, <-failed, failure.Timeout, failure.Unknown)
			eventually(t, "the answer to a probe", func() bool { return r.answered.Load() >= rung })
		}
		if n := f.probes() - probes; n != 5 {
			t.Errorf("%d probes of 5 calls", n)
		}
		r.mustCall("call", `{}`)
		if s := r.Status().Breaker; s != "closed" {
			t.Errorf("the breaker is %s", s)
		}
	})
}

// TestHangingServerOpensTheBreaker: where calls time out and a probe gets no answer either, it is the server that hangs.
func TestHangingServerOpensTheBreaker(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		f := newFlaky(era)
		cfg, opts := overHTTP(t, &f.Server)
		cfg.Breaker.Failures, cfg.Breaker.OpenFor = 3, time.Hour
		cfg.ConnectTimeout = time.Second // that of a probe
		r := up(t, cfg, opts)
		f.deaf.Store(true)
		alarms := r.byHand()
		for n := range 3 {
			failed := r.inBackground(r.toolCall("hang", `{}`))
			awaitAt(t, &f.Server, "the hanging call", func() bool { return f.Executions("hang") == n+1 })
			(<-alarms).ring()
			wantFailure(t, <-failed, failure.Timeout, failure.Unknown)
		}
		r.await("the breaker to open", func() bool { return r.Status().Breaker == "open" })
		_, err := r.call("call", `{}`)
		wantFailure(t, err, failure.BreakerOpen, failure.NotStarted)
		if n := f.Executions("call"); n != 0 {
			t.Errorf("%d calls reached a server whose breaker is open", n)
		}
	})
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
