package gateway

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
)

// This file is what keeps the memory that clients can take within bounds. What is too much is refused
// early and at little cost, before anything is read or made for it.

// tally counts what clients hold at a time, in all and by owner.
type tally struct {
	mu  sync.Mutex // guards the fields below
	all int
	by  map[string]int
}

// add counts one more, unless there are as many as most in all, or as each of the owner's; each 0 is no
// bound for owners.
func (t *tally) add(owner string, most, each int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= most || each > 0 && t.by[owner] >= each {
		return false
	}
	if t.by == nil {
		t.by = make(map[string]int)
	}
	t.all++
	t.by[owner]++
	return true
}

func (t *tally) remove(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.by[owner]--; t.by[owner] == 0 {
		delete(t.by, owner)
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// each is the bound for one caller; without authentication all callers are one, and there is none.
func (at guest) each(n int) int {
	if at.s.access.auth == nil {
		return 0
	}
	return n
}

// openStream counts a stream that stands until closed is called; ok is false when there are too many.
func (g *Gateway) openStream(at guest) (closed func(), ok bool) {
	key, cfg := at.caller.Key(), &at.s.cfg.Overload
	if !g.streams.add(key, cfg.Streams, at.each(cfg.CallerStreams)) {
		return nil, false
	}
	return func() { g.streams.remove(key) }, true
}

const tooManyStreams = "too many streams are open; close those that are not needed"

// busy refuses a request for which there is no room at the moment. id is "" for what is no MCP request.
func (g *Gateway) busy(w http.ResponseWriter, id wire.ID, text string) {
	w.Header().Set("Retry-After", "5")
	g.refuseID(w, telemetry.RefusedOverloaded, http.StatusServiceUnavailable, id, text)
}

// bodies is the memory that the larger request bodies may take together.
type bodies struct {
	room *semaphore.Weighted
	size int64
}

func newBodies(size int64) *bodies { return &bodies{room: semaphore.NewWeighted(size), size: size} }

// reserve takes the memory for a body that is about to be read, of which at most limit bytes are; small
// ones cost nothing. ok is false when there is not enough.
func (b *bodies) reserve(r *http.Request, limit int64) (release func(), ok bool) {
	n := r.ContentLength
	if n >= 0 && n <= wholeBody {
		return func() {}, true
	}
	if n < 0 || n > limit {
		n = limit
	}
	n = min(n, b.size)
	if !b.room.TryAcquire(n) {
		return nil, false
	}
	return func() { b.room.Release(n) }, true
}

// LimitListener returns a listener that holds at most n connections at a time; more are answered with
// status 503 and closed. The connections that it accepts must be closed by their owner.
func LimitListener(l net.Listener, n int) net.Listener {
	return &limitListener{Listener: l, most: int64(n)}
}

type limitListener struct {
	net.Listener
	most int64
	open atomic.Int64
}

const tooManyConnections = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// Accept waits for the next connection that there is room for.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &limitedConn{Conn: c, l: l}, nil
		}
		l.open.Add(-1)
		// A connection that is new takes so little without waiting.
		_, _ = io.WriteString(c, tooManyConnections)
		_ = c.Close()
	}
}

type limitedConn struct {
	net.Conn
	l    *limitListener
	once sync.Once
}

// Close closes the connection and makes room for another.
func (c *limitedConn) Close() error {
	c.once.Do(func() { c.l.open.Add(-1) })
	return c.Conn.Close()
}
