package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// boundedGate is a gateway with auth, two callers and small bounds.
func boundedGate(t *testing.T) *gate {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	return launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("alice"), keyEntry("bob")),
		`"overload":{"sessions":5,"caller_sessions":3,"streams":5,"caller_streams":2,"bodies":"1MiB"},"max_body":"1MiB"`), Options{})
}

// poll looks again and again until a condition holds of which nobody tells.
func poll(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: in vain", what)
		}
	}
}

// TestSessionsAreBounded: in all, and for each caller, so that one cannot take all.
func TestSessionsAreBounded(t *testing.T) {
	g := boundedGate(t)
	opened := func(name string) string {
		r := g.post(initializeBody, bearer(name))
		if r.status == http.StatusServiceUnavailable && (r.header.Get("Retry-After") == "" || !strings.Contains(r.body, "too many sessions")) {
			t.Errorf("the refusal: %v %s", r.header, r.body)
		}
		return r.header.Get(sessionHeader)
	}
	var first string
	for i := range 3 {
		id := opened("alice")
		if id == "" {
			t.Fatalf("session %d is refused", i)
		}
		first = id
	}
	if opened("alice") != "" {
		t.Error("one caller has more than its share")
	}
	for range 2 {
		if opened("bob") == "" {
			t.Error("what is left is refused to others")
		}
	}
	if opened("bob") != "" {
		t.Error("there are more than in all")
	}
	if r := g.do(g.request(http.MethodDelete, "", bearer("alice"), sessionHeader+": "+first)); r.status != http.StatusNoContent {
		t.Errorf("DELETE: %d", r.status)
	}
	if opened("bob") == "" {
		t.Error("a session that ended makes no room")
	}
	g.sessions.sweep(0)
	if n := g.sessions.count(); n != 0 || len(g.sessions.held.by) != 0 {
		t.Errorf("%d sessions after the sweep, of %v", n, g.sessions.held.by)
	}
	if opened("alice") == "" {
		t.Error("sessions that were swept make no room")
	}
}

// TestStreamsAreBounded: subscriptions and GET streams count alike.
func TestStreamsAreBounded(t *testing.T) {
	g := boundedGate(t)
	open := func(name string) (*http.Response, bool) {
		req := g.request(http.MethodPost, modernBody("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`),
			modernHeaders("subscriptions/listen", bearer(name))...)
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			t.Cleanup(func() { resp.Body.Close() })
			return resp, true
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || !bytes.Contains(body, []byte(`"id":1`)) || resp.Header.Get("Retry-After") == "" {
			t.Errorf("the refusal: %d %s", resp.StatusCode, body)
		}
		return nil, false
	}
	one, ok := open("alice")
	if !ok {
		t.Fatal("the first stream is refused")
	}
	r := g.post(initializeBody, bearer("alice"))
	session := sessionHeader + ": " + r.header.Get(sessionHeader)
	get, err := g.http.Do(g.request(http.MethodGet, "", "Accept: text/event-stream", session, bearer("alice")))
	if err != nil || get.StatusCode != http.StatusOK {
		t.Fatalf("GET: %v %v", get, err)
	}
	defer get.Body.Close()
	if _, ok := open("alice"); ok {
		t.Error("one caller has more than its share")
	}
	if _, ok := open("bob"); !ok {
		t.Error("another caller is refused its share")
	}
	one.Body.Close()
	poll(t, "the end of the stream", func() bool { return g.streams.count() == 2 })
	if _, ok := open("alice"); !ok {
		t.Error("a stream that ended makes no room")
	}
}

// TestLargeBodiesAreBounded: the memory for bodies is taken before they are read, and given back.
func TestLargeBodiesAreBounded(t *testing.T) {
	g := boundedGate(t)
	large := modernBody("1", "tools/call", callParams("x_echo", `{"text":"`+strings.Repeat("x", 700<<10)+`"}`))
	head := modernHeaders("tools/call", "Mcp-Name: x_echo", bearer("alice"))
	reading, writing := io.Pipe()
	slow := g.request(http.MethodPost, "", head...)
	slow.Body, slow.ContentLength = reading, int64(len(large))
	// The client sends nothing of the body before the server begins to read it.
	slow.Header.Set("Expect", "100-continue")
	g.http.Transport.(*handled).next.ExpectContinueTimeout = limit
	answered := make(chan reply, 1)
	go func() { answered <- g.do(slow) }()
	if _, err := io.WriteString(writing, large[:100<<10]); err != nil {
		t.Fatal(err)
	}
	if r := g.post(large, head...); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("a second large body: %d %.200s", r.status, r.body)
	}
	if r := g.callModern("1", "x_echo", `{"text":"small"}`); r.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", r.status)
	}
	if r := g.post(modernBody("1", "tools/call", callParams("x_echo", `{"text":"small"}`)), head...); r.status != http.StatusOK {
		t.Errorf("a small body beside it: %d %s", r.status, r.body)
	}
	if _, err := io.WriteString(writing, large[100<<10:]); err != nil {
		t.Fatal(err)
	}
	writing.Close()
	if r := <-answered; r.status != http.StatusOK || !strings.Contains(r.body, "xxx") {
		t.Errorf("the slow one: %d %.200s", r.status, r.body)
	}
	// The answer may be here before the memory is given back.
	poll(t, "room for the next large body", func() bool { return g.post(large, head...).status == http.StatusOK })
}

func TestLimitListener(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := LimitListener(inner, 2)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	ask := func(c net.Conn) string {
		_ = c.SetDeadline(time.Now().Add(limit))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		b := make([]byte, 12)
		_, _ = io.ReadFull(c, b)
		return string(b)
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	one, two := dial(), dial()
	if ask(one) != "HTTP/1.1 200" || ask(two) != "HTTP/1.1 200" {
		t.Error("the first two are not served")
	}
	three := dial()
	_ = three.SetDeadline(time.Now().Add(limit))
	b, _ := io.ReadAll(three)
	if !strings.HasPrefix(string(b), "HTTP/1.1 503 ") {
		t.Errorf("the third gets %q", b)
	}
	one.Close()
	poll(t, "the end of a connection", func() bool { return l.(*limitListener).open.Load() == 1 })
	if got := ask(dial()); got != "HTTP/1.1 200" {
		t.Errorf("after one has gone the next gets %q", got)
	}
}

func TestReadyUpstreams(t *testing.T) {
	alive := (&mcptest.Server{Tools: mcptest.Builtin("echo")}).StartHTTP(t)
	dead := (&mcptest.Server{}).StartHTTP(t)
	dead.Stop()
	for need, want := range map[string]string{"0": "", "1": "", "2": "1 of at least 2 upstreams are up", "9": "1 of at least 2 upstreams are up"} {
		g := launch(t, parseConfig(t, map[string]string{"a": entry(alive), "b": entry(dead)}, `"ready_upstreams":`+need), Options{})
		if ok, why := g.Ready(); why != want || ok != (want == "") {
			t.Errorf("with %s: %t %q", need, ok, why)
		}
	}
}
