package gateway

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// subscription is one subscriptions/listen of a modern client (2026-07-28, basic/patterns/
// subscriptions), on whatever transport.
type subscription struct {
	guest
	id    wire.ID
	lists changes  // whose changes it asked for
	asked []string // the resources that it wants to hear of
	uris  []string // those that it will
	// updates are those of the resources; nil until the subscription is served
	updates *updates
}

// newSubscription reads the filter. Kinds of notification that Headgate has nothing to tell of are
// left out of the acknowledgement, as the specification wants.
func newSubscription(id wire.ID, x *exchange) (*subscription, answer) {
	raw, has := x.params.Get("notifications")
	filter, err := wire.ParseObject(raw)
	if !has || err != nil {
		return nil, invalidParams("subscriptions/listen needs params.notifications, an object")
	}
	s := &subscription{guest: x.guest, id: id}
	for _, f := range s.filter() {
		flag, _ := filter.Get(f.name)
		*f.on = string(flag) == "true"
	}
	if raw, has := filter.Get("resourceSubscriptions"); has && string(raw) != "null" {
		good := raw.Kind() == '['
		elements(raw, func(v jsontext.Value) {
			uri, ok := wire.String(v)
			if good = good && ok && len(s.asked) <= maxCallerWatched; good && !slices.Contains(s.asked, uri) {
				s.asked = append(s.asked, uri)
			}
		})
		if !good || len(s.asked) > maxCallerWatched {
			return nil, invalidParams("params.notifications.resourceSubscriptions must be an array of URIs, at most " + strconv.Itoa(maxCallerWatched))
		}
	}
	s.lists.prompts = s.lists.prompts && x.serves(prompts)
	s.lists.resources = s.lists.resources && x.serves(resources)
	return s, answer{}
}

func (s *subscription) meta() string {
	return `"_meta":{"` + metaSubscription + `":` + string(s.id) + `}`
}

func (s *subscription) acknowledgement() []byte {
	filter := []byte{'{'}
	for _, f := range s.filter() {
		if *f.on {
			filter = append(appendName(filter, f.name), "true"...)
		}
	}
	if s.asked != nil {
		filter = appendStrings(appendName(filter, "resourceSubscriptions"), s.uris)
	}
	params := jsontext.Value(`{` + s.meta() + `,"notifications":` + string(append(filter, '}')) + `}`)
	return wire.AppendNotification(nil, "notifications/subscriptions/acknowledged", params)
}

// filter are the members of the filter that ask for changed lists.
func (s *subscription) filter() []listFilter {
	return []listFilter{{"toolsListChanged", &s.lists.tools}, {"promptsListChanged", &s.lists.prompts}, {"resourcesListChanged", &s.lists.resources}}
}

type listFilter struct {
	name string
	on   *bool
}

// appendName begins a member of a JSON object that is being written.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(b, `"`+name+`":`...)
}

// changed sends what the subscription asked for of the lists that have changed.
func (s *subscription) changed(c changes, send func([]byte) error) error {
	c = changes{c.tools && s.lists.tools, c.prompts && s.lists.prompts, c.resources && s.lists.resources}
	for _, method := range c.notifications() {
		if err := send(wire.AppendNotification(nil, method, jsontext.Value(`{`+s.meta()+`}`))); err != nil {
			return err
		}
	}
	return nil
}

func (s *subscription) end() []byte {
	return wire.AppendResult(nil, s.id, jsontext.Value(`{"resultType":"complete",`+s.meta()+`}`))
}

// finish ends the subscription from this side, unless the client has cancelled it: one page of the specification wants
// a notifications/cancelled for that (basic/patterns/cancellation), another the result (basic/patterns/subscriptions,
// "Graceful Closure").
func (s *subscription) finish(ctx context.Context, send func([]byte) error) {
	if ctx.Err() == nil && send(s.tornDown()) == nil {
		_ = send(s.end())
	}
}

// watch begins to watch the resources that were asked for, all at the same time. Those that cannot be
// watched are left out, whether they are hidden from the caller or not there.
func (s *subscription) watch(ctx context.Context, g *Gateway) {
	good := make([]bool, len(s.asked))
	var wg sync.WaitGroup
	for i, uri := range s.asked {
		wg.Go(func() { _, good[i] = s.updates.add(ctx, g, s.guest, uri, upstream.Modern) })
	}
	wg.Wait()
	for i, uri := range s.asked {
		if good[i] {
			s.uris = append(s.uris, uri)
		}
	}
}

func (s *subscription) tornDown() []byte {
	return wire.AppendNotification(nil, "notifications/cancelled", jsontext.Value(`{"requestId":`+string(s.id)+`,`+s.meta()+`}`))
}

// subscribe serves a subscription until ctx ends, ended is closed, a write fails, or Headgate drains;
// in the last case the client gets the final result. alive keeps a silent stream open; nil on
// transports that need none.
func (g *Gateway) subscribe(ctx context.Context, s *subscription, ended <-chan struct{}, send func([]byte) error, alive func() error) {
	// Watched from before the acknowledgement: nothing that changes after it is missed.
	list := g.watch(s.guest)
	defer list.close()
	s.updates = newUpdates()
	defer s.updates.close()
	s.watch(ctx, g)
	if send(s.acknowledgement()) != nil {
		return
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-ended:
			select {
			case <-g.drained:
				s.finish(ctx, send)
			default:
			}
			return
		case <-g.drained:
			s.finish(ctx, send)
			return
		case <-list.over:
			s.finish(ctx, send)
			return
		case <-list.signal:
			err = s.changed(list.changed(g), send)
			s.updates.settle(g, list.guest, true)
		case <-s.updates.ready:
			for _, params := range s.updates.take(g, list.guest) {
				if err == nil {
					err = send(wire.AppendNotification(nil, resourceUpdated, updatedFor(params, s.id)))
				}
			}
		case <-tick.C:
			if alive != nil {
				err = alive()
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				g.opts.Telemetry.StreamDropped(telemetry.SideClient, "")
			}
			return
		}
	}
}
