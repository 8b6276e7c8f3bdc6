package mcptest

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// HTTP is a Server that listens on a port of the loopback interface.
type HTTP struct {
	// URL is where clients connect. It stays the same over Stop and Start.
	URL string

	t       testing.TB
	handler func(h *HTTP, w http.ResponseWriter, r *http.Request)

	mu       sync.Mutex // guards the fields below
	addr     string
	server   *http.Server
	listener net.Listener
	stopped  bool
	cancel   context.CancelFunc
	hijacked []net.Conn
	running  sync.WaitGroup // handlers, and answers on HTTP+SSE streams
	door     door
}

// StartHTTP serves the Streamable HTTP transport of the server's era at a URL
// that ends in /mcp, until the test ends.
func (s *Server) StartHTTP(t testing.TB) *HTTP {
	t.Helper()
	return start(t, "/mcp", s.serveHTTP)
}

func start(t testing.TB, path string, handler func(*HTTP, http.ResponseWriter, *http.Request)) *HTTP {
	t.Helper()
	h := &HTTP{t: t, addr: Reserve(t), handler: handler, stopped: true}
	h.Start()
	h.URL = "http://" + h.addr + path
	t.Cleanup(h.Stop)
	return h
}

// Start listens again on the port, which nobody else had meanwhile. Sessions are still known;
// see Server.Forget.
func (h *HTTP) Start() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		return
	}
	ln, err := net.Listen("tcp", h.addr)
	if err != nil {
		h.t.Fatalf("listening on %s: %v", h.addr, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.listener, h.cancel, h.stopped = ln, cancel, false
	h.server = &http.Server{
		Handler:     http.HandlerFunc(h.serve),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState:   h.state,
	}
	server := h.server
	h.running.Go(func() { _ = server.Serve(&doorListener{ln, h}) })
}

// Stop stops listening, breaks off every connection and waits for the handlers. When it returns, the clients
// know: a request of theirs goes to no connection that is dead already.
func (h *HTTP) Stop() {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return
	}
	h.stopped = true
	_ = h.listener.Close()
	h.hangUp()
	h.cancel()
	_ = h.server.Close()
	for _, c := range h.hijacked {
		_ = c.Close()
	}
	h.hijacked = nil
	h.mu.Unlock()
	h.running.Wait()
}

// Close is Stop.
func (h *HTTP) Close() { h.Stop() }

// run counts f among the work that Stop waits for; it says whether f ran.
func (h *HTTP) run(f func()) bool {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return false
	}
	h.running.Add(1)
	h.mu.Unlock()
	defer h.running.Done()
	f()
	return true
}

func (h *HTTP) serve(w http.ResponseWriter, r *http.Request) {
	h.run(func() { h.handler(h, w, r) })
}

// serveHTTP is the MCP endpoint of Streamable HTTP.
func (s *Server) serveHTTP(h *HTTP, w http.ResponseWriter, r *http.Request) {
	m, ok := s.receive(w, r)
	if !ok {
		return
	}
	switch {
	case s.OnHTTP != nil && s.OnHTTP(w, r):
	case r.URL.Path != "/mcp":
		http.NotFound(w, r)
	case r.Method == http.MethodPost:
		s.post(h, w, r, m)
	case s.modern():
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet:
		s.get(w, r)
	case r.Method == http.MethodDelete:
		s.delete(w, r)
	default:
		http.Error(w, "POST, GET or DELETE", http.StatusMethodNotAllowed)
	}
}

// receive reads and records an HTTP request.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) (message, bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "reading the body", http.StatusBadRequest)
		return message{}, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Method != http.MethodPost {
		s.record(Recorded{Method: r.Method, Header: r.Header.Clone()})
		return message{}, true
	}
	m := parse(body)
	s.record(Recorded{Method: m.method, Body: body, Header: r.Header.Clone()})
	return m, true
}

func (s *Server) post(h *HTTP, w http.ResponseWriter, r *http.Request, m message) {
	out := &httpSink{h: h, w: w, sse: s.ForceSSE}
	defer out.finish()
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	accept := r.Header.Get("Accept")
	switch {
	case media != "application/json":
		out.raw(http.StatusUnsupportedMediaType, "text/plain", "Content-Type must be application/json")
		return
	case !accepts(accept, "application/json") || !accepts(accept, "text/event-stream"):
		out.raw(http.StatusNotAcceptable, "text/plain", "Accept must list application/json and text/event-stream")
		return
	case m.invalid != 0 || s.modern() && m.isResponse():
		code := m.invalid
		if code == 0 {
			code = codeInvalidRequest
		}
		out.raw(http.StatusBadRequest, "application/json", string(errorResponse(m.id, rpcError(code, "not a JSON-RPC message", ""))))
		return
	}
	p, known := s.session(r)
	if m.isRequest() {
		c := &Call{Method: m.method, ID: m.id, Params: m.params, Header: r.Header, srv: s, peer: p, out: out, modern: s.modern()}
		defer p.begin(r.Context(), c)()
		if s.OnRequest != nil && s.OnRequest(c) {
			return
		}
		if !s.modern() && !s.admit(out, r, c, known) {
			return
		}
		s.serve(c)
		return
	}
	if status, text := s.sessionError(r, known); text != "" {
		out.raw(status, "application/json", text)
		return
	}
	if m.isResponse() {
		p.answered(m)
	} else {
		s.notified(p, m)
	}
	out.raw(http.StatusAccepted, "", "")
}

