package gateway

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// subscription is one subscriptions/listen of a modern client (2026-07-28, basic/patterns/
// subscriptions), on whatever transport.
type subscription struct {
	guest
	id    wire.ID
	tools bool // notifications/tools/list_changed
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
	tools, _ := filter.Get("toolsListChanged")
	s.tools = string(tools) == "true"
	return s, answer{}
}

func (s *subscription) meta() string {
	return `"_meta":{"` + metaSubscription + `":` + string(s.id) + `}`
}

func (s *subscription) acknowledgement() []byte {
	filter := "{}"
	if s.tools {
		filter = `{"toolsListChanged":true}`
	}
	params := jsontext.Value(`{` + s.meta() + `,"notifications":` + filter + `}`)
	return wire.AppendNotification(nil, "notifications/subscriptions/acknowledged", params)
}

func (s *subscription) changed() []byte {
	return wire.AppendNotification(nil, "notifications/tools/list_changed", jsontext.Value(`{`+s.meta()+`}`))
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
			if list.changed(g) && s.tools {
				err = send(s.changed())
			}
		case <-tick.C:
			if alive != nil {
				err = alive()
			}
		}
		if err != nil {
			return
		}
	}
}
