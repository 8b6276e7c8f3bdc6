package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/naming"
	"github.com/headgate/headgate/upstream"
)

// snapshot is the merged catalogue at one moment. It is immutable; a request loads it once and
// answers from it alone.
type snapshot struct {
	cfg          *configs.Config
	byName       map[string]*tool
	view         *view
	capabilities jsontext.Value
	instructions string
	findings     []upstream.Finding   // by server and tool
	made         []upstream.Finding   // those that merging made; the upstreams log theirs themselves
	upstreams    []*upstream.Upstream // by id
	settled      bool                 // every upstream had ended its first attempt when this was built
}

// tool is one exposed tool and its owner.
type tool struct {
	name       string
	owner      *upstream.Upstream
	definition *upstream.Tool
	exposed    jsontext.Value // the definition under the exposed name
	legacy     jsontext.Value // the same as clients of the handshake era can read it
	repeatable bool           // safe to send again (failure table, "safe to repeat")
}

// view is the tool list as one set of callers sees it, encoded once.
type view struct {
	tools  []*tool // bytewise by name
	modern jsontext.Value
	legacy jsontext.Value
	ttl    time.Duration
	scope  string // cacheScope
}

// build merges the catalogues of the upstreams. It depends on nothing but its arguments: the same
// catalogues and configuration give the same bytes.
func build(cfg *configs.Config, ups map[string]*upstream.Upstream) *snapshot {
	s := &snapshot{cfg: cfg, byName: make(map[string]*tool)}
	rules := naming.Rules{Separator: cfg.Naming.Separator, MaxLength: cfg.Naming.MaxNameLength}
	var (
		items  []naming.Item
		tools  []*tool
		ttl    = time.Duration(-1)
		notes  []string
		logger bool
	)
	for _, id := range slices.Sorted(maps.Keys(ups)) {
		u, entry := ups[id], cfg.Upstreams[id]
		s.upstreams = append(s.upstreams, u)
		c := u.Catalogue()
		if c == nil {
			continue
		}
		s.findings = append(s.findings, c.Findings...)
		if c.TTL >= 0 && (ttl < 0 || c.TTL < ttl) {
			ttl = c.TTL
		}
		if text := strings.TrimSpace(c.Instructions); text != "" {
			notes = append(notes, instructionsOf(rules, entry, text))
		}
		logger = logger || c.HasCapability("logging")
		for i := range c.Tools {
			t := &c.Tools[i]
			items = append(items, naming.Item{Server: id, Prefix: entry.Prefix, Name: t.Name})
			tools = append(tools, &tool{
				owner:      u,
				definition: t,
				repeatable: t.ReadOnly || t.Idempotent || entry.RepeatableTool(t.Name),
			})
		}
	}
	table := rules.Build(items)
	list := make([]*tool, 0, len(table.Entries))
	for _, e := range table.Entries {
		t := tools[e.Index]
		t.name = e.Exposed
		t.exposed = renamed(t.definition.Definition, e.Exposed)
		t.legacy = t.exposed
		if cut, ok := withoutOpenOutput(t.exposed); ok {
			t.legacy = cut
			s.made = append(s.made, upstream.Finding{Server: e.Server, Tool: e.Name, Rule: "output_schema_type",
				Text: "clients of revisions up to 2025-11-25 are not shown outputSchema: they refuse a whole list for one that is not of type object"})
		}
		s.byName[e.Exposed] = t
		list = append(list, t)
		if e.Changed {
			s.made = append(s.made, upstream.Finding{Server: e.Server, Tool: e.Name, Rule: "name",
				Text: fmt.Sprintf("exposed as %s, since the plain name is too long or has characters that model APIs refuse", e.Exposed)})
		}
	}
	for _, w := range table.Withheld {
		s.made = append(s.made, upstream.Finding{Server: w.Server, Tool: w.Name, Rule: "name_collision",
			Text: fmt.Sprintf("withheld, since %s is the name of %q of %s already; set a prefix of its own for one of the two", w.Exposed, w.By.Name, w.By.Server)})
	}
	s.findings = append(s.findings, s.made...)
	slices.SortStableFunc(s.findings, func(a, b upstream.Finding) int {
		if c := strings.Compare(a.Server, b.Server); c != 0 {
			return c
		}
		return strings.Compare(a.Tool, b.Tool)
	})
	if ttl < 0 || ttl > cfg.Lists.TTL {
		ttl = cfg.Lists.TTL
	}
	s.view = newView(list, ttl)
	s.instructions = strings.Join(notes, "\n\n")
	s.capabilities = jsontext.Value(`{"tools":{"listChanged":true}}`)
	if logger {
		s.capabilities = jsontext.Value(`{"logging":{},"tools":{"listChanged":true}}`)
	}
	return s
}

