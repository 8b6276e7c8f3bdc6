package mcptest

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"sync"
	"testing"
)

var _ sink = (*sseSink)(nil)

// sseSink writes messages on a client's HTTP+SSE stream.
type sseSink struct{ out *httpSink }

func (s sseSink) reply(_ int, msg []byte) { s.send(msg) }
func (s sseSink) send(msg []byte)         { s.out.writeSSE(sseEvent("message", msg)) }

// sseClient is one open HTTP+SSE stream.
type sseClient struct {
	peer *peer
	out  sseSink
	ctx  context.Context // done when the stream ends
}

// StartSSE serves the deprecated HTTP+SSE transport of 2024-11-05 at a URL
// that ends in /sse, until the test ends: GET opens the stream, whose first
// event "endpoint" names where to POST; a POST gets 202 and its answer comes on
// the stream.
func (s *Server) StartSSE(t testing.TB) *HTTP {
	t.Helper()
	clients := &sseClients{byID: map[string]*sseClient{}}
	return start(t, "/sse", func(h *HTTP, w http.ResponseWriter, r *http.Request) {
		m, ok := s.receive(w, r)
		if !ok || s.OnHTTP != nil && s.OnHTTP(w, r) {
			return
		}
		switch {
		case r.URL.Path == "/sse" && r.Method == http.MethodGet:
			s.sseStream(clients, w, r)
		case r.URL.Path == "/messages" && r.Method == http.MethodPost:
			s.ssePost(h, clients, w, r, m)
		case r.URL.Path == "/sse" || r.URL.Path == "/messages":
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			http.NotFound(w, r)
		}
	})
}

func (s *Server) sseStream(clients *sseClients, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	id := rand.Text()
	c := &sseClient{peer: &peer{id: id}, out: sseSink{&httpSink{w: w}}, ctx: ctx}
	defer c.out.out.finish()
	clients.put(id, c)
	defer clients.put(id, nil)
	ended := make(chan struct{})
	closed := s.open(&stream{peer: c.peer, send: c.out.send, end: onceClose(ended)})
	defer closed()
	c.out.out.writeSSE(sseEvent("endpoint", []byte("/messages?sessionId="+id)))
	s.idle(ctx.Done(), ended, c.out.out)
}

func (s *Server) ssePost(h *HTTP, clients *sseClients, w http.ResponseWriter, r *http.Request, m message) {
	client := clients.get(r.URL.Query().Get("sessionId"))
	if client == nil {
		http.Error(w, "Session not found", http.StatusNotFound)
		return
	}
	if m.invalid != 0 {
		http.Error(w, "Invalid message", http.StatusBadRequest)
		return
	}
	switch {
	case m.isResponse():
		client.peer.answered(m)
	case m.isRequest():
		c := &Call{Method: m.method, ID: m.id, Params: m.params, Header: r.Header.Clone(), srv: s, peer: client.peer, out: client.out, modern: s.modern()}
		end := client.peer.begin(client.ctx, c)
		h.running.Go(func() {
			defer end()
			if s.OnRequest != nil && s.OnRequest(c) {
				return
			}
			s.serve(c)
		})
	default:
		s.notified(client.peer, m)
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "Accepted")
}

// sseClients is the table of open HTTP+SSE streams.
type sseClients struct {
	mu   sync.Mutex // guards byID
	byID map[string]*sseClient
}

// put adds a client, or removes it when c is nil.
func (t *sseClients) put(id string, c *sseClient) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c == nil {
		delete(t.byID, id)
		return
	}
	t.byID[id] = c
}

func (t *sseClients) get(id string) *sseClient {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}
