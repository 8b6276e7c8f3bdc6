package gateway

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/upstream"
)

// maxNoticed bounds what is remembered as said; maxDrifts and maxDriftsOfTool, how many findings about results are
// kept.
const (
	maxNoticed      = 10_000
	maxDrifts       = 1_000
	maxDriftsOfTool = 20
)

// Events that Options.Count is told of.
const (
	// EventLeak is a part of an error text that the leak filter masked.
	EventLeak = "leak"
	// EventDrift is a result that does not fit its tool's outputSchema.
	EventDrift = "drift"
	// EventUnchecked is a call or a result that could not be held against its schema.
	EventUnchecked = "unchecked"
	// EventDropped is a result that was not looked at, since too many waited for it.
	EventDropped = "check_dropped"
)

// notices is what the treatment of calls has to say to operators: each thing once, however often it happens.
type notices struct {
	log   *slog.Logger
	count func(event, server, tool string, n int)

	mu     sync.Mutex // guards the fields below
	said   map[notice]bool
	drifts map[notice]upstream.Finding
	ofTool map[[2]string]int // drifts by server and tool
}

// notice is what makes one thing to say another than the next.
type notice struct{ what, server, tool, kind string }

func newNotices(log *slog.Logger, count func(event, server, tool string, n int)) *notices {
	if count == nil {
		count = func(string, string, string, int) {}
	}
	return &notices{log: log, count: count, said: make(map[notice]bool),
		drifts: make(map[notice]upstream.Finding), ofTool: make(map[[2]string]int)}
}

// first reports whether a thing has not been said yet. When too many things have been, the rest stays unsaid.
func (n *notices) first(what notice) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said[what] || len(n.said) >= maxNoticed {
		return false
	}
	n.said[what] = true
	return true
}

// warn logs a thing that has not been said yet.
func (n *notices) warn(what notice, text string, args ...any) {
	if n.first(what) {
		n.log.Warn(text, append([]any{"upstream", what.server, "tool", what.tool, "kind", what.kind}, args...)...)
	}
}

// drift keeps a finding about what stands at a path in results of a tool, and says it when it is new.
func (n *notices) drift(path string, f upstream.Finding) {
	key, tool := notice{f.Rule, f.Server, f.Tool, path}, [2]string{f.Server, f.Tool}
	n.mu.Lock()
	_, known := n.drifts[key]
	fresh := !known && len(n.drifts) < maxDrifts && n.ofTool[tool] < maxDriftsOfTool
	if fresh {
		n.drifts[key] = f
		n.ofTool[tool]++
	}
	n.mu.Unlock()
	if fresh {
		n.log.Warn("finding", "upstream", f.Server, "tool", f.Tool, "rule", f.Rule, "text", f.Text)
	}
}

// found returns the findings about results of tools that are there.
func (n *notices) found(there func(server, tool string) bool) []upstream.Finding {
	n.mu.Lock()
	all := slices.Collect(maps.Values(n.drifts))
	n.mu.Unlock()
	return slices.DeleteFunc(all, func(f upstream.Finding) bool { return !there(f.Server, f.Tool) })
}

func sortFindings(list []upstream.Finding) {
	slices.SortFunc(list, func(a, b upstream.Finding) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Tool, b.Tool), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Text, b.Text))
	})
}
