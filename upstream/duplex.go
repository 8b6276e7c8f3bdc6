package upstream

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// duplex multiplexes requests over one stream of messages in each direction: the pipes of a child,
// in-process pipes, or an HTTP+SSE pair. One goroutine writes and one reads, so neither a server
// that does not read nor one that does not answer holds up anything but its own requests.
type duplex struct {
	server string // id of the upstream, for failures
	events events
	log    *slog.Logger
	redact *masker
	noise  *limiter // warnings about what the server says, so that it cannot flood the log
	out    chan *outgoing
	gone   chan struct{} // closed by fail
	wg     sync.WaitGroup
	stop   func() // unblocks the reader and the writer; called once, after gone is closed
	peer   atomic.Pointer[peer]
	whose  func() (one bool) // whether it is one client's alone, not all those of a caller; nil where it is shared

	mu      sync.Mutex // guards pending, err
	pending map[int64]*pendingCall
	err     error // why the connection was lost
}

// pendingCall is a request that waits for its answer.
type pendingCall struct {
	req    *request
	answer chan wire.Message // capacity 1
	failed chan error        // capacity 1

	// deliver orders the reader's calls of onNotify, which do not block, before the return of roundTrip.
	deliver sync.Mutex // guards over
	over    bool       // roundTrip has returned
}

func (p *pendingCall) notify(m wire.Message) {
	p.deliver.Lock()
	defer p.deliver.Unlock()
	if !p.over && p.req.onNotify != nil {
		p.req.onNotify(m)
	}
}

// outgoing is a message on its way to the writer.
type outgoing struct {
	data []byte
	req  *request      // nil for messages that expect no answer
	over chan struct{} // closed when nobody waits for the answer any more; nil where req is
	// done is closed when nothing more of the message will be sent, and req.sent then says whether anything was;
	// nil where req is.
	done chan struct{}
	// state decides the race between the writer and a caller that gives up.
	state atomic.Uint32
}

const (
	queued uint32 = iota
	writing
	withdrawn
)

// newDuplex starts the two goroutines. read returns the next message, valid until the next call; a
// *wire.OversizeError skips one message, any other error ends the connection. write sends one message
// whole; an error of it ends the connection.
func (u *Upstream) newDuplex(read func() ([]byte, error), write func(*outgoing) error, stop func()) *duplex {
	d := &duplex{
		server:  u.cfg.ID,
		events:  u.events(),
		log:     u.log,
		redact:  u.redact,
		noise:   newLimiter(20, time.Minute),
		out:     make(chan *outgoing, 16),
		gone:    make(chan struct{}),
		stop:    sync.OnceFunc(stop),
		pending: make(map[int64]*pendingCall),
	}
	if u.parent != nil || u.opts.OneClient {
		d.whose = u.oneClients
	}
	d.wg.Go(func() { d.readLoop(read) })
	d.wg.Go(func() { d.writeLoop(write) })
	return d
}

func (d *duplex) negotiated(p *peer) { d.peer.Store(p) }

func (d *duplex) lost() <-chan struct{} { return d.gone }

func (d *duplex) cause() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *duplex) fail(err error) {
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return
	}
	d.err = err
	pending := d.pending
	d.pending = nil
	d.mu.Unlock()
	close(d.gone)
	for _, p := range pending {
		p.failed <- &linkLost{err.Error()}
	}
	d.stop()
}

func (d *duplex) close() {
	d.fail(errClosed)
	d.wg.Wait()
}

// follow: a legacy server's own messages come anyway, from the first moment, so that there is no
// gap to report. A modern server sends them only on request (2026-07-28, basic/patterns/subscriptions).
func (d *duplex) follow(ctx context.Context, opened func()) error {
	p := d.peer.Load()
	if p.era == Legacy {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.gone:
			return errClosed
		}
	}
	m, err := d.roundTrip(ctx, &request{id: listenID, method: "subscriptions/listen", params: p.listenParams(), onNotify: func(m wire.Message) {
		if m.Method == "notifications/subscriptions/acknowledged" {
			opened()
		}
	}})
	if err == nil && m.Error != nil {
		return errNoStream
	}
	return err
}

// listenID is the request id of the one subscription that Headgate holds on a duplex link. Calls use
// positive ids.
const listenID = -1

