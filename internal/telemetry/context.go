package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/internal/wire"
)

// The members of _meta, and the headers, that carry trace context (W3C Trace Context and Baggage).
const (
	parentName  = "traceparent"
	stateName   = "tracestate"
	baggageName = "baggage"
)

// carried is trace context as it stands on the wire, unchecked; "" for what is not there.
type carried struct{ parent, state, baggage string }

// Account is what one request brings along, and where its time went. It belongs to one request and is not
// used by two goroutines at a time.
type Account struct {
	// Upstream is the time spent on round trips to the upstream.
	Upstream time.Duration
	// Queue is the time spent waiting for a turn before anything was sent.
	Queue time.Duration
	// Attempts counts the round trips.
	Attempts int

	meta, header carried
	lastError    string // error.type of the last round trip; "" when it went well
}

// Read takes down the trace context of a request: from _meta of its params, and from its HTTP headers, which are
// nil on other transports. What is malformed is left out, and never an error.
func (a *Account) Read(params jsontext.Value, header http.Header) {
	if len(header) > 0 {
		// The keys are canonical: net/http made them.
		a.header = carried{first(header["Traceparent"]), strings.Join(header["Tracestate"], ","), strings.Join(header["Baggage"], ",")}
	}
	// Most params hold none of it, and are not parsed.
	if !bytes.Contains(params, []byte(parentName)) && !bytes.Contains(params, []byte(baggageName)) {
		return
	}
	obj, err := wire.ParseObject(params)
	if err != nil {
		return
	}
	raw, _ := obj.Get("_meta")
	meta, err := wire.ParseObject(raw)
	if err != nil {
		return
	}
	text := func(name string) string {
		v, _ := meta.Get(name)
		s, _ := wire.String(v)
		return s
	}
	a.meta = carried{text(parentName), text(stateName), text(baggageName)}
}

func first(values []string) string {
	if len(values) != 1 {
		return "" // none, or several, of which nobody can say which counts
	}
	return values[0]
}

// current is the context that counts: that of _meta, else that of the headers. Baggage of _meta counts by itself.
func (a *Account) current() carried {
	c := a.meta
	if traceID(c.parent) == "" {
		c = a.header
	}
	if traceID(c.parent) == "" {
		c.parent, c.state = "", ""
	}
	if a.meta.baggage != "" {
		c.baggage = a.meta.baggage
	}
	return c
}

// TraceID is the id of the trace that the request belongs to by its own account, or "".
func (a *Account) TraceID() string { return traceID(a.current().parent) }

// traceID reads the trace id of a traceparent; "" for one that is malformed.
func traceID(parent string) string {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return ""
	}
	version, id, span, flags := parent[:2], parent[3:35], parent[36:52], parent[53:55]
	if version == "ff" || version == "00" && len(parent) != 55 || len(parent) > 55 && parent[55] != '-' {
		return ""
	}
	for _, s := range []string{version, id, span, flags} {
		if !lowerHex(s) {
			return ""
		}
	}
	if strings.Trim(id, "0") == "" || strings.Trim(span, "0") == "" {
		return ""
	}
	return id
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// extract puts a context that came over the wire into ctx.
func extract(ctx context.Context, c carried) context.Context {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{parentName: c.parent, stateName: c.state})
	// The propagator for baggage would report what is malformed, and a client's baggage is nobody's to read.
	if b, err := baggage.Parse(c.baggage); err == nil && b.Len() > 0 {
		ctx = baggage.ContextWithBaggage(ctx, b)
	}
	return ctx
}

// spanContext is the span that a context on the wire names; an invalid one if it names none.
func (c carried) spanContext() trace.SpanContext {
	return trace.SpanContextFromContext(extract(context.Background(), c))
}

// Outgoing is the trace context that goes to an upstream in _meta.
type Outgoing struct {
	carried
	replace bool // also what the client itself put into _meta
}

// Edits appends what has to change in _meta, which is meta now.
func (o *Outgoing) Edits(set []wire.Edit, meta wire.Object) []wire.Edit {
	if *o == (Outgoing{}) {
		return set
	}
	for _, m := range [...]struct{ name, value string }{{parentName, o.parent}, {stateName, o.state}, {baggageName, o.baggage}} {
		if _, has := meta.Get(m.name); has && !o.replace || m.value == "" && !has {
			continue
		}
		e := wire.Edit{Name: m.name}
		if m.value != "" {
			e.Value = wire.AppendString(nil, m.value)
		}
		set = append(set, e)
	}
	return set
}

// outgoing is what the next hop is told: the span in ctx if it is recorded, else what the client said, untouched.
func (a *Account) outgoing(ctx context.Context, recorded bool) Outgoing {
	if recorded {
		m := make(propagation.MapCarrier, 3)
		propagation.TraceContext{}.Inject(ctx, m)
		propagation.Baggage{}.Inject(ctx, m)
		return Outgoing{carried{m[parentName], m[stateName], m[baggageName]}, true}
	}
	if a.header == (carried{}) {
		return Outgoing{} // what _meta holds passes as it is
	}
	return Outgoing{carried: a.current()}
}

// idOf is the trace id of a span context in hex, or "".
func idOf(sc trace.SpanContext) string {
	if !sc.HasTraceID() {
		return ""
	}
	id := sc.TraceID()
	return hex.EncodeToString(id[:])
}
