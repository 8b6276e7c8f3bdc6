package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

const (
	// maxWatched bounds the resources that all listeners watch together, and maxCallerWatched those of one
	// caller.
	maxWatched       = 10_000
	maxCallerWatched = 1000
	// watchTime is how long a subscription waits for the server to agree. What is slower is told of by one
	// update when it stands.
	watchTime = 5 * time.Second
	// updateGap is the least time between two deliveries to one listener. What happens in between is told
	// once for each resource.
	updateGap = 100 * time.Millisecond
	// maxPending bounds the updates that wait for one listener: a server may tell of any number of
	// sub-resources.
	maxPending = 1000
)

// updates are the resources that one listener hears of: a subscription of a modern client, or the session
// of a legacy one. The zero value is not usable.
type updates struct {
	ready chan struct{} // capacity 1: there is something to take

	mu      sync.Mutex // guards the fields below
	watched map[string]*watching
	pending map[string]jsontext.Value // params of updates by the URI that the listener knows
	order   []string                  // of pending
	next    time.Time                 // when the next delivery may be
	timer   *time.Timer               // signals ready at next; nil for none
	closed  bool
}

// watching is one resource that a listener watches.
type watching struct {
	uri     string // as the client said it
	release func() // gives back its place under the bounds

	// Guarded by updates.mu.
	from  source
	turn  int             // counts the watches
	watch *upstream.Watch // nil while nobody owns the resource, for the listener
}

func newUpdates() *updates {
	return &updates{ready: make(chan struct{}, 1), watched: make(map[string]*watching), pending: make(map[string]jsontext.Value)}
}

// add watches a resource for a caller; ok is false when a is why not. It waits until the server has
// agreed, for a while.
func (us *updates) add(ctx context.Context, g *Gateway, at guest, uri string, era upstream.Era) (a answer, ok bool) {
	list, known := g.sources(at, uri)
	switch {
	case !known || len(list) == 0 || len(uri) > maxURI:
		return unknownResource(uri, era), false
	case list[0].scopes != nil:
		return insufficientScope(list[0].scopes), false
	case !list[0].part.catalogue.Announces("resources", "subscribe"):
		return notWatched(uri), false
	}
	owner := at.caller.Key()
	if !g.watched.add(owner, maxWatched, at.each(maxCallerWatched)) {
		return tooManyWatched(), false
	}
	w := &watching{uri: uri, release: func() { g.watched.remove(owner) }}
	us.mu.Lock()
	if us.closed || us.watched[uri] != nil {
		us.mu.Unlock()
		w.release()
		return answer{}, true
	}
	us.watched[uri] = w
	watch := us.start(w, list[0])
	us.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	var refused *upstream.Refusal
	if err := watch.Wait(ctx); errors.As(err, &refused) {
		us.remove(uri)
		if refused.Raw == nil {
			return notWatched(uri), false
		}
		return answer{err: refused.Raw}, false
	}
	return answer{}, true
}

// start has the owner tell of a resource. us.mu is held.
func (us *updates) start(w *watching, from source) *upstream.Watch {
	w.from = from
	w.turn++
	turn := w.turn
	w.watch = from.part.up.Watch(from.uri, func(params jsontext.Value) { us.tell(w, turn, from, params) })
	return w.watch
}

// tell takes an update of a watched resource. What comes of an earlier turn is of a server that no longer
// owns it.
func (us *updates) tell(w *watching, turn int, from source, params jsontext.Value) {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.closed || us.watched[w.uri] != w || w.watch == nil || w.turn != turn {
		return
	}
	if params == nil {
		us.signal() // somebody else may own the resource by now
		return
	}
	obj, err := wire.ParseObject(params)
	if err != nil {
		return
	}
	raw, _ := obj.Get("uri")
	own, _ := wire.String(raw)
	uri := w.uri
	if own != from.uri { // a sub-resource
		if uri = own; w.uri != from.uri {
			uri = aliasOf(from.part.entry.ID, own)
		}
	}
	us.queue(uri, obj.Append(nil, wire.Edit{Name: "uri", Value: wire.AppendString(nil, uri)}))
}

// queue makes an update wait for its delivery; an earlier one of the same URI is forgotten. us.mu is held.
func (us *updates) queue(uri string, params jsontext.Value) {
	if _, waits := us.pending[uri]; !waits {
		if len(us.order) >= maxPending {
			return
		}
		us.order = append(us.order, uri)
	}
	us.pending[uri] = params
	us.signal()
}

// signal says that there is something to take, at once or when it is time. us.mu is held.
func (us *updates) signal() {
	if us.timer != nil {
		return
	}
	pause := time.Until(us.next)
	if pause <= 0 {
		us.wake()
		return
	}
	us.timer = time.AfterFunc(pause, func() {
		us.mu.Lock()
		defer us.mu.Unlock()
		us.timer = nil
		if !us.closed {
			us.wake()
		}
	})
}

func (us *updates) wake() {
	select {
	case us.ready <- struct{}{}:
	default:
	}
}

