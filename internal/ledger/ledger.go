package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what is kept. At the worst, with every text at its longest, all of it is some 20 MB.
const (
	// MaxTools is how many tools have counts of their own.
	MaxTools = 2000
	// MaxToolsOfOne is how many of them may be of one upstream, so that one which keeps inventing names does
	// not take the places of the others.
	MaxToolsOfOne = 500
	// MaxTexts is how many failure texts are kept for a tool.
	MaxTexts = 20
)

// Names that stand for tools without counts of their own.
const (
	// Other is all tools that came after MaxTools or MaxToolsOfOne were there.
	Other = "_OTHER"
	// Unknown is all calls that reached no tool, whatever name they had.
	Unknown = "_UNKNOWN"
)

// Outcomes that are no failure.
const (
	OK        = "ok"
	Cancelled = "cancelled"
)

// Ledger counts calls. It may be used concurrently. A call that succeeds costs one atomic increment.
type Ledger struct {
	outcomes []string
	since    time.Time
	tools    atomic.Pointer[map[key]*tool] // replaced, never changed
	other    *tool
	unknown  *tool
	texts    atomic.Bool

	mu    sync.Mutex // held to replace tools; guards ofOne
	ofOne map[string]int
}

// key is an exposed name and the id of the upstream that owns it: teams may have tools of one name on
// different servers.
type key struct{ tool, upstream string }

// tool is what is kept of one tool.
type tool struct {
	key
	counts []atomic.Int64 // by index in Ledger.outcomes, and one more for any other

	mu    sync.Mutex // guards the fields below
	texts map[textKey]*kind
	told  int64 // calls with a text, those whose kind was dropped included
}

// textKey is what makes two failure texts the same.
type textKey struct {
	outcome string
	code    int64
	text    string
}

// kind is one failure text.
//
// The kinds of a tool are kept by the Space-Saving algorithm: a new one takes the place of the one with the
// least weight and inherits it. Every kind that makes up more than one in MaxTexts of all texts is kept,
// whatever comes between; what comes once and never again wears out by itself.
type kind struct {
	count       int64 // since first
	weight      int64 // count and what was inherited
	first, last time.Time
	trace       string
}

// New makes a Ledger that counts by these outcomes, which should have OK and Cancelled among them. Any
// other is counted as "other". It keeps texts.
func New(now time.Time, outcomes ...string) *Ledger {
	l := &Ledger{outcomes: append(slices.Clone(outcomes), "other"), since: now, ofOne: make(map[string]int)}
	l.other, l.unknown = l.newTool(key{tool: Other}), l.newTool(key{tool: Unknown})
	l.tools.Store(&map[key]*tool{})
	l.texts.Store(true)
	return l
}

func (l *Ledger) newTool(k key) *tool {
	return &tool{key: k, counts: make([]atomic.Int64, len(l.outcomes)), texts: make(map[textKey]*kind)}
}

// Count counts one call. A name of "" is a call that reached no tool.
func (l *Ledger) Count(name, upstream, outcome string) {
	l.of(name, upstream).counts[l.index(outcome)].Add(1)
}

func (l *Ledger) index(outcome string) int {
	for i, o := range l.outcomes {
		if o == outcome {
			return i
		}
	}
	return len(l.outcomes) - 1
}

// of finds the tool to count for.
func (l *Ledger) of(name, upstream string) *tool {
	if name == "" {
		return l.unknown
	}
	k := key{name, upstream}
	if t := (*l.tools.Load())[k]; t != nil {
		return t
	}
	return l.add(k)
}

func (l *Ledger) add(k key) *tool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := *l.tools.Load()
	if t := old[k]; t != nil {
		return t
	}
	if len(old) >= MaxTools || l.ofOne[k.upstream] >= MaxToolsOfOne {
		return l.other
	}
	k = key{strings.Clone(k.tool), strings.Clone(k.upstream)}
	t := l.newTool(k)
	next := maps.Clone(old)
	next[k] = t
	l.tools.Store(&next)
	l.ofOne[k.upstream]++
	return t
}

// Failure is the text of one call that failed.
type Failure struct {
	Tool, Upstream, Outcome string
	Code                    int64  // of a JSON-RPC error; 0 where there is none
	Text                    string // as it came; it is masked before it is kept
	TraceID                 string // "" when there is none
	Time                    time.Time
}

// KeepsTexts reports whether Note keeps anything.
func (l *Ledger) KeepsTexts() bool { return l.texts.Load() }

// Note keeps the text of a call that was counted. It does nothing while texts are not kept.
func (l *Ledger) Note(f Failure) {
	if !l.texts.Load() {
		return
	}
	k := textKey{outcome: f.Outcome, code: f.Code, text: Mask(f.Text)}
	t := l.of(f.Tool, f.Upstream)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !l.texts.Load() {
		return // turned off meanwhile, and forgotten already
	}
	t.note(k, f.TraceID, f.Time)
}

// note is Note for one tool. t.mu is held.
func (t *tool) note(k textKey, trace string, now time.Time) {
	t.told++
	e := t.texts[k]
	if e == nil {
		e = &kind{first: now}
		if len(t.texts) >= MaxTexts {
			least, worn := t.least()
			e.weight = worn.weight
			delete(t.texts, least)
		}
		k.text = strings.Clone(k.text)
		t.texts[k] = e
	}
	e.count++
	e.weight++
	e.last = now
	if trace != "" {
		e.trace = trace
	}
}

