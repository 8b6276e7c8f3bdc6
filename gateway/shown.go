package gateway

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/upstream"
)

// encodeOffers writes a page of a list.
func (v *view) encodeOffers(k kind, page []placed, era upstream.Era, next string) jsontext.Value {
	definitions := make([]jsontext.Value, len(page))
	for i, p := range page {
		definitions[i] = p.definition(k, p.key)
	}
	return v.encodePage(kindInfos[k].member, definitions, v.shelves[k].ttl, era, next)
}

// wholeList is the whole result of a list, encoded when first asked for.
func (v *view) wholeList(k kind, era upstream.Era) jsontext.Value {
	on := &v.shelves[k]
	return on.encoded[era].text.get(func() jsontext.Value { return v.charged(v.encodeOffers(k, on.list, era, "")) })
}

// listOffers answers the list of a kind from the snapshot alone.
func (g *Gateway) listOffers(x *exchange, k kind) answer {
	page, next, whole, refused := pageOf(g, x, x.v.shelves[k].list, func(p placed) string { return p.key })
	switch {
	case refused != nil:
		return *refused
	case whole:
		return x.v.answerList(x.v.wholeList(k, x.era), &x.v.shelves[k].encoded[x.era])
	}
	return answer{result: x.v.encodeOffers(k, page, x.era, next)}
}
