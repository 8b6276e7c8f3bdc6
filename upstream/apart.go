package upstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
)

// Where session is caller or client, a server that has sessions gets one for each of them. Such a session is
// an Upstream of its own with a parent: it connects, repairs and calls as any other, but reads no catalogue,
// and what happens to it is nobody's affair but its caller's.

const (
	// maxApart bounds the sessions of one server, and maxChildren those that are processes.
	maxApart    = 1000
	maxChildren = 50
	// apartWait is how long a caller is told to wait when all of them are in use.
	apartWait = 5 * time.Second
)

// apartKey is whose session it is. session is "" where all clients of a caller share one.
type apartKey struct{ caller, session string }

// apart are the sessions of one server that belong to one caller or client each.
type apart struct {
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and those of every session
	start   func(*apartSession)
	all     map[apartKey]*apartSession
	closing int // taken out of all, and not closed yet
}

type apartSession struct {
	key    apartKey
	up     *Upstream
	users  int       // calls in flight
	used   time.Time // when the last of them ended
	ended  bool      // its client is gone: it is closed as soon as nobody uses it
	cancel context.CancelFunc
}

// separates reports whether the configuration wants sessions that are not shared.
func (u *Upstream) separates() bool {
	return u.parent == nil && (u.cfg.Session == configs.SessionCaller || u.cfg.Session == configs.SessionClient)
}

// keepsApart reports whether calls need a session of their caller's or client's own with a server of this
// era. A modern server has no sessions (2026-07-28, basic/versioning); but a process is one, whatever it
// speaks.
func (u *Upstream) keepsApart(era Era) bool {
	return u.separates() && (era == Legacy || u.cfg.Type == configs.TypeStdio)
}

// era is what the server is known to speak.
func (u *Upstream) era() Era {
	u.mu.Lock()
	l := u.link
	u.mu.Unlock()
	if l != nil {
		return l.peer.era
	}
	if c := u.Catalogue(); c != nil {
		return c.Era
	}
	return Modern // a call waits for the link then, and looks again
}

// attemptApart makes a call on the session that belongs to its caller.
func (u *Upstream) attemptApart(ctx context.Context, k *calling) (reply *Reply, err error) {
	defer func() { u.blame(err) }()
	if err := u.creds.complete(&k.Caller); err != nil {
		return nil, err
	}
	s, err := u.apart.take(u, &k.Caller)
	if err != nil {
		return nil, err
	}
	defer u.apart.release(s)
	s.up.hold(&k.Caller)
	return s.up.attempt(ctx, k)
}

