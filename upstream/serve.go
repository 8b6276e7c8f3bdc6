package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/headgate/headgate/internal/telemetry"
)

const (
	// settle is how long the first of several announcements waits for the others.
	settle = 100 * time.Millisecond
	// minRefresh bounds how often a short ttlMs makes Headgate read again: the TTL is a hint to
	// caches, not a polling interval (2026-07-28, server/utilities/caching).
	minRefresh = 30 * time.Second
)

// serve keeps one link until it is lost or ctx ends, and closes it.
func (u *Upstream) serve(ctx context.Context, l *link, stale *time.Timer) error {
	var up bool
	u.logLevel.Store(-1)
	u.knownLegacy = l.peer.era == Legacy
	began := time.Now()
	outer := ctx
	ctx, cancel := context.WithCancel(outer)
	var wg sync.WaitGroup
	// Whatever Headgate itself asks on this link ends with it.
	wg.Go(func() {
		select {
		case <-l.lost():
			cancel()
		case <-ctx.Done():
		}
	})
	defer func() {
		cancel()
		u.transition(func() {
			u.link = nil
			closeAll(u.refreshes)
			u.refreshes = nil
		})
		if up {
			stale.Reset(u.opts.StaleFor)
		}
		l.close()
		wg.Wait()
		u.opts.Telemetry.ClientSession(u.cfg.ID, l.peer.version, u.network(), time.Since(began))
	}()
	// Calls need nothing but the link: after a restart the first of them goes out before the
	// catalogue has been read again.
	u.transition(func() { u.link = l })
	// The stream is opened beside the first reading: one that never stands must hold up nothing.
	drain(u.gap)
	wg.Go(func() { u.followStream(ctx, l) })
	if err := u.reread(ctx, l); err != nil {
		return u.afterLoss(outer, l, up, err)
	}
	up = true
	stale.Stop()
	u.transition(func() {
		if u.state != Up {
			u.state = Up
			u.attempts++
		}
		u.lastErr = nil
	})
	u.log.Info("the server is up", "era", l.peer.era.String(), "version", l.peer.version, "tools", len(u.Catalogue().Tools))

	refresh := time.NewTimer(u.refreshAfter())
	defer refresh.Stop()
	var again <-chan time.Time // a second look, for servers that announce before they change
	last := time.Now()
	failures := 0
	for {
		announced := false
		var waiting []chan struct{}
		select {
		case <-ctx.Done():
			return u.afterLoss(outer, l, up, errClosed)
		case <-u.changed:
			announced = true
			u.mu.Lock()
			waiting, u.refreshes = u.refreshes, nil
			u.mu.Unlock()
			// Somebody who waits with a call is not made to wait for a burst to end.
			if waiting == nil && !wait(ctx, max(settle, u.opts.RereadGap-time.Since(last))) {
				continue
			}
			drain(u.changed)
			drain(u.gap)
		case <-u.gap:
			if !wait(ctx, max(settle, u.opts.RereadGap-time.Since(last))) {
				continue
			}
			drain(u.gap)
		case <-again:
		case <-refresh.C:
		case <-u.kick:
			continue // meant for an attempt that has succeeded since
		}
		before := u.Catalogue()
		err := u.reread(ctx, l)
		last, again = time.Now(), nil
		if err != nil && (ctx.Err() != nil || failures > 0 || isHopFault(err)) {
			u.mu.Lock()
			u.refreshes = append(u.refreshes, waiting...) // told when the link is out of use
			u.mu.Unlock()
			return u.afterLoss(outer, l, up, err)
		}
		closeAll(waiting)
		if err != nil {
			// Calls in flight may be fine, and a new connection would cost them their answers.
			u.log.Warn("the catalogue could not be read again; what was read before is served", "error", u.redact.Replace(err.Error()))
			failures++
			again = time.After(u.opts.RereadGap)
			continue
		}
		failures = 0
		if announced && u.Catalogue() == before {
			again = time.After(u.opts.RereadGap)
		}
		refresh.Reset(u.refreshAfter())
	}
}

