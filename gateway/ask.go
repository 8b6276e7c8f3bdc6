package gateway

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// inquiries are the requests that Headgate has made of one legacy client and that are not answered yet. Their ids are
// Headgate's own, so those of two servers never meet.
type inquiries struct {
	can atomic.Pointer[abilities] // what the client declared in its handshake

	made atomic.Int64
	open syncMap[wire.ID, chan upstream.Answer]
}

// declare takes down what a client says in its handshake that it can do.
func (q *inquiries) declare(params wire.Object) {
	raw, _ := params.Get("capabilities")
	can := abilitiesOf(raw)
	q.can.Store(&can)
}

func (q *inquiries) abilities() abilities {
	if can := q.can.Load(); can != nil {
		return *can
	}
	return nil
}

// answered takes a response of the client. One that answers nothing is dropped.
func (q *inquiries) answered(m wire.Message) {
	if answer, ok := q.open.take(m.ID); ok {
		a := upstream.Answer{Result: m.Result, Error: m.Error}
		if a.Error == nil && a.Result.Kind() != '{' {
			a = upstream.Answer{Error: wire.ErrorObject(wire.CodeInternal, "the client's answer is not an object", nil)}
		}
		answer <- a // there is room for the one that is taken
	}
}

// channel is the stream of one call to a legacy client. The zero value is one that takes no questions.
type channel struct {
	// send queues a message of Headgate's own; false when the stream cannot take it.
	send func(message []byte) bool
	// ended is closed when no answer can come any more; nil for never.
	ended <-chan struct{}
}

// enable lets servers ask the client of a session, if it can be asked anything on the stream of this request.
func (g *Gateway) enable(x *exchange, s *session) {
	can := s.asked.abilities()
	if x.channel.send == nil || can == nil {
		return
	}
	x.capabilities = jsontext.Value(can)
	x.ask = func(ctx context.Context, q upstream.Question) upstream.Answer {
		if a, refused := can.refuse(q); refused {
			return a
		}
		return g.inquire(ctx, s, x.channel, q)
	}
}

// inquire asks a legacy client and waits for its answer: until ctx ends, the client's time is over, or no answer can
// come.
func (g *Gateway) inquire(ctx context.Context, s *session, l channel, q upstream.Question) upstream.Answer {
	if len(q.Params) > maxQuestion {
		return unanswered(q.Method)
	}
	id := wire.ID(`"headgate-` + strconv.FormatInt(s.asked.made.Add(1), 10) + `"`)
	answer := make(chan upstream.Answer, 1)
	s.asked.open.put(id, answer)
	defer s.asked.open.take(id)
	if !l.send(wire.AppendOwnRequest(nil, id, q.Method, questionParams(q.Params))) {
		return unanswered(q.Method)
	}
	patience := time.NewTimer(g.talks.patience)
	defer patience.Stop()
	select {
	case a := <-answer:
		return a
	case <-patience.C:
	case <-ctx.Done():
	case <-g.drained:
	case <-l.ended:
	case <-s.ended:
	}
	l.send(wire.AppendNotification(nil, "notifications/cancelled",
		jsontext.Value(`{"requestId":`+string(id)+`,"reason":"the answer is not waited for any more"}`)))
	return unanswered(q.Method)
}
