package soak

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

var soakFor = flag.Duration("soak", 8*time.Second, "how long the soak goes on")

func TestMain(m *testing.M) {
	if mcptest.RunChild() {
		return
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for what must happen.
const patience = 60 * time.Second

const clients = 200

// TestSoak has 200 clients of both eras, over HTTP and stdio, connect, list, call, cancel and leave in all ways,
// against 20 upstreams on all transports. Five of these play a fault of mcptest.Chaos with most calls, and
// shut their door now and then. No answer may reach another call than its own, no call may be run more
// often than its tool allows or be told to be something that it was not, healthy upstreams may fail
// nobody, and afterwards nothing may be left of it all.
func TestSoak(t *testing.T) {
	w := newWorld(t)
	w.tidy = true          // nobody has to be waited for that left without a word
	w.run(2 * time.Second) // what is made once is made now
	w.tidy = false
	before := w.rest(t)
	w.ledger.reset()
	began := time.Now()
	w.run(*soakFor)
	took := time.Since(began)
	w.ledger.takeFiles(t, w.sides)
	summary := w.ledger.verdict(t)
	w.ledger.reset()
	after := w.rest(t)
	fmt.Printf("soak: %v, %d clients, %d upstreams (%d misbehaving): %s; %v before, %v after\n",
		took.Round(time.Second), clients, len(w.sides), misbehaving, summary, before, after)
}

// kind is one sort of upstream.
type kind struct{ transport, era string }

// kinds are the upstreams in their order; the first ones misbehave.
var kinds = []kind{
	{"http", mcptest.Modern}, {"http", mcptest.Legacy}, {"sse", mcptest.Legacy}, {"stdio", mcptest.Modern}, {"stdio", mcptest.Legacy},
	{"http", mcptest.Modern}, {"http", mcptest.Modern}, {"http", mcptest.Modern}, {"http", mcptest.Modern}, {"http", mcptest.Modern},
	{"http", mcptest.Legacy}, {"http", mcptest.Legacy}, {"http", mcptest.Legacy}, {"http", mcptest.Legacy},
	{"sse", mcptest.Legacy}, {"sse", mcptest.Legacy}, {"sse", mcptest.Legacy},
	{"stdio", mcptest.Modern}, {"stdio", mcptest.Legacy}, {"stdio", mcptest.Legacy},
}

const misbehaving = 5

// side is one upstream.
type side struct {
	kind
	id     string
	bad    bool
	faults []string
	http   *mcptest.HTTP // nil for a child
	file   string        // of a child's executions
}

// world is everything that runs.
type world struct {
	sides  []*side
	g      *gateway.Gateway
	url    string
	ledger *ledger
	tidy   bool // clients end their sessions; it changes between runs only
}

func newWorld(t *testing.T) *world {
	return startWorld(t, newLedger(len(kinds)), kinds, `"breaker":{"failures":5,"open_for":"1s"}`)
}

// startWorld puts a gateway in front of upstreams, of which the first misbehave; breaker is a member of their entries.
func startWorld(t testing.TB, ledger *ledger, kinds []kind, breaker string) *world {
	w := &world{ledger: ledger}
	var entries []string
	for i, k := range kinds {
		s := &side{kind: k, id: fmt.Sprintf("u%d", i), bad: i < misbehaving}
		chaos := mcptest.NewChaos(k.era)
		chaos.ListChanged, chaos.Forgetful, chaos.Ran = true, true, w.ledger.ran
		var where string
		switch k.transport {
		case "http":
			s.http = chaos.StartHTTP(t)
		case "sse":
			s.http = chaos.StartSSE(t)
		}
		if s.http != nil {
			where = fmt.Sprintf(`"url":%q`, s.http.URL)
		} else {
			s.file = filepath.Join(t.TempDir(), "runs")
			command, _, env := mcptest.ChildCommand(mcptest.ChildSpec{Era: k.era, Chaos: s.file, ListChanged: true})
			where = fmt.Sprintf(`"command":%q,"env":{"GORACE":"atexit_sleep_ms=0"`, command)
			for name, value := range env {
				where += fmt.Sprintf(`,%q:%q`, name, value)
			}
			where += `}`
		}
		if s.bad {
			s.faults = mcptest.Faults(k.transport)
			where += `,"retries":2,"call_timeout":"500ms","max_answer":"64KiB",` + breaker
		}
		entries = append(entries, fmt.Sprintf(`%q:{%s}`, s.id, where))
		w.sides = append(w.sides, s)
	}
	cfg, err := configs.Parse("soak.json", []byte(`{"session_idle":"1s","upstreams":{`+strings.Join(entries, ",")+`}}`), configs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.g, err = gateway.New(cfg, gateway.Options{Logger: slog.New(slog.DiscardHandler), Upstream: upstream.Options{MaxBackoff: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.g.Run(ctx) })
	front := httptest.NewServer(w.g.Handler())
	w.url = front.URL + "/mcp"
	t.Cleanup(func() {
		w.g.Drain()
		front.CloseClientConnections()
		front.Close()
		cancel()
		running.Wait()
	})
	w.awaitUp(t)
	return w
}

// awaitUp waits until every upstream is connected and takes calls.
func (w *world) awaitUp(t testing.TB) {
	t.Helper()
	eventually(t, func() string {
		for _, u := range w.g.Status().Upstreams {
			if u.State != upstream.Up || u.Breaker != "closed" && u.Breaker != "" || u.InFlight > 0 {
				return fmt.Sprintf("upstream %s: %+v", u.ID, u)
			}
		}
		return ""
	})
}

// eventually waits until missing returns "".
func eventually(t testing.TB, missing func() string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		what := missing()
		if what == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// run has all clients at work for a time, and waits until they are gone.
func (w *world) run(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := newClient(w, i)
			for ctx.Err() == nil {
				c.visit(ctx)
			}
		})
	}
	all.Go(func() { w.doors(ctx) })
	all.Wait()
}

// doors shuts the door of one misbehaving upstream after another for a moment.
func (w *world) doors(ctx context.Context) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		s := w.sides[rand.IntN(misbehaving)]
		if s.http != nil {
			pick(s.http.Shut, s.http.Slam)()
		}
		<-tick.C
		if s.http != nil {
			s.http.Open()
		}
		<-tick.C
	}
}

