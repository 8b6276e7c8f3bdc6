package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// Watch is one listener's interest in the updates of a resource. However many listeners a resource has,
// the server sees one subscription, which is set up again whenever the connection is.
type Watch struct {
	u    *Upstream
	r    *watched
	told func(params jsontext.Value)
	late atomic.Bool // it stopped waiting before the subscription stood
}

// watched is a resource with listeners.
type watched struct {
	uri      string
	after    <-chan struct{} // the end of the resource's last subscription; nil for none
	finished chan struct{}   // closed when the subscription has been taken back
	stood    chan struct{}   // closed when the server has agreed for the first time
	ended    chan struct{}   // closed when nothing will come any more; err then says why

	// Guarded by watches.mu.
	err       error
	listeners map[*Watch]bool
	cancel    context.CancelFunc // nil until its goroutine runs
}

// maxUpdate is how many bytes an update may say beside its URI.
const maxUpdate = 4096

// watches are the resources of one upstream that somebody watches.
type watches struct {
	wake chan struct{} // capacity 1: there is one without a goroutine

	mu      sync.Mutex // guards the fields below
	all     map[string]*watched
	leaving map[string]<-chan struct{} // by URI, what ends a subscription that nobody wants any more
	closed  bool                       // Run has returned
}

func newWatches() *watches {
	return &watches{wake: make(chan struct{}, 1), all: make(map[string]*watched), leaving: make(map[string]<-chan struct{})}
}

// Refusal is the error of a server that does not let a resource be watched.
type Refusal struct {
	// Raw is the server's JSON-RPC error object; nil when it just left the resource out.
	Raw jsontext.Value
}

// Error describes the refusal for logs.
func (r *Refusal) Error() string {
	if code, text, ok := wire.ErrorCode(r.Raw); ok {
		return (&rpcError{code, text}).Error()
	}
	return "the server does not offer updates of the resource"
}

// Watch has the server tell of updates of a resource, by the server's own URI, until the watch is closed.
// told gets the params of each notification, and those of one more whenever updates may have been missed.
// nil tells it that nothing will come any more: the server has refused, or Run has returned. told must not
// block, may be called from any goroutine, and may be called once more after Close.
func (u *Upstream) Watch(uri string, told func(params jsontext.Value)) *Watch {
	ws := u.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	r := ws.all[uri]
	if r == nil {
		r = &watched{uri: uri, after: ws.leaving[uri], finished: make(chan struct{}), stood: make(chan struct{}), ended: make(chan struct{}),
			listeners: make(map[*Watch]bool)}
		if ws.closed {
			r.err = errClosed
			close(r.ended)
		} else {
			ws.all[uri] = r
			signal(ws.wake)
		}
	}
	w := &Watch{u: u, r: r, told: told}
	r.listeners[w] = true
	return w
}

// Wait waits until the subscription stands. The error is a *Refusal, or ctx's, or says that Run has
// returned. After ctx's error the watch goes on; as soon as the subscription stands, it is told.
func (w *Watch) Wait(ctx context.Context) error {
	select {
	case <-w.r.stood:
		return nil
	case <-w.r.ended:
		w.u.watches.mu.Lock()
		defer w.u.watches.mu.Unlock()
		return w.r.err
	case <-ctx.Done():
		w.late.Store(true)
		return ctx.Err()
	}
}

// Ended reports whether nothing will come any more.
func (w *Watch) Ended() bool {
	select {
	case <-w.r.ended:
		return true
	default:
		return false
	}
}

// Gone reports whether nothing will come any more because Run has returned.
func (w *Watch) Gone() bool {
	w.u.watches.mu.Lock()
	defer w.u.watches.mu.Unlock()
	return errors.Is(w.r.err, errClosed)
}

// Close ends the watch. The subscription ends with its last listener.
func (w *Watch) Close() {
	ws := w.u.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	r := w.r
	delete(r.listeners, w)
	if len(r.listeners) > 0 || ws.all[r.uri] != r {
		return
	}
	delete(ws.all, r.uri)
	if r.cancel != nil {
		ws.leaving[r.uri] = r.finished
		r.cancel()
	}
}

