package upstream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/wire"
)

// This file is about what a legacy server asks of the client while a call runs (2025-11-25, client/elicitation,
// client/sampling, client/roots). A question goes to the client of the call that caused it, and to nobody else: the
// stream of a call over HTTP says whose it is, and elsewhere a session that is kept apart.

// Question is a request that a server makes of the client.
type Question struct {
	Method string
	Params jsontext.Value // as the server wrote them; nil when it gave none
}

// Answer is what a client says to a [Question]: exactly one of Result and Error is set.
type Answer struct {
	Result jsontext.Value
	Error  jsontext.Value // a JSON-RPC error object
}

// Undeclared is the answer to a question for which the client has not declared the capability.
func Undeclared(method string) Answer {
	return Answer{Error: wire.ErrorObject(wire.CodeMethodNotFound,
		"the client of this session did not declare the capability for "+clip(method, 64), nil)}
}

const (
	// maxQuestions bounds the questions of one call that are open at a time.
	maxQuestions = 16
	// answerTime is how long a server may take to accept an answer.
	answerTime = 5 * time.Second
	// streamTime is how long a session waits for its stream before it is used.
	streamTime = 2 * time.Second
)

// questions are those that a server asks within one try of a call.
type questions struct {
	c     *Call
	clock *callClock
	ctx   context.Context

	running sync.WaitGroup
	cancel  context.CancelFunc

	mu   sync.Mutex // guards open and over
	open map[wire.ID]context.CancelFunc
	over bool
}

// newQuestions makes the questions of a try, which end with end. It returns nil for a call whose client cannot be
// asked anything.
func newQuestions(ctx context.Context, c *Call, clock *callClock) *questions {
	if c.Ask == nil {
		return nil
	}
	q := &questions{c: c, clock: clock, open: make(map[wire.ID]context.CancelFunc)}
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q
}

// take has a question answered, and send deliver the answer. It does not block. false means that nobody will.
func (q *questions) take(m wire.Message, send func(ctx context.Context, body []byte)) bool {
	if q == nil || m.Method == "ping" {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, twice := q.open[m.ID]; q.over || twice || len(q.open) == maxQuestions {
		return false
	}
	ctx, cancel := context.WithCancel(q.ctx)
	q.open[m.ID] = cancel
	q.clock.asked.Store(true)
	q.clock.hold()
	q.running.Go(func() {
		defer cancel()
		a := q.c.Ask(ctx, Question{Method: m.Method, Params: m.Params})
		q.mu.Lock()
		delete(q.open, m.ID)
		q.mu.Unlock()
		q.clock.release()
		switch {
		case ctx.Err() != nil: // the call has ended, or the server wants no answer any more
		case a.Error != nil:
			send(q.ctx, wire.AppendError(nil, m.ID, a.Error))
		default:
			send(q.ctx, wire.AppendResult(nil, m.ID, a.Result))
		}
	})
	return true
}

// withdrawn takes a notifications/cancelled of the server; it reports whether a question of this call was meant.
func (q *questions) withdrawn(m wire.Message) bool {
	if q == nil || m.Method != "notifications/cancelled" {
		return false
	}
	params, err := wire.ParseObject(m.Params)
	if err != nil {
		return false
	}
	id, _ := params.Get("requestId")
	q.mu.Lock()
	defer q.mu.Unlock()
	cancel := q.open[wire.ID(id)]
	if cancel == nil {
		return false
	}
	cancel()
	return true
}

// end gives up what is open and waits for it.
func (q *questions) end() {
	if q == nil {
		return
	}
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	q.cancel()
	q.running.Wait()
}

// answer posts the answer to a question that came on a call's stream.
func (s *streamable) answer(ctx context.Context, caller *Caller, body []byte) {
	post := func(ctx context.Context) {
		resp, err := s.post(ctx, body, "", &request{caller: caller})
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode >= 300 {
				err = s.statusFailure(resp)
			}
		}
		if err != nil {
			s.warn("an answer to the server's own request was not delivered", "error", s.redact.Replace(err.Error()))
		}
	}
	// The call may end before the server has acknowledged the answer, so the sending is not the call's.
	if !s.later.run(post) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		post(ctx)
	}
}