// again signals what nobody has taken yet to a stream that has just begun.
func (us *updates) again() {
	us.mu.Lock()
	defer us.mu.Unlock()
	if len(us.order) > 0 {
		us.signal()
	}
}

// take returns the params of the updates that are to be delivered now: of what the caller may still read.
func (us *updates) take(g *Gateway, at guest) []jsontext.Value {
	us.settle(g, at, false)
	us.mu.Lock()
	order, pending := us.order, us.pending
	us.order, us.pending = nil, make(map[string]jsontext.Value)
	us.next = time.Now().Add(updateGap)
	us.mu.Unlock()
	at, ok := g.admit(at.caller, at.at)
	var out []jsontext.Value
	for _, uri := range order {
		if _, readable := g.readableFrom(at, uri); ok && readable {
			out = append(out, pending[uri])
		}
	}
	return out
}

// readableFrom returns the one server that a caller may read a URI from without being granted more.
func (g *Gateway) readableFrom(at guest, uri string) (source, bool) {
	if at.v == nil {
		return source{}, false
	}
	list, known := g.sources(at, uri)
	if !known || len(list) == 0 || list[0].scopes != nil {
		return source{}, false
	}
	return list[0], true
}

// settle looks anew who owns each watched resource, for the caller: a reload may have given it to another
// server, or policy have taken it away. Whoever is told by somebody else from now on may have missed an
// update, and is given one. changed says that there is another catalogue, in which a server may have again
// what it once refused.
func (us *updates) settle(g *Gateway, at guest, changed bool) {
	us.mu.Lock()
	list := slices.Collect(maps.Values(us.watched))
	us.mu.Unlock()
	if len(list) == 0 {
		return
	}
	at, _ = g.admit(at.caller, at.at)
	owners := make([]source, len(list))
	for i, w := range list {
		if from, ok := g.readableFrom(at, w.uri); ok && from.part.catalogue.Announces("resources", "subscribe") {
			owners[i] = from
		}
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	for i, w := range list {
		from := owners[i]
		if us.watched[w.uri] != w {
			continue
		}
		same := w.watch != nil && from.part != nil && from.part.up == w.from.part.up && from.uri == w.from.uri
		if same && !(changed && w.watch.Ended()) {
			if w.watch.Gone() {
				// The server has been replaced, and the snapshot with the new one is about to come.
				us.next = time.Now().Add(updateGap)
				us.signal()
			}
			continue
		}
		if w.watch != nil {
			w.watch.Close()
			w.watch = nil
		}
		if from.part != nil {
			us.start(w, from)
			us.queue(w.uri, append(wire.AppendString([]byte(`{"uri":`), w.uri), '}'))
		}
	}
}

// remove ends the watching of a resource.
func (us *updates) remove(uri string) {
	us.mu.Lock()
	defer us.mu.Unlock()
	w := us.watched[uri]
	if w == nil {
		return
	}
	delete(us.watched, uri)
	if _, waits := us.pending[uri]; waits {
		delete(us.pending, uri)
		us.order = slices.DeleteFunc(us.order, func(u string) bool { return u == uri })
	}
	w.end()
}

// close ends the watching of everything.
func (us *updates) close() {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.closed = true
	for _, w := range us.watched {
		w.end()
	}
	us.watched = nil
	if us.timer != nil {
		us.timer.Stop()
	}
}

func (w *watching) end() {
	w.release()
	if w.watch != nil {
		w.watch.Close()
	}
}

// updatedFor is params of an update with the subscription's id in its _meta, or without one for a legacy
// client.
func updatedFor(params jsontext.Value, subscription wire.ID) jsontext.Value {
	obj, err := wire.ParseObject(params)
	if err != nil {
		return params // cannot be: it has been parsed before
	}
	raw, had := obj.Get("_meta")
	meta, _ := wire.ParseObject(raw)
	edited := jsontext.Value(meta.Append(nil, wire.Edit{Name: metaSubscription, Value: jsontext.Value(subscription)}))
	if string(edited) == "{}" {
		if !had {
			return params
		}
		edited = nil
	}
	return obj.Append(nil, wire.Edit{Name: "_meta", Value: edited})
}

const resourceUpdated = "notifications/resources/updated"

// watchLegacy answers resources/subscribe and resources/unsubscribe of a session (2025-11-25,
// server/resources, "Subscriptions").
func (g *Gateway) watchLegacy(ctx context.Context, s *session, x *exchange) answer {
	g.awaitStart(ctx, x, startGrace)
	if !x.serves(resources) {
		return methodNotFound(x.method)
	}
	raw, _ := x.params.Get("uri")
	uri, ok := wire.String(raw)
	if !ok {
		return invalidParams(x.method + " needs params.uri, a string")
	}
	if x.method == "resources/unsubscribe" {
		s.updates.remove(uri)
		return answer{result: jsontext.Value("{}")}
	}
	if a, ok := s.updates.add(ctx, g, x.guest, uri, x.era); !ok {
		return x.withCode(a)
	}
	return answer{result: jsontext.Value("{}")}
}
