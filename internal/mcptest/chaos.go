package mcptest

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Chaos is a server whose calls go wrong, each in the way that it asks for: its argument "fault" is one of
// the names that Faults returns, and without one it is answered well. The argument "nonce" names the
// call; a good answer is the nonce as its only text. It counts by nonce what arrives and what is run.
//
// Its tools are plain, readonly and idempotent, the last two annotated so.
type Chaos struct {
	// Server is the server itself. Its Tools, OnHTTP and OnRequest are taken.
	Server
	// Ran is called for every execution, before anything of its answer is sent; nil for nobody.
	Ran func(nonce string)

	process bool // it is a process of its own, which a fault may end

	count    sync.Mutex // guards the fields below
	arrivals map[string]int
	runs     map[string]int
}

// NewChaos returns a server of an era.
func NewChaos(era string) *Chaos {
	k := &Chaos{arrivals: map[string]int{}, runs: map[string]int{}}
	k.Era = era
	for name, annotations := range map[string]string{"plain": "", "readonly": `,"annotations":{"readOnlyHint":true}`, "idempotent": `,"annotations":{"idempotentHint":true}`} {
		k.Tools = append(k.Tools, Tool{Def: `{"name":` + quote(name) + `,"inputSchema":{"type":"object"}` + annotations + `}`, Call: k.call})
	}
	slices.SortFunc(k.Tools, func(a, b Tool) int { return strings.Compare(a.Def, b.Def) })
	k.OnHTTP = k.onHTTP
	return k
}

// Faults returns the names of all faults of a transport: "http", "sse" or "stdio". Those that a connection
// itself has, see [HTTP.Shut], [HTTP.Slam] and [HTTP.Stop].
func Faults(transport string) []string {
	var all []string
	for name, f := range answerFaults {
		if slices.Contains(strings.Fields(f.on), transport) {
			all = append(all, name)
		}
	}
	if transport == "stdio" {
		all = slices.AppendSeq(all, maps.Keys(processFaults))
	} else {
		all = slices.AppendSeq(all, maps.Keys(postFaults))
	}
	slices.Sort(all)
	return all
}

// Runs says how often the call with a nonce was run.
func (k *Chaos) Runs(nonce string) int {
	k.count.Lock()
	defer k.count.Unlock()
	return k.runs[nonce]
}

// Arrivals says how often a request of the call with a nonce was read over HTTP.
func (k *Chaos) Arrivals(nonce string) int {
	k.count.Lock()
	defer k.count.Unlock()
	return k.arrivals[nonce]
}

// run counts an execution.
func (k *Chaos) run(nonce string) {
	if k.Ran != nil {
		k.Ran(nonce)
		return
	}
	k.count.Lock()
	defer k.count.Unlock()
	k.runs[nonce]++
}

// onHTTP plays the faults that an HTTP exchange has before there is an MCP answer.
func (k *Chaos) onHTTP(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	m := parse(body)
	if m.method != "tools/call" {
		return false
	}
	args := object(object(m.params)["arguments"])
	nonce := stringMember(args, "nonce")
	if k.Ran == nil {
		k.count.Lock()
		k.arrivals[nonce]++
		k.count.Unlock()
	}
	f, ok := postFaults[stringMember(args, "fault")]
	if !ok {
		return false
	}
	if f.runs {
		k.run(nonce)
	}
	f.play(w, r)
	return true
}

// postFault is what an HTTP request comes to instead of an MCP answer.
type postFault struct {
	runs bool // the call is run first
	play func(w http.ResponseWriter, r *http.Request)
}

