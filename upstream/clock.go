package upstream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// callClock is the time limit of one call: first_byte_timeout up to the first byte of an answer,
// call_timeout, counted again from every progress notification, and max_call_timeout over all.
type callClock struct {
	cancel  context.CancelCauseFunc
	mu      sync.Mutex // one reset at a time
	timer   alarm
	began   time.Time
	end     time.Time
	perStep time.Duration
	first   time.Duration // 0: there is no limit of its own for the first byte
	replied atomic.Bool   // the first byte is there
	next    atomic.Int64  // when the timer fires, in Unix nanoseconds
	held    atomic.Int32  // questions to the client that are open, and pieces that it is being given
	asked   atomic.Bool   // there was one
	given   time.Duration // that the client took for the pieces of a large result; of the goroutine that makes the call
}

// alarm is what ends a call whose time is over, as time.AfterFunc makes it.
type alarm interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// limitError names the limit that ran out.
type limitError struct{ d time.Duration }

func (e *limitError) Error() string { return fmt.Sprintf("no answer and no progress within %v", e.d) }

func (u *Upstream) startClock(ctx context.Context) (context.Context, *callClock) {
	ctx, cancel := context.WithCancelCause(ctx)
	now := time.Now()
	c := &callClock{cancel: cancel, began: now, end: now.Add(u.cfg.MaxCallTimeout), perStep: u.cfg.CallTimeout, first: u.cfg.FirstByteTimeout}
	d := min(c.perStep, u.cfg.MaxCallTimeout)
	if c.first > 0 {
		d = min(d, c.first)
	}
	c.next.Store(now.Add(d).UnixNano())
	c.timer = u.alarm(d, func() {
		limit := c.perStep
		switch {
		case time.Until(c.end) <= 0:
			limit = u.cfg.MaxCallTimeout
		case c.first > 0 && c.first < c.perStep && !c.replied.Load():
			limit = c.first
		}
		cancel(&limitError{limit})
	})
	return ctx, c
}

// progress counts the time for a step anew.
func (c *callClock) progress() { c.reset(time.Now()) }

// reply takes note of the first byte of an answer.
func (c *callClock) reply() {
	if c.first > 0 && c.replied.CompareAndSwap(false, true) {
		c.reset(c.began)
	}
}

// reset gives the call the time of a step, counted from a moment.
func (c *callClock) reset(from time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer.Stop() {
		next := from.Add(c.perStep)
		if next.After(c.end) || c.held.Load() > 0 {
			next = c.end
		}
		c.next.Store(next.UnixNano())
		c.timer.Reset(time.Until(next))
	}
}

// hold stops the time of a step while the client is being asked, or takes a piece of a large result; that over all goes
// on.
func (c *callClock) hold() {
	c.held.Add(1)
	c.reset(time.Now())
}

// release counts the time for a step anew once nothing holds it.
func (c *callClock) release() {
	c.held.Add(-1)
	c.reset(time.Now())
}

// heldUp reports whether it may have been the client for which a call came to nothing.
func (c *callClock) heldUp(err error) bool {
	return c.asked.Load() && timedOut(err) || c.given > slowClient
}

// slowClient is how long a client has to take for a large result until its server cannot be blamed for what became of
// it: servers, too, give up on who reads too slowly.
const slowClient = 500 * time.Millisecond

// left is the time that the call has as things are.
func (c *callClock) left() time.Duration { return time.Until(time.Unix(0, c.next.Load())) }

func (c *callClock) stop() {
	c.timer.Stop()
	c.cancel(nil)
}