// least is the kind to drop: of those with the least weight the one that was not seen for longest. t.mu is
// held.
func (t *tool) least() (textKey, *kind) {
	var (
		least textKey
		worn  *kind
	)
	for k, e := range t.texts {
		if worn == nil || e.weight < worn.weight || e.weight == worn.weight && e.last.Before(worn.last) {
			least, worn = k, e
		}
	}
	return least, worn
}

// KeepTexts says whether texts are kept. Those that are there are forgotten when it turns them off.
func (l *Ledger) KeepTexts(keep bool) {
	l.texts.Store(keep)
	if keep {
		return
	}
	for _, t := range l.all() {
		t.mu.Lock()
		clear(t.texts)
		t.told = 0
		t.mu.Unlock()
	}
}

func (l *Ledger) all() []*tool {
	all := slices.Collect(maps.Values(*l.tools.Load()))
	return append(all, l.other, l.unknown)
}

// Report is what a Ledger holds, for operators.
type Report struct {
	Since time.Time `json:"since"` // when counting began
	// Texts says whether failure texts are kept.
	Texts  bool   `json:"texts"`
	Totals Counts `json:"totals"`
	// Tools are those that were called, the one with most failures first, then by name.
	Tools []Tool `json:"tools"`
}

// Counts are calls by what became of them.
type Counts struct {
	Calls  int64 `json:"calls"`
	Failed int64 `json:"failed"` // all but those that succeeded and those that were cancelled
	// Rate is the share of Failed in the calls that were not cancelled, 0 to 1.
	Rate     float64          `json:"failure_rate"`
	Outcomes map[string]int64 `json:"outcomes"` // those that occurred
}

// OutcomeCount is how many calls had one outcome.
type OutcomeCount struct {
	Outcome string
	Count   int64
}

// Ranked are the outcomes that are failures, the most frequent first, then by name.
func (c Counts) Ranked() []OutcomeCount {
	var out []OutcomeCount
	for o, n := range c.Outcomes {
		if o != OK && o != Cancelled {
			out = append(out, OutcomeCount{o, n})
		}
	}
	slices.SortFunc(out, func(a, b OutcomeCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Outcome, b.Outcome))
	})
	return out
}

// Tool is one tool in a Report.
type Tool struct {
	Name     string `json:"tool"`
	Upstream string `json:"upstream,omitempty"`
	Counts
	// Texts are the most frequent failure texts, the most frequent first.
	Texts []Text `json:"texts,omitempty"`
	// OtherTexts are failures whose text is none of Texts any more.
	OtherTexts int64 `json:"other_texts,omitempty"`
}

// Text is one failure text, masked.
type Text struct {
	Outcome string    `json:"outcome"`
	Code    int64     `json:"code,omitempty"` // of a JSON-RPC error
	Text    string    `json:"text"`
	Count   int64     `json:"count"` // since First
	First   time.Time `json:"first_seen"`
	Last    time.Time `json:"last_seen"`
	TraceID string    `json:"trace_id,omitempty"` // of the last failure that had one
}

// Report tells what there is; of one tool if name is not "", under whatever upstreams it has been called.
func (l *Ledger) Report(name string) Report {
	r := Report{Since: l.since, Texts: l.texts.Load(), Tools: []Tool{}, Totals: Counts{Outcomes: map[string]int64{}}}
	for _, t := range l.all() {
		if name != "" && t.tool != name {
			continue
		}
		out := t.report(l.outcomes)
		if out.Calls == 0 {
			continue
		}
		for o, n := range out.Outcomes {
			r.Totals.Outcomes[o] += n
		}
		r.Tools = append(r.Tools, out)
	}
	r.Totals.sum()
	slices.SortFunc(r.Tools, func(a, b Tool) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), strings.Compare(a.Name, b.Name), strings.Compare(a.Upstream, b.Upstream))
	})
	return r
}

// sum fills in what follows from Outcomes.
func (c *Counts) sum() {
	for _, n := range c.Outcomes {
		c.Calls += n
	}
	ended := c.Calls - c.Outcomes[Cancelled]
	c.Failed = ended - c.Outcomes[OK]
	if ended > 0 {
		c.Rate = float64(c.Failed) / float64(ended)
	}
}

func (t *tool) report(outcomes []string) Tool {
	out := Tool{Name: t.tool, Upstream: t.upstream, Counts: Counts{Outcomes: map[string]int64{}}}
	for i, o := range outcomes {
		if n := t.counts[i].Load(); n > 0 {
			out.Outcomes[o] = n
		}
	}
	out.sum()
	t.mu.Lock()
	out.OtherTexts = t.told
	for k, e := range t.texts {
		out.Texts = append(out.Texts, Text{Outcome: k.outcome, Code: k.code, Text: k.text, Count: e.count, First: e.first, Last: e.last, TraceID: e.trace})
		out.OtherTexts -= e.count
	}
	t.mu.Unlock()
	slices.SortFunc(out.Texts, func(a, b Text) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), strings.Compare(a.Text, b.Text),
			strings.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Code, b.Code))
	})
	return out
}