// maxInstructions bounds what one server may add to the instructions, in bytes.
const maxInstructions = 4096

func instructionsOf(rules naming.Rules, u *configs.Upstream, text string) string {
	if len(text) > maxInstructions {
		text = strings.ToValidUTF8(text[:maxInstructions], "") + "…"
	}
	head := "Server " + u.ID
	if u.Prefix != "" {
		head += " (its tools begin with " + u.Prefix + rules.Separator + ")"
	}
	return head + ":\n" + text
}

// renamed is the definition with another name, everything else verbatim.
func renamed(def jsontext.Value, name string) jsontext.Value {
	obj, err := wire.ParseObject(def)
	if err != nil {
		return def // cannot be: the upstream has parsed it
	}
	return obj.Append(nil, wire.Edit{Name: "name", Value: wire.AppendString(nil, name)})
}

// withoutOpenOutput leaves outputSchema out of a definition if its root is not of type object, as
// 2026-07-28 allows and no earlier revision does; ok says that it was so.
func withoutOpenOutput(def jsontext.Value) (cut jsontext.Value, ok bool) {
	obj, err := wire.ParseObject(def)
	if err != nil {
		return nil, false // cannot be: the upstream has parsed it
	}
	schema, has := obj.Get("outputSchema")
	if !has {
		return nil, false
	}
	// A schema with a name that stands twice is not understood, and left out as well.
	root, _ := wire.ParseObject(schema)
	if typ, _ := root.Get("type"); string(typ) == `"object"` {
		return nil, false
	}
	return obj.Append(nil, wire.Edit{Name: "outputSchema"}), true
}

func newView(tools []*tool, ttl time.Duration) *view {
	v := &view{tools: tools, ttl: ttl, scope: "public"}
	v.modern = v.encode(tools, upstream.Modern, "")
	v.legacy = v.encode(tools, upstream.Legacy, "")
	return v
}

// encode writes the result of tools/list.
func (v *view) encode(tools []*tool, era upstream.Era, next string) jsontext.Value {
	definition := func(t *tool) jsontext.Value {
		if era == upstream.Modern {
			return t.exposed
		}
		return t.legacy
	}
	n := 128 + len(next)
	for _, t := range tools {
		n += len(definition(t)) + 1
	}
	b := append(make([]byte, 0, n), '{')
	if era == upstream.Modern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"tools":[`...)
	for i, t := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, definition(t)...)
	}
	b = append(b, ']')
	if next != "" {
		b = append(b, `,"nextCursor":`...)
		b = wire.AppendString(b, next)
	}
	if era == upstream.Modern {
		b = fmt.Appendf(b, `,"ttlMs":%d,"cacheScope":%q`, v.ttl.Milliseconds(), v.scope)
	}
	return append(b, '}')
}

// sameList reports whether clients that listed a need not be told of b.
func sameList(a, b *snapshot) bool {
	return slices.EqualFunc(a.view.tools, b.view.tools, func(x, y *tool) bool { return bytes.Equal(x.exposed, y.exposed) })
}
