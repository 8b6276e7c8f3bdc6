package gateway

import "github.com/headgate/headgate/authz"

// endpoint is one of the paths that clients connect to: the union of a caller's teams (""), or one
// team.
type endpoint string

// guest is a caller at an endpoint, with what it sees there at one moment.
type guest struct {
	caller authz.Caller
	at     endpoint
	s      *snapshot
	v      *view
}

// admit shows a caller what it sees at an endpoint now; false when there is no such endpoint for it.
func (g *Gateway) admit(c authz.Caller, at endpoint) (guest, bool) {
	s := g.snapshot.Load()
	v := s.viewFor(c, at)
	return guest{c, at, s, v}, v != nil
}

// watcher hears of changes of one caller's own list.
type watcher struct {
	guest
	signal chan struct{}
	close  func()
}

// watch begins with the list as a request found it. What has changed since was told before there was
// anybody to hear it, so it is looked for at once.
func (g *Gateway) watch(at guest) *watcher {
	w := &watcher{guest: at}
	w.signal, w.close = g.subs.subscribe()
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
	now, ok := g.admit(w.caller, w.at)
	if !ok {
		now.v = nil // its team is gone: nothing is left to see
	}
	same := now.v.same(w.v)
	w.guest = now
	return !same
}