// begin lets sessions be opened until the returned function ends them all and waits for that.
func (a *apart) begin(ctx context.Context, idle time.Duration) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	a.all = make(map[apartKey]*apartSession)
	a.start = func(s *apartSession) {
		ctx, cancel := context.WithCancel(ctx)
		s.cancel = cancel
		a.running.Go(func() {
			defer cancel()
			s.up.runApart(ctx)
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.all[s.key] == s {
				delete(a.all, s.key)
			} else {
				a.closing--
			}
		})
	}
	a.mu.Unlock()
	a.running.Go(func() {
		tick := time.NewTicker(max(min(idle/4, time.Minute), 100*time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				a.sweep(idle)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		a.mu.Lock()
		a.start = nil
		a.mu.Unlock()
		cancel()
		a.running.Wait()
	}
}

// take finds or opens the session of a caller, and keeps it from being closed until release.
func (a *apart) take(u *Upstream, c *Caller) (*apartSession, error) {
	key := apartKey{caller: c.Key}
	if u.cfg.Session == configs.SessionClient {
		key.session = c.Session
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.start == nil {
		return nil, u.unavailable(nil)
	}
	s := a.all[key]
	if s == nil {
		if !a.makeRoom(u.cfg.Type == configs.TypeStdio) {
			return nil, &failure.Failure{Server: u.cfg.ID, Reason: failure.Overloaded, Outcome: failure.NotStarted, RetryAfter: apartWait, Cause: errNoRoom}
		}
		s = &apartSession{key: key, up: u.newApart()}
		a.all[key] = s
		a.start(s)
	}
	s.users++
	return s, nil
}

var errNoRoom = errors.New("every session that one server may have is in use")

// makeRoom closes the session that has not been used for the longest time when there are too many. a.mu is
// held.
func (a *apart) makeRoom(children bool) bool {
	limit := maxApart
	if children {
		limit = maxChildren
	}
	if len(a.all) >= limit {
		var oldest *apartSession
		for _, s := range a.all {
			if s.users == 0 && (oldest == nil || s.used.Before(oldest.used)) {
				oldest = s
			}
		}
		if oldest == nil {
			return false
		}
		a.drop(oldest)
	}
	return len(a.all)+a.closing < 2*limit
}

// drop closes a session that nobody uses. a.mu is held.
func (a *apart) drop(s *apartSession) {
	delete(a.all, s.key)
	a.closing++
	s.cancel()
}

func (a *apart) release(s *apartSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.users--
	s.used = time.Now()
	if s.ended && s.users == 0 && a.all[s.key] == s {
		a.drop(s)
	}
}

// sweep closes the sessions that nobody has used for longer than limit.
func (a *apart) sweep(limit time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.all {
		if s.users == 0 && time.Since(s.used) > limit {
			a.drop(s)
		}
	}
}

// count is the number of sessions that stand.
func (a *apart) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// EndSession says that a client's session with Headgate is over: what was opened for it alone is closed, once
// its calls have ended.
func (u *Upstream) EndSession(session string) {
	if session == "" || u.cfg.Session != configs.SessionClient {
		return
	}
	a := &u.apart
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, s := range a.all {
		if key.session != session {
			continue
		}
		if s.ended = true; s.users == 0 {
			a.drop(s)
		}
	}
}

// newApart makes the Upstream behind a session of its own. The first call that needs it has it connected.
func (u *Upstream) newApart() *Upstream {
	opts := u.opts
	opts.OnChange = func() {}
	s := newUpstream(u.cfg, opts)
	s.parent, s.redact = u, u.redact
	s.log = u.log.With("session", "apart")
	s.creds = u.creds.of(&s.holder)
	s.state = Down
	s.knownLegacy = u.era() == Legacy
	return s
}

// hold gives a session the token that its caller has shown last. One that was refused before is forgiven
// then.
func (u *Upstream) hold(c *Caller) {
	before := u.holder.Swap(&Caller{Key: c.Key, Token: c.Token, Session: c.Session, Capabilities: c.Capabilities, PerRequest: c.PerRequest})
	if before == nil || before.Token.Reveal() == c.Token.Reveal() {
		return
	}
	u.mu.Lock()
	refused := u.state == Down && refusesCredentials(u.lastErr) && time.Since(u.lastEnd) > kickGap
	u.mu.Unlock()
	if refused {
		u.transition(func() { u.lastErr = nil })
	}
}

// runApart is Run for a session of its own: it connects when a call asks for it, and not before.
func (u *Upstream) runApart(ctx context.Context) {
	defer u.transition(func() { u.state, u.link = Stopped, nil })
	forgive := time.NewTimer(0) // when a refusal may be put to the test again
	<-forgive.C
	defer forgive.Stop()
	pause := 30 * time.Second
	for {
		select {
		case <-u.kick:
		case <-forgive.C:
			u.transition(func() { u.lastErr = nil })
			continue
		case <-ctx.Done():
			return
		}
		u.transition(func() { u.state = Connecting })
		l, err := u.connect(ctx)
		drain(u.kick) // of calls that wait for what has just been done
		lost := err == nil
		if lost {
			pause = 30 * time.Second
			err = u.serveApart(ctx, l)
		}
		if ctx.Err() != nil {
			return
		}
		u.report(err)
		forgive.Stop()
		if refusesCredentials(err) {
			forgive.Reset(pause)
			pause = min(2*pause, 5*time.Minute)
		}
		u.transition(func() {
			u.lastErr, u.link, u.state = err, nil, Down
			if lost && u.atOnce.allow() {
				u.lastEnd, u.lastErr = time.Time{}, nil // whoever needs it has it connected again at once
				return
			}
			u.lastEnd = time.Now()
			u.attempts++
		})
	}
}

// serveApart keeps one link until it is lost or ctx ends, and closes it.
func (u *Upstream) serveApart(ctx context.Context, l *link) error {
	u.logLevel.Store(-1)
	u.knownLegacy = l.peer.era == Legacy
	unfollow := u.beginFollowing(ctx, l)
	u.transition(func() { u.link, u.state, u.lastErr = l, Up, nil })
	u.log.Debug("a session of its own is up", "era", l.peer.era.String(), "version", l.peer.version)
	err := error(errClosed)
	select {
	case <-l.lost():
		err = l.cause()
	case <-ctx.Done():
	}
	u.transition(func() { u.link, u.state = nil, Connecting })
	unfollow()
	l.close()
	return err
}

// linkWait is how long a call waits for a link. A session of its own is opened by its first call, which has
// to wait as long as that may take.
func (u *Upstream) linkWait() time.Duration {
	switch {
	case u.parent == nil:
		return min(waitForLink, u.cfg.ConnectTimeout)
	case u.cfg.Type == configs.TypeStdio:
		return u.cfg.StartTimeout
	}
	return 2*u.cfg.ConnectTimeout + u.opts.HTTPProbeTimeout
}

// forwarded are the caller's headers that go along with a call. The token among them is put in by
// credentials.
func forwarded(names []string) []string {
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, "Authorization") }); i >= 0 {
		return slices.Delete(slices.Clone(names), i, i+1)
	}
	return names
}
