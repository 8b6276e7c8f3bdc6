package mcptest

import (
	"sync"
	"time"
)

// gate holds messages back until the first one has gone out.
type gate struct {
	mu     sync.Mutex // guards the fields below, and orders the messages
	out    func(msg []byte)
	opened bool
	held   [][]byte
}

func newGate(out func(msg []byte)) *gate { return &gate{out: out} }

func (g *gate) send(msg []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		g.held = append(g.held, msg)
		return
	}
	g.out(msg)
}

func (g *gate) open(first []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out(first)
	for _, msg := range g.held {
		g.out(msg)
	}
	g.opened, g.held = true, nil
}

// onceClose returns a function that closes ch, however often it is called.
func onceClose(ch chan struct{}) func() {
	return sync.OnceFunc(func() { close(ch) })
}

// idle waits for either channel and meanwhile keeps an HTTP stream alive.
func (s *Server) idle(gone, ended <-chan struct{}, out sink) {
	every := s.KeepAlive
	if every <= 0 {
		every = 15 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	h, isHTTP := out.(*httpSink)
	for {
		select {
		case <-gone:
			return
		case <-ended:
			return
		case <-tick.C:
			if isHTTP {
				h.writeSSE([]byte(":\n\n"))
			}
		}
	}
}
