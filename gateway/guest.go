package gateway

import (
	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/secret"
)

// endpoint is one of the paths that clients connect to: the union of a caller's teams (""), or one
// team.
type endpoint string

// guest is a caller at an endpoint, with what it sees there at one moment.
type guest struct {
	caller authz.Caller
	at     endpoint
	s      *snapshot
	v      *view
	// credential is the Authorization header that the caller came with; empty where there was none.
	credential secret.Text
}

// admit shows a caller what it sees at an endpoint now; false when there is no such endpoint for it.
func (g *Gateway) admit(c authz.Caller, at endpoint) (guest, bool) {
	s := g.snapshot.Load()
	v := s.viewFor(c, at)
	return guest{caller: c, at: at, s: s, v: v}, v != nil
}

// watcher hears of changes of one caller's own list.
type watcher struct {
	guest
	dismissal
	signal chan struct{}
	close  func()
}

// watch begins with the list as a request found it. What has changed since was told before there was
// anybody to hear it, so it is looked for at once.
func (g *Gateway) watch(at guest) *watcher {
	w := &watcher{guest: at, dismissal: dismissal{over: make(chan struct{})}}
	var unsubscribe func()
	w.signal, unsubscribe = g.subs.subscribe()
	stop := w.expire()
	w.close = func() {
		stop()
		unsubscribe()
	}
	if g.snapshot.Load() != at.s {
		select {
		case w.signal <- struct{}{}:
		default: // told of a newer change already
		}
	}
	return w
}

// changed reports, after a signal, whether the caller's list is another than before.
func (w *watcher) changed(g *Gateway) bool {
	caller, welcome := g.renew(w.guest)
	if !welcome {
		w.dismiss()
		return false
	}
	now, ok := g.admit(caller, w.at)
	now.credential = w.credential
	if !ok {
		now.v = nil // its team is gone: nothing is left to see
	}
	same := now.v.same(w.v)
	w.guest = now
	return !same
}
