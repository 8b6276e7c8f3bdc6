package mcptest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
)

var _ sink = (*httpSink)(nil)

// httpSink answers one HTTP request: with one JSON message, or, once something
// went out before the answer, with an event stream.
type httpSink struct {
	h *HTTP // nil where nothing may be hijacked

	mu    sync.Mutex // guards the fields below
	w     http.ResponseWriter
	sse   bool // answer by an event stream
	begun bool // the status has been written
	over  bool // the handler has returned, or the connection is not ours
}

func (s *httpSink) header(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.Header().Set(name, value)
}

func (s *httpSink) reply(status int, msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && !s.sse || s.over {
		return
	}
	if s.sse && status == http.StatusOK {
		s.event(msg)
		return
	}
	s.write(status, "application/json", msg)
}

func (s *httpSink) send(msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && !s.sse || s.over {
		return
	}
	s.event(msg)
}

func (s *httpSink) raw(status int, contentType, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun || s.over {
		return
	}
	s.write(status, contentType, []byte(body))
}

func (s *httpSink) writeSSE(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun && !s.sse || s.over {
		return
	}
	s.stream(raw)
}

// write sends a whole answer. The caller holds mu.
func (s *httpSink) write(status int, contentType string, body []byte) {
	s.begun, s.sse = true, false
	if contentType != "" {
		s.w.Header().Set("Content-Type", contentType)
	}
	if len(body) > 0 {
		s.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	s.w.WriteHeader(status)
	_, _ = s.w.Write(body)
}

// event sends a message as one event. The caller holds mu.
func (s *httpSink) event(msg []byte) { s.stream(sseEvent("", msg)) }

// sseEvent frames a message; its line breaks become lines of data.
func sseEvent(name string, msg []byte) []byte {
	var b bytes.Buffer
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	for line := range bytes.SplitSeq(msg, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// stream sends bytes of the event stream. The caller holds mu.
func (s *httpSink) stream(raw []byte) {
	s.sse = true
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	_, _ = io.Copy(s.w, bytes.NewReader(raw))
	_ = http.NewResponseController(s.w).Flush()
}

// last sends bytes of the event stream, and lets nothing come after them.
func (s *httpSink) last(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.stream(raw)
		s.over = true
	}
}

func (s *httpSink) hijack() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.h == nil {
		return nil
	}
	conn, _, err := http.NewResponseController(s.w).Hijack()
	if err != nil {
		return nil
	}
	s.over = true
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if s.h.stopped {
		_ = conn.Close()
	}
	s.h.hijacked = append(s.h.hijacked, conn)
	return conn
}

// finish makes sure that nothing is written once the handler has returned.
func (s *httpSink) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sse && !s.begun {
		s.stream(nil)
	}
	s.over = true
}
