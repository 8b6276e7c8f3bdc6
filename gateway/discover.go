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

// discover answers server/discover (2026-07-28, server/discover).
func (g *Gateway) discover(s *snapshot) answer {
	b := []byte(`{"resultType":"complete","supportedVersions":`)
	b = appendStrings(b, supportedVersions())
	b = append(b, `,"capabilities":`...)
	b = append(b, s.capabilities...)
	if s.instructions != "" {
		b = append(b, `,"instructions":`...)
		b = wire.AppendString(b, s.instructions)
	}
	b = append(b, `,"ttlMs":`...)
	b = strconv.AppendInt(b, s.view.ttl.Milliseconds(), 10)
	b = append(b, `,"cacheScope":"`+s.view.scope+`","_meta":{"`+metaServerInfo+`":`...)
	b = append(b, g.info...)
	return answer{result: append(b, `}}`...)}
}

// initialize answers the handshake of a legacy client.
func (g *Gateway) initialize(s *snapshot, params wire.Object) (version string, a answer) {
	raw, _ := params.Get("protocolVersion")
	asked, ok := wire.String(raw)
	if !ok {
		return "", invalidParams("initialize needs params.protocolVersion, a string")
	}
	version = negotiate(asked)
	b := []byte(`{"protocolVersion":"` + version + `","capabilities":`)
	b = append(b, s.capabilities...)
	b = append(b, `,"serverInfo":`...)
	b = append(b, g.info...)
	if s.instructions != "" {
		b = append(b, `,"instructions":`...)
		b = wire.AppendString(b, s.instructions)
	}
	return version, answer{result: append(b, '}')}
}

// unsupportedVersion is UnsupportedProtocolVersionError (2026-07-28, basic/versioning).
func unsupportedVersion(requested string) answer {
	if len(requested) > 64 {
		requested = requested[:64]
	}
	b := appendStrings([]byte(`{"supported":`), supportedVersions())
	b = append(b, `,"requested":`...)
	b = wire.AppendString(b, requested)
	return protocolError(wire.CodeUnsupportedVersion, "Unsupported protocol version", append(b, '}'), 400)
}

func headerMismatch(text string) answer {
	return protocolError(wire.CodeHeaderMismatch, "Header mismatch: "+text, nil, 400)
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
