package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// sse is the deprecated HTTP+SSE transport (2024-11-05, basic/transports): one GET stream carries
// everything the server says, and every message to it is a POST of its own.
type sse struct {
	*duplex
	httpCore
	endpoint string
	cancel   context.CancelFunc // ends the stream
	idle     func()
}

// roundTrip is the duplex's. The POST of the request runs beside it, and may still do so when the answer has
// come over the stream, so that its tries are for the call to make and not for the POST.
func (s *sse) roundTrip(ctx context.Context, r *request) (wire.Message, error) {
	r.tries, r.remake = nil, nil
	return s.duplex.roundTrip(ctx, r)
}

// openSSE opens the stream and waits for the endpoint event; ctx bounds that wait only.
func (u *Upstream) openSSE(ctx context.Context) (_ *sse, err error) {
	client, tr := newHTTPClient(u.cfg)
	core := httpCore{server: u.cfg.ID, engine: newEngine(client), configured: configuredHeaders(u.cfg.Headers), creds: u.creds, redact: u.redact, maxAnswer: u.cfg.MaxAnswer}
	streamCtx, cancel := context.WithCancel(context.Background())
	// The wait for headers must end with ctx although the stream outlives it.
	release := context.AfterFunc(ctx, cancel)
	defer func() {
		if err != nil {
			cancel()
			tr.CloseIdleConnections()
		}
	}()
	h := maps.Clone(core.configured)
	h["Accept"] = []string{"text/event-stream"}
	resp, err := core.do(streamCtx, http.MethodGet, u.cfg.URL, nil, h, nil)
	if err != nil {
		release()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || mediaType(resp) != "text/event-stream" {
		release()
		resp.Body.Close()
		return nil, core.statusFailure(resp)
	}
	events := wire.NewEventReader(resp.Body, int(u.cfg.MaxAnswer))
	endpoint, err := readEndpoint(events, u.cfg.URL)
	if err == nil && !release() {
		err = ctx.Err()
	}
	if err != nil {
		resp.Body.Close()
		return nil, core.failure(failure.BadUpstreamAnswer, failure.NotStarted, err)
	}
	s := &sse{httpCore: core, endpoint: endpoint, cancel: cancel, idle: tr.CloseIdleConnections}
	read := func() ([]byte, error) {
		for {
			e, err := events.Next()
			if errors.Is(err, wire.ErrEventTooLarge) {
				return nil, &wire.OversizeError{}
			}
			if err != nil {
				return nil, pipeError("reading the stream", err)
			}
			if e.Type == "" || e.Type == "message" {
				return e.Data, nil
			}
		}
	}
	s.duplex = u.newDuplex(read, func(o *outgoing) error { return s.write(streamCtx, o) }, func() {
		cancel()
		resp.Body.Close()
	})
	return s, nil
}

// readEndpoint reads the first event and resolves it. The address must stay on the same origin: the
// configured credentials go there.
func readEndpoint(events *wire.EventReader, base string) (string, error) {
	e, err := events.Next()
	if err != nil {
		return "", fmt.Errorf("waiting for the endpoint event: %w", err)
	}
	if e.Type != "endpoint" {
		return "", errors.New("the first event of the stream is not an endpoint event")
	}
	from, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	to, err := from.Parse(string(e.Data))
	if err != nil {
		return "", errors.New("the endpoint event holds no URL")
	}
	if to.Scheme != from.Scheme || to.Host != from.Host {
		return "", errors.New("the endpoint event names another origin")
	}
	return to.String(), nil
}

// write posts one message; ctx ends with the stream. A request is posted on a goroutine of its own,
// since a server may take its time to accept one; everything else keeps its order.
func (s *sse) write(ctx context.Context, o *outgoing) error {
	if o.req == nil {
		ctx, cancel := context.WithTimeout(ctx, backgroundTimeout)
		defer cancel()
		if err := s.post(ctx, o); err != nil {
			s.log.Debug("a message without an answer was not delivered", "error", err.Error())
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s.duplex.wg.Go(func() {
		// A post that the server never acknowledges must not outlive its request for long.
		select {
		case <-o.over:
			wait(ctx, backgroundTimeout)
		case <-ctx.Done():
		}
		cancel()
	})
	s.duplex.wg.Go(func() {
		defer cancel()
		err := s.post(ctx, o)
		close(o.done)
		if err != nil {
			s.failOne(o.req.id, err)
			var hop *hopError
			if errors.As(err, &hop) {
				s.fail(err)
			}
		}
	})
	return nil
}

func (s *sse) post(ctx context.Context, o *outgoing) error {
	h := maps.Clone(s.configured)
	h["Content-Type"] = []string{"application/json"}
	resp, err := s.do(ctx, http.MethodPost, s.endpoint, o.data, h, o.req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return &hopError{sessionLost, errors.New("HTTP 404 to a message")}
	case resp.StatusCode >= 300:
		return s.statusFailure(resp)
	}
	return nil
}

func (s *sse) close() {
	s.duplex.close()
	s.cancel()
	s.idle()
}

var _ transport = (*sse)(nil)
