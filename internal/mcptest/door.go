package mcptest

import (
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// door is what stands before the connections of an HTTP server.
type door struct {
	mu   sync.Mutex // guards the fields below
	shut func(net.Conn)
	idle map[net.Conn]bool // no request has begun on them, or the last one is over
	busy map[net.Conn]bool // the other ones
}

// hangUp ends every connection from this side, and waits until the client has ended it too, for ten seconds
// at most. A client whose kernel alone knows that its connection has ended would still send a request on it, and
// could not tell whether the request was read.
func (h *HTTP) hangUp() {
	h.door.mu.Lock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(h.door.idle)), maps.Keys(h.door.busy))
	h.door.mu.Unlock()
	var ended sync.WaitGroup
	for _, c := range all {
		ended.Go(func() {
			_ = c.(*net.TCPConn).CloseWrite()
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, _ = io.Copy(io.Discard, c)
		})
	}
	ended.Wait()
}

// Shut closes the connections that no request is using, and from now on every new one as soon as a byte has
// come in on it, which is before a request has been read. The client has sent its request by then, and
// cannot know how much of it was read. What is in use goes on.
func (h *HTTP) Shut() {
	h.close(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	})
}

// Slam is Shut, but new connections are closed without waiting for anything.
func (h *HTTP) Slam() { h.close(func(c net.Conn) { _ = c.Close() }) }

// Open undoes Shut and Slam.
func (h *HTTP) Open() {
	h.door.mu.Lock()
	defer h.door.mu.Unlock()
	h.door.shut = nil
}

func (h *HTTP) close(shut func(net.Conn)) {
	h.door.mu.Lock()
	defer h.door.mu.Unlock()
	h.door.shut = shut
	for c := range h.door.idle {
		_ = c.Close()
	}
}

// state keeps the lists of connections.
func (h *HTTP) state(c net.Conn, s http.ConnState) {
	h.door.mu.Lock()
	defer h.door.mu.Unlock()
	if h.door.idle == nil {
		h.door.idle, h.door.busy = map[net.Conn]bool{}, map[net.Conn]bool{}
	}
	delete(h.door.idle, c)
	delete(h.door.busy, c)
	if s == http.StateActive {
		h.door.busy[c] = true
	}
	// A connection may turn idle after the door was shut.
	if s == http.StateIdle || s == http.StateNew {
		h.door.idle[c] = true
		if h.door.shut != nil {
			_ = c.Close()
		}
	}
}

// doorListener hands on the connections that the door lets in.
type doorListener struct {
	net.Listener
	h *HTTP
}

func (l *doorListener) Accept() (net.Conn, error) {
	var turned sync.WaitGroup
	var mu sync.Mutex // guards open
	open := map[net.Conn]bool{}
	for {
		c, err := l.Listener.Accept()
		l.h.door.mu.Lock()
		shut := l.h.door.shut
		l.h.door.mu.Unlock()
		if err == nil && shut != nil {
			mu.Lock()
			open[c] = true
			mu.Unlock()
			turned.Go(func() {
				shut(c)
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
			continue
		}
		mu.Lock()
		rest := slices.Collect(maps.Keys(open))
		mu.Unlock()
		for _, c := range rest {
			_ = c.Close()
		}
		turned.Wait()
		return c, err
	}
}
