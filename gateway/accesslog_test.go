package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// TestSubjectInTheLog shows callers as log.subject wants it, from the next request after a reload.
func TestSubjectInTheLog(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	upstreams := map[string]string{"x": entry(s.StartHTTP(t))}
	config := func(how string) []string {
		more := []string{keys(keyEntry("ann", "t")), `"teams":{"t":{"upstreams":["x"],"rules":[{"allow":["*"]}]}}`}
		if how != "" {
			more = append(more, `"log":{"subject":"`+how+`"}`)
		}
		return more
	}
	g := launchTold(t, parseConfig(t, upstreams, config("")...), Options{})
	sum := sha256.Sum256([]byte("#ann"))
	for i, c := range []struct{ how, want string }{{"", "ann"}, {"hash", hex.EncodeToString(sum[:8])}, {"none", ""}, {"plain", "ann"}} {
		if err := g.Apply(parseConfig(t, upstreams, config(c.how)...)); err != nil {
			t.Fatal(err)
		}
		id := string(rune('1' + i))
		passes(t, "the call", g.traced("ann", id, "x_echo", ""))
		got, has := g.accessLine(id)["subject"]
		if has != (c.want != "") || has && got != c.want {
			t.Errorf("%q shows %v, want %q", c.how, got, c.want)
		}
	}
}

// TestAccessLevel: the lines of calls can be had or left out by themselves.
func TestAccessLevel(t *testing.T) {
	for level, want := range map[string]int{"debug": 3, "info": 2, "warn": 1, "error": 0} {
		t.Run(level, func(t *testing.T) {
			s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), mcptest.Tool{Def: `{"name":"html","inputSchema":{"type":"object"}}`, Call: failing()["html"]})}
			g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"log":{"level":"error","levels":{"access":"`+level+`"}}`), Options{})
			g.modern("1", "tools/list", "")
			g.callModern("2", "x_echo", "{}")
			g.callModern("3", "x_html", "{}")
			if got := strings.Count(g.log.String(), "\n"); got != want {
				t.Errorf("%d lines, want %d:\n%s", got, want, g.log.String())
			}
		})
	}
}

// TestSizesAndTimesInTheLog are those of the call.
func TestSizesAndTimesInTheLog(t *testing.T) {
	const answer = `{"content":[{"type":"text","text":"a long enough answer to tell it from others"}]}`
	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"say","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Result(answer) }}}}
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session := g.open()
	const params = `{"name":"x_say","arguments":{"a":"b"}}`
	if r := g.post(legacyBody("1", "tools/call", params), session); r.status != http.StatusOK {
		t.Fatal(r.body)
	}
	line := g.accessLine("1")
	if line["request_bytes"] != float64(len(params)) || line["answer_bytes"] != float64(len(answer)) || line["attempts"] != 1.0 {
		t.Errorf("the log says %v", line)
	}
	took, _ := line["took_ms"].(float64)
	upstream, _ := line["upstream_ms"].(float64)
	if upstream <= 0 || took < upstream {
		t.Errorf("it took %g ms, of which %g upstream", took, upstream)
	}
}

// TestForgedLines: what a client chooses cannot begin a line of its own.
func TestForgedLines(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"log":{"level":"error","levels":{"access":"debug"}}`), Options{})
	session := g.open()
	before := strings.Count(g.log.String(), "\n")
	g.post(legacyBody(`"a\nb\r\u001b"`, "tools/call", `{"name":"x_echo"}`), session)
	g.post(legacyBody(`"c"`, `m\nlevel=ERROR`, ``), session)
	log := g.log.String()
	if got := strings.Count(log, "\n") - before; got != 2 || strings.ContainsAny(log, "\r\x1b") {
		t.Errorf("%d lines:\n%q", got, log)
	}
}
