package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/authz"
)

// client is one client, which visits again and again.
type client struct {
	w      *world
	name   string
	modern bool
	stdio  bool
	ids    int
}

func newClient(w *world, i int) *client {
	return &client{w: w, name: fmt.Sprintf("client %d", i), modern: i%2 == 0, stdio: i%5 == 0}
}

// conn is what a client holds for one visit.
type conn interface {
	// ask sends a request and returns the answer to it, or nil when ctx ended first.
	ask(ctx context.Context, id, method, body string) *message
	// leave ends the visit.
	leave()
}

// message is an answer.
type message struct {
	ID     json.RawMessage
	Result *struct {
		Content []struct{ Text string }
		IsError bool
		Tools   []struct{ Name string }
		Meta    struct {
			Failure *struct{ Server, Reason, Outcome string } `json:"dev.headgate/failure"`
		} `json:"_meta"`
	}
	Error *struct {
		Code    int
		Message string
		Data    struct {
			Headgate *struct{ Server, Reason, Outcome string }
		}
	}
}

// visit connects, does some things, and leaves in one of the ways there are.
func (c *client) visit(ctx context.Context) {
	c.w.ledger.visits.Add(1)
	var at conn
	if c.stdio {
		at = newPipe(c)
	} else {
		at = newHTTP(ctx, c)
	}
	defer at.leave()
	if !c.modern {
		if m := at.ask(ctx, c.id(), "initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}`); m == nil || m.Result == nil {
			if ctx.Err() == nil {
				c.w.ledger.problems.add("%s: initialize: %+v", c.name, m)
			}
			return
		}
	}
	for range 1 + rand.IntN(20) {
		if ctx.Err() != nil {
			return
		}
		switch n := rand.IntN(20); {
		case n == 0:
			c.list(ctx, at)
		case n <= 2:
			c.call(ctx, at, time.Duration(rand.IntN(5))*time.Millisecond)
		default:
			c.call(ctx, at, 0)
		}
	}
}

// id is a request id of this client; other clients use the same ones at the same time.
func (c *client) id() string {
	c.ids++
	return fmt.Sprint(c.ids % 50)
}

func (c *client) list(ctx context.Context, at conn) {
	m := at.ask(ctx, c.id(), "tools/list", "")
	if ctx.Err() != nil {
		return
	}
	if m == nil || m.Result == nil || len(m.Result.Tools) != 3*len(kinds) {
		c.w.ledger.problems.add("%s: the list: %+v", c.name, m)
	}
}

// call calls a tool of any upstream; with a patience other than 0 it is given up after that.
func (c *client) call(ctx context.Context, at conn, patience time.Duration) {
	u := rand.IntN(len(kinds))
	s := c.w.sides[u]
	tool := pick("plain", "plain", "readonly", "idempotent")
	nonce := c.w.ledger.nonce(u, tool != "plain")
	arguments := fmt.Sprintf(`{"nonce":%q}`, nonce)
	if s.bad && rand.IntN(3) > 0 {
		arguments = fmt.Sprintf(`{"nonce":%q,"fault":%q}`, nonce, pick(s.faults...))
	}
	asking := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	id := c.id()
	m := at.ask(asking, id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, s.id+"_"+tool, arguments))
	if m == nil && asking.Err() != nil {
		c.w.ledger.given.Add(1)
		return
	}
	if m == nil {
		c.w.ledger.problems.add("%s: no answer to %s", c.name, nonce)
		return
	}
	if !s.bad {
		c.w.ledger.healthy.Add(1)
	}
	c.judge(s, id, nonce, m)
}

// judge holds an answer against its call.
func (c *client) judge(s *side, id, nonce string, m *message) {
	l := c.w.ledger
	if string(m.ID) != id {
		l.problems.add("%s: request %s is answered under %s", c.name, id, m.ID)
	}
	outcome := ""
	switch {
	case m.Result != nil && m.Result.Meta.Failure != nil:
		outcome = m.Result.Meta.Failure.Outcome
		if m.Result.Meta.Failure.Server != s.id {
			l.problems.add("%s: %s failed at %s", c.name, nonce, m.Result.Meta.Failure.Server)
		}
	case m.Error != nil && m.Error.Data.Headgate != nil:
		outcome = m.Error.Data.Headgate.Outcome
	case m.Result != nil && !m.Result.IsError && len(m.Result.Content) == 1 && m.Result.Content[0].Text == nonce:
		l.tell(nonce, answered)
		return
	case s.bad && m.Result != nil && len(m.Result.Content) == 1 && m.Result.Content[0].Text == "a second answer":
		// Which of two answers comes first is the server's affair, when it writes into its own lines besides.
		l.tell(nonce, answered)
		return
	default:
		l.problems.add("%s: the answer to %s is %+v %+v", c.name, nonce, m.Result, m.Error)
		return
	}
	if !s.bad {
		l.failed.Add(1)
		l.problems.add("%s: %s at a healthy upstream: %+v %+v", c.name, nonce, m.Result, m.Error)
	}
	switch outcome {
	case "not_started", "refused":
		l.tell(nonce, notStarted)
	case "unknown":
		l.tell(nonce, unknown)
	default:
		l.problems.add("%s: %s has the outcome %q", c.name, nonce, outcome)
	}
}

