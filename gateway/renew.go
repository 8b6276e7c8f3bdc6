package gateway

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/authz"
)

// expiryGrace is how long after its end a token still carries the stream that was opened with it: clocks
// differ, and requests are accepted as long.
const expiryGrace = 30 * time.Second

// renew finds out whom a credential stands for by the configuration in force: keys may have been
// withdrawn, and callers moved to other teams, since a stream was opened with it. ok is false when it is
// not accepted any more, or is somebody else's.
func (g *Gateway) renew(at guest) (c authz.Caller, ok bool) {
	now := g.snapshot.Load().access
	switch {
	case now == at.s.access, at.credential.IsZero():
		return at.caller, true
	case now.auth == nil:
		return authz.Anonymous(), true
	}
	c, err := now.auth.Authenticate(http.Header{"Authorization": {at.credential.Reveal()}})
	if errors.Is(err, authz.ErrCannotVerify) {
		return at.caller, true // the keys of its issuer are on their way
	}
	return c, err == nil && c.Key() == at.caller.Key()
}

// expire has a watcher ended when its caller's token does. stop ends the waiting.
func (w *watcher) expire() (stop func()) {
	end, ok := w.caller.Expires()
	if !ok {
		return func() {}
	}
	t := time.AfterFunc(time.Until(end)+expiryGrace, w.dismiss)
	return func() { t.Stop() }
}

// dismissal is closed, once, when a caller is to be turned away from its stream.
type dismissal struct {
	over chan struct{}
	once sync.Once
}

func (d *dismissal) dismiss() { d.once.Do(func() { close(d.over) }) }