var postFaults = map[string]postFault{
	"close_read":        {false, func(w http.ResponseWriter, _ *http.Request) { breakOff(w, false) }},
	"close_run":         {true, func(w http.ResponseWriter, _ *http.Request) { breakOff(w, false) }},
	"reset_run":         {true, func(w http.ResponseWriter, _ *http.Request) { breakOff(w, true) }},
	"hang_headers":      {true, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	"hang_headers_idle": {false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	"429":               {false, status(http.StatusTooManyRequests, "")},
	"429_wait":          {false, status(http.StatusTooManyRequests, "7")},
	"500":               {true, status(http.StatusInternalServerError, "")},
	"500_wait":          {true, status(http.StatusInternalServerError, "7")},
	"503":               {false, status(http.StatusServiceUnavailable, "")},
	"503_run":           {true, status(http.StatusServiceUnavailable, "")}, // a proxy that lost its server
	"503_wait":          {false, status(http.StatusServiceUnavailable, "7")},
	"401":               {false, status(http.StatusUnauthorized, "")},
}

func status(code int, retryAfter string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<h1>secret-host.example</h1>")
	}
}

func breakOff(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// call plays the faults of an answer.
func (k *Chaos) call(c *Call) {
	args := object(c.Member("arguments"))
	fault, nonce := stringMember(args, "fault"), stringMember(args, "nonce")
	if f, ok := processFaults[fault]; ok && k.process {
		if f.runs {
			k.run(nonce)
		}
		f.play(c)
		return
	}
	k.run(nonce)
	if f, ok := answerFaults[fault]; ok {
		f.play(k, c, c.answer(c.ID, nonce))
		return
	}
	c.Text(nonce)
}

// answer is a good answer under an id.
func (c *Call) answer(id, text string) []byte {
	member := ""
	if c.modern {
		member = `,"resultType":"complete"`
	}
	return response(id, `{"content":[{"type":"text","text":`+quote(text)+`}]`+member+`}`)
}

// oversize is the size of the answers that are too large.
const oversize = 256 << 10

const otherID = "987654321"

// answerFault is what goes wrong in or about the answer to a call that has been run; answer is the good one.
type answerFault struct {
	on   string // transports
	play func(k *Chaos, c *Call, answer []byte)
}

var answerFaults = map[string]answerFault{
	"hang": {"http sse stdio", func(_ *Chaos, c *Call, _ []byte) { <-c.Ctx.Done() }},
	"hang_stream": {"http sse", func(_ *Chaos, c *Call, _ []byte) {
		c.WriteSSE(": working\n\n")
		<-c.Ctx.Done()
	}},
	"half_json": {"http", func(_ *Chaos, c *Call, answer []byte) {
		conn := c.Hijack()
		_, _ = io.WriteString(conn, jsonHead(len(answer))+string(answer[:len(answer)/2]))
		_ = conn.Close()
	}},
	"half_event": {"http sse", func(k *Chaos, c *Call, answer []byte) {
		half := "data: " + string(answer[:len(answer)/2])
		if s, ok := c.out.(sseSink); ok {
			s.out.last([]byte(half))
		} else {
			c.WriteSSE(half)
		}
		k.endStream(c)
	}},
	"end_stream": {"http sse", func(k *Chaos, c *Call, _ []byte) {
		c.WriteSSE(": nothing\n\n")
		k.endStream(c)
	}},
	"drip": {"http sse stdio", func(_ *Chaos, c *Call, answer []byte) {
		drip(c, answer, 9)
	}},
	"drip_forever": {"http stdio", func(_ *Chaos, c *Call, answer []byte) {
		drip(c, append(bytes.Repeat([]byte(" "), 1<<20), answer...), 1)
	}},
	"wrong_id": {"http sse stdio", func(_ *Chaos, c *Call, _ []byte) {
		c.out.reply(http.StatusOK, c.answer(otherID, "of another call"))
	}},
	"wrong_id_stream": {"http", func(_ *Chaos, c *Call, _ []byte) {
		c.out.send(c.answer(otherID, "of another call"))
	}},
	"two_answers": {"http sse stdio", func(_ *Chaos, c *Call, answer []byte) {
		second := c.answer(c.ID, "a second answer")
		if h, ok := c.out.(*httpSink); ok {
			h.raw(http.StatusOK, "application/json", string(answer)+string(second))
			return
		}
		c.out.send(answer)
		c.out.send(second)
	}},
	"two_answers_stream": {"http", func(_ *Chaos, c *Call, answer []byte) {
		c.out.send(answer)
		c.out.send(c.answer(c.ID, "a second answer"))
	}},
	"oversize": {"http sse stdio", func(_ *Chaos, c *Call, _ []byte) { c.Text(strings.Repeat("x", oversize)) }},
	"oversize_stream": {"http", func(_ *Chaos, c *Call, _ []byte) {
		c.out.send(c.answer(c.ID, strings.Repeat("x", oversize)))
	}},
	"storm": {"http sse stdio", func(_ *Chaos, c *Call, answer []byte) {
		for range 300 {
			c.Notify("notifications/tools/list_changed", "")
		}
		c.out.send(answer)
	}},
	"no_message": {"http", func(_ *Chaos, c *Call, _ []byte) {
		c.Raw(http.StatusOK, "text/html", "<h1>secret-host.example</h1>")
	}},
	"garbage": {"stdio", func(_ *Chaos, c *Call, answer []byte) {
		c.RawLines("secret-host.example: panic\n\x00\xff{}\n" + string(answer) + "\n")
	}},
	"broken_answer": {"stdio sse", func(_ *Chaos, c *Call, answer []byte) {
		c.RawLines(string(answer[:len(answer)-2]) + "\n")
		c.WriteSSE("event: message\ndata: " + string(answer[:len(answer)-2]) + "\n\n")
	}},
}

// endStream breaks off the stream of a call, which over HTTP+SSE is the client's one.
func (k *Chaos) endStream(c *Call) {
	if conn := c.Hijack(); conn != nil {
		_ = conn.Close()
		return
	}
	k.EndStreams(false)
}

func jsonHead(n int) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(n) + "\r\n\r\n"
}

// drip sends an answer a few bytes at a time.
func drip(c *Call, answer []byte, step int) {
	write := func(p []byte) bool { c.RawLines(string(p)); return true }
	end := "\n"
	switch c.out.(type) {
	case *httpSink:
		conn := c.Hijack()
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, jsonHead(len(answer)))
		write = func(p []byte) bool { _, err := conn.Write(p); return err == nil }
		end = ""
	case sseSink:
		write = func(p []byte) bool { c.WriteSSE(string(p)); return true }
		write([]byte("event: message\ndata: "))
		end = "\n\n"
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for part := range slices.Chunk(answer, step) {
		if c.Ctx.Err() != nil || !write(part) {
			return
		}
		<-tick.C
	}
	write([]byte(end))
}

// RawLines writes bytes as they are where there is a pipe, and does nothing elsewhere.
func (c *Call) RawLines(raw string) {
	if l, ok := c.out.(*lineSink); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, _ = io.WriteString(l.out, raw)
	}
}

