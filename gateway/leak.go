package gateway

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/leak"
	"github.com/headgate/headgate/internal/wire"
)

// newLeakFilter makes the filter of an upstream; nil where there is none.
func newLeakFilter(entry *configs.Upstream) *leak.Filter {
	if !entry.LeakFilter {
		return nil
	}
	return leak.New(entry.Secrets(), []string{entry.Hostname()})
}

// leaks is the filter of the tool's upstream, which knows the tokens of the moment besides.
func (t *tool) leaks() *leak.Filter { return t.rules.leaks.With(t.owner.Redact) }

// maskError masks the message and the data of a JSON-RPC error.
func (g *Gateway) maskError(t *tool, errObj jsontext.Value) jsontext.Value {
	if t.rules == nil || t.rules.leaks == nil {
		return errObj
	}
	found := leak.Counts{}
	masked := t.leaks().JSON(errObj, false, found)
	g.tellLeaks(t, found)
	return masked
}

// maskResult masks the texts of a result with isError: true: those in content, and structuredContent. Edits are of
// the members that changed; they stand in obj already.
func (g *Gateway) maskResult(t *tool, obj wire.Object) (edits []wire.Edit) {
	if t.rules.leaks == nil {
		return nil
	}
	found := leak.Counts{}
	leaks := t.leaks()
	for i := range obj {
		m := &obj[i]
		if m.Name != "content" && m.Name != "structuredContent" {
			continue
		}
		masked := leaks.JSON(m.Value, m.Name == "content", found)
		if len(masked) != len(m.Value) || string(masked) != string(m.Value) {
			m.Value = masked
			edits = append(edits, wire.Edit{Name: m.Name, Value: masked})
		}
	}
	g.tellLeaks(t, found)
	return edits
}

// tellLeaks reports what was masked, by kind and number; what it was is nowhere said.
func (g *Gateway) tellLeaks(t *tool, found leak.Counts) {
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		total += found[kind]
		g.notices.warn(notice{"leak", t.owner.ID(), t.name, string(kind)}, "an error text was masked", "parts", found[kind])
	}
	if total > 0 {
		g.notices.count(EventLeak, t.owner.ID(), t.name, total)
	}
}
