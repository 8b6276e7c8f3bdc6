package gateway

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/naming"
	"github.com/headgate/headgate/upstream"
)

// kind is one of the lists besides that of tools.
type kind uint8

const (
	prompts kind = iota
	resources
	templates
	kinds // how many there are
)

// kindInfo is what the protocol calls a kind.
type kindInfo struct {
	method     string // that lists it
	member     string // of the result
	key        string // member of a definition that it is asked for by
	capability string
	ruled      string // what policies call it
	of         func(*upstream.Catalogue) *upstream.List
}

var kindInfos = [kinds]kindInfo{
	prompts: {"prompts/list", "prompts", "name", "prompts", authz.KindPrompt,
		func(c *upstream.Catalogue) *upstream.List { return &c.Prompts }},
	resources: {"resources/list", "resources", "uri", "resources", authz.KindResource,
		func(c *upstream.Catalogue) *upstream.List { return &c.Resources }},
	templates: {"resources/templates/list", "resourceTemplates", "uriTemplate", "resources", authz.KindResource,
		func(c *upstream.Catalogue) *upstream.List { return &c.Templates }},
}

// shelf is what a scope holds of one kind: it says what there is, as scope does of tools.
type shelf struct {
	offers []*offer     // bytewise by key, then by server and team
	items  []authz.Item // by index in offers
}

// offer is one prompt, resource or template and its owner.
type offer struct {
	key    string // exposed name, URI or template
	owner  *upstream.Upstream
	team   string // that the owner belongs to; "" for a shared one
	listed *upstream.Listed
	plain  jsontext.Value // the definition under key
	alias  string         // what it is listed as where another server's has the key; "" for prompts
	second once[jsontext.Value]
}

// definition is the definition under the key that a view shows the offer by.
func (o *offer) definition(k kind, key string) jsontext.Value {
	if key == o.key {
		return o.plain
	}
	return o.second.get(func() jsontext.Value { return withMember(o.listed.Definition, kindInfos[k].key, key) })
}

// withMember is a definition with another value for one member, everything else verbatim.
func withMember(def jsontext.Value, name, value string) jsontext.Value {
	obj, err := wire.ParseObject(def)
	if err != nil {
		return def // cannot be: the upstream has parsed it
	}
	return obj.Append(nil, wire.Edit{Name: name, Value: wire.AppendString(nil, value)})
}

// offers holds every offer of a snapshot once, however many scopes it is in.
type offers struct {
	mu  sync.Mutex // guards all
	all map[offerKey]*offer
}

type offerKey struct {
	listed *upstream.Listed
	key    string
}

func (os *offers) get(k kind, p *part, l *upstream.Listed, key string) *offer {
	os.mu.Lock()
	defer os.mu.Unlock()
	at := offerKey{l, key}
	o := os.all[at]
	if o == nil {
		o = &offer{key: key, owner: p.up, team: p.team, listed: l, plain: l.Definition}
		if k == prompts {
			o.plain = renamed(l.Definition, key)
		} else {
			o.alias = aliasOf(p.entry.ID, key)
		}
		os.all[at] = o
	}
	return o
}

// shelve puts what the parts of a scope offer on its shelves. The findings are of what had to be named
// otherwise or withheld.
func (s *snapshot) shelve(sc *scope, rules naming.Rules, in []*part) (findings []upstream.Finding) {
	sc.parts = in
	sc.shelves[prompts], findings = s.promptShelf(rules, in)
	for _, k := range []kind{resources, templates} {
		sc.shelves[k] = s.uriShelf(k, in)
		findings = append(findings, sc.shelves[k].collisions(k)...)
	}
	return findings
}

// collisions finds what is listed by more than one server: one finding for each server that does not come
// first, however many URIs it shares.
func (sh *shelf) collisions(k kind) (findings []upstream.Finding) {
	shared := make(map[*upstream.Upstream][]*offer)
	var order []*upstream.Upstream
	for i, o := range sh.offers {
		if i > 0 && sh.offers[i-1].key == o.key {
			if shared[o.owner] == nil {
				order = append(order, o.owner)
			}
			shared[o.owner] = append(shared[o.owner], o)
		}
	}
	noun := [kinds]string{resources: "resource", templates: "resource template"}[k]
	for _, u := range order {
		first := shared[u][0]
		findings = append(findings, upstream.Finding{Server: u.ID(), Kind: noun, Tool: first.key, Rule: "uri_collision",
			Text: fmt.Sprintf("%d of its %ss are another server's too; who is shown both sees this one as %s", len(shared[u]), noun, first.alias)})
	}
	return findings
}

func (s *snapshot) promptShelf(rules naming.Rules, in []*part) (sh shelf, findings []upstream.Finding) {
	type origin struct {
		part   *part
		listed *upstream.Listed
	}
	var items []naming.Item
	var origins []origin
	for _, p := range in {
		for i := range p.catalogue.Prompts.Items {
			l := &p.catalogue.Prompts.Items[i]
			items = append(items, naming.Item{Server: p.entry.ID, Prefix: p.entry.Prefix, Name: l.Key})
			origins = append(origins, origin{p, l})
		}
	}
	table := rules.Build(items)
	for _, e := range table.Entries {
		o := origins[e.Index]
		sh.offers = append(sh.offers, s.offers.get(prompts, o.part, o.listed, e.Exposed))
		sh.items = append(sh.items, authz.Item{Kind: authz.KindPrompt, Name: s.ruledName(rules, e), Server: e.Server, Original: e.Name, Team: o.part.team})
		if e.Changed {
			findings = append(findings, changedName("prompt", e))
		}
	}
	return sh, append(findings, collidingNames("prompt", table)...)
}

