package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// TestSlammedDoor: a server that closes connections at once may do so before or after the request has been
// written into the socket. What is told depends on that, and is true either way: nothing was run.
func TestSlammedDoor(t *testing.T) {
	t.Parallel()
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		side := newChaosSide(t, "http", era, false)
		g := launch(t, parseConfig(t, map[string]string{"x": side.entry(`"breaker":{"failures":0}`)}), Options{})
		session := g.open()
		side.http.Slam()
		for i := range 10 {
			for _, tool := range []string{"plain", "readonly"} {
				nonce := fmt.Sprint(tool, i)
				r := g.callLegacy(session, "1", "x_"+tool, `{"nonce":"`+nonce+`"}`)
				mark := at(t, r.message(), "result", "_meta", "dev.headgate/failure")
				if n := side.chaos.Arrivals(nonce); n != 0 ||
					!strings.Contains(mark, `"reason":"unavailable","outcome":"not_started"`) && !strings.Contains(mark, `"reason":"connection_lost","outcome":"unknown"`) {
					t.Errorf("%s server: arrived %d times: %s", era, n, r.message())
				}
			}
		}
		side.http.Open()
		poll(t, "the server", func() bool {
			return strings.Contains(g.callModern("1", "x_plain", `{"nonce":"later"}`).body, `"text":"later"`)
		})
	}
}

// TestEndlessCursor: a list that never ends costs its own server some of its tools, and nobody else anything.
func TestEndlessCursor(t *testing.T) {
	t.Parallel()
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		endless := newChaosSide(t, "http", era, false)
		pages := 0
		endless.chaos.OnList = func(string) (string, bool) {
			pages++
			return fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"plain%d","inputSchema":{"type":"object"}}],"nextCursor":"%d"}`, pages, pages), true
		}
		beside := newChaosSide(t, "http", era, false)
		g := launch(t, parseConfig(t, map[string]string{"x": endless.entry(), "y": beside.entry()}), Options{})
		session := g.open()
		if n := len(toolNames(t, g.modern("1", "tools/list", "").body)); n != pages+3 || pages > 200 {
			t.Errorf("%s server: %d tools after %d pages", era, n, pages)
		}
		if f := g.Status().Findings; len(f) != 1 || f[0].Rule != "pages" || f[0].Server != "x" {
			t.Errorf("%s server: findings %+v", era, f)
		}
		if r := g.callLegacy(session, "1", "y_plain", `{"nonce":"a"}`); !strings.Contains(r.body, `"text":"a"`) {
			t.Errorf("the server beside it: %s", r.body)
		}
	}
}

// TestListChangedStorm: a server that announces without end is read again at a bounded rate, its calls work,
// and clients hear nothing, since nothing changes.
func TestListChangedStorm(t *testing.T) {
	t.Parallel()
	side := newChaosSide(t, "http", mcptest.Modern, true)
	g := launch(t, parseConfig(t, map[string]string{"x": side.entry()}), Options{})
	session := g.open()
	stream := g.get(session)
	awaitServer(t, &side.chaos.Server, "the subscription", func() bool { return side.chaos.Streams() == 1 })
	before, began := side.chaos.Count("tools/list"), time.Now()
	for i := range 3000 {
		side.chaos.NotifyToolsChanged()
		if i%300 == 0 {
			if r := g.callModern("1", "x_plain", `{"nonce":"a"}`); !strings.Contains(r.body, `"text":"a"`) {
				t.Errorf("a call during the storm: %s", r.body)
			}
		}
	}
	if n := side.chaos.Count("tools/list") - before; n > 30+int(time.Since(began)/time.Second) {
		t.Errorf("the list was read %d times", n)
	}
	if n := stream.tellings(g, session, 0); n != 0 {
		t.Errorf("clients were told %d times", n)
	}
}
