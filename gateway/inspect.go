package gateway

import (
	"encoding/json"

	"github.com/headgate/headgate/authz"
)

// Listing is one of the lists besides that of tools, for the command line.
type Listing uint8

// The listings.
const (
	Prompts   = Listing(prompts)
	Resources = Listing(resources)
	Templates = Listing(templates) // of resources
)

// Offers returns what a caller is shown of a listing at the endpoint of a team, or of all its teams when
// team is "", in the order of the list. A resource's name is its URI, a template's its text. ok is false
// when there is no such endpoint for the caller.
func (g *Gateway) Offers(caller authz.Caller, team string, l Listing) (list []ToolInfo, ok bool) {
	at, ok := g.admit(caller, endpoint(team))
	if !ok {
		return nil, false
	}
	list = []ToolInfo{}
	for _, p := range at.v.shelves[l].list {
		list = append(list, p.info(kind(l), p.key))
	}
	return list, true
}

// ExplainOffers is Offers with what the caller is not shown, and the reason for each.
func (g *Gateway) ExplainOffers(caller authz.Caller, team string, l Listing) (list []Explained, ok bool) {
	at, ok := g.admit(caller, endpoint(team))
	if !ok {
		return nil, false
	}
	var share *authz.Share
	if at.s.policy != nil {
		share = at.s.policy.Share(caller, at.v.teams)
	}
	sh := &at.v.scope.shelves[l]
	list = []Explained{}
	sh.decide(share, func(i int, key string, d authz.Decision) {
		list = append(list, Explained{sh.offers[i].info(kind(l), key), d})
	})
	return list, true
}

func (o *offer) info(k kind, key string) ToolInfo {
	return ToolInfo{Name: key, Server: o.owner.ID(), Original: o.listed.Key, Definition: json.RawMessage(o.definition(k, key))}
}
