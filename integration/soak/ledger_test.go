package soak

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// What the client of a call was told; the zero value is nothing, since it left.
const (
	answered   = iota + 1
	notStarted // also refused
	unknown
)

// ledger knows of every call what it was told and how often it was run. Nonces are "u3-17" or "u3s17": the
// upstream, whether its tool is safe to repeat, and a number.
type ledger struct {
	rest figures // at the first moment of rest
	deaf bool    // nothing is counted

	next     []atomic.Int64 // by upstream
	calls    atomic.Int64
	healthy  atomic.Int64 // calls to healthy upstreams that were not given up
	failed   atomic.Int64 // of these
	given    atomic.Int64 // calls that were given up
	visits   atomic.Int64
	problems problems

	mu   sync.Mutex // guards the fields below
	runs [][]uint8  // by upstream and number
	told [][]uint8
}

// problems keeps the first of what went wrong.
type problems struct {
	mu    sync.Mutex // guards the fields below
	n     int
	first []string
}

func (p *problems) add(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; len(p.first) < 20 {
		p.first = append(p.first, fmt.Sprintf(format, args...))
	}
}

func newLedger(upstreams int) *ledger {
	return &ledger{next: make([]atomic.Int64, upstreams), runs: make([][]uint8, upstreams), told: make([][]uint8, upstreams)}
}

// reset forgets what is over; numbers go on.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.runs {
		l.runs[i], l.told[i] = nil, nil
	}
	for _, n := range []*atomic.Int64{&l.calls, &l.healthy, &l.failed, &l.given, &l.visits} {
		n.Store(0)
	}
}

// nonce names a new call.
func (l *ledger) nonce(upstream int, safe bool) string {
	l.calls.Add(1)
	kind := "-"
	if safe {
		kind = "s"
	}
	return "u" + strconv.Itoa(upstream) + kind + strconv.FormatInt(l.next[upstream].Add(1), 10)
}

// safeBit marks a count of runs of a tool that is safe to repeat.
const safeBit = 0x80

func (l *ledger) parse(nonce string) (upstream, number int, safe bool) {
	at := strings.IndexAny(nonce, "-s")
	upstream, _ = strconv.Atoi(nonce[1:at])
	number, _ = strconv.Atoi(nonce[at+1:])
	return upstream, number, nonce[at] == 's'
}

func (l *ledger) ran(nonce string) {
	if l.deaf {
		return
	}
	u, n, safe := l.parse(nonce)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[u] = grown(l.runs[u], n)
	if safe {
		l.runs[u][n] |= safeBit
	}
	l.runs[u][n]++
}

func (l *ledger) tell(nonce string, what uint8) {
	u, n, _ := l.parse(nonce)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[u] = grown(l.told[u], n)
	l.told[u][n] = what
}

func grown(s []uint8, n int) []uint8 {
	if n >= len(s) {
		s = append(s, make([]uint8, n+1024-len(s))...)
	}
	return s
}

// takeFiles counts what children have run.
func (l *ledger) takeFiles(t *testing.T, sides []*side) {
	for _, s := range sides {
		if s.file == "" {
			continue
		}
		text, err := os.ReadFile(s.file)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			l.ran(strings.TrimSpace(line))
		}
	}
}

// verdict holds what was told against what was run.
func (l *ledger) verdict(t *testing.T) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const tries = 3
	double, lies := 0, 0
	for u, runs := range l.runs {
		for n, r := range runs {
			most := 1
			if r&safeBit != 0 {
				most = tries
			}
			if int(r&^safeBit) > most {
				double++
				t.Logf("call %d of u%d was run %d times, told %d", n, u, r&^safeBit, l.told[u][n])
			}
			if n < len(l.told[u]) && l.told[u][n] == notStarted && r != 0 {
				lies++
			}
		}
		for n, told := range l.told[u] {
			if told == answered && (n >= len(runs) || runs[n] == 0) {
				lies++
			}
		}
	}
	if double > 0 {
		t.Errorf("%d calls were run more often than their tools allow", double)
	}
	if lies > 0 {
		t.Errorf("%d calls were told something that is not true", lies)
	}
	for _, p := range l.problems.first {
		t.Error(p)
	}
	if l.problems.n > len(l.problems.first) {
		t.Errorf("%d problems in all", l.problems.n)
	}
	if l.healthy.Load() == 0 || l.failed.Load() > 0 {
		t.Errorf("%d of %d calls to healthy upstreams failed", l.failed.Load(), l.healthy.Load())
	}
	return fmt.Sprintf("%d visits, %d calls, %d given up, %d double runs, %d untrue outcomes, %d of %d calls to healthy upstreams failed, %d problems",
		l.visits.Load(), l.calls.Load(), l.given.Load(), double, lies, l.failed.Load(), l.healthy.Load(), l.problems.n)
}
