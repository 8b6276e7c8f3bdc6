package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// payments is a server whose tools lose the connection after they ran, as long as lost says so.
func payments(lost *atomic.Bool) *mcptest.Server {
	run := func(c *mcptest.Call) {
		if lost.Load() {
			c.Reset()
			return
		}
		c.Text("paid")
	}
	return &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"pay","inputSchema":{"type":"object"}}`, Call: run},
		{Def: `{"name":"pay_read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, Call: run},
		{Def: `{"name":"other","inputSchema":{"type":"object"}}`, Call: run},
	}}
}

func losing() *atomic.Bool {
	var b atomic.Bool
	b.Store(true)
	return &b
}

// TestGuardedCalls: after an unknown outcome the same call is not made again, however it is spelt and by whichever
// transport it comes; another call is.
func TestGuardedCalls(t *testing.T) {
	lost := losing()
	s := payments(lost)
	g := launch(t, parseConfig(t, map[string]string{"bank": entry(s.StartHTTP(t), `"retries":0`, `"guard":{"tools":["pay*"],"window":"1h"}`)}), Options{})
	session, pipe := g.open(), g.pipe()
	began := time.Now()
	if got := g.callModern("1", "bank_pay", `{"to":"a","sum":1.0,"note":{"x":1,"y":[null]}}`).message(); !strings.Contains(got, `"reason":"connection_lost","outcome":"unknown","retryable":false`) {
		t.Fatal(got)
	}
	lost.Store(false)
	guarded := func(how, message string) {
		t.Helper()
		text := at(t, message, "result", "content")
		for _, says := range []string{"tool bank_pay was not sent to server bank again", "may have happened already", "with a tool that only reads", "change an argument"} {
			if !strings.Contains(strings.ToLower(text), says) {
				t.Errorf("%s: the text does not say %q: %s", how, says, message)
			}
		}
		mark := object(t, at(t, message, "result", "_meta", "dev.headgate/failure"))
		reason, _ := mark.Get("reason")
		outcome, _ := mark.Get("outcome")
		again, _ := mark.Get("retryable")
		toWait(t, message, time.Hour, began)
		if string(reason) != `"guarded"` || string(outcome) != `"not_started"` || string(again) != "false" || at(t, message, "result", "isError") != "true" {
			t.Errorf("%s: %s", how, message)
		}
	}
	for how, arguments := range map[string]string{
		"as it was":        `{"to":"a","sum":1.0,"note":{"x":1,"y":[null]}}`,
		"other order":      `{"sum":1.0,"note":{"y":[null],"x":1},"to":"a"}`,
		"white space":      `{ "to" : "a", "sum":1.0,` + "\t" + `"note":{"x":1,"y":[ null ]} }`,
		"escapes":          `{"t\u006f":"\u0061","sum":1.0,"note":{"x":1,"y":[null]}}`,
		"with other _meta": `{"to":"a","sum":1.0,"note":{"x":1,"y":[null]}}`,
	} {
		guarded(how+", modern", g.callModern("1", "bank_pay", arguments, `"traceparent":"`+how+`"`).message())
		guarded(how+", legacy", g.callLegacy(session, "1", "bank_pay", arguments).message())
		guarded(how+", stdio", pipe.call("1", modernBody("1", "tools/call", callParams("bank_pay", arguments))))
	}
	if n := s.Executions("pay"); n != 1 {
		t.Errorf("ran %d times", n)
	}
	for how, arguments := range map[string]string{
		"another sum":         `{"to":"a","sum":2.0,"note":{"x":1,"y":[null]}}`,
		"a number's spelling": `{"to":"a","sum":1,"note":{"x":1,"y":[null]}}`,
		"an order of a list":  `{"to":"a","sum":1.0,"note":{"x":1,"y":[]}}`,
		"nothing":             "",
	} {
		if got := g.callModern("1", "bank_pay", arguments).message(); at(t, got, "result", "isError") != "" || !strings.Contains(got, "paid") {
			t.Errorf("%s: %s", how, got)
		}
	}
	// Tools that are not guarded, and those that are safe to repeat, are called again.
	lost.Store(true)
	for _, tool := range []string{"other", "pay_read"} {
		for range 2 {
			g.callModern("1", "bank_"+tool, `{}`)
		}
		if n := s.Executions(tool); n != 2 {
			t.Errorf("%s ran %d times", tool, n)
		}
	}
}

