package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// encodeList writes a page of a list.
func (v *view) encodeList(k kind, page []placed, era upstream.Era, next string) jsontext.Value {
	n := 128 + len(next)
	for _, p := range page {
		n += len(p.definition(k, p.key)) + 1
	}
	b := append(make([]byte, 0, n), '{')
	if era == upstream.Modern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"`+kindInfos[k].member+`":[`...)
	for i, p := range page {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, p.definition(k, p.key)...)
	}
	b = append(b, ']')
	if next != "" {
		b = append(b, `,"nextCursor":`...)
		b = wire.AppendString(b, next)
	}
	if era == upstream.Modern {
		b = fmt.Appendf(b, `,"ttlMs":%d,"cacheScope":%q`, v.shelves[k].ttl.Milliseconds(), v.cacheScope)
	}
	return append(b, '}')
}

// wholeList is the whole result of a list, encoded when first asked for.
func (v *view) wholeList(k kind, era upstream.Era) jsontext.Value {
	on := &v.shelves[k]
	return on.encoded[era].get(func() jsontext.Value {
		list := v.encodeList(k, on.list, era, "")
		if v.charge != nil {
			v.charge(len(list))
		}
		return list
	})
}

// listOffers answers the list of a kind from the snapshot alone.
func (g *Gateway) listOffers(x *exchange, k kind) answer {
	list := x.v.shelves[k].list
	size := x.s.cfg.Lists.PageSize
	from := 0
	raw, paged := x.params.Get("cursor")
	switch {
	case paged && string(raw) != "null":
		cursor, ok := wire.String(raw)
		last, err := g.cursors.read(x.method, x.owner(), cursor)
		if !ok || err != nil {
			return protocolError(wire.CodeInvalidParams, "Invalid cursor: list again from the beginning", nil, 0)
		}
		var found bool
		from, found = slices.BinarySearchFunc(list, last, func(p placed, key string) int { return strings.Compare(p.key, key) })
		if found {
			from++
		}
		if size <= 0 {
			size = len(list) // paging was turned off while the client was paging
		}
	case size <= 0 || len(list) <= size:
		return answer{result: x.v.wholeList(k, x.era)}
	}
	to := min(from+size, len(list))
	next := ""
	if to < len(list) {
		next = g.cursors.make(x.method, x.owner(), list[to-1].key)
	}
	return answer{result: x.v.encodeList(k, list[from:to], x.era, next)}
}
