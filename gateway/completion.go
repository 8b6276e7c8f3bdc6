package gateway

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// complete routes completion/complete (2026-07-28, server/utilities/completion) to the owner of the prompt
// or the template that it refers to.
func (g *Gateway) complete(ctx context.Context, x *exchange) answer {
	raw, _ := x.params.Get("ref")
	ref, err := wire.ParseObject(raw)
	if raw == nil || err != nil {
		return invalidParams("completion/complete needs params.ref, an object")
	}
	if ref.Alias("type", "name", "uri") != "" {
		return invalidParams("params.ref has a member that differs from a known one only in case")
	}
	typ, _ := ref.Get("type")
	key, unknown, shelves := "", unknownPrompt, []kind{prompts}
	switch string(typ) {
	case `"ref/prompt"`:
		key = "name"
	case `"ref/resource"`:
		key, unknown, shelves = "uri", unknownTemplate, []kind{templates, resources}
	default:
		return invalidParams(`params.ref.type must be "ref/prompt" or "ref/resource"`)
	}
	named, _ := ref.Get(key)
	name, ok := wire.String(named)
	if !ok {
		return invalidParams("completion/complete needs params.ref." + key + ", a string")
	}
	silentOwner := false
	find := func() (errand, answer, bool) {
		for _, k := range shelves {
			p, ok := x.v.shelves[k].find(name)
			switch {
			case !ok:
				continue
			case p.scopes != nil:
				return errand{}, insufficientScope(p.scopes), false
			}
			c := p.owner.Catalogue()
			silentOwner = c != nil && !c.HasCapability("completions") && c.Version >= "2025-03-26"
			own := jsontext.Value(ref.Append(nil, wire.Edit{Name: key, Value: wire.AppendString(nil, p.listed.Key)}))
			return errand{owner: p.owner, what: "The completion for " + clipName(name), edits: []wire.Edit{{Name: "ref", Value: own}}}, answer{}, true
		}
		return errand{}, unknown(name), false
	}
	e, a, ok := find()
	if !ok {
		return a
	}
	if silentOwner {
		// The capability is the merged one; this server declared that it completes nothing.
		return answer{result: completed(jsontext.Value(`{"completion":{"values":[],"total":0,"hasMore":false}}`), upstream.Legacy, x.era)}
	}
	return g.fetch(ctx, x, e, find)
}
