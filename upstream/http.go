package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// streamable is the client side of Streamable HTTP in both eras (2026-07-28, basic/transports/
// streamable-http; 2025-11-25, basic/transports). Every request is an HTTP exchange of its own, so
// one that goes wrong touches no other.
type streamable struct {
	httpCore
	url        string
	streamOver int64 // see configs.Upstream
	events     events
	log        *slog.Logger
	noise      *limiter // warnings about what the server says, so that it cannot flood the log
	ids        *atomic.Int64
	idle       func() // closes idle connections

	peer    atomic.Pointer[peer]
	session atomic.Pointer[string] // legacy: Mcp-Session-Id, nil for none

	failOnce sync.Once
	err      error // why the link was lost; valid once gone is closed
	gone     chan struct{}
	later    background
	inFlight atomic.Int64 // requests
	asking   *callers     // the calls in flight of a session that is kept apart; nil where it is shared
}

func (u *Upstream) newStreamable() *streamable {
	client, tr := newHTTPClient(u.cfg)
	return &streamable{
		asking:     u.newCallers(),
		httpCore:   httpCore{server: u.cfg.ID, engine: newEngine(client), configured: configuredHeaders(u.cfg.Headers), creds: u.creds, redact: u.redact, maxAnswer: u.cfg.MaxAnswer, lent: new(buffers)},
		streamOver: u.cfg.StreamOver,
		url:        u.cfg.URL,
		events:     u.events(),
		log:        u.log,
		noise:      newLimiter(20, time.Minute),
		ids:        &u.ids,
		idle:       tr.CloseIdleConnections,
		gone:       make(chan struct{}),
	}
}

func configuredHeaders(m map[string]string) http.Header {
	h := make(http.Header, len(m))
	for k, v := range m {
		h.Set(k, v)
	}
	return h
}

func (s *streamable) negotiated(p *peer) { s.peer.Store(p) }

func (s *streamable) lost() <-chan struct{} { return s.gone }

func (s *streamable) cause() error {
	<-s.gone
	return s.err
}

func (s *streamable) fail(err error) {
	s.failOnce.Do(func() {
		s.err = err
		close(s.gone)
	})
}

// close ends the session (legacy) and whatever is still sent in the background. A session in which
// calls are in flight is left to the server, which drops it when it is idle.
func (s *streamable) close() {
	lost := false
	select {
	case <-s.gone:
		lost = true
	default:
	}
	s.fail(errClosed)
	if id := s.session.Load(); id != nil && !lost && s.inFlight.Load() == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if resp, err := s.do(ctx, http.MethodDelete, s.url, nil, s.headers(""), nil); err == nil {
			resp.Body.Close()
		}
		cancel()
	}
	s.later.close()
	s.idle()
}

// headers builds the headers of one request from scratch: nothing of the client's own request is in
// them but what the configuration lets through.
func (s *streamable) headers(method string) http.Header {
	// With room for all that is put in, the map does not grow.
	h := make(http.Header, len(s.configured)+8)
	maps.Copy(h, s.configured)
	h["Accept"] = []string{"application/json, text/event-stream"}
	if p := s.peer.Load(); p != nil {
		// The header came with 2025-06-18.
		if p.version >= "2025-06-18" {
			h["Mcp-Protocol-Version"] = []string{p.version}
		}
		if p.era == Modern && method != "" {
			h["Mcp-Method"] = []string{method}
		}
	}
	if id := s.session.Load(); id != nil {
		h["Mcp-Session-Id"] = []string{*id}
	}
	return h
}

func (s *streamable) post(ctx context.Context, body []byte, method string, r *request) (*http.Response, error) {
	h := s.headers(method)
	h["Content-Type"] = []string{"application/json"}
	if r != nil {
		maps.Copy(h, r.header)
	}
	return s.do(ctx, http.MethodPost, s.url, body, h, r)
}

func (s *streamable) roundTrip(ctx context.Context, r *request) (wire.Message, error) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	defer s.asking.add(r)()
	m, err := s.exchange(ctx, r)
	if err != nil && ctx.Err() != nil {
		// A modern server takes the closed stream as the cancellation; a legacy one has to be told.
		if p := s.peer.Load(); p != nil && p.era == Legacy && r.cancellable() && r.sent.Load() {
			s.cancelLater(r.id)
		}
		return wire.Message{}, ctx.Err()
	}
	return m, err
}