func pick[T any](of ...T) T { return of[rand.IntN(len(of))] }

// figures are what a process holds.
type figures struct {
	goroutines, descriptors int
	heap                    uint64
}

func (f figures) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MiB", f.goroutines, f.descriptors, float64(f.heap)/(1<<20))
}

// slack is by how much two moments of rest may differ.
var slack = figures{goroutines: 30, descriptors: 20, heap: 12 << 20}

// rest waits until nothing is going on, and returns what is held then. A second call waits until no more is
// held than at the first.
func (w *world) rest(t *testing.T) figures {
	t.Helper()
	w.awaitUp(t)
	eventually(t, func() string {
		if n := w.g.Status().Sessions; n > 0 {
			return fmt.Sprintf("%d sessions are left", n)
		}
		return ""
	})
	var last figures
	limit := w.ledger.rest
	eventually(t, func() string {
		// Idle connections to upstreams are kept on purpose, as many as were once in use.
		for _, s := range w.sides {
			if s.http != nil {
				s.http.Shut()
				s.http.Open()
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		was := last
		last = figures{runtime.NumGoroutine(), descriptors(t), m.HeapAlloc}
		switch {
		case limit == figures{} && was.goroutines == last.goroutines && was.descriptors == last.descriptors:
			return ""
		case limit != figures{} && last.goroutines <= limit.goroutines+slack.goroutines &&
			last.descriptors <= limit.descriptors+slack.descriptors && last.heap <= limit.heap+slack.heap:
			return ""
		}
		return fmt.Sprintf("%v are held, %v before", last, limit)
	})
	w.ledger.rest = last
	return last
}

func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system has no /proc to count descriptors in")
	}
	return len(list)
}
