package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// settle is how long the first of several announcements waits for the others.
	settle = 100 * time.Millisecond
	// rereadGap is the least time between two readings that a server causes.
	rereadGap = time.Second
	// minRefresh bounds how often a short ttlMs makes Headgate read again: the TTL is a hint to
	// caches, not a polling interval (2026-07-28, server/utilities/caching).
	minRefresh = 30 * time.Second
)

// serve keeps one link until it is lost or ctx ends, and closes it.
func (u *Upstream) serve(ctx context.Context, l *link, stale *time.Timer) error {
	var up bool
	u.logLevel.Store(-1)
	u.knownLegacy = l.peer.era == Legacy
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		u.transition(func() {
			u.link = nil
			for _, w := range u.refreshes {
				close(w)
			}
			u.refreshes = nil
		})
		if up {
			stale.Reset(u.opts.StaleFor)
		}
		l.close()
		wg.Wait()
	}()
	// Calls need nothing but the link: after a restart the first of them goes out before the
	// catalogue has been read again.
	u.transition(func() { u.link = l })
	if err := u.reread(ctx, l); err != nil {
		return u.afterLoss(ctx, l, up, err)
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

	wg.Go(func() { u.followStream(ctx, l) })
	refresh := time.NewTimer(u.refreshAfter())
	defer refresh.Stop()
	var again <-chan time.Time // a second look, for servers that announce before they change
	last := time.Now()
	for {
		announced := false
		var waiting []chan struct{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.lost():
			return u.afterLoss(ctx, l, up, errClosed)
		case <-u.changed:
			announced = true
			u.mu.Lock()
			waiting, u.refreshes = u.refreshes, nil
			u.mu.Unlock()
			// Somebody who waits with a call is not made to wait for a burst to end.
			if waiting == nil && !wait(ctx, l, max(settle, rereadGap-time.Since(last))) {
				continue
			}
			drain(u.changed)
		case <-again:
		case <-refresh.C:
		case <-u.kick:
			continue // meant for an attempt that has succeeded since
		}
		before := u.Catalogue()
		err := u.reread(ctx, l)
		last, again = time.Now(), nil
		for _, w := range waiting {
			close(w)
		}
		if err != nil {
			return u.afterLoss(ctx, l, up, err)
		}
		if announced && u.Catalogue() == before {
			again = time.After(rereadGap)
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
	if c, ok := l.transport.(*child); ok {
		select {
		case <-c.exited:
			err = c.exitError()
		default:
		}
	}
	return &lostError{err: err, atOnce: up && u.atOnce.allow()}
}

// wait sleeps and reports whether the link still stands.
func wait(ctx context.Context, l *link, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.lost():
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
	if old := u.Catalogue(); old.equal(c) {
		return nil
	}
	for _, f := range c.Findings {
		u.log.Warn("finding", "tool", f.Tool, "rule", f.Rule, "text", f.Text)
	}
	u.catalogue.Store(c)
	u.opts.OnChange()
	return nil
}

// refreshAfter returns when the catalogue is to be read again without being asked, jittered so that
// many servers are not asked at once.
func (u *Upstream) refreshAfter() time.Duration {
	d := u.opts.Refresh
	if c := u.Catalogue(); c != nil && c.TTL >= 0 {
		d = max(c.TTL, minRefresh)
	}
	return d + rand.N(d/10+1)
}

// followStream holds the stream on which the server announces changes. What happened while there was
// no stream is caught by reading once more when it stands again.
func (u *Upstream) followStream(ctx context.Context, l *link) {
	if !hasListChanged(l.peer.capabilities) {
		return
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 500 * time.Millisecond
	pause.MaxInterval = u.opts.MaxBackoff
	for n := 0; ; n++ {
		began := time.Now()
		err := l.follow(ctx, func() {
			if n > 0 {
				signal(u.changed)
			}
		})
		var hop *hopError
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoStream):
			u.log.Debug("the server offers no stream for announcements")
			return
		case errors.As(err, &hop):
			l.fail(err)
			return
		case unreachable(err):
			// Nobody is there: calls should hear so from the state, not each by itself.
			l.fail(err)
			return
		}
		u.log.Debug("the stream for announcements ended", "error", fmt.Sprint(err))
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if !wait(ctx, l, pause.NextBackOff()) {
			return
		}
	}
}

// refreshNow has the catalogue read again and waits for it, within ctx.
func (u *Upstream) refreshNow(ctx context.Context) {
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
