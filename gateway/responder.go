package gateway

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
)

const (
	// keepAlive is how often a stream that is silent is given a comment, so that proxies and clients
	// do not take it for dead.
	keepAlive = 20 * time.Second
	// writeLimit is how long a client may take to accept one piece of what is written. Answers and
	// streams have no limit over all.
	writeLimit = 30 * time.Second
	// notifyQueue is how many notifications of one request wait for a client that reads slowly; more
	// are dropped, never held against the upstream.
	notifyQueue = 256
	// notifyBytes is the same in bytes. One notification may be larger if it is the only one.
	notifyBytes = 4 << 20
)

// responder answers one POST. It begins as plain JSON and becomes an SSE stream only if something
// has to be sent before the answer.
type responder struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	stream bool        // the client accepts a stream
	json   bool        // the client accepts plain JSON
	header http.Header // of the request
	// challenge asks the client for scopes; it is called before anything is written.
	challenge func(scopes []string)
	telemetry *telemetry.Telemetry

	mu     sync.Mutex // guards the fields below
	queue  chan []byte
	closed bool
	pump   chan struct{} // closed when the pump has written everything

	waiting atomic.Int64 // bytes in queue

	passing passing // of a large result
}

func newResponder(w http.ResponseWriter, header http.Header, accept acceptable) *responder {
	return &responder{w: w, rc: http.NewResponseController(w), stream: accept.stream, json: accept.json, header: header}
}

// notify queues a notification. It never blocks: the writing is the pump's.
func (r *responder) notify(method string, params jsontext.Value) {
	if !r.stream {
		return
	}
	r.send(wire.AppendNotification(nil, method, params))
}

// channel is the stream for questions to a legacy client.
func (r *responder) channel() channel {
	if !r.stream {
		return channel{}
	}
	return channel{send: r.send}
}

// send queues a message; false when it is lost.
func (r *responder) send(message []byte) bool {
	sent, full := r.put(wire.AppendEvent(nil, "", "", message))
	if full {
		r.telemetry.MessageDropped(telemetry.TransportTCP)
	}
	return sent
}

// put queues an event; full says that it is lost because the client reads too slowly.
func (r *responder) put(event []byte) (sent, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false, false // nothing goes out after the answer
	}
	r.startLocked()
	size := int64(len(event))
	if waiting := r.waiting.Add(size); waiting > notifyBytes && waiting > size {
		r.waiting.Add(-size)
		return false, true
	}
	select {
	case r.queue <- event:
		return true, false
	default:
		r.waiting.Add(-size)
		return false, true
	}
}

func (r *responder) startLocked() {
	if r.queue != nil {
		return
	}
	r.queue = make(chan []byte, notifyQueue)
	r.pump = make(chan struct{})
	go r.run(r.queue)
}

// run writes the stream. Only run touches w from the first notification to the answer.
func (r *responder) run(queue <-chan []byte) {
	defer close(r.pump)
	streamHeaders(r.w.Header())
	r.w.WriteHeader(http.StatusOK)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	broken := false
	for {
		var b []byte
		select {
		case e, ok := <-queue:
			if !ok {
				return
			}
			b = e
			r.waiting.Add(-int64(len(e)))
		case <-tick.C:
			b = wire.AppendComment(nil, "")
		}
		// A client that is gone is noticed by the server, which ends the request's context.
		broken = broken || write(r.w, r.rc, b) != nil
	}
}

func streamHeaders(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// parts is an answer with a result, in parts that follow one another.
func (r *responder) parts(id wire.ID, a answer) [][]byte {
	if parts, ok := r.packedList(id, a); ok {
		return parts[:]
	}
	parts := wire.ResultParts(id, a.result)
	if closed := a.closed(); closed != nil {
		// The last brace in a write of its own would be one more system call.
		return [][]byte{parts[0], closed}
	}
	return parts[:]
}

// closed is the result as the server sent it, with one more brace behind it; nil where that is not known to be there.
func (a answer) closed() []byte {
	if a.reply == nil || len(a.result) == 0 || len(a.reply.Closed) != len(a.result)+1 || &a.reply.Closed[0] != &a.result[0] {
		return nil // also if the result is another one by now
	}
	return a.reply.Closed
}

// writePiece is how many bytes a client has to take within writeLimit.
const writePiece = 256 << 10

// write sends a part of an answer and flushes it. The server takes the deadline of the last write off
// a connection that serves more requests.
func write(w http.ResponseWriter, rc *http.ResponseController, b []byte) error {
	if err := writePieces(w, rc, b); err != nil {
		return err
	}
	return rc.Flush()
}

func writePieces(w http.ResponseWriter, rc *http.ResponseController, b []byte) error {
	for piece := range slices.Chunk(b, writePiece) {
		// Recorders in tests know no deadlines; real connections do.
		_ = rc.SetWriteDeadline(time.Now().Add(writeLimit))
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// finish sends the answer: a whole JSON-RPC message, in parts that follow one another. Without any, the
// exchange ends without an answer.
func (r *responder) finish(status int, message ...[]byte) {
	r.mu.Lock()
	r.closed = true
	// A stream says nothing by ending, and is what a client wants that accepts no other; but its status
	// is 200, so an answer with another one is plain.
	if r.stream && (message == nil || !r.json && status < http.StatusBadRequest) {
		r.startLocked()
	}
	queue, pump := r.queue, r.pump
	r.mu.Unlock()
	if queue == nil {
		if message == nil {
			r.w.WriteHeader(http.StatusAccepted)
			return
		}
		writeJSON(r.w, status, message...)
		return
	}
	close(queue)
	<-pump
	if message != nil {
		_ = r.lastEvent(message)
	}
}

// lastEvent writes a message as one event. Without line breaks, as nearly all are, it is written as it lies there:
// copied into an event, a result of 1 MiB took twice the CPU.
func (r *responder) lastEvent(message [][]byte) error {
	for _, part := range message {
		if bytes.IndexByte(part, '\n') >= 0 || bytes.IndexByte(part, '\r') >= 0 {
			return write(r.w, r.rc, wire.AppendEvent(nil, "", "", bytes.Join(message, nil)))
		}
	}
	if err := writePieces(r.w, r.rc, []byte("data: ")); err != nil {
		return err
	}
	for _, part := range message {
		if err := writePieces(r.w, r.rc, part); err != nil {
			return err
		}
	}
	return write(r.w, r.rc, []byte("\n\n"))
}

func writeJSON(w http.ResponseWriter, status int, message ...[]byte) {
	size := 0
	for _, part := range message {
		size += len(part)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	rc := http.NewResponseController(w)
	if size <= writePiece {
		// One deadline for all parts: each costs a timer.
		_ = rc.SetWriteDeadline(time.Now().Add(writeLimit))
		for _, part := range message {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
		_ = rc.Flush()
		return
	}
	for _, part := range message {
		if writePieces(w, rc, part) != nil {
			return
		}
	}
	_ = rc.Flush()
}