// ask gives a question on a call's stream to the call.
func (s *streamable) ask(m wire.Message, r *request) {
	if r.onAsk == nil || !r.onAsk(m, func(ctx context.Context, body []byte) { s.answer(ctx, r.caller, body) }) {
		s.answerLater(refusal(m))
	}
}

// taskName is what Mcp-Name says for a method of the tasks extension (SEP-2663, "Routing Headers"), or "".
func taskName(c *Call) string {
	if !strings.HasPrefix(c.Method, "tasks/") {
		return ""
	}
	raw, _ := c.Params.Get("taskId")
	name, _ := wire.String(raw)
	return name
}

// callers are the calls in flight on a session over HTTP that is kept apart. What the server asks on the session's own
// stream, and not on that of the call, is for one of them, as on any stream.
type callers struct {
	whose func() (one bool)

	mu  sync.Mutex // guards all
	all map[int64]*request
}

func (u *Upstream) newCallers() *callers {
	if u.parent == nil && !u.opts.OneClient {
		return nil
	}
	return &callers{whose: u.oneClients, all: make(map[int64]*request)}
}

func (c *callers) add(r *request) (done func()) {
	if c == nil || r.caller == nil {
		return func() {}
	}
	c.mu.Lock()
	c.all[r.id] = r
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		delete(c.all, r.id)
		c.mu.Unlock()
	}
}

// addressee returns the request that a question is for, or one that refuses it.
func (c *callers) addressee() *request {
	if c == nil {
		return &request{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if to := newest(c.all, c.whose); to != nil {
		return to
	}
	return &request{}
}

// tell tells the calls in flight that the server takes a question back.
func (c *callers) tell(m wire.Message) {
	if c == nil || m.Method != "notifications/cancelled" {
		return
	}
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.all))
	c.mu.Unlock()
	for _, r := range all {
		r.onNotify(m)
	}
}

// newest is the call that a question belongs to which does not say so itself: the only one in flight, or any one where
// all are one client's.
func newest(all map[int64]*request, one func() bool) *request {
	var to *request
	for id, r := range all {
		if to == nil || id > to.id {
			to = r
		}
	}
	if len(all) > 1 && !one() {
		return nil
	}
	return to
}

// addressee is the call that a question on a shared stream belongs to, on a session that is kept apart; nil for none.
// d.mu is held.
func (d *duplex) addressee() *pendingCall {
	if d.whose == nil {
		return nil
	}
	calls := make(map[int64]*request, len(d.pending))
	for id, p := range d.pending {
		if p.req.caller != nil { // not Headgate's own
			calls[id] = p.req
		}
	}
	if to := newest(calls, d.whose); to != nil {
		return d.pending[to.id]
	}
	return nil
}

// beginFollowing runs followApart until the returned function is called, and waits a little for the stream to stand: the
// first call may be one that asks.
func (u *Upstream) beginFollowing(ctx context.Context, l *link) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	opened, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		u.followApart(ctx, l, sync.OnceFunc(func() { close(opened) }))
	}()
	t := time.NewTimer(streamTime)
	defer t.Stop()
	select {
	case <-opened:
	case <-done:
	case <-t.C:
	}
	return func() {
		cancel()
		<-done
	}
}