// processFault is what a child server does to itself.
type processFault struct {
	runs bool // the call is run first
	play func(c *Call)
}

// The faults that strike with the line after the call are in [pitfall].
var processFaults = map[string]processFault{
	"exit_read": {false, func(*Call) { os.Exit(1) }},
	"exit_run":  {true, func(*Call) { os.Exit(1) }},
	"half_line": {true, func(c *Call) {
		c.RawLines(`{"jsonrpc":"2.0","id":` + c.ID + `,"resu`)
		os.Exit(1)
	}},
	"close_stdout": {true, func(*Call) { _ = os.Stdout.Close() }},
}

// pitfall is the input of a child that a line can make deaf. It reads one byte at a time, so that
// nothing is read ahead.
type pitfall struct {
	in   *os.File
	line []byte
	trap string // what happens next; "" for nothing
}

// Traps are faults that a call prepares which itself is answered well: with exit_next the process ends at the
// first byte of the next message, with deaf_next it closes its end of the pipe, and lives on.
func (p *pitfall) Read(b []byte) (int, error) {
	if p.trap == "deaf_next" {
		<-time.After(childLife)
	}
	n, err := p.in.Read(b[:min(len(b), 1)])
	if p.trap == "exit_next" {
		os.Exit(1)
	}
	p.line = append(p.line, b[:n]...)
	if n > 0 && b[0] == '\n' {
		for _, trap := range []string{"exit_next", "deaf_next"} {
			if bytes.Contains(p.line, []byte(quote(trap))) {
				p.trap = trap
				if trap == "deaf_next" {
					_ = p.in.Close() // before the call is answered
				}
			}
		}
		p.line = nil
	}
	return n, err
}