func (d *duplex) roundTrip(ctx context.Context, r *request) (wire.Message, error) {
	p := &pendingCall{req: r, answer: make(chan wire.Message, 1), failed: make(chan error, 1)}
	d.mu.Lock()
	if d.err != nil {
		err := d.err
		d.mu.Unlock()
		return wire.Message{}, d.failure(failure.Unavailable, failure.NotStarted, &linkLost{err.Error()})
	}
	d.pending[r.id] = p
	d.mu.Unlock()
	o := &outgoing{data: wire.OneLine(wire.AppendRequest(nil, r.id, r.method, r.params)), req: r, over: make(chan struct{}), done: make(chan struct{})}
	defer func() {
		d.forget(p)
		close(o.over)
	}()
	select {
	case d.out <- o:
	case err := <-p.failed:
		return wire.Message{}, d.failure(failure.Unavailable, failure.NotStarted, err)
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
	select {
	case m := <-p.answer:
		return m, nil
	case err := <-p.failed:
		if o.state.CompareAndSwap(queued, withdrawn) {
			return wire.Message{}, d.failure(failure.Unavailable, failure.NotStarted, err)
		}
		var lost *linkLost
		if !errors.As(err, &lost) {
			return wire.Message{}, err
		}
		<-o.done // which the end of the connection brings about
		if !r.sent.Load() {
			return wire.Message{}, d.failure(failure.Unavailable, failure.NotStarted, err)
		}
		return wire.Message{}, d.failure(failure.ConnectionLost, failure.Unknown, err)
	case <-ctx.Done():
		if !o.state.CompareAndSwap(queued, withdrawn) {
			r.sent.Store(true) // it may be on its way, and goes on
			if r.cancellable() {
				d.cancel(r.id)
			}
		}
		return wire.Message{}, ctx.Err()
	}
}

// cancel tells the server that a request was given up. A full queue means that the server does not
// read, and then there is nobody to tell.
func (d *duplex) cancel(id int64) {
	params := jsontext.Value(`{"requestId":` + strconv.FormatInt(id, 10) + `,"reason":"the request was given up"}`)
	o := &outgoing{data: wire.AppendNotification(nil, "notifications/cancelled", params)}
	select {
	case d.out <- o:
	default:
		d.warn("cancellation not sent: the server does not read its input")
	}
}

func (d *duplex) notify(ctx context.Context, method string, params jsontext.Value) error {
	return d.send(ctx, wire.OneLine(wire.AppendNotification(nil, method, params)))
}

func (d *duplex) send(ctx context.Context, data []byte) error {
	select {
	case d.out <- &outgoing{data: data}:
		return nil
	case <-d.gone:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *duplex) forget(p *pendingCall) {
	d.mu.Lock()
	delete(d.pending, p.req.id)
	d.mu.Unlock()
	p.deliver.Lock()
	p.over = true
	p.deliver.Unlock()
}

func (d *duplex) failure(r failure.Reason, o failure.Outcome, err error) error {
	return &failure.Failure{Server: d.server, Reason: r, Outcome: o, Cause: err}
}

func (d *duplex) writeLoop(write func(*outgoing) error) {
	for {
		select {
		case <-d.gone:
			return
		case o := <-d.out:
			if !o.state.CompareAndSwap(queued, writing) {
				continue
			}
			if err := write(o); err != nil {
				d.fail(err)
				return
			}
		}
	}
}

func (d *duplex) readLoop(read func() ([]byte, error)) {
	for {
		data, err := read()
		var big *wire.OversizeError
		if errors.As(err, &big) {
			d.oversize(big)
			continue
		}
		if err != nil {
			d.fail(err)
			return
		}
		if len(data) == 0 {
			continue
		}
		m, err := wire.Parse(data)
		if err != nil {
			if !d.invalid(data, err) {
				// Secrets are masked before the text is cut, which could leave half of one.
				text := d.redact.clip(string(data), 200)
				if data[0] == '{' {
					text = "" // a spoilt message, with what is a caller's in it
				}
				d.warn("output of the server that is not a message is skipped", "text", text, "reason", wire.Bare(err))
			}
			continue
		}
		d.dispatch(clone(m, data))
	}
}

// clone moves a message off the reader's buffer.
func clone(m wire.Message, data []byte) wire.Message {
	own, err := wire.Parse(append([]byte(nil), data...))
	if err != nil {
		return m // cannot be: the same bytes parsed before
	}
	return own
}

func (d *duplex) dispatch(m wire.Message) {
	switch m.Kind {
	case wire.KindResponse:
		id, ok := m.ID.Int64()
		if !ok {
			d.warn("an answer without a known id is dropped", "id", clip(string(m.ID), 64))
			return
		}
		d.mu.Lock()
		p := d.pending[id]
		delete(d.pending, id)
		d.mu.Unlock()
		if p != nil {
			p.answer <- m
		}
	case wire.KindRequest:
		if d.ask(m) {
			return
		}
		// A full queue means that the server does not read; its question can wait for ever then.
		select {
		case d.out <- &outgoing{data: refusal(m)}:
		default:
		}
	case wire.KindNotification:
		d.notification(m)
	}
}

// notification finds the request that a notification belongs to. Progress names it by our token. Log
// messages name nothing on a shared stream: they are given to the one request that asked for them,
// and to none when several did, since a wrong recipient is worse than a lost message.
func (d *duplex) notification(m wire.Message) {
	var to *pendingCall
	d.mu.Lock()
	switch m.Method {
	case "notifications/progress":
		if id, ok := progressID(m.Params); ok {
			to = d.pending[id]
		}
	case "notifications/message":
		for _, p := range d.pending {
			if !p.req.wantsLog {
				continue
			}
			if to != nil {
				to = nil
				break
			}
			to = p
		}
	case "notifications/subscriptions/acknowledged":
		to = d.pending[subscriptionID(m.Params)]
	case "notifications/elicitation/complete":
		to = d.addressee()
	case "notifications/cancelled":
		d.mu.Unlock()
		d.withdrawn(m)
		return
	default:
		d.mu.Unlock()
		d.events.handle(m)
		return
	}
	d.mu.Unlock()
	if to != nil {
		to.notify(m)
	}
}

// subscriptionID is the request of Headgate's own that a message about a subscription names.
func subscriptionID(params jsontext.Value) int64 {
	obj, _ := wire.ParseObject(params)
	raw, _ := obj.Get("_meta")
	meta, _ := wire.ParseObject(raw)
	id, has := meta.Get("io.modelcontextprotocol/subscriptionId")
	n, ok := wire.ID(id).Int64()
	if !has || !ok {
		return listenID
	}
	return n
}

func (d *duplex) warn(msg string, args ...any) {
	if d.noise.allow() {
		d.log.Warn(msg, args...)
	}
}

func progressID(params jsontext.Value) (int64, bool) {
	obj, err := wire.ParseObject(params)
	if err != nil {
		return 0, false
	}
	tok, _ := obj.Get("progressToken")
	return wire.ID(tok).Int64()
}

// invalid fails the one request that a malformed answer belongs to, if it can be told.
func (d *duplex) invalid(data []byte, cause error) bool {
	var e *wire.Error
	if errors.As(cause, &e) {
		if id, ok := e.ID.Int64(); ok && d.failOne(id, d.failure(failure.BadUpstreamAnswer, failure.Unknown, cause)) {
			return true
		}
	}
	if id, ok := scanID(data, data); ok {
		return d.failOne(id, d.failure(failure.BadUpstreamAnswer, failure.Unknown, cause))
	}
	return false
}

// oversize fails the request whose answer was too large, where its id stands near either end.
func (d *duplex) oversize(big *wire.OversizeError) {
	err := d.failure(failure.BadUpstreamAnswer, failure.Unknown, big)
	if id, ok := scanID(big.Head, big.Tail); ok && d.failOne(id, err) {
		return
	}
	d.mu.Lock()
	var only int64
	n := len(d.pending)
	for id := range d.pending {
		only = id
	}
	d.mu.Unlock()
	if n == 1 && d.failOne(only, err) {
		return
	}
	d.warn("a message of the server is larger than max_answer and is skipped", "bytes", big.Size)
}

func (d *duplex) failOne(id int64, err error) bool {
	d.mu.Lock()
	p := d.pending[id]
	delete(d.pending, id)
	d.mu.Unlock()
	if p == nil {
		return false
	}
	p.failed <- err
	return true
}
