package authz

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate/configs"
)

// Kinds of limit, as LimitError.Kind holds them.
const (
	LimitRate        = "rate"
	LimitConcurrency = "concurrency"
)

const (
	// concurrencyWait is what a caller over a concurrency limit is told to wait: when a call ends cannot be known.
	concurrencyWait = time.Second
	// sweepEvery is how often counts that nobody uses any more are forgotten. A bucket is full again after a minute.
	sweepEvery = time.Minute
	// sweepSize is how many more counts than after the last sweep bring the next one forward.
	sweepSize = 4096
)

// Limiter counts calls against the limits of teams: of the team as a whole, of each of its callers, and of each tool.
// Its memory grows with the callers and tools of the last minute. It may be used concurrently.
type Limiter struct {
	mu     sync.Mutex // guards all below
	teams  map[string]*teamLimits
	counts map[countKey]*count
	swept  time.Time // when, and
	left   int       // how many counts were left
}

type teamLimits struct {
	whole, caller configs.Limits
	tools         []toolLimits // sorted by glob
}

type toolLimits struct {
	glob string
	configs.Limits
}

// countKey is what a count is of: a team; one caller or one tool of it, by the glob of the limit.
type countKey struct{ team, caller, glob, tool string }

type count struct {
	bucket  *rate.Limiter // nil without a rate
	rate    int           // calls a minute that the bucket is made for
	running int
}

// LimitError says which limit keeps a call from being made.
type LimitError struct {
	// Scope is what is limited: "team NAME", "caller" or "tool NAME".
	Scope string
	// Kind is LimitRate or LimitConcurrency.
	Kind string
	// Limit is the number that the configuration sets: calls a minute, or calls at a time.
	Limit int
	// RetryAfter is when the call would pass if no other came first; for LimitConcurrency a guess.
	RetryAfter time.Duration
}

// Error implements error.
func (e *LimitError) Error() string {
	what := " calls a minute"
	if e.Kind == LimitConcurrency {
		what = " calls at a time"
	}
	return "the limit of " + e.Scope + " is reached: " + strconv.Itoa(e.Limit) + what
}

// NewLimiter makes a Limiter of the teams' limits.
func NewLimiter(teams map[string]*configs.Team) *Limiter {
	l := &Limiter{counts: make(map[countKey]*count)}
	l.Apply(teams)
	return l
}