// toWait checks how long a guarded call is told to wait: what is left of the window, which began then or later, in the
// text as in the mark.
func toWait(t *testing.T, message string, window time.Duration, began time.Time) {
	t.Helper()
	ms, err := strconv.ParseInt(at(t, message, "result", "_meta", "dev.headgate/failure", "retryAfterMs"), 10, 64)
	left := time.Duration(ms) * time.Millisecond
	if err != nil || left > window || left < window-time.Since(began)-time.Millisecond {
		t.Errorf("%v are left of %v: %s", left, window, message)
	}
	// The mark is cut to milliseconds, the text rounded up to seconds.
	says := func(seconds int64) bool { return strings.Contains(message, fmt.Sprintf("wait %d seconds", seconds)) }
	if !says(ms/1000+1) && (ms%1000 != 0 || !says(ms/1000)) {
		t.Errorf("the text does not say %d seconds: %s", ms/1000+1, message)
	}
}

// TestGuardedAbsentArguments: absent, null and empty arguments are one call.
func TestGuardedAbsentArguments(t *testing.T) {
	for _, first := range []string{"", "null", "{}"} {
		s := payments(losing())
		g := launch(t, parseConfig(t, map[string]string{"bank": entry(s.StartHTTP(t), `"guard":{"tools":["pay"]}`)}), Options{})
		for _, arguments := range []string{first, "", "null", "{}", " { } "} {
			g.callModern("1", "bank_pay", arguments)
		}
		if n := s.Executions("pay"); n != 1 {
			t.Errorf("%q first: ran %d times", first, n)
		}
	}
}

// TestGuardTellsCallersApart: what one caller's call came to holds no other caller up, at any endpoint.
func TestGuardTellsCallersApart(t *testing.T) {
	s := payments(losing())
	g := launch(t, parseConfig(t, map[string]string{"bank": entry(s.StartHTTP(t), `"guard":{"tools":["pay"]}`)},
		keys(keyOf("ann", "ann", []string{"red"}, nil), keyOf("bob", "bob", []string{"red"}, nil)),
		`"teams":{"red":{"upstreams":["bank"],"naming":{"separator":"."},"rules":[{"allow":["*"]}]}}`), Options{})
	g.callAs("ann", "", "bank_pay")
	g.callAs("ann", "", "bank_pay")
	if n := s.Executions("pay"); n != 1 {
		t.Fatalf("ran %d times", n)
	}
	mcp := g.url
	g.url = strings.TrimSuffix(mcp, "/mcp") + "/teams/red/mcp"
	if got := g.callAs("ann", "", "bank.pay").message(); !strings.Contains(got, `"reason":"guarded"`) {
		t.Errorf("at the team's endpoint: %s", got)
	}
	g.url = mcp
	g.callAs("bob", "", "bank_pay")
	if n := s.Executions("pay"); n != 2 {
		t.Errorf("ran %d times for two callers", n)
	}
}

// TestGuardSurvivesReload: a new configuration forgets nothing, and its window counts.
func TestGuardSurvivesReload(t *testing.T) {
	lost := losing()
	s := payments(lost)
	h := s.StartHTTP(t)
	apply := func(g *gate, more ...string) {
		t.Helper()
		if err := g.Apply(parseConfig(t, map[string]string{"bank": entry(h, more...)})); err != nil {
			t.Fatal(err)
		}
	}
	g := launch(t, parseConfig(t, map[string]string{"bank": entry(h, `"guard":{"tools":["pay"],"window":"1h"}`)}), Options{})
	began := time.Now()
	g.callModern("1", "bank_pay", `{}`)
	lost.Store(false)
	// Another timeout makes another connection.
	apply(g, `"guard":{"tools":["pay"],"window":"2h"}`, `"call_timeout":"59s"`)
	g.settle()
	toWait(t, g.callModern("1", "bank_pay", `{}`).message(), 2*time.Hour, began)
	apply(g, `"guard":{"tools":["other"]}`, `"call_timeout":"59s"`)
	if got := g.callModern("1", "bank_pay", `{}`).message(); !strings.Contains(got, "paid") {
		t.Errorf("no longer guarded: %s", got)
	}
	if n := s.Executions("pay"); n != 2 {
		t.Errorf("ran %d times", n)
	}
}

// TestGuardKnowsOnlyUnknown: a call in flight holds up no other, and a definite failure none either.
func TestGuardKnowsOnlyUnknown(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	s := &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"pay","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			both.Done()
			both.Wait() // two of the same call run at a time, or this test does not end
			c.Text("paid")
		}},
		{Def: `{"name":"fail","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Error(`{"code":7,"message":"no"}`) }},
		{Def: `{"name":"busy","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { retryAfter(c, 429, "1") }},
	}}
	g := launch(t, parseConfig(t, map[string]string{"bank": entry(s.StartHTTP(t), `"guard":{"tools":["*"]}`)}), Options{})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			if got := g.callModern("1", "bank_pay", `{}`).message(); !strings.Contains(got, "paid") {
				t.Errorf("got %s", got)
			}
		})
	}
	calls.Wait()
	for _, tool := range []string{"fail", "busy"} {
		for range 2 {
			g.callModern("1", "bank_"+tool, `{}`)
		}
		if n := s.Executions(tool); n != 2 {
			t.Errorf("%s ran %d times", tool, n)
		}
	}
}