// body is a request of the client's era.
func (c *client) body(id, method, params string) string {
	if c.modern {
		if params != "" {
			params += ","
		}
		params += `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `}}`
}

// httpConn is a visit over HTTP.
type httpConn struct {
	c       *client
	tr      *http.Transport
	session string
	ctx     context.Context // of the stream
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

func newHTTP(ctx context.Context, c *client) *httpConn {
	h := &httpConn{c: c, tr: &http.Transport{}}
	h.ctx, h.cancel = context.WithCancel(ctx)
	return h
}

func (h *httpConn) send(ctx context.Context, method, mcp, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.c.w.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	switch {
	case h.c.modern:
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", mcp)
		if _, rest, ok := strings.Cut(body, `"name":"`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			req.Header.Set("Mcp-Name", name)
		}
	case h.session != "":
		req.Header.Set("Mcp-Session-Id", h.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	return h.tr.RoundTrip(req)
}

func (h *httpConn) ask(ctx context.Context, id, method, params string) *message {
	resp, err := h.send(ctx, http.MethodPost, method, h.c.body(id, method, params))
	if err != nil {
		if ctx.Err() == nil {
			h.c.w.ledger.problems.add("%s: %v", h.c.name, err)
		}
		return nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	if method == "initialize" {
		h.session = resp.Header.Get("Mcp-Session-Id")
		h.begin(ctx)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		// The answer is the last event.
		if i := bytes.LastIndex(text, []byte("data: ")); i >= 0 {
			text = text[i+len("data: "):]
		}
	}
	return read(text)
}

func read(text []byte) *message {
	m := new(message)
	if json.Unmarshal(text, m) != nil {
		return nil
	}
	return m
}

// begin ends the handshake, and half of the time opens the stream of the session.
func (h *httpConn) begin(ctx context.Context) {
	if resp, err := h.send(ctx, http.MethodPost, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err == nil {
		resp.Body.Close()
	}
	if h.c.w.tidy || pick(true, false) {
		return
	}
	h.reading.Go(func() {
		if resp, err := h.send(h.ctx, http.MethodGet, "", ""); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

// leave ends the session half of the time, and otherwise just hangs up.
func (h *httpConn) leave() {
	if h.session != "" && (h.c.w.tidy || pick(true, false)) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if resp, err := h.send(ctx, http.MethodDelete, "", ""); err == nil {
			resp.Body.Close()
		}
		cancel()
	}
	h.cancel()
	h.reading.Wait()
	h.tr.CloseIdleConnections()
}

// pipeConn is a visit over stdio.
type pipeConn struct {
	c       *client
	in      *io.PipeWriter
	answers chan []byte
	served  sync.WaitGroup
}

func newPipe(c *client) *pipeConn {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &pipeConn{c: c, in: inW, answers: make(chan []byte, 256)}
	p.served.Go(func() {
		if err := c.w.g.ServeStdio(context.Background(), authz.Anonymous(), inR, outW); err != nil {
			c.w.ledger.problems.add("%s: ServeStdio: %v", c.name, err)
		}
		outW.Close()
	})
	p.served.Go(func() {
		defer close(p.answers)
		for lines := bufio.NewReader(outR); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if bytes.Contains(line, []byte(`"id":`)) {
				p.answers <- line
			}
		}
	})
	return p
}

func (p *pipeConn) ask(ctx context.Context, id, method, params string) *message {
	if _, err := io.WriteString(p.in, p.c.body(id, method, params)+"\n"); err != nil {
		return nil
	}
	if method == "initialize" {
		_, _ = io.WriteString(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	for {
		select {
		case line, ok := <-p.answers:
			if !ok {
				return nil
			}
			// What came too late for a call that was given up is passed over.
			if m := read(line); m != nil && string(m.ID) == id {
				return m
			}
		case <-ctx.Done():
			_, _ = io.WriteString(p.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`+"\n")
			return nil
		}
	}
}

func (p *pipeConn) leave() {
	p.in.Close()
	for range p.answers {
	}
	p.served.Wait()
}