func (s *streamable) exchange(ctx context.Context, r *request) (wire.Message, error) {
	resp, err := s.post(ctx, wire.AppendRequest(make([]byte, 0, len(r.method)+len(r.params)+64), r.id, r.method, r.params), r.method, r)
	if err != nil {
		return wire.Message{}, err
	}
	defer resp.Body.Close()
	if r.method == "initialize" && resp.StatusCode == http.StatusOK {
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" && validSessionID(id) {
			s.session.Store(&id)
		}
	}
	if resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream" {
		return s.readStream(ctx, resp, r)
	}
	return s.readAnswer(resp, r)
}

// validSessionID holds a server to visible ASCII (2025-11-25, basic/transports, "Session
// Management"), since the value goes back into a header.
func validSessionID(id string) bool {
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return false
		}
	}
	return len(id) <= 4096
}

// readAnswer reads an answer that is one body, whatever its status.
func (s *streamable) readAnswer(resp *http.Response, r *request) (wire.Message, error) {
	var body []byte
	var err error
	if n := s.passable(resp, r); n > 0 {
		room := newPiece()
		defer r.free(room)
		if body, err = readHead(resp.Body, n, room.b); err == nil && int64(len(body)) == n {
			if p, at, ok := s.beginning(r, body, resp.ContentLength); ok {
				return s.pass(r, p, at, resp.Body, room)
			}
		}
	}
	if err == nil {
		body, r.body, err = s.readBody(resp, body)
	}
	if err != nil {
		if errors.Is(err, errTooLarge) {
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, err)
		}
		return wire.Message{}, s.failure(failure.ConnectionLost, failure.Unknown, fmt.Errorf("reading the answer: %w", err))
	}
	m, perr := wire.Parse(body)
	own := perr == nil && m.Kind == wire.KindResponse && m.ID == r.wireID()
	nobody := perr == nil && m.Kind == wire.KindResponse && m.ID == "" && m.Error != nil
	if own || nobody {
		if err := s.hopFault(resp.StatusCode, m); err != nil {
			return m, err
		}
		switch {
		case resp.StatusCode == http.StatusOK:
			return m, nil
		case own && m.Error != nil && resp.StatusCode != http.StatusUnauthorized:
			return m, nil // an error about the request comes with any status
		case nobody && resp.StatusCode == http.StatusBadRequest:
			return m, nil // any other status says more than an error about no request
		}
	} else if err := s.hopFault(resp.StatusCode, wire.Message{}); err != nil {
		return wire.Message{}, err
	}
	switch {
	case resp.StatusCode >= 300:
		return wire.Message{}, s.statusFailure(resp)
	case perr != nil:
		return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, fmt.Errorf("HTTP %d with a body that is not a message (%w)", resp.StatusCode, perr))
	}
	return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, fmt.Errorf("HTTP %d with a message that is not the answer to the request", resp.StatusCode))
}

// hopFault tells answers about the hop from answers about the request. m is empty when the body was
// no message. A server that lost a session says 404 (2025-11-25, basic/transports, "Session
// Management"); some say 400 with an error that names no request.
func (s *streamable) hopFault(status int, m wire.Message) error {
	p := s.peer.Load()
	if p == nil || p.probing {
		return nil // the prober judges
	}
	if status != http.StatusBadRequest && status != http.StatusNotFound {
		return nil // as nearly always: the hop is only doubted with one of these
	}
	code, text, _ := wire.ErrorCode(m.Error)
	cause := fmt.Errorf("HTTP %d, error %d %q", status, code, s.redact.clip(text, 100))
	if p.era == Legacy {
		switch {
		case status == http.StatusBadRequest && (code == wire.CodeUnsupportedVersion || code == wire.CodeHeaderMismatch):
			return &hopError{eraChanged, cause}
		case status == http.StatusBadRequest && m.ID != "" && code == wire.CodeInvalidParams:
			// What a modern server says to a request without its _meta fields (2026-07-28, basic,
			// "Per-request protocol fields"), and what a legacy one may say to bad arguments.
			return &hopError{eraDoubtful, cause}
		case s.session.Load() == nil:
		case status == http.StatusNotFound && (m.ID == "" || code != wire.CodeMethodNotFound):
			return &hopError{sessionLost, cause}
		case status == http.StatusBadRequest && m.ID == "":
			return &hopError{sessionLost, cause}
		}
		return nil
	}
	// These errors come with status 400; with any other the code is the server's own affair.
	switch {
	case status != http.StatusBadRequest:
	case code == wire.CodeHeaderMismatch:
		return &hopError{headerMismatch, cause}
	case code == wire.CodeUnsupportedVersion:
		return &hopError{eraChanged, cause}
	case m.ID == "":
		// Modern servers name the request in their errors; this one asks for a session.
		return &hopError{eraChanged, cause}
	}
	return nil
}

