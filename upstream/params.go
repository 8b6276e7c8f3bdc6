package upstream

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
)

// The _meta keys that belong to one hop (2026-07-28, basic, "Per-request protocol fields").
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaProgress     = "progressToken"
)

// hopFields are the members of _meta that Headgate sets itself for one request.
type hopFields struct {
	capabilities jsontext.Value // what the client can do; nil means nothing
	logLevel     string         // minimum level of log messages wanted; "" for none
	progress     jsontext.Value // our own progress token; nil when progress is not wanted
	trace        telemetry.Outgoing
	meta         wire.Object // the members of the client's _meta, if somebody has read them already
}

// params builds the params of a request on this hop: the members of in verbatim, edits applied, and
// _meta with this hop's protocol fields. hop may be nil for Headgate's own requests.
func (p *peer) params(in wire.Object, edits []wire.Edit, hop *hopFields) jsontext.Value {
	if hop == nil {
		hop = &hopFields{}
	}
	var meta wire.Object
	given, had := in.Get("_meta")
	switch {
	case hop.meta != nil:
		meta = hop.meta
	case had:
		meta, _ = wire.ParseObject(given)
	}
	set := make([]wire.Edit, 0, 8)
	set = append(set, wire.Edit{Name: metaProgress, Value: hop.progress})
	if p.era == Modern {
		caps := hop.capabilities
		if caps == nil {
			caps = jsontext.Value("{}")
		}
		var level jsontext.Value
		if hop.logLevel != "" {
			level = wire.AppendString(nil, hop.logLevel)
		}
		set = append(set,
			wire.Edit{Name: metaVersion, Value: wire.AppendString(nil, p.version)},
			wire.Edit{Name: metaClientInfo, Value: p.clientInfo},
			wire.Edit{Name: metaCapabilities, Value: caps},
			wire.Edit{Name: metaLogLevel, Value: level})
	} else {
		set = append(set, wire.Edit{Name: metaVersion}, wire.Edit{Name: metaClientInfo},
			wire.Edit{Name: metaCapabilities}, wire.Edit{Name: metaLogLevel})
	}
	set = hop.trace.Edits(set, meta)
	// With room for the members that this hop sets, none of the two texts grows while it is written.
	m := jsontext.Value(meta.Append(make([]byte, 0, len(given)+len(p.clientInfo)+len(hop.capabilities)+256), set...))
	if string(m) == "{}" && (!had || len(meta) > 0) {
		m = nil // there was nothing for this hop, or nothing of it is left
	}
	all := append(edits[:len(edits):len(edits)], wire.Edit{Name: "_meta", Value: m})
	room := len(m) + 64
	for i := range in {
		room += len(in[i].Raw) + len(in[i].Value) + 2
	}
	out := in.Append(make([]byte, 0, room), all...)
	if string(out) == "{}" {
		return nil
	}
	return out
}

// paramHeaders extracts the Mcp-Param-* headers of a call from its arguments (2026-07-28,
// basic/transports/streamable-http, "Client Behavior").
func paramHeaders(h http.Header, t *Tool, params wire.Object) {
	if t == nil || len(t.headers) == 0 {
		return
	}
	args, ok := params.Get("arguments")
	if !ok {
		return
	}
	for _, b := range t.headers {
		if s, _, ok := headerArgument(args, b.path); ok {
			h.Set(b.header, wire.EncodeHeaderValue(s))
		}
	}
}

// headerArgument finds the argument at path and writes it as a header would state it. number says
// that it is a number, which headers may write in more than one way.
func headerArgument(v jsontext.Value, path []string) (s string, number, ok bool) {
	for _, name := range path {
		obj, err := wire.ParseObject(v)
		if err != nil {
			return "", false, false
		}
		if v, ok = obj.Get(name); !ok {
			return "", false, false
		}
	}
	switch v.Kind() {
	case '"':
		s, ok = wire.String(v)
		return s, false, ok
	case 't', 'f':
		return string(v), false, true
	case '0':
		s, ok = decimalInteger(string(v))
		return s, true, ok
	}
	return "", false, false
}

// decimalInteger writes a JSON number as a decimal integer; numbers that are not integers in the
// safe range are left out, since no header can state them.
func decimalInteger(s string) (string, bool) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return strconv.FormatInt(i, 10), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != float64(int64(f)) || f >= 1<<53 || f <= -(1<<53) {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

func unescapePointer(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		s = u
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
}

// CheckHeaders compares the Mcp-Param-* headers of a client's call with its arguments (2026-07-28,
// basic/transports/streamable-http, "Server Behavior for Custom Headers"). It returns what is wrong,
// or "".
func (t *Tool) CheckHeaders(h http.Header, params wire.Object) string {
	if len(t.headers) == 0 {
		return ""
	}
	args, _ := params.Get("arguments")
	for _, b := range t.headers {
		given := h.Values(b.header)
		want, number, has := headerArgument(args, b.path)
		switch {
		case len(given) > 1:
			return b.header + " is given more than once"
		case has && len(given) == 0:
			return b.header + " is missing although the argument is given"
		case !has && len(given) == 1:
			return b.header + " is given without the argument"
		case !has:
			continue
		}
		got, err := wire.DecodeHeaderValue(given[0])
		if err != nil {
			return b.header + " has invalid characters or encoding"
		}
		if got != want && !(number && sameInteger(got, want)) {
			return b.header + " does not match the argument"
		}
	}
	return ""
}

func sameInteger(a, b string) bool {
	x, ok := decimalInteger(a)
	y, ok2 := decimalInteger(b)
	return ok && ok2 && x == y
}
