package upstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/telemetry"
)

// breaker keeps calls from a server that keeps failing. It opens when the hop failed several times in a
// row, or for half of many calls; then calls are answered at once, and it is a probe of Headgate's own,
// never a caller's call, that finds out whether the server is back. A call that timed out is no failure by
// itself: one caller may keep calling a tool that hangs. It counts if the server does not answer a probe either.
type breaker struct {
	cb      *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: there is none
	openFor time.Duration
	moved   chan struct{} // capacity 1: the state changed
	opened  atomic.Int64  // when it last opened, in Unix nanoseconds
	// suspects are the verdicts on calls that timed out, until a probe has told what they are.
	suspects chan func(error)
}

const (
	// breakerWindow is the time over which the share of failures is taken, and breakerSample the least
	// number of calls in it that a share says anything about.
	breakerWindow = 30 * time.Second
	breakerSample = 20
	// breakerSuspects is how many calls that timed out wait for a probe; one answers for all of them.
	breakerSuspects = 64
)

// errNeutral stands for an end of a call that says nothing of the hop.
var errNeutral = errors.New("says nothing of the hop")

func newBreaker(cfg configs.Breaker) *breaker {
	b := &breaker{openFor: cfg.OpenFor, moved: make(chan struct{}, 1), suspects: make(chan func(error), breakerSuspects)}
	if cfg.Failures == 0 {
		return b
	}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:     breakerWindow,
		BucketPeriod: breakerWindow / 6,
		Timeout:      cfg.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int64(c.ConsecutiveFailures) >= int64(cfg.Failures) ||
				c.Requests >= breakerSample && 2*c.TotalFailures >= c.Requests
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNeutral) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.opened.Store(time.Now().UnixNano())
			}
			signal(b.moved)
		},
	})
	return b
}

// state is closed, open or half_open; "" where there is no breaker.
func (b *breaker) state() string {
	if b.cb == nil {
		return ""
	}
	return strings.ReplaceAll(b.cb.State().String(), "-", "_")
}

// enter lets a call pass; done takes how the hop did. ok is false while the breaker is not closed, and
// wait then says when the server will have been probed.
func (b *breaker) enter() (done func(error), wait time.Duration, ok bool) {
	if b.cb == nil {
		return func(error) {}, 0, true
	}
	if b.cb.State() == gobreaker.StateClosed {
		if done, err := b.cb.Allow(); err == nil {
			return done, 0, true
		}
	}
	reopens := time.Unix(0, b.opened.Load()).Add(b.openFor)
	return nil, max(time.Until(reopens), time.Second), false
}

// hopOutcome is what the end of a call says of the hop: nil for well, an error for badly, or errNeutral.
// What the server answered is well, whatever it says. A call that timed out while others were answered
// was slow by itself.
func (u *Upstream) hopOutcome(err error, began time.Time) error {
	if err == nil {
		u.answered.Store(time.Now().UnixNano())
		return nil
	}
	f := failure.As(err)
	switch {
	case f == nil:
		return errNeutral
	case f.Reason == failure.Unavailable, f.Reason == failure.ConnectionLost:
		return err
	case f.Reason == failure.Timeout && u.answered.Load() < began.UnixNano():
		return err
	}
	return errNeutral
}

// judge tells the breaker how the hop did in a call; done is what its enter returned.
func (u *Upstream) judge(done func(error), hop error) {
	if u.breaker.cb == nil || !timedOut(hop) {
		done(hop)
		return
	}
	select {
	case u.breaker.suspects <- done:
	default: // enough of them wait
		done(errNeutral)
	}
}

// confirm probes the server, and takes calls that timed out for failures of the hop if it does not answer.
func (u *Upstream) confirm(ctx context.Context, suspects ...func(error)) {
	for len(u.breaker.suspects) > 0 {
		suspects = append(suspects, <-u.breaker.suspects)
	}
	verdict := u.ping(ctx)
	if ctx.Err() != nil {
		return // nobody asks any more
	}
	if verdict == nil {
		verdict = errNeutral
	}
	for _, done := range suspects {
		done(verdict)
	}
}

// probeBreaker closes the breaker once the server answers again, and finds out what calls that timed out say of the
// server. It runs until ctx ends.
func (u *Upstream) probeBreaker(ctx context.Context) {
	b := u.breaker
	if b.cb == nil {
		return
	}
	defer u.opts.Telemetry.Breaker(u.cfg.ID, "") // an upstream that is gone has no breaker that is open
	said := gobreaker.StateClosed
	for {
		now := b.cb.State()
		u.opts.Telemetry.Breaker(u.cfg.ID, telemetry.BreakerState(b.state()))
		if (now == gobreaker.StateClosed) != (said == gobreaker.StateClosed) {
			u.log.Warn("circuit breaker", "state", now.String(), "open_for", b.openFor.String())
			said = now
			u.opts.OnChange()
		}
		switch now {
		case gobreaker.StateOpen:
			if !wait(ctx, max(time.Until(time.Unix(0, b.opened.Load()).Add(b.openFor)), time.Millisecond)) {
				return
			}
		case gobreaker.StateHalfOpen:
			done, err := b.cb.Allow()
			if err != nil {
				// Another probe is not possible; a call that came in at the turn of the state has the place.
				if !wait(ctx, time.Second) {
					return
				}
				continue
			}
			done(u.ping(ctx))
		default:
			select {
			case <-b.moved:
			case done := <-b.suspects:
				u.confirm(ctx, done)
			case <-ctx.Done():
				return
			}
		}
	}
}

// ping asks the server for a sign of life. Any answer is one, an error included: some servers do not
// know the method.
func (u *Upstream) ping(ctx context.Context) error {
	u.mu.Lock()
	l := u.link
	u.mu.Unlock()
	if l == nil {
		return errors.New("the server is not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, u.cfg.ConnectTimeout)
	defer cancel()
	method := "ping"
	if l.peer.era == Modern {
		method = "server/discover"
	}
	_, err := l.roundTrip(ctx, &request{id: u.ids.Add(1), method: method, params: l.peer.params(nil, nil, nil)})
	var hop *hopError
	if err == nil || errors.As(err, &hop) {
		u.answered.Store(time.Now().UnixNano())
		return nil
	}
	return err
}
