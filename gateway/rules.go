package gateway

import (
	"maps"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/leak"
	"github.com/headgate/headgate/upstream"
)

// rules are what one upstream's entry says of the calls of its tools. They are immutable. A nil *rules is one
// that says nothing.
type rules struct {
	team     string // that owns the upstream; "" for a shared one
	entry    *configs.Upstream
	guidance []guidance
	leaks    *leak.Filter // nil where nothing is filtered
}

func newRules(team string, entry *configs.Upstream) *rules {
	return &rules{team: team, entry: entry, guidance: compileGuidance(entry.Guidance), leaks: newLeakFilter(entry)}
}

// text returns the configured text of the first of several names that has one.
func (r *rules) text(names ...string) (text string, ok bool) {
	if r == nil {
		return "", false
	}
	for _, name := range names {
		if text, ok = r.entry.Texts[name]; ok {
			return text, true
		}
	}
	return "", false
}

// rulesOf are the rules of an upstream that is in the snapshot.
func (s *snapshot) rulesOf(u *upstream.Upstream) *rules {
	for i := range s.parts {
		if s.parts[i].up == u {
			return s.parts[i].rules
		}
	}
	return nil
}

// rulebook keeps the rules of the entries in force, so that a new snapshot compiles nothing again.
type rulebook map[memberKey]*rules

// of returns the rules of an entry.
func (b rulebook) of(key memberKey, entry *configs.Upstream) *rules {
	r := b[key]
	if r == nil || r.entry != entry {
		r = newRules(key.team, entry)
		b[key] = r
	}
	return r
}

// keep forgets upstreams that are no more.
func (b rulebook) keep(current map[memberKey]*configs.Upstream) {
	maps.DeleteFunc(b, func(key memberKey, _ *rules) bool { return current[key] == nil })
}
