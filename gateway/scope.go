package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/naming"
	"github.com/headgate/headgate/upstream"
)

// scope is the part of the catalogue that some teams together have a share in, under the names of one
// endpoint. It says what there is; what of it a caller may use is a view's. Where several teams have a
// tool of the same name, all of them are in it.
type scope struct {
	naming naming.Rules
	tools  []*tool        // bytewise by name
	byName map[string]int // the first of the name
	items  []authz.Item   // by index in tools

	parts   []*part // that it is made of, by id and team
	shelves [kinds]shelf
}

// tool is one exposed tool and its owner.
type tool struct {
	name       string
	ruled      string // its name at /mcp, which rules and limits mean at every endpoint
	owner      *upstream.Upstream
	definition *upstream.Tool
	exposed    jsontext.Value // the definition under the exposed name
	legacy     jsontext.Value // the same as clients of the handshake era can read it
	rules      *rules         // what the configuration says of its calls
	repeatable bool           // safe to send again (failure table, "safe to repeat")
}

// scopeOf returns the scope of some teams at an endpoint.
func (s *snapshot) scopeOf(teams []string, at endpoint) *scope {
	key := fmt.Sprintf("%q%q", at, teams)
	s.views.mu.Lock()
	o := s.views.scopes[key]
	if o == nil {
		if len(s.views.scopes) >= maxRights {
			clear(s.views.scopes)
		}
		o = new(once[*scope])
		s.views.scopes[key] = o
	}
	s.views.mu.Unlock()
	return o.get(func() *scope {
		if len(teams) > 1 {
			return s.union(teams)
		}
		rules := s.naming
		if team := s.cfg.Teams[string(at)]; team != nil {
			if team.Naming.Separator != "" {
				rules.Separator = team.Naming.Separator
			}
			if team.Naming.MaxNameLength != 0 {
				rules.MaxLength = team.Naming.MaxNameLength
			}
		}
		sc, _ := s.makeScope(rules, func(p *part) bool {
			return slices.ContainsFunc(teams, func(name string) bool { return p.visibleTo(s.cfg.Teams[name]) })
		})
		return sc
	})
}

// union puts together what each of several teams has. Names that one team has twice are settled before,
// for everybody; those that two teams have are settled by decide, since what a team keeps from its
// members must not take a name from another's.
func (s *snapshot) union(teams []string) *scope {
	type entry struct {
		tool *tool
		item authz.Item
	}
	var all []entry
	seen := make(map[*tool]bool)
	for _, name := range teams {
		sc := s.scopeOf([]string{name}, "")
		for i, t := range sc.tools {
			if !seen[t] {
				seen[t] = true
				all = append(all, entry{t, sc.items[i]})
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.tool.name, b.tool.name), strings.Compare(a.item.Server, b.item.Server),
			strings.Compare(a.item.Original, b.item.Original), strings.Compare(a.item.Team, b.item.Team))
	})
	u := &scope{naming: s.naming, byName: make(map[string]int, len(all))}
	for i, e := range all {
		if _, taken := u.byName[e.tool.name]; !taken {
			u.byName[e.tool.name] = i
		}
		u.tools = append(u.tools, e.tool)
		u.items = append(u.items, e.item)
	}
	s.uniteShelves(u, teams)
	return u
}

// settle says what a share makes of the tools with one name, the first of which is at from. holder is the
// index among them of the one that has the name: the first that may be used as it is, or else the first for
// which the caller has to be granted scopes; -1 for none. same is reused.
func (sc *scope) settle(share *authz.Share, from int, same []authz.Decision) (all []authz.Decision, holder int) {
	holder, same = -1, same[:0]
	for i := from; i < len(sc.items) && sc.tools[i].name == sc.tools[from].name; i++ {
		d := share.Decide(&sc.items[i])
		same = append(same, d)
		if d.Allowed && (holder < 0 || same[holder].Scopes != nil && d.Scopes == nil) {
			holder = i - from
		}
	}
	return same, holder
}

// decide tells, in order, what a share makes of every tool.
func (sc *scope) decide(share *authz.Share, tell func(i int, d authz.Decision)) {
	var same []authz.Decision
	for from := 0; from < len(sc.items); from += len(same) {
		var holder int
		same, holder = sc.settle(share, from, same)
		for n, d := range same {
			if d.Allowed && n != holder {
				d = authz.Decision{Why: "another team's server has the name: " + d.Why}
			}
			tell(from+n, d)
		}
	}
}