// followApart holds the stream of a session of its own on which a legacy server over HTTP may ask what it does not ask
// on the stream of a call. Without it the question would be lost, and its tool would wait. It runs until ctx ends.
func (u *Upstream) followApart(ctx context.Context, l *link, opened func()) {
	if _, ok := l.transport.(*streamable); !ok || l.peer.era != Legacy || string(u.declared(l.transport)) == noAbilities {
		return
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 500 * time.Millisecond
	pause.MaxInterval = u.opts.MaxBackoff
	for {
		began := time.Now()
		err := l.follow(ctx, opened)
		if ctx.Err() != nil || errors.Is(err, errNoStream) || unreachable(err) {
			return
		}
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if !wait(ctx, pause.NextBackOff()) {
			return
		}
	}
}

// asksOutside reports whether a server may ask on the stream of its shared session, although it announces nothing there.
// Nobody can be asked, but without the stream the question would be lost, and its tool would wait.
func (u *Upstream) asksOutside(l *link) bool {
	_, ok := l.transport.(*streamable)
	return ok && l.peer.era == Legacy && u.cfg.Session == configs.SessionShared
}

// oneClients reports whether a session of its own belongs to one client, and not to all that its caller has or to
// those of them that Headgate cannot tell apart.
func (u *Upstream) oneClients() bool {
	holder := u.holder.Load()
	return u.opts.OneClient || u.cfg.Session == configs.SessionClient && holder != nil && holder.Session != ""
}

// ask gives a question to the call that it belongs to; false means that there is none.
func (d *duplex) ask(m wire.Message) bool {
	d.mu.Lock()
	to := d.addressee()
	d.mu.Unlock()
	return to != nil && to.req.onAsk != nil && to.req.onAsk(m, func(ctx context.Context, body []byte) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		if err := d.send(ctx, wire.OneLine(body)); err != nil {
			d.warn("an answer to the server's own request was not delivered")
		}
	})
}

// withdrawn takes a notifications/cancelled of the server: it takes a question back, or ends a subscription
// (2026-07-28, basic/patterns/cancellation).
func (d *duplex) withdrawn(m wire.Message) {
	params, _ := wire.ParseObject(m.Params)
	raw, _ := params.Get("requestId")
	id, own := wire.ID(raw).Int64()
	d.mu.Lock()
	all := make([]*pendingCall, 0, len(d.pending))
	for _, p := range d.pending {
		all = append(all, p)
	}
	p := d.pending[id]
	d.mu.Unlock()
	if own && p != nil && p.req.method == "subscriptions/listen" {
		d.failOne(id, errTornDown)
		return
	}
	for _, p := range all {
		p.notify(m)
	}
}

var errTornDown = errors.New("the server ended the subscription")

// bridged are the client capabilities that a server is told of where each question is decided when it comes: what
// Headgate can bring to a client that has it.
const bridged = `{"elicitation":{"form":{},"url":{}},"sampling":{"context":{},"tools":{}},"roots":{}}`

// noAbilities are the capabilities of a client that cannot be asked anything.
const noAbilities = `{}`

// declared are the client capabilities for the handshake with a legacy server. On a session that is one client's alone
// they are what that client can do, if it has said so once and for all. Where several clients have a session, or one
// that says something else with each request, it is all, since a question is refused at once where the client of its
// call cannot answer it: so it is on the sessions of callers, and on a shared one over HTTP, where the question comes on
// the stream of its call. On any other shared stream a question says nothing of its call, so none are declared where
// there is more than one client; but where calls have sessions of their own, the shared one only reads the catalogue,
// which is to hold what servers offer to capable clients alone.
func (u *Upstream) declared(t transport) jsontext.Value {
	if holder := u.holder.Load(); u.parent != nil && holder != nil {
		switch {
		case holder.PerRequest || !u.oneClients():
			return jsontext.Value(bridged)
		case holder.Capabilities != nil:
			return holder.Capabilities
		}
		return jsontext.Value(noAbilities)
	}
	if _, ok := t.(*streamable); ok || u.opts.OneClient || u.cfg.Session == configs.SessionCaller || u.cfg.Session == configs.SessionClient {
		return jsontext.Value(bridged)
	}
	return jsontext.Value(noAbilities)
}
