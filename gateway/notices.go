package gateway

import (
	"log/slog"
	"sync"
)

// maxNoticed bounds what is remembered as said.
const maxNoticed = 10_000

// EventLeak is an event that Options.Count is told of: a part of an error text that the leak filter masked.
const EventLeak = "leak"

// notices is what the treatment of calls has to say to operators: each thing once, however often it happens.
type notices struct {
	log   *slog.Logger
	count func(event, server, tool string, n int)

	mu   sync.Mutex // guards the fields below
	said map[notice]bool
}

// notice is what makes one thing to say another than the next.
type notice struct{ what, server, tool, kind string }

func newNotices(log *slog.Logger, count func(event, server, tool string, n int)) *notices {
	if count == nil {
		count = func(string, string, string, int) {}
	}
	return &notices{log: log, count: count, said: make(map[notice]bool)}
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
