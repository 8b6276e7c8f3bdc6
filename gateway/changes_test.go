package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// TestListChanged follows a changing catalogue on all four kinds of stream: a burst of announcements
// without a difference tells nothing, each difference is told once.
func TestListChanged(t *testing.T) {
	s := &mcptest.Server{ListChanged: true, Tools: mcptest.Builtin("a")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	awaitServer(t, s, "the subscription", func() bool { return s.Streams() == 1 })

	get := g.get(g.open())
	if get.status != http.StatusOK || get.header.Get("X-Accel-Buffering") != "no" || get.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET: %d %v", get.status, get.header)
	}
	listen := g.listenStream(`"sub-1"`, `{"toolsListChanged":true,"promptsListChanged":true}`)
	if got, want := listen.next(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub-1"},"notifications":{"toolsListChanged":true}}}`; got != want {
		t.Errorf("acknowledged:\n got %s\nwant %s", got, want)
	}
	deaf := g.listenStream(`2`, `{"promptsListChanged":true}`)
	if got, want := deaf.next(), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{}}}`; got != want {
		t.Errorf("acknowledged:\n got %s\nwant %s", got, want)
	}
	legacyPipe, modernPipe, untold := g.pipe(), g.pipe(), g.pipe()
	legacyPipe.shakeHands()
	modernPipe.send(modernBody("3", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	if got := modernPipe.next(); !strings.Contains(got, "acknowledged") || !strings.Contains(got, `subscriptionId":3}`) {
		t.Errorf("acknowledged on stdio: %s", got)
	}

	for _, change := range [][]string{{"a", "b"}, {"b"}} {
		for range 20 {
			s.NotifyToolsChanged() // nothing has changed yet
		}
		s.SetTools(mcptest.Builtin(change...))
		for range 20 {
			s.NotifyToolsChanged()
		}
		if got := get.next(); got != listChanged {
			t.Errorf("GET: %s", got)
		}
		if got := listen.next(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub-1"}}}` {
			t.Errorf("listen: %s", got)
		}
		if got := legacyPipe.next(); got != listChanged {
			t.Errorf("legacy stdio: %s", got)
		}
		if got := modernPipe.next(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}` {
			t.Errorf("modern stdio: %s", got)
		}
	}
	if n := s.Count("tools/list"); n > 1+2*2+2 {
		t.Errorf("%d lists were read upstream for two bursts", n)
	}

	g.Drain()
	if got := listen.next(); got != `{"jsonrpc":"2.0","id":"sub-1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"sub-1"}}}` {
		t.Errorf("the end of the subscription: %s", got)
	}
	if got := deaf.next(); got != `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":2}}}` {
		t.Errorf("the subscription to nothing heard %s", got)
	}
	for name, s := range map[string]*stream{"GET": get, "listen": listen, "deaf": deaf} {
		if got := s.next(); got != "" {
			t.Errorf("%s: after the end came %s", name, got)
		}
	}
	if got := modernPipe.next(); got != `{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":3}}}` {
		t.Errorf("the end of the subscription on stdio: %s", got)
	}
	// Whoever asked for nothing is told nothing: the answer is the first line.
	untold.send(modernBody("9", "server/discover", ""))
	if got := untold.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":9,`) {
		t.Errorf("a client that asked for nothing got %s", got)
	}
}

func TestListenRefused(t *testing.T) {
	g := launch(t, parseConfig(t, nil), Options{})
	tests := []struct {
		name, params string
		header       string
		status       int
		code         string
	}{
		{"no filter", ``, "", 400, "-32602"},
		{"filter null", `"notifications":null`, "", 400, "-32602"},
		{"filter a list", `"notifications":[]`, "", 400, "-32602"},
		{"filter with duplicates", `"notifications":{"toolsListChanged":true,"toolsListChanged":true}`, "", 400, "-32602"},
		{"no stream accepted", `"notifications":{}`, "Accept: application/json", 406, "-32600"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := modernHeaders("subscriptions/listen")
			if tt.header != "" {
				header = append(header, tt.header)
			}
			r := g.post(modernBody("1", "subscriptions/listen", tt.params), header...)
			if r.status != tt.status || at(t, r.message(), "error", "code") != tt.code || at(t, r.message(), "id") != "1" {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
}

// TestListenCancelledOnStdio: nothing more comes for a subscription that its client cancelled.
func TestListenCancelledOnStdio(t *testing.T) {
	g := launch(t, parseConfig(t, nil), Options{})
	p := g.pipe()
	p.send(modernBody("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	p.send(modernBody("2", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`))
	p.next()
	p.next()
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	p.call("3", modernBody("3", "server/discover", "")) // the cancellation has been read
	g.Drain()
	if got := p.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":2,"result"`) {
		t.Errorf("got %s", got)
	}
	p.in.Close()
	for line := range p.lines {
		t.Errorf("then came %s", line)
	}
}

// TestTornDownSubscription: the end of a subscription that Headgate ends is announced before its result.
func TestTornDownSubscription(t *testing.T) {
	g := launch(t, parseConfig(t, nil), Options{})
	st, p := g.listenStream(`"s-1"`, `{}`), g.pipe()
	p.send(modernBody("7", "subscriptions/listen", `"notifications":{}`))
	st.next()
	p.next()
	g.Drain()
	const want = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"_meta":{"io.modelcontextprotocol/subscriptionId":%[1]s}}}`
	if got := expect(t, "the announcement", st.torn); got != fmt.Sprintf(want, `"s-1"`) {
		t.Errorf("%s", got)
	}
	if got := expect(t, "the announcement", p.torn); got != fmt.Sprintf(want, "7") {
		t.Errorf("%s", got)
	}
	if got := st.next(); at(t, got, "id") != `"s-1"` {
		t.Errorf("%s", got)
	}
	if got := p.next(); at(t, got, "id") != "7" {
		t.Errorf("%s", got)
	}
}
