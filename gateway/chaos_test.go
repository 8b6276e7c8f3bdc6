package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// TestChaos goes through every fault of mcptest.Chaos, and those of connections, on every transport that
// can have it, with upstreams and clients of both eras. For each it holds how often the upstream was sent
// the call and ran it, and what the client is told, against chaosRows. The rule behind the table: what
// one call costs is one execution at most, or as many as there are tries of a tool that is safe to
// repeat; and what is told of the outcome is true.
func TestChaos(t *testing.T) {
	t.Parallel()
	// Most of the time is waiting, so that more of them run at a time than there are processors.
	var running sync.WaitGroup
	places := make(chan struct{}, 8)
	for _, kind := range []struct{ transport, era string }{
		{"http", mcptest.Modern}, {"http", mcptest.Legacy}, {"sse", mcptest.Legacy}, {"stdio", mcptest.Modern}, {"stdio", mcptest.Legacy},
	} {
		rows := chaosRows(kind.transport)
		for _, fault := range mcptest.Faults(kind.transport) {
			if !slices.ContainsFunc(rows, func(r chaosRow) bool { return r.fault == fault }) {
				t.Errorf("fault %s has no row for %s", fault, kind.transport)
			}
		}
		for _, row := range rows {
			places <- struct{}{}
			running.Go(func() {
				t.Run(kind.transport+" "+kind.era+"/"+cmp.Or(row.name, row.fault), func(t *testing.T) { row.check(t, kind.transport, kind.era) })
				<-places
			})
		}
	}
	running.Wait()
}

// chaosTries is what a call may cost that is safe to repeat.
const chaosTries = 2

// check has clients of both eras call each tool, each tool on an upstream of its own.
func (row chaosRow) check(t *testing.T, transport, era string) {
	tools := map[string]string{"p": "plain", "r": "readonly", "i": "idempotent"}
	sides := map[string]*chaosSide{}
	entries := map[string]string{}
	limit := "6s" // less than the Retry-After of 429_wait and 503_wait
	if row.plain.reason == "timeout" {
		limit = "1500ms"
	}
	for id := range tools {
		// Without announcements nothing but the call uses the upstream.
		sides[id] = newChaosSide(t, transport, era, row.fault == "storm")
		entries[id] = sides[id].entry(`"retries":1`, `"breaker":{"failures":0}`, `"max_answer":"64KiB"`, `"call_timeout":"`+limit+`"`)
	}
	g := launch(t, parseConfig(t, entries), Options{})
	session := g.open()
	var callers sync.WaitGroup
	for id, tool := range tools {
		callers.Go(func() {
			side := sides[id]
			for _, client := range []string{"modern", "legacy"} {
				if row.plain.reason != "unavailable" || client == "modern" {
					g.awaitUp(t, id)
				}
				call := func(fault, nonce string) reply {
					arguments := `{"fault":"` + fault + `","nonce":"` + nonce + `"}`
					if client == "modern" {
						return g.callModern("1", id+"_"+tool, arguments)
					}
					return g.callLegacy(session, "1", id+"_"+tool, arguments)
				}
				if row.trap != "" {
					if r := call(row.trap, "trap"); !strings.Contains(r.message(), `"text":"trap"`) {
						t.Errorf("the call before: %s", r.message())
					}
				}
				if row.before != nil {
					row.before(side.http)
				}
				nonce := client + "-nonce"
				r := call(row.fault, nonce)
				want, runs, sent := row.of(tool)
				if row.replaced && strings.Contains(r.message(), `"outcome":"not_started"`) {
					want, runs = notStarted, 0
				}
				if want.channel == "answer" {
					if got := at(t, r.message(), "result", "content"); got != `[{"type":"text","text":"`+nonce+`"}]` {
						t.Errorf("%s, %s client: %s", tool, client, r.message())
					}
				} else if !t.Run(tool+" "+client, func(t *testing.T) { want.check(t, r, id, id+"_"+tool, client == "modern") }) {
					continue
				}
				n := side.runs(t, nonce)
				if row.relinked && tool != "plain" && n == 1 {
					runs, sent = 1, 1
				}
				if n != runs {
					t.Errorf("%s, %s client: run %d times, want %d", tool, client, n, runs)
				}
				if n := side.chaos.Arrivals(nonce); side.http != nil && n != sent {
					t.Errorf("%s, %s client: arrived %d times, want %d", tool, client, n, sent)
				}
			}
		})
	}
	callers.Wait()
	if n := strings.Count(g.log.String(), `msg="panic`); n > 0 {
		t.Errorf("%d panics", n)
	}
	if t.Failed() {
		t.Logf("the log: %s", g.log.String())
	}
}

// awaitUp waits until an upstream is connected.
func (g *gate) awaitUp(t *testing.T, id string) {
	t.Helper()
	poll(t, "upstream "+id, func() bool {
		all := g.Status().Upstreams
		i := slices.IndexFunc(all, func(u upstream.Status) bool { return u.ID == id })
		return i >= 0 && all[i].State == upstream.Up
	})
}

// chaosSide is one chaos upstream: on sockets, or a process whose executions are in a file.
type chaosSide struct {
	chaos *mcptest.Chaos
	http  *mcptest.HTTP // nil for a child
	file  string
	era   string
}

func newChaosSide(t testing.TB, transport, era string, listChanged bool) *chaosSide {
	s := &chaosSide{chaos: mcptest.NewChaos(era), era: era}
	s.chaos.ListChanged = listChanged
	switch transport {
	case "http":
		s.http = s.chaos.StartHTTP(t)
	case "sse":
		s.http = s.chaos.StartSSE(t)
	case "stdio":
		s.file = filepath.Join(t.TempDir(), "runs")
	}
	return s
}

func (s *chaosSide) entry(more ...string) string {
	if s.http != nil {
		return entry(s.http, more...)
	}
	command, _, env := mcptest.ChildCommand(mcptest.ChildSpec{Era: s.era, Chaos: s.file, ListChanged: s.chaos.ListChanged})
	env["GORACE"] = "atexit_sleep_ms=0" // else the race detector holds up the end of a child by a second
	vars, _ := json.Marshal(env)
	return `{` + strings.Join(append(more, fmt.Sprintf(`"command":%q,"env":%s`, command, vars)), ",") + `}`
}

func (s *chaosSide) runs(t testing.TB, nonce string) int {
	if s.http != nil {
		return s.chaos.Runs(nonce)
	}
	text, err := os.ReadFile(s.file)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return strings.Count(string(text), nonce+"\n")
}