func (s *snapshot) uriShelf(k kind, in []*part) (sh shelf) {
	for _, p := range in {
		list := kindInfos[k].of(p.catalogue)
		for i := range list.Items {
			l := &list.Items[i]
			sh.offers = append(sh.offers, s.offers.get(k, p, l, l.Key))
		}
	}
	slices.SortFunc(sh.offers, func(a, b *offer) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.owner.ID(), b.owner.ID()), strings.Compare(a.team, b.team))
	})
	for _, o := range sh.offers {
		sh.items = append(sh.items, authz.Item{Kind: authz.KindResource, Name: o.key, Also: append([]string{o.alias}, formsOf(o.key)...), Server: o.owner.ID(), Original: o.key, Team: o.team})
	}
	return sh
}

// join puts together the prompts that each of several teams has, as union does their tools.
func (sh *shelf) join(all []shelf) {
	type entry struct {
		o *offer
		i authz.Item
	}
	var list []entry
	seen := make(map[*offer]bool)
	for _, one := range all {
		for n, o := range one.offers {
			if !seen[o] {
				seen[o] = true
				list = append(list, entry{o, one.items[n]})
			}
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.o.key, b.o.key), strings.Compare(a.i.Server, b.i.Server), strings.Compare(a.i.Original, b.i.Original),
			strings.Compare(a.i.Team, b.i.Team))
	})
	for _, e := range list {
		sh.offers, sh.items = append(sh.offers, e.o), append(sh.items, e.i)
	}
}

// decide tells, in order, what a share makes of every offer of a shelf, and the key that the offer is shown
// by. Of several with one key the first that is allowed has it; the others are shown by their alias, if
// they have one that is free. So is what would pass for an alias itself.
func (sh *shelf) decide(share *authz.Share, tell func(i int, key string, d authz.Decision)) {
	taken := ""
	aliases := make(map[string]bool)
	for i, o := range sh.offers {
		d, key := everybody, o.key
		if share != nil {
			d = share.Decide(&sh.items[i])
		}
		switch {
		case !d.Allowed:
		case taken != key && !(o.alias != "" && strings.HasPrefix(key, aliasScheme)):
			taken = key
		case o.alias != "" && !aliases[o.alias]:
			key = o.alias
			aliases[key] = true
		default:
			d = authz.Decision{Why: "another team's server has the name already: " + d.Why}
		}
		tell(i, key, d)
	}
}

// everybody is the decision where no teams are configured.
var everybody = authz.Decision{Allowed: true, Why: "no teams are configured, so everybody may use everything"}

// shown is what a view shows of a shelf.
type shown struct {
	list    []placed       // bytewise by key
	byKey   map[string]int // index in list
	encoded [2]listed      // results of the list by era
	ttl     time.Duration
}

// placed is an offer as a view shows it.
type placed struct {
	*offer
	index  int      // on the shelf
	key    string   // what it is shown and asked for by
	scopes []string // that the caller has to be granted first; nil when it has what it needs
}

// place decides what a view shows of the shelves of its scope. share is nil where nobody decides.
func (v *view) place(share *authz.Share) {
	for k := range kinds {
		sh, on := &v.scope.shelves[k], &v.shelves[k]
		sh.decide(share, func(i int, key string, d authz.Decision) {
			if d.Allowed {
				on.list = append(on.list, placed{sh.offers[i], i, key, d.Scopes})
			}
		})
		slices.SortStableFunc(on.list, func(a, b placed) int { return strings.Compare(a.key, b.key) })
		on.byKey = make(map[string]int, len(on.list))
		for i := range on.list {
			if _, taken := on.byKey[on.list[i].key]; !taken {
				on.byKey[on.list[i].key] = i
			}
		}
	}
}

// find looks a key up. One that the view hides is as unknown as one that does not exist.
func (on *shown) find(key string) (placed, bool) {
	i, ok := on.byKey[key]
	if !ok {
		return placed{}, false
	}
	return on.list[i], true
}

// same reports whether a client that listed one need not be told of the other.
func (on *shown) same(o *shown) bool {
	return slices.EqualFunc(on.list, o.list, func(a, b placed) bool {
		return a.key == b.key && (a.offer == b.offer || bytes.Equal(a.plain, b.plain))
	})
}

// digest adds what a view shows of its shelves.
func (v *view) digestShelves(h hash.Hash) {
	for k := range kinds {
		on := &v.shelves[k]
		fmt.Fprintf(h, "%d/%d", k, len(on.list))
		for i := range on.list {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], uint64(on.list[i].index))
			h.Write(b[:])
			if on.list[i].scopes != nil {
				fmt.Fprintf(h, "%q", on.list[i].scopes)
			}
		}
	}
}

// shelfSize is about what the shelves of a view take besides their lists, in bytes.
func (v *view) shelfSize() (n int) {
	for k := range kinds {
		n += 128 * len(v.shelves[k].list)
	}
	return n
}

// uniteShelves puts the shelves of several teams together. What URIs collide is settled for all of them
// at once, by decide.
func (s *snapshot) uniteShelves(u *scope, teams []string) {
	var all []shelf
	in := make(map[*part]bool)
	for _, name := range teams {
		sc := s.scopeOf([]string{name}, "")
		all = append(all, sc.shelves[prompts])
		for _, p := range sc.parts {
			in[p] = true
		}
	}
	for i := range s.parts {
		if p := &s.parts[i]; in[p] {
			u.parts = append(u.parts, p)
		}
	}
	u.shelves[prompts].join(all)
	for _, k := range []kind{resources, templates} {
		u.shelves[k] = s.uriShelf(k, u.parts)
	}
}