// admit checks a legacy request's session and version, and opens a session
// for initialize. It answers the request itself when it refuses it.
func (s *Server) admit(out *httpSink, r *http.Request, c *Call, known bool) bool {
	if s.Stateless {
		if text := s.versionError(r); text != "" && c.Method != "initialize" {
			out.raw(http.StatusBadRequest, "application/json", text)
			return false
		}
		return true
	}
	if c.Method == "initialize" {
		c.peer = s.newSession()
		out.header("Mcp-Session-Id", c.peer.id)
		return true
	}
	if s.SilentDiscover && r.Header.Get("Mcp-Session-Id") == "" && !s.knows(c.Method) {
		<-c.Ctx.Done()
		return false
	}
	if status, text := s.sessionError(r, known); text != "" {
		out.raw(status, "application/json", text)
		return false
	}
	return true
}

// sessionError says what is wrong with a legacy request's session or version,
// in words that a modern client does not take for its own era's.
func (s *Server) sessionError(r *http.Request, known bool) (status int, body string) {
	if s.modern() {
		return 0, ""
	}
	if !s.Stateless {
		switch {
		case r.Header.Get("Mcp-Session-Id") == "":
			return http.StatusBadRequest, string(errorResponse("", rpcError(-32000, "Bad Request: Mcp-Session-Id header is required", "")))
		case !known:
			return http.StatusNotFound, string(errorResponse("", rpcError(-32001, "Session not found", "")))
		}
	}
	if text := s.versionError(r); text != "" {
		return http.StatusBadRequest, text
	}
	return 0, ""
}

// versionError checks MCP-Protocol-Version as servers since 2025-06-18 do.
func (s *Server) versionError(r *http.Request) string {
	v := r.Header.Get("Mcp-Protocol-Version")
	known := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}
	if v == "" || s.version() < "2025-06-18" || v == s.version() || slices.Contains(known, v) && v < s.version() {
		return ""
	}
	return string(errorResponse("", rpcError(-32000, "Bad Request: Unsupported protocol version", "")))
}

// session finds the peer of a request; without a session that is one peer for
// all such clients.
func (s *Server) session(r *http.Request) (p *peer, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.sessions[r.Header.Get("Mcp-Session-Id")]; ok && !s.modern() {
		return p, true
	}
	if s.nobody == nil {
		s.nobody = &peer{}
	}
	return s.nobody, false
}

func (s *Server) newSession() *peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &peer{id: rand.Text()}
	if s.sessions == nil {
		s.sessions = map[string]*peer{}
	}
	s.sessions[p.id] = p
	s.touch()
	return p
}

// get is the notification stream of a legacy session.
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	p, known := s.session(r)
	switch {
	case s.NoGET:
		http.Error(w, "no stream here", http.StatusMethodNotAllowed)
		return
	case !accepts(r.Header.Get("Accept"), "text/event-stream"):
		http.Error(w, "Accept must list text/event-stream", http.StatusNotAcceptable)
		return
	}
	if status, text := s.sessionError(r, known); text != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		return
	}
	if s.Stateless {
		// Without sessions every stream is a client of its own.
		p = &peer{}
	}
	out := &httpSink{w: w}
	defer out.finish()
	ended := make(chan struct{})
	closed := s.open(&stream{peer: p, send: out.send, end: onceClose(ended)})
	defer closed()
	out.writeSSE([]byte(":\n\n"))
	s.idle(r.Context().Done(), ended, out)
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	p, known := s.session(r)
	if s.Stateless {
		http.Error(w, "no sessions here", http.StatusMethodNotAllowed)
		return
	}
	if status, text := s.sessionError(r, known); text != "" {
		http.Error(w, text, status)
		return
	}
	s.mu.Lock()
	delete(s.sessions, p.id)
	var ends []func()
	for _, st := range s.streams {
		if st.peer == p {
			ends = append(ends, st.end)
		}
	}
	s.touch()
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
	w.WriteHeader(http.StatusNoContent)
}

// accepts says whether an Accept header covers a media type.
func accepts(header, media string) bool {
	for part := range strings.SplitSeq(header, ",") {
		v, _, _ := mime.ParseMediaType(part)
		major, _, _ := strings.Cut(media, "/")
		if v == media || v == "*/*" || v == major+"/*" {
			return true
		}
	}
	return false
}
