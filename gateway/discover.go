package gateway

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// The protocol versions that clients may speak, newest first.
const modernVersion = "2026-07-28"

var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func supportedVersions() []string { return append([]string{modernVersion}, legacyVersions...) }

// negotiate answers the version that a legacy client asked for (2025-11-25, basic/lifecycle,
// "Version Negotiation"): the same if Headgate speaks it in a session, else the newest that it does.
func negotiate(asked string) string {
	if slices.Contains(legacyVersions, asked) {
		return asked
	}
	return legacyVersions[0]
}

// negotiated is the version that an initialize leads to.
func negotiated(params wire.Object) string {
	raw, _ := params.Get("protocolVersion")
	asked, _ := wire.String(raw)
	return negotiate(asked)
}

// discover answers server/discover (2026-07-28, server/discover).
func (g *Gateway) discover(v *view) answer {
	b := []byte(`{"resultType":"complete","supportedVersions":`)
	b = appendStrings(b, supportedVersions())
	b = append(b, `,"capabilities":`...)
	b = append(b, v.capabilities...)
	if v.instructions != "" {
		b = append(b, `,"instructions":`...)
		b = wire.AppendString(b, v.instructions)
	}
	b = append(b, `,"ttlMs":`...)
	b = strconv.AppendInt(b, v.ttl.Milliseconds(), 10)
	b = append(b, `,"cacheScope":"`+v.cacheScope+`","_meta":{"`+metaServerInfo+`":`...)
	b = append(b, g.info...)
	return answer{result: append(b, `}}`...)}
}

// initialize answers the handshake of a legacy client; ok says that it is accepted.
func (g *Gateway) initialize(v *view, params wire.Object) (a answer, ok bool) {
	raw, _ := params.Get("protocolVersion")
	asked, ok := wire.String(raw)
	if !ok {
		return invalidParams("initialize needs params.protocolVersion, a string"), false
	}
	b := []byte(`{"protocolVersion":"` + negotiate(asked) + `","capabilities":`)
	b = append(b, v.capabilities...)
	b = append(b, `,"serverInfo":`...)
	b = append(b, g.info...)
	if v.instructions != "" {
		b = append(b, `,"instructions":`...)
		b = wire.AppendString(b, v.instructions)
	}
	return answer{result: append(b, '}')}, true
}

func appendStrings(b []byte, list []string) jsontext.Value {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = wire.AppendString(b, s)
	}
	return append(b, ']')
}
