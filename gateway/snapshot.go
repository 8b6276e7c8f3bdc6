package gateway

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/naming"
	"github.com/headgate/headgate/upstream"
)

// snapshot is the merged catalogue at one moment, with the rules in force. It is immutable but for
// what it makes of itself on demand; a request loads it once and answers from it alone.
type snapshot struct {
	cfg    *configs.Config
	access *access
	policy *authz.Policy // access.policy
	naming naming.Rules
	parts  []part // those that have a catalogue, by id and team
	absent []part // the others
	tools  tools
	offers offers
	views  views
	// everything is the one view there is without a policy; nil with one.
	everything *view
	findings   []upstream.Finding   // by server and tool
	made       []upstream.Finding   // those that merging made; the upstreams log theirs themselves
	upstreams  []*upstream.Upstream // all, by id and team
	owners     []string             // the teams that own them, by the same index; "" for shared ones
	settled    bool                 // every upstream had ended its first attempt when this was built
	started    bool                 // the same, or it was so at some time before
}

// part is one upstream's share of the catalogue.
type part struct {
	team      string // the team that owns the upstream; "" for a shared one
	entry     *configs.Upstream
	rules     *rules
	up        *upstream.Upstream
	catalogue *upstream.Catalogue
	has       [kinds]bool // the capability for a kind
	coming    bool        // it has no catalogue yet, and its first attempt to connect has not ended
}

// build merges the catalogues of the upstreams. It depends on nothing but its arguments: the same
// catalogues and configuration give the same bytes. The parts come without their catalogues.
func build(cfg *configs.Config, access *access, all []part) *snapshot {
	s := &snapshot{
		cfg:    cfg,
		access: access,
		policy: access.policy,
		naming: naming.Rules{Separator: cfg.Naming.Separator, MaxLength: cfg.Naming.MaxNameLength},
		tools:  tools{all: make(map[toolKey]*tool)},
		offers: offers{all: make(map[offerKey]*offer)},
		views:  newViews(),
	}
	slices.SortFunc(all, func(a, b part) int {
		return cmp.Or(strings.Compare(a.entry.ID, b.entry.ID), strings.Compare(a.team, b.team))
	})
	for _, p := range all {
		s.upstreams = append(s.upstreams, p.up)
		s.owners = append(s.owners, p.team)
		if p.catalogue = p.up.Catalogue(); p.catalogue != nil {
			for k := range kinds {
				p.has[k] = p.catalogue.HasCapability(kindInfos[k].capability)
			}
			s.parts = append(s.parts, p)
			s.findings = append(s.findings, p.catalogue.Findings...)
		} else {
			p.coming = !p.up.Settled()
			s.absent = append(s.absent, p)
		}
	}
	shared, found := s.makeScope(s.naming, func(p *part) bool { return p.team == "" })
	s.made = found
	for _, t := range cfg.Teams {
		if len(t.OwnUpstreams) > 0 {
			_, found := s.makeScope(s.naming, func(p *part) bool { return p.visibleTo(t) })
			s.made = append(s.made, found...)
		}
	}
	s.findings = append(s.findings, s.made...)
	sortFindings(s.findings)
	s.findings = slices.Compact(s.findings)
	if s.policy == nil {
		s.everything = &view{scope: shared}
		s.everything.place(nil)
		s.finish(s.everything)
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
