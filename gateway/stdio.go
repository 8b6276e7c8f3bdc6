package gateway

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// maxConcurrent bounds the requests of one stdio client that run at a time. More wait unread in the
// pipe, so that a client which only writes cannot make memory grow.
const maxConcurrent = 256

// ServeStdio serves one client over newline-delimited messages, both eras at once (2026-07-28, basic/
// transports/stdio), until in ends, ctx ends, or a write fails. It returns nil when in ended. Reads of
// in that do not end with ctx are left behind, which is why ServeStdio is for a process's own stdin.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &stdioClient{
		g:       g,
		caller:  authz.Anonymous(),
		session: newSession(authz.Anonymous().Subject, ""),
		out:     make(chan []byte, 64),
		fail:    cancel,
		slots:   make(chan struct{}, maxConcurrent),
	}
	var writer sync.WaitGroup
	var writeErr error
	writer.Go(func() {
		for b := range c.out {
			if writeErr == nil {
				if _, writeErr = out.Write(append(b, '\n')); writeErr != nil {
					cancel() // the host is gone; go on only to let the senders finish
				}
			}
		}
	})
	lines := make(chan []byte)
	readErr := make(chan error, 1)
	go func() { readErr <- readLines(ctx, in, g.config().MaxBody, c, lines) }()

	var announcer sync.WaitGroup
	announcer.Go(func() { c.announce(ctx) })
	var err error
	for reading := true; reading; {
		select {
		case line := <-lines:
			c.message(ctx, line)
		case err = <-readErr:
			reading = false
		case <-ctx.Done():
			reading = false
		}
	}
	cancel()
	announcer.Wait()
	c.running.Wait()
	close(c.out)
	writer.Wait()
	if writeErr != nil {
		return writeErr
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readLines hands on one line at a time.
func readLines(ctx context.Context, in io.Reader, limit int64, c *stdioClient, lines chan<- []byte) error {
	r := wire.NewLineReader(in, int(limit))
	for {
		line, err := r.Next()
		var big *wire.OversizeError
		if errors.As(err, &big) {
			c.send(ctx, wire.AppendError(nil, "", wire.ErrorObject(wire.CodeInvalidRequest, "the request is larger than max_body allows", nil)))
			continue
		}
		if err != nil {
			return err
		}
		if len(line) == 0 {
			continue
		}
		select {
		case lines <- append([]byte(nil), line...):
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
	out     chan []byte
	fail    context.CancelFunc
	slots   chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex // guards legacy
	legacy bool       // a handshake has taken place
}

// send queues a message; it waits for a client that reads slowly, within ctx.
func (c *stdioClient) send(ctx context.Context, b []byte) {
	select {
	case c.out <- wire.OneLine(b):
	case <-ctx.Done():
	}
}

func (c *stdioClient) message(ctx context.Context, line []byte) {
	m, err := wire.Parse(line)
	if err != nil {
		var e *wire.Error
		errors.As(err, &e)
		c.send(ctx, wire.AppendError(nil, e.ID, wire.ErrorObject(e.Code, e.Message, nil)))
		return
	}
	switch m.Kind {
	case wire.KindResponse:
		return // Headgate has asked nothing
	case wire.KindNotification:
		if m.Method == "notifications/cancelled" {
			c.session.cancel(cancelledID(m))
		}
		return
	}
	select {
	case c.slots <- struct{}{}:
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

func (c *stdioClient) request(ctx context.Context, m wire.Message) {
	x := &exchange{era: upstream.Legacy, version: c.session.version, caller: c.caller}
	x.notify = func(method string, params jsontext.Value) {
		// A full queue drops what may be dropped rather than hold up an upstream.
		select {
		case c.out <- wire.OneLine(wire.AppendNotification(nil, method, params)):
		default:
		}
	}
	a := c.answer(ctx, x, m)
	if a.silent || ctx.Err() != nil {
		return
	}
	c.send(ctx, a.message(m.ID))
}

func (c *stdioClient) answer(ctx context.Context, x *exchange, m wire.Message) answer {
	if _, modern := bodyVersion(m); modern {
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
	if m.Method == "initialize" {
		if a, ok := x.read(m); !ok {
			return a
		}
		version, a := c.g.initialize(c.g.snapshot.Load(), x.params)
		if version != "" {
			c.mu.Lock()
			c.legacy = true
			c.mu.Unlock()
		}
		return a
	}
	c.mu.Lock()
	legacy := c.legacy
	c.mu.Unlock()
	if !legacy && m.Method != "ping" {
		if m.Method == "server/discover" {
			return invalidParams(`params._meta["` + metaVersion + `"] is required`)
		}
		return protocolError(wire.CodeInvalidRequest, "send initialize first, or speak protocol version "+modernVersion, nil, 400)
	}
	return c.g.handleLegacy(ctx, c.session, x, m)
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
	c.g.subscribe(ctx, sub, func(b []byte) error {
		c.send(ctx, b)
		return ctx.Err()
	}, nil)
	return answer{silent: true}
}

// announce tells a legacy client of changed lists, once it has shaken hands.
func (c *stdioClient) announce(ctx context.Context) {
	changes, cancel := c.g.subs.subscribe()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			c.mu.Lock()
			legacy := c.legacy
			c.mu.Unlock()
			if legacy {
				c.send(ctx, wire.AppendNotification(nil, "notifications/tools/list_changed", nil))
			}
		}
	}
}