// readStream reads an SSE answer up to the response.
func (s *streamable) readStream(ctx context.Context, resp *http.Response, r *request) (wire.Message, error) {
	st := streamState{}
	for {
		m, err := s.readEvents(resp, r, &st)
		if err == nil || r.passed || st.lastID == "" || ctx.Err() != nil || s.session.Load() == nil {
			return m, err
		}
		// The server primed the stream for being taken up again (2025-11-25, basic/transports,
		// "Resumability and Redelivery").
		if st.resumed++; st.resumed > 20 {
			return m, err
		}
		next, rerr := s.resume(ctx, &st)
		if rerr != nil {
			return wire.Message{}, s.failure(failure.ConnectionLost, failure.Unknown, fmt.Errorf("%w; taking the stream up again: %w", err, rerr))
		}
		defer next.Body.Close()
		resp = next
	}
}

type streamState struct {
	lastID  string
	retry   time.Duration
	resumed int
}

func (s *streamable) readEvents(resp *http.Response, r *request, st *streamState) (wire.Message, error) {
	events := wire.NewEventReader(resp.Body, int(s.maxAnswer))
	want := r.wireID()
	for {
		e, err := events.NextOver(int(s.streamOver))
		if err == nil && e.Open {
			if m, ok, err := s.passEvent(r, e, events); ok {
				return m, err
			}
			e, err = events.Next()
		}
		if errors.Is(err, wire.ErrEventTooLarge) {
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, errTooLarge)
		}
		if err != nil {
			return wire.Message{}, s.failure(failure.ConnectionLost, failure.Unknown, fmt.Errorf("the stream ended without an answer: %w", err))
		}
		if e.HasID {
			st.lastID = e.ID
		}
		if e.Retry > 0 {
			st.retry = min(e.Retry, time.Minute)
		}
		if len(e.Data) == 0 || e.Type != "" && e.Type != "message" {
			continue
		}
		data := append([]byte(nil), e.Data...)
		m, err := wire.Parse(data)
		if err != nil {
			if id, ok := scanID(data, data); ok && id == r.id {
				return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, fmt.Errorf("an event that is not a message: %w", err))
			}
			s.warn("an event that is not a message is skipped", "reason", wire.Bare(err))
			continue
		}
		switch {
		case m.Kind == wire.KindResponse && (m.ID == want || m.ID == "" && m.Error != nil):
			return m, s.hopFault(resp.StatusCode, m)
		case m.Kind == wire.KindResponse:
			s.warn("an answer to another request is dropped", "id", clip(string(m.ID), 64))
		case m.Kind == wire.KindRequest:
			s.ask(m, r)
		case s.own(m, r) && r.onNotify != nil:
			r.onNotify(m)
		default:
			s.events.handle(m)
		}
	}
}

func (s *streamable) warn(msg string, args ...any) {
	if s.noise.allow() {
		s.log.Warn(msg, args...)
	}
}

// own reports whether a notification on r's stream belongs to r.
func (s *streamable) own(m wire.Message, r *request) bool {
	switch m.Method {
	case "notifications/progress":
		id, ok := progressID(m.Params)
		return ok && id == r.id
	case "notifications/message", "notifications/subscriptions/acknowledged", "notifications/cancelled",
		"notifications/elicitation/complete", "notifications/tasks", "notifications/tasks/status":
		return true
	}
	return false
}

func (s *streamable) resume(ctx context.Context, st *streamState) (*http.Response, error) {
	wait := time.NewTimer(max(st.retry, 100*time.Millisecond))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.openStream(ctx, st.lastID)
}

func (s *streamable) notify(ctx context.Context, method string, params jsontext.Value) error {
	return s.send(ctx, wire.AppendNotification(nil, method, params), method)
}

// send posts a message that expects no answer.
func (s *streamable) send(ctx context.Context, body []byte, method string) error {
	resp, err := s.post(ctx, body, method, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return s.statusFailure(resp)
	}
	return nil
}

func (s *streamable) cancelLater(id int64) {
	params := jsontext.Value(`{"requestId":` + strconv.FormatInt(id, 10) + `,"reason":"the request was given up"}`)
	s.sendLater(wire.AppendNotification(nil, "notifications/cancelled", params), "notifications/cancelled")
}

func (s *streamable) answerLater(body []byte) { s.sendLater(body, "") }

func (s *streamable) sendLater(body []byte, method string) {
	s.later.run(func(ctx context.Context) {
		if err := s.send(ctx, body, method); err != nil {
			s.log.Debug("a message without an answer was not delivered", "method", method, "error", err.Error())
		}
	})
}

var _ transport = (*streamable)(nil)
