package upstream

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// failsFirst fails as many calls as n says, and answers those after them.
func failsFirst(n int, fail func(*mcptest.Call)) func(*mcptest.Call) {
	var seen atomic.Int64
	return func(c *mcptest.Call) {
		if int(seen.Add(1)) <= n {
			fail(c)
			return
		}
		c.Text("done")
	}
}

func answers(status int, header string) func(*mcptest.Call) {
	return func(c *mcptest.Call) {
		conn := c.Hijack()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d x\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", status, header)
		_ = conn.Close()
	}
}

// TestWhatIsSentAgain: a call that may run twice is sent again, as often as the configuration says; any
// other is run once at most.
func TestWhatIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fail  func(*mcptest.Call)
		fails int  // how many calls fail before one is answered
		safe  int  // executions of a call that is safe to repeat
		ok    bool // whether that call succeeds
	}{
		"reset once":              {func(c *mcptest.Call) { c.Reset() }, 1, 2, true},
		"reset always":            {func(c *mcptest.Call) { c.Reset() }, 99, 3, false},
		"lost in the answer":      {func(c *mcptest.Call) { c.WriteSSE("data: {"); _ = c.Hijack().Close() }, 1, 2, true},
		"lost in the answer, all": {func(c *mcptest.Call) { c.WriteSSE("data: {"); _ = c.Hijack().Close() }, 99, 3, false},
		"502":                     {answers(502, ""), 2, 3, true},
		"503":                     {answers(503, ""), 1, 2, true},
		"504":                     {answers(504, ""), 1, 2, true},
		"429":                     {answers(429, ""), 1, 2, true},
		"429, wait a second":      {answers(429, "Retry-After: 1\r\n"), 1, 2, true},
		"429, wait an hour":       {answers(429, "Retry-After: 3600\r\n"), 1, 1, false},
		"500":                     {answers(500, ""), 1, 1, false},
		"a 503 that is an answer": {func(c *mcptest.Call) {
			c.Raw(503, "application/json", `{"jsonrpc":"2.0","id":`+c.ID+`,"error":{"code":-32000,"message":"no"}}`)
		}, 99, 1, true},
		"not MCP": {func(c *mcptest.Call) { c.Raw(200, "text/html", "<p>") }, 99, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Tools: []mcptest.Tool{tool("plain", failsFirst(tt.fails, tt.fail)), tool("safe", failsFirst(tt.fails, tt.fail))}}
			cfg, opts := overHTTP(t, s)
			cfg.Retries = 2
			r := up(t, cfg, opts)
			for _, name := range []string{"plain", "safe"} {
				c := r.toolCall(name, `{}`)
				c.Repeatable = name == "safe"
				_, err := r.Call(t.Context(), c)
				want, ok := 1, name == "safe" && tt.ok || strings.Contains(t.Name(), "is_an_answer")
				if name == "safe" {
					want = tt.safe
				}
				if n := s.Executions(name); n != want || (err == nil) != ok {
					t.Errorf("%s: %d executions, %v; want %d, success %t", name, n, err, want, ok)
				}
			}
		})
	}
}

// TestWhatIsNotSentIsSent: a call that could not be sent is sent as soon as there is a connection, whatever
// the tool.
func TestWhatIsNotSentIsSent(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Tools: []mcptest.Tool{tool("plain", nil)}}
	h := s.StartHTTP(t)
	cfg := httpAt(h.URL)
	cfg.Retries = 5
	r := up(t, cfg, Options{})
	h.Stop()
	k := &tries{left: 5, budget: &r.budget, tell: func(why failure.Reason) {
		if why != failure.Unavailable {
			t.Errorf("sent again because %s", why)
		}
		h.Start()
	}}
	l, err := r.live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Nobody listens any more, and the connections of the link, which may take the request while they are being
	// reset, are not used.
	for {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(h.URL, "http://"), "/mcp"))
		if err != nil {
			break
		}
		c.Close()
	}
	fresh := r.newStreamable()
	defer fresh.close()
	fresh.negotiated(l.peer)
	m, err := fresh.roundTrip(t.Context(), &request{id: r.ids.Add(1), method: "tools/call", tries: k,
		params: l.peer.params(r.toolCall("plain", `{}`).Params, nil, nil), header: http.Header{"Mcp-Name": {"srv_plain"}}})
	if err != nil || k.n == 0 {
		t.Errorf("after %d tries: %v", k.n, err)
	}
	if m.Error == nil {
		t.Errorf("the name is not the server's: %s", m.Result)
	}
}

