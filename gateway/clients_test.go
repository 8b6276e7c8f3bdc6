package gateway

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/wire"
)

// pipeClient is a client of ServeStdio.
type pipeClient struct {
	t     testing.TB
	in    *io.PipeWriter
	out   *io.PipeReader
	lines chan string // what belongs to no call, closed at the end
	torn  chan string // see tornDown
	done  chan error  // what ServeStdio returned

	mu    sync.Mutex // guards calls
	calls map[string]chan string
}

func (g *gate) pipe() *pipeClient { return openPipe(g.t, g.Gateway, context.Background()) }

func openPipe(t testing.TB, g *Gateway, ctx context.Context) *pipeClient {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &pipeClient{t: t, in: inW, out: outR, lines: make(chan string, 4096), torn: make(chan string, 64), done: make(chan error, 1), calls: map[string]chan string{}}
	go func() {
		err := g.ServeStdio(ctx, authz.Anonymous(), inR, outW)
		outW.Close()
		inR.Close()
		c.done <- err
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read()
	}()
	t.Cleanup(func() {
		inW.Close()
		<-read
	})
	return c
}

func (c *pipeClient) read() {
	defer close(c.lines)
	r := bufio.NewReader(c.out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if tornDown(line) {
			c.torn <- line
			continue
		}
		id := ""
		if m, err := wire.Parse([]byte(line)); err == nil && m.Kind == wire.KindResponse {
			id = string(m.ID)
		}
		c.mu.Lock()
		call := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		if call != nil {
			call <- line
		} else {
			c.lines <- line
		}
	}
}

func (c *pipeClient) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Errorf("writing to the gateway: %v", err)
	}
}

// next returns the next line that answers no call.
func (c *pipeClient) next() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the gateway closed its output")
		}
		return line
	case <-time.After(limit):
		c.t.Fatal("no line")
	}
	return ""
}

// call sends a request and returns its answer.
func (c *pipeClient) call(id, request string) string {
	c.t.Helper()
	answer := make(chan string, 1)
	c.mu.Lock()
	c.calls[id] = answer
	c.mu.Unlock()
	c.send(request)
	select {
	case line := <-answer:
		return line
	case <-time.After(limit):
		c.t.Errorf("no answer to %s", request)
		return ""
	}
}

// shakeHands makes the pipe a legacy client's.
func (c *pipeClient) shakeHands() {
	c.t.Helper()
	c.call(`"init"`, initializeBody)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// tornDown reports whether a message announces the end of a subscription, which its result does as well. Clients of
// tests keep it aside.
func tornDown(line string) bool {
	return strings.HasPrefix(line, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`) && strings.Contains(line, "subscriptionId")
}

// stream is an open SSE stream of a client.
type stream struct {
	t      testing.TB
	status int
	header http.Header
	events chan string // closed at the end of the stream
	torn   chan string // see tornDown
	close  func()      // the client goes away
}

// openStream sends a request and reads the events of its answer as they come.
func (g *gate) openStream(req *http.Request) *stream {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := g.http.Do(req.WithContext(ctx))
	if err != nil {
		cancel()
		g.t.Fatal(err)
	}
	s := &stream{t: g.t, status: resp.StatusCode, header: resp.Header, events: make(chan string, 4096), torn: make(chan string, 64), close: cancel}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(s.events)
		defer resp.Body.Close()
		events := wire.NewEventReader(resp.Body, 1<<20)
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			if tornDown(string(e.Data)) {
				s.torn <- string(e.Data)
				continue
			}
			s.events <- string(e.Data)
		}
	}()
	g.t.Cleanup(func() {
		cancel()
		<-read
	})
	return s
}

// next returns the next event, and "" at the end of the stream.
func (s *stream) next() string {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-time.After(limit):
		s.t.Fatal("no event")
	}
	return ""
}

// get opens the GET stream of a session.
func (g *gate) get(session string) *stream {
	g.t.Helper()
	return g.openStream(g.request(http.MethodGet, "", session, "Accept: text/event-stream"))
}

// listenStream opens a subscription.
func (g *gate) listenStream(id, filter string) *stream {
	g.t.Helper()
	body := modernBody(id, "subscriptions/listen", `"notifications":`+filter)
	return g.openStream(g.request(http.MethodPost, body, modernHeaders("subscriptions/listen")...))
}
