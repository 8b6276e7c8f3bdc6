package authz

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/configs"
)

func limited(limits map[string]configs.Limits) map[string]*configs.Team {
	teams := map[string]*configs.Team{}
	for name, l := range limits {
		teams[name] = &configs.Team{Name: name, Limits: l}
	}
	return teams
}

func TestLimits(t *testing.T) {
	type call struct {
		after  time.Duration // before the call
		teams  string
		caller string
		tool   string
		want   string // "" for passed, else scope, kind, limit and wait
		hold   bool   // it goes on until the end
	}
	pass := func(n int, c call) []call {
		out := make([]call, n)
		for i := range out {
			out[i] = c
		}
		return out
	}
	tests := []struct {
		name   string
		limits map[string]configs.Limits
		calls  [][]call
	}{
		{"no limits", map[string]configs.Limits{"a": {}}, [][]call{pass(100, call{teams: "a", hold: true})}},
		{"no teams", nil, [][]call{pass(100, call{hold: true}), pass(100, call{teams: "unknown", hold: true})}},
		{"one a minute", map[string]configs.Limits{"a": {CallsPerMinute: 1}}, [][]call{
			{{teams: "a"}, {teams: "a", want: "team a rate 1 1m0s"}, {after: 20 * time.Second, teams: "a", want: "team a rate 1 40s"}, {after: 40 * time.Second, teams: "a"}},
		}},
		{"ten at once, then as they come", map[string]configs.Limits{"a": {CallsPerMinute: 60}}, [][]call{
			pass(10, call{teams: "a"}), {{teams: "a", want: "team a rate 60 1s"}, {after: time.Second, teams: "a"}, {teams: "a", want: "team a rate 60 1s"}},
			{{after: time.Hour, teams: "a"}}, pass(9, call{teams: "a"}), {{teams: "a", want: "team a rate 60 1s"}},
		}},
		{"a wait that is no whole number", map[string]configs.Limits{"a": {CallsPerMinute: 7}}, [][]call{
			pass(7, call{teams: "a"}), {{teams: "a", want: "team a rate 7 8.572s"}, {after: 8571 * time.Millisecond, teams: "a", want: "team a rate 7 1ms"}, {after: time.Millisecond, teams: "a"}},
		}},
		{"ten seconds' worth at once", map[string]configs.Limits{"a": {CallsPerMinute: 600}}, [][]call{
			pass(100, call{teams: "a"}), {{teams: "a", want: "team a rate 600 100ms"}},
		}},
		{"concurrency", map[string]configs.Limits{"a": {Concurrent: 2}}, [][]call{
			pass(50, call{teams: "a"}), pass(2, call{teams: "a", hold: true}), {{teams: "a", want: "team a concurrency 2 1s"}, {after: time.Hour, teams: "a", want: "team a concurrency 2 1s"}},
		}},
		{"each caller", map[string]configs.Limits{"a": {PerCaller: &configs.Limits{Concurrent: 1}}}, [][]call{
			{{teams: "a", caller: "alice", hold: true}, {teams: "a", caller: "bob", hold: true}, {teams: "a", caller: "alice", want: "caller concurrency 1 1s"}},
		}},
		{"each tool", map[string]configs.Limits{"a": {PerTool: map[string]configs.Limits{"x_*": {Concurrent: 1}}}}, [][]call{
			{{teams: "a", tool: "x_a", hold: true}, {teams: "a", tool: "x_b", hold: true}, {teams: "a", tool: "x_a", want: "tool x_a concurrency 1 1s"}},
			pass(9, call{teams: "a", tool: "y_a", hold: true}),
		}},
		{"every glob that matches", map[string]configs.Limits{"a": {PerTool: map[string]configs.Limits{"x_*": {Concurrent: 2}, "*_a": {CallsPerMinute: 1}}}}, [][]call{
			{{teams: "a", tool: "x_a", hold: true}, {teams: "a", tool: "x_a", want: "tool x_a rate 1 1m0s"}, {after: time.Minute, teams: "a", tool: "x_a", hold: true},
				{teams: "a", tool: "x_a", want: "tool x_a rate 1 1m0s"}, {after: time.Hour, teams: "a", tool: "x_a", want: "tool x_a concurrency 2 1s"}},
		}},
		{"what is refused counts nowhere", map[string]configs.Limits{"a": {CallsPerMinute: 2, PerCaller: &configs.Limits{Concurrent: 1}}}, [][]call{
			{{teams: "a", caller: "alice", hold: true}}, pass(20, call{teams: "a", caller: "alice", want: "caller concurrency 1 1s"}),
			{{teams: "a", caller: "bob"}, {teams: "a", caller: "bob", want: "team a rate 2 30s"}},
		}},
		{"the longer wait counts", map[string]configs.Limits{"a": {CallsPerMinute: 1, Concurrent: 1}}, [][]call{
			{{teams: "a", hold: true}, {teams: "a", want: "team a rate 1 1m0s"}, {after: time.Minute, teams: "a", want: "team a concurrency 1 1s"}},
		}},
		{"one team with room is enough", map[string]configs.Limits{"a": {CallsPerMinute: 1}, "b": {CallsPerMinute: 2}}, [][]call{
			pass(3, call{teams: "a b"}), {{teams: "a b", want: "team b rate 2 30s"}, {teams: "a", want: "team a rate 1 1m0s"}, {teams: "b", want: "team b rate 2 30s"}},
		}},
		{"a team without limits beside", map[string]configs.Limits{"a": {Concurrent: 1}, "b": {}}, [][]call{pass(20, call{teams: "a b", hold: true})}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter(limited(tt.limits))
				n := 0
				for _, calls := range tt.calls {
					for _, c := range calls {
						time.Sleep(c.after)
						release, err := l.Acquire(strings.Fields(c.teams), Caller{Subject: c.caller}, c.tool)
						got := ""
						if err != nil {
							got = fmt.Sprintf("%s %s %d %s", err.Scope, err.Kind, err.Limit, err.RetryAfter)
						}
						if got != c.want || (release == nil) != (err != nil) {
							t.Fatalf("call %d: %q, want %q", n, got, c.want)
						}
						if release != nil && !c.hold {
							release()
							release() // a second time does nothing
						}
						n++
					}
				}
			})
		})
	}
}