// afterLoss says why a link ended. A server that had been up is tried again at once, a bounded
// number of times in a while, so that a restart or a lost session costs its callers no pause and a
// server that keeps dying does.
func (u *Upstream) afterLoss(ctx context.Context, l *link, up bool, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if up {
		u.restarts.Add(1)
	}
	select {
	case <-l.lost():
		err = l.cause()
	default:
	}
	return &lostError{err: err, atOnce: up && u.atOnce.allow()}
}

// isHopFault reports that the connection has to be set up again, whatever it still carries.
func isHopFault(err error) bool {
	var hop *hopError
	return errors.As(err, &hop)
}

func closeAll(waiting []chan struct{}) {
	for _, w := range waiting {
		close(w)
	}
}

// wait sleeps and reports whether ctx still stands.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	}
	return false
}

func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// reread reads the catalogue and publishes it if it differs.
func (u *Upstream) reread(ctx context.Context, l *link) error {
	c, err := u.readCatalogue(ctx, l)
	if err != nil {
		return fmt.Errorf("reading the catalogue: %w", err)
	}
	old := u.Catalogue()
	if old.equal(c) {
		return nil
	}
	u.logFindings(old, c)
	u.logChanges(old, c)
	u.catalogue.Store(c)
	u.opts.Telemetry.CatalogueChanged(u.cfg.ID)
	u.opts.OnChange()
	return nil
}

// logFindings logs what was not found before, up to a bound: a list can hold thousands of bad tools.
func (u *Upstream) logFindings(old, c *Catalogue) {
	const shown = 50
	known := make(map[Finding]bool)
	if old != nil {
		for _, f := range old.Findings {
			known[f] = true
		}
	}
	n := 0
	for _, f := range c.Findings {
		if known[f] {
			continue
		}
		if n++; n <= shown {
			u.log.Warn("finding", "tool", clip(f.Tool, 200), "rule", f.Rule, "text", f.Text)
		}
	}
	if n > shown {
		u.log.Warn("more findings than are shown", "count", n-shown)
	}
}

// refreshAfter returns when the catalogue is to be read again without being asked, jittered so that
// many servers are not asked at once.
func (u *Upstream) refreshAfter() time.Duration {
	d := u.opts.Refresh
	if c := u.Catalogue(); c != nil {
		d = c.refreshAfter(d)
	}
	return d + rand.N(d/10+1)
}

// followStream holds the stream on which the server announces changes, or on which it may ask. What happened while there was
// no stream is caught by reading once more when it stands.
func (u *Upstream) followStream(ctx context.Context, l *link) {
	speaksUp := l.peer.speaksUp()
	if !speaksUp && !u.asksOutside(l) {
		return
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 500 * time.Millisecond
	pause.MaxInterval = u.opts.MaxBackoff
	stood := false
	for {
		began := time.Now()
		err := l.follow(ctx, func() {
			if stood = speaksUp; stood {
				signal(u.gap)
			}
			if l.peer.era == Legacy {
				u.watches.missed() // updates come on this stream
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoStream):
			u.log.Debug("the server offers no stream for announcements")
			if stood {
				signal(u.gap) // it did before, so the session may be gone: a request will tell
			}
			return
		case unreachable(err):
			// Nobody is there: calls should hear so from the state, not each by itself.
			l.fail(err)
			return
		}
		u.log.Debug("the stream for announcements ended", "error", u.redact.Replace(fmt.Sprint(err)))
		u.opts.Telemetry.StreamDropped(telemetry.SideUpstream, u.cfg.ID)
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if !wait(ctx, pause.NextBackOff()) {
			return
		}
	}
}

// refreshNow has the catalogue read again and waits for it, within ctx.
func (u *Upstream) refreshNow(ctx context.Context) {
	if u.parent != nil {
		u.parent.refreshNow(ctx)
		return
	}
	done := make(chan struct{})
	u.mu.Lock()
	u.refreshes = append(u.refreshes, done)
	u.mu.Unlock()
	signal(u.changed)
	t := time.NewTimer(u.opts.ListTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
}