// Apply puts the limits of a new configuration into force. What was counted stays counted, so that a reload gives
// nobody a fresh start.
func (l *Limiter) Apply(teams map[string]*configs.Team) {
	next := make(map[string]*teamLimits, len(teams))
	for name, t := range teams {
		out := &teamLimits{whole: t.Limits}
		if t.Limits.PerCaller != nil {
			out.caller = *t.Limits.PerCaller
		}
		for _, glob := range slices.Sorted(maps.Keys(t.Limits.PerTool)) {
			out.tools = append(out.tools, toolLimits{glob, t.Limits.PerTool[glob]})
		}
		next[name] = out
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.teams = next
	now := time.Now()
	for key, c := range l.counts {
		c.setRate(now, next[key.team].of(key).CallsPerMinute)
	}
}

// of gives the limits that a count is held against; none if the configuration has them no more.
func (t *teamLimits) of(key countKey) configs.Limits {
	switch {
	case t == nil:
		return configs.Limits{}
	case key.glob != "":
		for _, m := range t.tools {
			if m.glob == key.glob {
				return m.Limits
			}
		}
		return configs.Limits{}
	case key.caller != "":
		return t.caller
	}
	return t.whole
}

// Acquire takes a call's place under the limits of one of the teams, of which each allows the call: the first that has
// room. The caller calls release once the call is over. If no team has room, nothing is counted, and the error is that
// of the team where the wait is shortest. Teams without limits, and no teams at all, let every call pass.
func (l *Limiter) Acquire(teams []string, caller Caller, tool string) (release func(), err *LimitError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.sweep(now)
	for _, name := range teams {
		counts, refused := l.try(now, name, caller, tool)
		if refused == nil {
			return l.releaser(counts), nil
		}
		if err == nil || refused.RetryAfter < err.RetryAfter {
			err = refused
		}
	}
	if err != nil {
		return nil, err
	}
	return func() {}, nil
}

// bound is one limit that applies to a call.
type bound struct {
	*count
	limits configs.Limits
	scope  string
}

// try counts a call in one team, everywhere or nowhere. l.mu is held.
func (l *Limiter) try(now time.Time, name string, caller Caller, tool string) ([]*count, *LimitError) {
	t := l.teams[name]
	if t == nil {
		return nil, nil
	}
	var bounds []bound
	add := func(m configs.Limits, scope string, key countKey) {
		if m.CallsPerMinute > 0 || m.Concurrent > 0 {
			bounds = append(bounds, bound{l.count(now, key, m.CallsPerMinute), m, scope})
		}
	}
	add(t.whole, "team "+name, countKey{team: name})
	add(t.caller, "caller", countKey{team: name, caller: caller.Key()})
	for _, m := range t.tools {
		if glob(m.glob, tool) {
			add(m.Limits, "tool "+tool, countKey{team: name, glob: m.glob, tool: tool})
		}
	}

	var refused *LimitError
	for _, b := range bounds {
		if e := b.refuses(now); e != nil && (refused == nil || e.RetryAfter > refused.RetryAfter) {
			refused = e
		}
	}
	if refused != nil {
		return nil, refused
	}
	counts := make([]*count, len(bounds))
	for i, b := range bounds {
		if b.bucket != nil {
			b.bucket.AllowN(now, 1)
		}
		b.running++
		counts[i] = b.count
	}
	return counts, nil
}

// refuses says which of the two numbers is reached, if one is; the longer wait counts.
func (b bound) refuses(now time.Time) *LimitError {
	var e *LimitError
	if n := b.limits.Concurrent; n > 0 && b.running >= n {
		e = &LimitError{Scope: b.scope, Kind: LimitConcurrency, Limit: n, RetryAfter: concurrencyWait}
	}
	if b.bucket == nil {
		return e
	}
	// A little less than one is one: waiting exactly as told must do.
	if have := b.bucket.TokensAt(now); have < 1-1e-9 {
		wait := time.Duration((1 - have) / float64(b.bucket.Limit()) * float64(time.Second))
		wait = (wait + time.Millisecond - 1).Truncate(time.Millisecond)
		if e == nil || wait > e.RetryAfter {
			e = &LimitError{Scope: b.scope, Kind: LimitRate, Limit: b.limits.CallsPerMinute, RetryAfter: wait}
		}
	}
	return e
}

// count gives the count for a key; a new one gets a bucket for the rate.
func (l *Limiter) count(now time.Time, key countKey, perMinute int) *count {
	c := l.counts[key]
	if c == nil {
		c = &count{}
		c.setRate(now, perMinute)
		l.counts[key] = c
	}
	return c
}

// setRate gives a count the bucket for a rate, and keeps what was used of the one it has.
func (c *count) setRate(now time.Time, perMinute int) {
	switch {
	case perMinute == c.rate:
	case perMinute == 0:
		c.bucket = nil
	case c.bucket == nil:
		c.bucket = rate.NewLimiter(rate.Limit(float64(perMinute)/60), burst(perMinute))
	default:
		c.bucket.SetLimitAt(now, rate.Limit(float64(perMinute)/60))
		c.bucket.SetBurstAt(now, burst(perMinute))
	}
	c.rate = perMinute
}

// burst is how many calls may come at once: ten seconds' worth. An agent sends calls in handfuls, so small limits
// let up to ten of the minute's calls come together.
func burst(perMinute int) int { return max(perMinute/6, min(perMinute, 10)) }

func (l *Limiter) releaser(counts []*count) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, c := range counts {
				c.running--
			}
		})
	}
}

// sweep forgets counts that say nothing: no call runs, and the bucket is full.
func (l *Limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepEvery && len(l.counts) < 2*l.left+sweepSize {
		return
	}
	maps.DeleteFunc(l.counts, func(_ countKey, c *count) bool {
		return c.running == 0 && (c.bucket == nil || c.bucket.TokensAt(now) >= float64(c.bucket.Burst()))
	})
	l.swept, l.left = now, len(l.counts)
}

var _ error = (*LimitError)(nil)
