package gateway

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/upstream"
)

// This file says what a view advertises, and for how long its lists may be kept.

// shows reports which upstreams a view shows something of.
func (v *view) shows() map[*upstream.Upstream]bool {
	out := make(map[*upstream.Upstream]bool)
	for _, t := range v.tools {
		out[t.owner] = true
	}
	for k := range kinds {
		for i := range v.shelves[k].list {
			out[v.shelves[k].list[i].owner] = true
		}
	}
	return out
}

// offersKind reports whether there is, or may yet be, something of a kind for the callers of a view: it shows
// some, or it hides nothing and a server has the capability, or a server is still being waited for.
func (s *snapshot) offersKind(v *view, list ...kind) bool {
	for _, k := range list {
		if len(v.shelves[k].list) > 0 {
			return true
		}
		for _, p := range v.scope.parts {
			if v.allowed == nil && p.has[k] {
				return true
			}
		}
	}
	for i := range s.absent {
		if v.awaits(s, &s.absent[i]) {
			return true // the capabilities of a session are told once, and this server's are not known yet
		}
	}
	return false
}

// serves reports whether a method of a kind means anything to the callers of a view: a server that their
// teams have a share in has the capability, whatever of it they may use.
func (g guest) serves(k kind) bool {
	for _, p := range g.v.scope.parts {
		if p.has[k] {
			return true
		}
	}
	return g.s.offersKind(g.v, k)
}

// ownersAnnounce reports whether the owner of something that a view shows of some kinds has a capability,
// and a feature of it unless that is "".
func (v *view) ownersAnnounce(capability, feature string, list ...kind) bool {
	seen := make(map[*upstream.Upstream]bool)
	for _, k := range list {
		for i := range v.shelves[k].list {
			seen[v.shelves[k].list[i].owner] = true
		}
	}
	for _, p := range v.scope.parts {
		// A view that hides nothing also has what is not listed.
		if !seen[p.up] && v.allowed != nil {
			continue
		}
		if c := p.catalogue; feature == "" && c.HasCapability(capability) || feature != "" && c.Announces(capability, feature) {
			return true
		}
	}
	return false
}

// capabilitiesOf is the capabilities object of a view, whose members are in order.
func (s *snapshot) capabilitiesOf(v *view, logging bool) jsontext.Value {
	b := []byte{'{'}
	if v.ownersAnnounce("completions", "", prompts, templates) {
		b = append(b, `"completions":{},`...)
	}
	if logging {
		b = append(b, `"logging":{},`...)
	}
	if s.offersKind(v, prompts) {
		b = append(b, `"prompts":{"listChanged":true},`...)
	}
	if s.offersKind(v, resources, templates) {
		b = append(b, `"resources":{"listChanged":true`...)
		if v.ownersAnnounce("resources", "subscribe", resources, templates) {
			b = append(b, `,"subscribe":true`...)
		}
		b = append(b, `},`...)
	}
	return append(b, `"tools":{"listChanged":true}}`...)
}

// ttlOf is how long a list of a view may be kept: the least that the servers in it gave, capped by
// lists.ttl, and little where a server is missing from it.
func (s *snapshot) ttlOf(v *view, shown map[*upstream.Upstream]bool, of func(*upstream.Catalogue) time.Duration) time.Duration {
	ttl := time.Duration(-1)
	for _, p := range v.scope.parts {
		if v.allowed != nil && !shown[p.up] {
			continue
		}
		if d := of(p.catalogue); d >= 0 && (ttl < 0 || d < ttl) {
			ttl = d
		}
	}
	if ttl < 0 || ttl > s.cfg.Lists.TTL {
		ttl = s.cfg.Lists.TTL
	}
	for i := range s.absent {
		if p := &s.absent[i]; v.awaits(s, p) {
			ttl = min(ttl, absentTTL)
			if p.coming {
				ttl = 0 // the list is about to change: no client is to keep it
			}
		}
	}
	return ttl
}
