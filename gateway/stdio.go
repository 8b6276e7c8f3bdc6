package gateway

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

const (
	// maxConcurrent bounds the requests of one stdio client that run at a time. More wait unread in the
	// pipe, so that a client which only writes cannot make memory grow.
	maxConcurrent = 256
	// stdioStall is how long a client may leave a line unread before it is taken for gone. Without a
	// reader nothing goes on, and the end of its input would not be noticed either.
	stdioStall = time.Minute
	// stdioFlush is how long a client that does not read may hold up the end.
	stdioFlush = 5 * time.Second
)

// errNoReader says that a client took nothing more from its end of the pipe.
var errNoReader = errors.New("the client does not read its input")

// ServeStdio serves one client over newline-delimited messages, both eras at once (2026-07-28, basic/
// transports/stdio), until in ends, ctx ends, or a write fails. When in or ctx has ended, requests in flight
// may finish within the drain time, and the return is nil; the end of ctx drains g as well. A read of
// in or a write to out that does not end is left behind, which is why ServeStdio is for a process's
// own stdin and stdout.
func (g *Gateway) ServeStdio(ctx context.Context, caller authz.Caller, in io.Reader, out io.Writer) error {
	term := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	c := &stdioClient{
		g:       g,
		caller:  caller,
		session: newSession(caller.Key()),
		out:     make(chan []byte, 64),
		ended:   reading.Done(),
		term:    term,
		slots:   make(chan struct{}, maxConcurrent),
	}
	defer func() {
		c.session.end()
		g.sessionOver(c.session)
	}()
	finished := make(chan struct{})
	wrote := make(chan error, 1)
	go func() { wrote <- c.write(out, cancel, finished) }()
	lines := make(chan inputLine)
	readErr := make(chan error, 1)
	go func() { readErr <- readLines(reading, in, g.config().MaxBody, lines) }()

	c.running.Go(func() { c.announce(reading) })
	var err error
	for err == nil && ctx.Err() == nil {
		select {
		case line := <-lines:
			c.line(ctx, line)
		case err = <-readErr:
		case <-term:
			g.Drain() // subscriptions end with their final result
			err = io.EOF
		case <-ctx.Done():
		}
	}
	stopReading()
	last := time.AfterFunc(g.config().Drain, cancel)
	c.running.Wait()
	last.Stop()
	c.g.opts.Telemetry.ServerSession(c.session.spoken(), telemetry.TransportPipe, time.Since(c.session.began))
	cancel()
	close(finished)
	flush := time.NewTimer(stdioFlush)
	defer flush.Stop()
	select {
	case werr := <-wrote:
		if werr != nil {
			return werr
		}
	case <-flush.C:
		return errNoReader
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// inputLine is one line of a client, or what stands in place of one that is too long.
type inputLine struct {
	data    []byte
	toolong bool
}

// readLines hands on one line at a time.
func readLines(ctx context.Context, in io.Reader, limit int64, lines chan<- inputLine) error {
	r := wire.NewLineReader(in, int(limit))
	for {
		var line inputLine
		data, err := r.Next()
		var big *wire.OversizeError
		switch {
		case errors.As(err, &big):
			line.toolong = true
		case err != nil:
			return err
		case len(data) == 0:
			continue
		default:
			line.data = append([]byte(nil), data...)
		}
		select {
		case lines <- line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stdioClient is the client at the other end of stdin and stdout.
type stdioClient struct {
	g       *Gateway
	caller  authz.Caller
	session *session // what a legacy client's handshake opened; also the requests in flight of both eras
	// out is never closed: a notification may come when everything else is over, and is lost then.
	out     chan []byte
	waiting atomic.Int64    // bytes in out
	ended   <-chan struct{} // closed when the input has ended
	term    <-chan struct{} // closed when Headgate is to stop
	slots   chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex // guards legacy
	legacy bool       // a handshake has taken place
}

// write writes what is queued, until finished is closed and nothing is left. gone is called when the
// client does not read any more; then what is queued is thrown away.
func (c *stdioClient) write(out io.Writer, gone func(), finished <-chan struct{}) error {
	var failed error
	put := func(b []byte) {
		c.waiting.Add(-int64(len(b)))
		if failed != nil {
			return
		}
		stalled := time.AfterFunc(stdioStall, gone)
		if _, failed = out.Write(append(b, '\n')); failed != nil {
			gone()
		}
		stalled.Stop()
	}
	for {
		select {
		case b := <-c.out:
			put(b)
		case <-finished:
			for {
				select {
				case b := <-c.out:
					put(b)
				default:
					return failed
				}
			}
		}
	}
}

// send queues a message; it waits for a client that reads slowly, within ctx.
func (c *stdioClient) send(ctx context.Context, b []byte) {
	b = wire.OneLine(b)
	c.waiting.Add(int64(len(b)))
	select {
	case c.out <- b:
	case <-ctx.Done():
		c.waiting.Add(-int64(len(b)))
	}
}

// offer queues a message that may be lost rather than hold up an upstream.
func (c *stdioClient) offer(b []byte) bool {
	b = wire.OneLine(b)
	size := int64(len(b))
	if waiting := c.waiting.Add(size); waiting > notifyBytes && waiting > size {
		c.waiting.Add(-size)
		return false
	}
	select {
	case c.out <- b:
		return true
	default:
		c.waiting.Add(-size)
		return false
	}
}

func (c *stdioClient) line(ctx context.Context, line inputLine) {
	if line.toolong {
		c.g.opts.Telemetry.TurnedAway(telemetry.RefusedLarge, telemetry.TransportPipe)
		c.send(ctx, refusal("", "the request is larger than max_body allows"))
		return
	}
	m, err := wire.Parse(line.data)
	if err != nil {
		c.g.opts.Telemetry.TurnedAway(telemetry.RefusedMalformed, telemetry.TransportPipe)
		c.send(ctx, malformed(err))
		return
	}
	switch m.Kind {
	case wire.KindResponse:
		c.session.asked.answered(m)
		return
	case wire.KindNotification:
		if m.Method == "notifications/cancelled" {
			c.session.cancel(cancelledID(m))
		}
		return
	}
	if _, modern := readGiven(m).version(); m.Method == "initialize" && !modern {
		// In order with what follows, since a client may not wait for the answer before it goes on.
		c.handshake(ctx, m)
		return
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.term:
		return
	case <-ctx.Done():
		return
	}
	reqCtx, cancel := context.WithCancel(ctx)
	// Registered before the next line is read: a cancellation that follows finds the request.
	finish := c.session.begin(m.ID, cancel)
	c.running.Go(func() {
		defer func() { <-c.slots }()
		defer cancel()
		defer finish()
		c.request(reqCtx, m)
	})
}

func (c *stdioClient) handshake(ctx context.Context, m wire.Message) {
	accepted := false
	x := &exchange{guest: c.now(), era: upstream.Legacy}
	a := c.g.observe(ctx, x, m, func(ctx context.Context) answer {
		a, ok := x.read(m)
		if ok {
			c.g.awaitStart(ctx, x, handshakeGrace)
			a, accepted = c.g.initialize(x.v, x.params)
			x.version = negotiated(x.params)
		}
		return a
	})
	c.send(ctx, a.message(m.ID))
	if accepted {
		c.session.version.Store(&x.version)
		c.session.asked.declare(x.params)
		c.mu.Lock()
		c.legacy = true
		c.mu.Unlock()
	}
}

// now is the client with what it sees at this moment: the union of its teams, which is there for
// every caller.
func (c *stdioClient) now() guest {
	at, _ := c.g.admit(c.caller, "")
	return at
}

func (c *stdioClient) shookHands() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.legacy
}

func (c *stdioClient) request(ctx context.Context, m wire.Message) {
	n := &stdioNotifier{client: c}
	x := &exchange{guest: c.now(), era: upstream.Legacy, notify: n.notify, channel: channel{n.send, c.ended}, session: c.session}
	a := c.g.observe(ctx, x, m, func(ctx context.Context) answer { return c.answer(ctx, x, m) })
	n.close()
	if a.silent || ctx.Err() != nil {
		return
	}
	c.send(ctx, a.message(m.ID))
}

// stdioNotifier sends the notifications of one request until it is answered.
type stdioNotifier struct {
	client *stdioClient

	mu     sync.Mutex // guards closed, and keeps a notification ahead of the answer
	closed bool
}

func (n *stdioNotifier) notify(method string, params jsontext.Value) {
	n.send(wire.AppendNotification(nil, method, params))
}

// send queues a message; false when it is lost.
func (n *stdioNotifier) send(b []byte) bool {
	sent, full := n.put(b)
	if full {
		n.client.g.opts.Telemetry.MessageDropped(telemetry.TransportPipe)
	}
	return sent
}

// put queues a message; full says that it is lost because the client does not read.
func (n *stdioNotifier) put(b []byte) (sent, full bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false, false
	}
	sent = n.client.offer(b)
	return sent, !sent
}

func (n *stdioNotifier) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
}

func (c *stdioClient) answer(ctx context.Context, x *exchange, m wire.Message) answer {
	if _, modern := readGiven(m).version(); modern {
		if a, ok := x.read(m); !ok {
			return a
		}
		if a, ok := x.readModern(); !ok {
			return a
		}
		if x.method == "subscriptions/listen" {
			return c.listen(ctx, x, m)
		}
		return c.g.handle(ctx, x)
	}
	if c.shookHands() {
		return c.g.handleLegacy(ctx, c.session, x, m)
	}
	switch m.Method {
	case "ping":
		return c.g.handleLegacy(ctx, c.session, x, m)
	case "server/discover":
		return invalidParams(`params._meta["` + metaVersion + `"] is required`)
	}
	return handshakeFirst()
}

// listen serves subscriptions/listen. When the client cancels it, nothing more is sent for it.
func (c *stdioClient) listen(ctx context.Context, x *exchange, m wire.Message) answer {
	sub, a := newSubscription(m.ID, x)
	if sub == nil {
		return a
	}
	// A subscription is no work in progress and takes no place from calls.
	<-c.slots
	defer func() { c.slots <- struct{}{} }()
	c.g.subscribe(ctx, sub, c.ended, func(b []byte) error {
		c.send(ctx, b)
		return ctx.Err()
	}, nil)
	return answer{silent: true, result: jsontext.Value("{}")}
}

// announce tells a legacy client of changed lists, once it has shaken hands.
func (c *stdioClient) announce(ctx context.Context) {
	list := c.g.watch(c.now())
	defer list.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-list.signal:
			for _, method := range list.changed(c.g).notifications() {
				if c.shookHands() {
					c.send(ctx, wire.AppendNotification(nil, method, nil))
				}
			}
			c.session.updates.settle(c.g, list.guest, true)
		case <-c.session.updates.ready:
			for _, params := range c.session.updates.take(c.g, list.guest) {
				c.send(ctx, wire.AppendNotification(nil, resourceUpdated, updatedFor(params, "")))
			}
		}
	}
}