// TestUnknownStaysUnknown: when a later try does not even reach the server, the earlier one may still have
// been run.
func TestUnknownStaysUnknown(t *testing.T) {
	t.Parallel()
	var h *mcptest.HTTP
	s := &mcptest.Server{Tools: []mcptest.Tool{tool("safe", func(c *mcptest.Call) {
		c.Reset()
		go h.Stop()
	})}}
	h = s.StartHTTP(t)
	cfg := httpAt(h.URL)
	cfg.Retries, cfg.ConnectTimeout = 2, time.Second
	r := up(t, cfg, Options{})
	c := r.toolCall("safe", `{}`)
	c.Repeatable = true
	_, err := r.Call(t.Context(), c)
	wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
}

// TestChildIsAskedAgain: what holds for HTTP holds for a child that dies during a call.
func TestChildIsAskedAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "runs")
	cfg := childOf(mcptest.ChildSpec{Chaos: file})
	cfg.Retries = 1
	r := up(t, cfg, Options{MaxBackoff: 100 * time.Millisecond})
	runs := func(nonce string) int {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return strings.Count(string(text), nonce+"\n")
	}
	_, err := r.call("plain", `{"fault":"exit_run","nonce":"once"}`)
	wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
	if n := runs("once"); n != 1 {
		t.Errorf("a call that may not be repeated was run %d times", n)
	}
	r.await("another child", func() bool { return r.Status().State == Up && r.Status().Tries > 1 })
	c := r.toolCall("readonly", `{"fault":"exit_run","nonce":"twice"}`)
	c.Repeatable = true
	_, err = r.Call(t.Context(), c)
	wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
	if n := runs("twice"); n != 2 {
		t.Errorf("a call that may be repeated was run %d times", n)
	}
}

func TestTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := settings()
		cfg.Retries, cfg.CallTimeout = 100, 10*time.Second
		u := New(cfg, Options{})
		_, clock := u.startClock(t.Context())
		defer clock.stop()
		k := u.triesFor("tools/call", false, clock)
		for i, most := range []time.Duration{150, 300, 600, 1200, 2400, 3000, 3000} {
			pause, ok := k.take(failure.ConnectionLost, 0)
			if most *= time.Millisecond; !ok || pause < most/3 || pause > most {
				t.Errorf("pause %d is %v, want up to %v", i, pause, most)
			}
		}
		if pause, ok := k.take(failure.ConnectionLost, 9*time.Second); !ok || pause < 9*time.Second {
			t.Errorf("Retry-After within the time of the call: %v %v", pause, ok)
		}
		if _, ok := k.take(failure.ConnectionLost, 10*time.Second); ok {
			t.Error("a pause as long as the call has left is taken")
		}
		if !u.triesFor("resources/read", false, nil).safe || u.triesFor("tools/call", false, nil).safe || !u.triesFor("tools/call", true, nil).safe {
			t.Error("what is safe to repeat")
		}
		if _, ok := u.triesFor("logging/setLevel", false, nil).take(failure.ConnectionLost, 0); !ok {
			t.Error("no try is left for a request that has a budget")
		}
		var none *tries
		if _, ok := none.take(failure.ConnectionLost, 0); ok {
			t.Error("a request without tries has one")
		}
	})
}

// TestRetryBudget: an outage does not multiply the load by the number of tries.
func TestRetryBudget(t *testing.T) {
	cfg := settings()
	cfg.Retries = 3
	u := New(cfg, Options{})
	sent := 0
	for range 1000 {
		k := u.triesFor("tools/call", true, nil)
		for ok := true; ok; sent++ {
			_, ok = k.take(failure.ConnectionLost, 0)
		}
	}
	if sent < 1200 || sent > 1000+1000*retryShare+retryStock {
		t.Errorf("1000 calls are sent %d times", sent)
	}
}

// TestFirstByteTimeout: the limit ends with the first byte, and the call's own goes on.
func TestFirstByteTimeout(t *testing.T) {
	t.Parallel()
	begun, heard := make(chan struct{}), make(chan struct{})
	s := &mcptest.Server{Tools: []mcptest.Tool{
		tool("silent", func(c *mcptest.Call) {
			close(begun)
			<-c.Ctx.Done()
		}),
		tool("slow", func(c *mcptest.Call) {
			c.WriteSSE(": working\n\n")
			<-heard
			c.Text("done")
		}),
	}}
	cfg, opts := overHTTP(t, s)
	cfg.FirstByteTimeout = patience / 10
	r := up(t, cfg, opts)
	alarms := r.byHand()
	failed := r.inBackground(r.toolCall("silent", `{}`))
	<-begun
	first := <-alarms
	first.ring()
	if f := wantFailure(t, <-failed, failure.Timeout, failure.Unknown); f.Limit != cfg.FirstByteTimeout || first.d != cfg.FirstByteTimeout {
		t.Errorf("the limit is %v, after %v", f.Limit, first.d)
	}
	failed = r.inBackground(r.toolCall("slow", `{}`))
	second := <-alarms
	eventually(t, "the first byte", func() bool { return len(second.set) > 0 })
	close(heard)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	second.wantSet(t, 1, cfg.CallTimeout)
}
