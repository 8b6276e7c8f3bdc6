package mcptest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// Call is one request that a scripted server has to answer. Its methods may be
// used until the function that got it returns, from several goroutines; on
// pipes and HTTP+SSE streams also later.
type Call struct {
	// Method is the JSON-RPC method.
	Method string
	// ID is the raw JSON id.
	ID string
	// Params is the raw params, nil when there are none.
	Params []byte
	// Header is the HTTP request's header, nil on pipes.
	Header http.Header
	// Ctx is done when the request is cancelled, its client has gone, or the
	// server stops.
	Ctx context.Context

	srv    *Server
	peer   *peer
	out    sink
	modern bool
}

// sink is where the messages of one request go.
type sink interface {
	// reply sends the final response; status is for HTTP.
	reply(status int, msg []byte)
	// send sends an earlier message on the request's stream.
	send(msg []byte)
}

// Result answers {"jsonrpc":"2.0","id":ID,"result":raw} with exactly these
// bytes in place of raw. It does not stop a script from sending more.
func (c *Call) Result(raw string) { c.out.reply(http.StatusOK, response(c.ID, raw)) }

// Error answers with the raw error object and, over HTTP, status 200.
func (c *Call) Error(raw string) { c.out.reply(http.StatusOK, errorResponse(c.ID, raw)) }

// Text answers a complete result with one text block.
func (c *Call) Text(text string) { c.content(text, "") }

// ToolError answers a complete result with isError and one text block.
func (c *Call) ToolError(text string) { c.content(text, `,"isError":true`) }

// Structured answers a complete result with raw as structuredContent and the
// same as text.
func (c *Call) Structured(raw string) { c.content(raw, `,"structuredContent":`+raw) }

func (c *Call) content(text, members string) {
	if c.modern {
		members += `,"resultType":"complete"`
	}
	c.Result(`{"content":[{"type":"text","text":` + quote(text) + `}]` + members + `}`)
}

// Notify sends a notification on this call's stream. Over HTTP the answer
// becomes an event stream. rawParams is raw JSON, or empty for none.
func (c *Call) Notify(method, rawParams string) { c.out.send(notification(method, rawParams)) }

// Progress sends notifications/progress if the request asked for it. A total
// of 0 is left out.
func (c *Call) Progress(progress, total float64, text string) {
	token := c.ProgressToken()
	if token == "" {
		return
	}
	params := `{"progressToken":` + token + `,"progress":` + number(progress)
	if total != 0 {
		params += `,"total":` + number(total)
	}
	if text != "" {
		params += `,"message":` + quote(text)
	}
	c.Notify("notifications/progress", params+`}`)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Ask sends a request of the server's own to the client on this call's stream
// (legacy versions only) and waits for the answer. It returns the raw result
// or the raw error, and neither when Ctx ends first.
func (c *Call) Ask(method, rawParams string) (result, rpcError []byte) {
	id, answer := c.peer.ask()
	defer c.peer.forget(id)
	msg := `{"jsonrpc":"2.0","id":` + id + `,"method":` + quote(method)
	if rawParams != "" {
		msg += `,"params":` + rawParams
	}
	c.out.send([]byte(msg + `}`))
	select {
	case raw := <-answer:
		obj := object(raw)
		return obj["result"], obj["error"]
	case <-c.Ctx.Done():
		return nil, nil
	}
}

// Raw answers an HTTP request with these bytes, and does nothing elsewhere.
func (c *Call) Raw(status int, contentType, body string) {
	if h, ok := c.out.(*httpSink); ok {
		h.raw(status, contentType, body)
	}
}

// WriteSSE sends raw bytes on this call's event stream, which it begins if
// need be; over HTTP+SSE that is the client's one stream. It does nothing on
// pipes.
func (c *Call) WriteSSE(raw string) {
	switch out := c.out.(type) {
	case *httpSink:
		out.writeSSE([]byte(raw))
	case sseSink:
		out.out.writeSSE([]byte(raw))
	}
}

// Hijack takes over the connection of an HTTP request, for half answers. The
// caller closes it; stopping the server does so too. It returns nil where
// there is no HTTP.
func (c *Call) Hijack() net.Conn {
	if h, ok := c.out.(*httpSink); ok {
		return h.hijack()
	}
	return nil
}

// Reset breaks the connection of an HTTP request off, with a reset and without
// an answer.
func (c *Call) Reset() {
	conn := c.Hijack()
	if conn == nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// Member returns one raw member of the params, nil if it is not there.
func (c *Call) Member(name string) []byte { return object(c.Params)[name] }

// Meta returns one raw member of the request's _meta, nil if it is not there.
func (c *Call) Meta(key string) []byte { return object(c.Member("_meta"))[key] }

// ToolName is params.name.
func (c *Call) ToolName() string { return stringMember(object(c.Params), "name") }

// Arguments returns the decoded arguments, nil when there are none.
func (c *Call) Arguments() map[string]any {
	var args map[string]any
	if json.Unmarshal(c.Member("arguments"), &args) != nil {
		return nil
	}
	return args
}

// ProgressToken is the raw progress token, empty if there is none.
func (c *Call) ProgressToken() string { return string(c.Meta("progressToken")) }

// peer is one client as a server sees it.
type peer struct {
	id string // the session id; empty without one

	mu          sync.Mutex // guards the fields below
	initialized int        // 1 after initialize, 2 after notifications/initialized
	asked       int
	pending     map[string]chan []byte
	inflight    map[string]map[*Call]context.CancelFunc
}

// ask reserves an id for a request to the client. Ids count from 1 for each
// peer, so that two servers' ids collide.
func (p *peer) ask() (id string, answer <-chan []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	id = strconv.Itoa(p.asked)
	if p.pending == nil {
		p.pending = map[string]chan []byte{}
	}
	ch := make(chan []byte, 1)
	p.pending[id] = ch
	return id, ch
}

func (p *peer) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, id)
}

// answered hands a response of the client to the Ask that waits for it.
func (p *peer) answered(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch, ok := p.pending[m.id]; ok {
		ch <- m.raw
		delete(p.pending, m.id)
	}
}

// begin gives a call its context and makes it known to cancel.
func (p *peer) begin(ctx context.Context, c *Call) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.Ctx = ctx
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inflight == nil {
		p.inflight = map[string]map[*Call]context.CancelFunc{}
	}
	if p.inflight[c.ID] == nil {
		p.inflight[c.ID] = map[*Call]context.CancelFunc{}
	}
	p.inflight[c.ID][c] = cancel
	return func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.inflight[c.ID], c)
		if len(p.inflight[c.ID]) == 0 {
			delete(p.inflight, c.ID)
		}
	}
}

func (p *peer) cancel(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.inflight[id] {
		cancel()
	}
}

// reached raises the state of the handshake and returns the state before.
func (p *peer) reached(state int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.initialized
	p.initialized = max(before, state)
	return before
}

func (p *peer) state() int { return p.reached(0) }
