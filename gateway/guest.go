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

// changes says which lists of a caller are others than before.
type changes struct{ tools, prompts, resources bool }

// differs compares the lists of two views, one of which may be nil.
func (v *view) differs(o *view) changes {
	if v == o {
		return changes{}
	}
	c := changes{tools: !v.sameTools(o)}
	if v == nil {
		v = &view{}
	}
	if o == nil {
		o = &view{}
	}
	c.prompts = !v.shelves[prompts].same(&o.shelves[prompts])
	// Templates have no announcement of their own.
	c.resources = !v.shelves[resources].same(&o.shelves[resources]) || !v.shelves[templates].same(&o.shelves[templates])
	return c
}

// notifications are the methods that tell of the changes.
func (c changes) notifications() (methods []string) {
	if c.tools {
		methods = append(methods, "notifications/tools/list_changed")
	}
	if c.prompts {
		methods = append(methods, "notifications/prompts/list_changed")
	}
	if c.resources {
		methods = append(methods, "notifications/resources/list_changed")
	}
	return methods
}

// changed reports, after a signal, which of the caller's lists are others than before.
func (w *watcher) changed(g *Gateway) changes {
	caller, welcome := g.renew(w.guest)
	if !welcome {
		w.dismiss()
		return changes{}
	}
	now, ok := g.admit(caller, w.at)
	now.credential = w.credential
	if !ok {
		now.v = nil // its team is gone: nothing is left to see
	}
	c := now.v.differs(w.v)
	w.guest = now
	return c
}