func TestUnsettled(t *testing.T) {
	key := func(n int) (k callKey) {
		binary.BigEndian.PutUint64(k[:], uint64(n))
		return k
	}
	u := newUnsettled()
	began := time.Now()
	u.add(key(1), began)
	if got := u.left(key(1), began.Add(time.Minute), 10*time.Minute); got != 9*time.Minute {
		t.Errorf("%v are left", got)
	}
	u.add(key(1), began.Add(5*time.Minute))
	if got := u.left(key(1), began.Add(10*time.Minute), 10*time.Minute); got != 5*time.Minute {
		t.Errorf("after a second unknown outcome %v are left", got)
	}
	if u.left(key(1), began.Add(15*time.Minute), 10*time.Minute) != 0 || len(u.calls) != 0 || u.order.Len() != 0 {
		t.Errorf("the window does not end, or leaves something: %d", len(u.calls))
	}
	for n := range maxUnsettled + 10 {
		u.add(key(n), began)
	}
	if len(u.calls) != maxUnsettled || u.order.Len() != maxUnsettled {
		t.Errorf("%d calls are remembered", len(u.calls))
	}
	if u.left(key(9), began, time.Hour) != 0 || u.left(key(10), began, time.Hour) == 0 || u.left(key(maxUnsettled+9), began, time.Hour) == 0 {
		t.Error("it is not the oldest that are forgotten")
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 1000 {
				u.add(key(n*i), began)
				u.left(key(i), began.Add(time.Second), time.Second)
			}
		})
	}
	all.Wait()
	if len(u.calls) != u.order.Len() || len(u.calls) > maxUnsettled {
		t.Errorf("%d calls in an order of %d", len(u.calls), u.order.Len())
	}
}

// FuzzCanonical: the form is one for a value however it is written, and not one for two values.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{``, `null`, `{}`, `{"b":1,"a":[1.0,1e2,9007199254740993,-0]}`, `{"a":1,"a":2}`, `{"\ud800":"\u0000é"}`, `{"a":{"c":[],"b":" "}}`, `[`, `{"a":1e999999999}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := jsontext.Value(s)
		whole := v.Clone()
		c := canonical(v)
		if string(v) != string(whole) {
			t.Fatalf("%q was changed", s)
		}
		if again := canonical(c); string(again) != string(c) {
			t.Errorf("%q: %q, then %q", s, c, again)
		}
		obj, err := wire.ParseObject(v)
		if err != nil || string(c) == s {
			return
		}
		// Members in reverse order and with white space between are the same call.
		spaced := []byte("{ ")
		for i := range obj {
			m := obj[len(obj)-1-i]
			if i > 0 {
				spaced = append(spaced, " ,\n"...)
			}
			spaced = append(append(append(spaced, m.Raw...), " : "...), m.Value...)
		}
		if got := canonical(append(spaced, '}')); string(got) != string(c) {
			t.Errorf("%q: %q, reversed %q", s, c, got)
		}
	})
}

// TestGuardAfterACancellation: a client that gave a call up does not know its outcome either.
func TestGuardAfterACancellation(t *testing.T) {
	w := newWatched()
	s := &mcptest.Server{Tools: []mcptest.Tool{w.tool()}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"guard":{"tools":["watched"]}`)}), Options{})
	body := modernBody("1", "tools/call", callParams("x_watched", `{"n":1}`))
	req := g.request(http.MethodPost, body, modernHeaders("tools/call", "Mcp-Name: x_watched")...)
	ctx, cancel := context.WithCancel(req.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := g.http.Do(req.WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
	}()
	expect(t, "the call", w.started)
	cancel()
	<-gone
	expect(t, "the cancellation", w.cancelled)
	poll(t, "the note of the call", func() bool {
		g.unsettled.mu.Lock()
		defer g.unsettled.mu.Unlock()
		return len(g.unsettled.calls) == 1
	})
	if got := g.callModern("2", "x_watched", `{"n":1}`).message(); !strings.Contains(got, `"reason":"guarded"`) || s.Executions("watched") != 1 {
		t.Errorf("%s, %d executions", got, s.Executions("watched"))
	}
}