func TestLimitErrorText(t *testing.T) {
	for want, e := range map[string]*LimitError{
		"the limit of team a is reached: 60 calls a minute":     {Scope: "team a", Kind: LimitRate, Limit: 60},
		"the limit of tool x_a is reached: 1 calls at a time":   {Scope: "tool x_a", Kind: LimitConcurrency, Limit: 1},
		"the limit of caller is reached: 100 calls at a time":   {Scope: "caller", Kind: LimitConcurrency, Limit: 100},
		"the limit of caller is reached: 100000 calls a minute": {Scope: "caller", Kind: LimitRate, Limit: 100000},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}

func TestLimiterApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(limited(map[string]configs.Limits{"a": {CallsPerMinute: 2, Concurrent: 5}}))
		var last *LimitError
		room := func(calls int) (passed int) { // of calls that do not end
			for range calls {
				if _, err := l.Acquire([]string{"a"}, Caller{}, ""); err == nil {
					passed++
				} else {
					last = err
				}
			}
			return passed
		}
		if n := room(3); n != 2 {
			t.Fatalf("%d of 3 calls pass", n)
		}
		l.Apply(limited(map[string]configs.Limits{"a": {CallsPerMinute: 2, Concurrent: 5}}))
		if n := room(3); n != 0 {
			t.Errorf("a reload gives a fresh start: %d of 3 calls pass", n)
		}
		l.Apply(limited(map[string]configs.Limits{"a": {CallsPerMinute: 120, Concurrent: 5}}))
		time.Sleep(time.Second)
		if n := room(3); n != 2 {
			t.Errorf("with a higher rate from now on %d of 3 calls pass", n)
		}
		l.Apply(limited(map[string]configs.Limits{"a": {Concurrent: 5}}))
		if n := room(3); n != 1 || last.Kind != LimitConcurrency {
			t.Errorf("with a rate that is gone %d of 3 calls pass; then %v", n, last)
		}
		l.Apply(nil)
		if n := room(3); n != 3 {
			t.Errorf("without the team %d of 3 calls pass", n)
		}
	})
}

// TestLimiterForgets holds that memory is bounded by the callers of a minute.
func TestLimiterForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(limited(map[string]configs.Limits{"a": {
			PerCaller: &configs.Limits{CallsPerMinute: 60, Concurrent: 1}, PerTool: map[string]configs.Limits{"*": {Concurrent: 100}},
		}}))
		const perMinute = 1000
		held, err := l.Acquire([]string{"a"}, Caller{Subject: "held"}, "held")
		if err != nil {
			t.Fatal(err)
		}
		for n := range 10 * perMinute {
			time.Sleep(time.Minute / perMinute)
			release, err := l.Acquire([]string{"a"}, Caller{Subject: fmt.Sprint(n)}, fmt.Sprint("tool", n))
			if err != nil {
				t.Fatal(err)
			}
			release()
			if len(l.counts) > 2*2*perMinute+10 {
				t.Fatalf("%d counts after %d callers", len(l.counts), n)
			}
		}
		if _, err := l.Acquire([]string{"a"}, Caller{Subject: "held"}, "held"); err == nil {
			t.Error("a call that runs was forgotten")
		}
		held()
		// Many at once: the size brings the sweep forward.
		for n := range 100_000 {
			release, err := l.Acquire([]string{"a"}, Caller{Subject: "same"}, fmt.Sprint("t", n))
			if err == nil {
				release()
			}
			if len(l.counts) > 2*(2*perMinute)+sweepSize+10 {
				t.Fatalf("%d counts after %d tools", len(l.counts), n)
			}
			time.Sleep(time.Microsecond)
		}
	})
}

func TestLimiterConcurrently(t *testing.T) {
	const most = 7
	l := NewLimiter(limited(map[string]configs.Limits{"a": {Concurrent: most, PerCaller: &configs.Limits{Concurrent: 3}}}))
	var running, passed atomic.Int64
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			for range 200 {
				release, err := l.Acquire([]string{"a"}, Caller{Subject: fmt.Sprint(n % 5)}, "x")
				if err != nil {
					continue
				}
				if r := running.Add(1); r > most {
					t.Errorf("%d calls at a time", r)
				}
				passed.Add(1)
				running.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	for key, c := range l.counts {
		if c.running != 0 {
			t.Errorf("%d calls of %v are still counted", c.running, key)
		}
	}
	if passed.Load() == 0 {
		t.Error("nothing passed")
	}
}

func BenchmarkAcquire(b *testing.B) {
	l := NewLimiter(limited(map[string]configs.Limits{"a": {
		CallsPerMinute: 1 << 30, Concurrent: 1 << 30, PerCaller: &configs.Limits{CallsPerMinute: 1 << 30},
		PerTool: map[string]configs.Limits{"x_*": {Concurrent: 1 << 30}},
	}}))
	callers := make([]Caller, 1000)
	for i := range callers {
		callers[i].Subject = fmt.Sprint(i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			release, err := l.Acquire([]string{"a"}, callers[rand.IntN(len(callers))], "x_a")
			if err != nil {
				b.Error(err)
				return
			}
			release()
		}
	})
}