// keepWatches runs the subscriptions until ctx ends.
func (u *Upstream) keepWatches(ctx context.Context) {
	ws := u.watches
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		ws.mu.Lock()
		for _, r := range ws.all {
			if r.cancel == nil {
				var watching context.Context
				watching, r.cancel = context.WithCancel(ctx)
				wg.Go(func() { u.keepWatch(watching, r) })
			}
		}
		ws.mu.Unlock()
		select {
		case <-ws.wake:
		case <-ctx.Done():
			ws.mu.Lock()
			ws.closed = true
			all := slices.Collect(maps.Values(ws.all))
			ws.mu.Unlock()
			for _, r := range all {
				ws.end(r, errClosed)
			}
			return
		}
	}
}

// end says that nothing will come of a resource any more.
func (ws *watches) end(r *watched, err error) {
	ws.mu.Lock()
	if ws.all[r.uri] != r {
		ws.mu.Unlock()
		return // nobody listens any more
	}
	delete(ws.all, r.uri)
	r.err = err
	close(r.ended)
	list := slices.Collect(maps.Keys(r.listeners))
	ws.mu.Unlock()
	for _, w := range list {
		w.told(nil)
	}
}

// stand says that the server tells of a resource from now on. What it did before is not known, so those
// are told who counted on being told.
func (ws *watches) stand(r *watched) {
	ws.mu.Lock()
	again := false
	select {
	case <-r.stood:
		again = true
	default:
		close(r.stood)
	}
	list := slices.Collect(maps.Keys(r.listeners))
	ws.mu.Unlock()
	for _, w := range list {
		if again || w.late.Load() {
			w.told(r.params())
		}
	}
}

// params are those of an update that no server has sent.
func (r *watched) params() jsontext.Value {
	return append(wire.AppendString([]byte(`{"uri":`), r.uri), '}')
}

// missed tells of every resource that the server had agreed to tell of: updates may have been missed.
func (ws *watches) missed() {
	ws.mu.Lock()
	var stood []*watched
	for _, r := range ws.all {
		select {
		case <-r.stood:
			stood = append(stood, r)
		default:
		}
	}
	ws.mu.Unlock()
	for _, r := range stood {
		ws.stand(r)
	}
}

// updated hands an update to those who watch the resource, or one that it is a part of (2025-11-25, schema,
// "ResourceUpdatedNotification": the URI may be of a sub-resource).
func (ws *watches) updated(params jsontext.Value) {
	obj, err := wire.ParseObject(params)
	if err != nil {
		return
	}
	raw, _ := obj.Get("uri")
	uri, ok := wire.String(raw)
	if !ok || len(uri) > maxKey {
		return
	}
	var list []*Watch
	ws.mu.Lock()
	for _, r := range ws.all {
		if r.uri == uri || isBelow(uri, r.uri) {
			list = slices.AppendSeq(list, maps.Keys(r.listeners))
		}
	}
	ws.mu.Unlock()
	if len(params) > maxUpdate {
		params = (&watched{uri: uri}).params() // it waits in the memory of every listener
	}
	params = params.Clone()
	for _, w := range list {
		w.told(params)
	}
}

// isBelow reports whether a URI is below another.
func isBelow(uri, of string) bool {
	return len(uri) > len(of) && strings.HasPrefix(uri, of) && (strings.HasSuffix(of, "/") || strings.IndexByte("/?#", uri[len(of)]) >= 0)
}