// visibleTo reports whether a team has a share in a part.
func (p *part) visibleTo(t *configs.Team) bool {
	if t == nil {
		return false
	}
	if p.team != "" {
		return p.team == t.Name
	}
	return slices.Contains(t.Upstreams, p.entry.ID)
}

// makeScope names the tools of the parts that are in it.
func (s *snapshot) makeScope(rules naming.Rules, in func(*part) bool) (*scope, []upstream.Finding) {
	sc := &scope{naming: rules, byName: make(map[string]int)}
	type origin struct {
		part *part
		tool *upstream.Tool
	}
	var (
		items    []naming.Item
		origins  []origin
		findings []upstream.Finding
	)
	var members []*part
	for i := range s.parts {
		p := &s.parts[i]
		if !in(p) {
			continue
		}
		members = append(members, p)
		for n := range p.catalogue.Tools {
			t := &p.catalogue.Tools[n]
			items = append(items, naming.Item{Server: p.entry.ID, Prefix: p.entry.Prefix, Name: t.Name})
			origins = append(origins, origin{p, t})
		}
	}
	table := rules.Build(items)
	for i, e := range table.Entries {
		o := origins[e.Index]
		ruled := s.ruledName(rules, e)
		t := s.tools.get(o.part, o.tool, e.Exposed, ruled)
		sc.byName[e.Exposed] = i
		sc.tools = append(sc.tools, t)
		sc.items = append(sc.items, authz.Item{
			Kind: authz.KindTool, Name: ruled, Server: o.part.entry.ID, Original: o.tool.Name, Team: o.part.team,
			Annotations: authz.Annotations{ReadOnly: o.tool.ReadOnly, Idempotent: o.tool.Idempotent,
				Destructive: o.tool.Destructive, OpenWorld: o.tool.OpenWorld},
		})
		if len(t.legacy) != len(t.exposed) {
			findings = append(findings, upstream.Finding{Server: e.Server, Tool: e.Name, Rule: "output_schema_type",
				Text: "clients of revisions up to 2025-11-25 are not shown outputSchema: they refuse a whole list for one that is not of type object"})
		}
		if e.Changed {
			findings = append(findings, changedName("", e))
		}
	}
	findings = append(findings, collidingNames("", table)...)
	return sc, append(findings, s.shelve(sc, rules, members)...)
}

// ruledName is what policies call an entry: its name on the endpoint of everybody, whatever a team calls it.
func (s *snapshot) ruledName(rules naming.Rules, e naming.Entry) string {
	if rules == s.naming {
		return e.Exposed
	}
	name, _ := s.naming.Exposed(e.Server, e.Prefix, e.Name)
	return name
}

// changedName finds that an entry does not have its plain name. kind is "" for tools.
func changedName(kind string, e naming.Entry) upstream.Finding {
	return upstream.Finding{Server: e.Server, Kind: kind, Tool: e.Name, Rule: "name",
		Text: fmt.Sprintf("exposed as %s, since the plain name is too long or has characters that model APIs refuse", e.Exposed)}
}

// collidingNames finds what is withheld since its name is taken.
func collidingNames(kind string, table naming.Table) (findings []upstream.Finding) {
	for _, w := range table.Withheld {
		findings = append(findings, upstream.Finding{Server: w.Server, Kind: kind, Tool: w.Name, Rule: "name_collision",
			Text: fmt.Sprintf("withheld, since %s is the name of %q of %s already; set a prefix of its own for one of the two", w.Exposed, w.By.Name, w.By.Server)})
	}
	return findings
}

// tools holds every exposed tool of a snapshot once, however many scopes it is in.
type tools struct {
	mu  sync.Mutex // guards all
	all map[toolKey]*tool
}

type toolKey struct {
	definition *upstream.Tool
	name       string
}

func (ts *tools) get(p *part, def *upstream.Tool, name, ruled string) *tool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	key := toolKey{def, name}
	t := ts.all[key]
	if t == nil {
		t = &tool{
			name:       name,
			ruled:      ruled,
			owner:      p.up,
			definition: def,
			rules:      p.rules,
			exposed:    renamed(def.Definition, name),
			repeatable: def.ReadOnly || def.Idempotent || p.entry.RepeatableTool(def.Name),
		}
		t.legacy = t.exposed
		if cut, ok := withoutOpenOutput(t.exposed); ok {
			t.legacy = cut
		}
		ts.all[key] = t
	}
	return t
}