// keepWatch keeps the subscription of one resource until ctx ends or the server refuses.
func (u *Upstream) keepWatch(ctx context.Context, r *watched) {
	defer func() {
		u.watches.mu.Lock()
		defer u.watches.mu.Unlock()
		if u.watches.leaving[r.uri] == r.finished {
			delete(u.watches.leaving, r.uri)
		}
		r.cancel()
		close(r.finished)
	}()
	if r.after != nil {
		// A subscription that is being taken back must not take this one with it.
		<-r.after
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 200 * time.Millisecond
	pause.MaxInterval = u.opts.MaxBackoff
	for {
		l := u.awaitLink(ctx)
		if l == nil {
			return
		}
		began := time.Now()
		err := u.holdWatch(ctx, l, r)
		var refused *Refusal
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &refused):
			u.log.Debug("the server lets a resource not be watched", "error", u.redact.Replace(refused.Error()))
			u.watches.end(r, refused)
			return
		}
		u.log.Debug("the subscription of a resource ended", "error", u.redact.Replace(fmt.Sprint(err)))
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if !wait(ctx, pause.NextBackOff()) {
			return
		}
	}
}

// awaitLink waits for a link, for as long as it takes; nil when ctx ended first.
func (u *Upstream) awaitLink(ctx context.Context) *link {
	for {
		u.mu.Lock()
		l, moved := u.link, u.moved
		u.mu.Unlock()
		if l != nil {
			select {
			case <-l.lost():
			default:
				return l
			}
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil
		}
	}
}

// holdWatch subscribes on one link, and returns when the subscription has ended: with a *Refusal when the
// server does not want it, with another error or nil when it may be tried again.
func (u *Upstream) holdWatch(ctx context.Context, l *link, r *watched) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		select {
		case <-l.lost():
			cancel()
		case <-ctx.Done():
		}
	})
	if l.peer.era == Modern {
		return u.holdModern(ctx, cancel, l, r)
	}
	if err := u.subscribe(ctx, l, "resources/subscribe", r.uri); err != nil {
		return err
	}
	u.watches.stand(r)
	<-ctx.Done()
	select {
	case <-l.lost():
		return errClosed
	default:
	}
	last, done := context.WithTimeout(context.WithoutCancel(outer), backgroundTimeout)
	defer done()
	return u.subscribe(last, l, "resources/unsubscribe", r.uri)
}

// subscribe sends one of the two requests of the handshake era (2025-11-25, server/resources,
// "Subscriptions").
func (u *Upstream) subscribe(ctx context.Context, l *link, method, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, u.opts.ListTimeout)
	defer cancel()
	in := wire.Object{{Name: "uri", Raw: jsontext.Value(`"uri"`), Value: wire.AppendString(nil, uri)}}
	m, err := l.roundTrip(ctx, &request{id: u.ids.Add(1), method: method, params: l.peer.params(in, nil, nil)})
	var hop *hopError
	switch {
	case errors.As(err, &hop) && hop.kind != eraDoubtful:
		l.fail(err)
		u.dropLink(l, err)
		return err
	case err != nil && hop == nil:
		return err
	case m.Error != nil:
		return &Refusal{Raw: m.Error}
	}
	return nil
}

// holdModern keeps a subscription of its own for the resource (2026-07-28, basic/patterns/subscriptions).
func (u *Upstream) holdModern(ctx context.Context, cancel func(), l *link, r *watched) error {
	var left atomic.Bool
	filter := append(wire.AppendString([]byte(`{"resourceSubscriptions":[`), r.uri), `]}`...)
	m, err := l.roundTrip(ctx, &request{id: u.ids.Add(1), method: "subscriptions/listen", params: l.peer.listenFor(filter), onNotify: func(m wire.Message) {
		if m.Method != "notifications/subscriptions/acknowledged" {
			return
		}
		params, _ := wire.ParseObject(m.Params)
		granted, _ := params.Get("notifications")
		members, _ := wire.ParseObject(granted)
		list, _ := members.Get("resourceSubscriptions")
		uris, _ := wire.Array(list)
		if slices.ContainsFunc(uris, func(v jsontext.Value) bool { uri, _ := wire.String(v); return uri == r.uri }) {
			u.watches.stand(r)
			return
		}
		left.Store(true)
		cancel()
	}})
	switch {
	case left.Load():
		return &Refusal{}
	case err != nil:
		return err
	case m.Error != nil:
		return &Refusal{Raw: m.Error}
	}
	return errors.New("the server ended it")
}
