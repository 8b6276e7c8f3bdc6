package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Operation is one request and what became of it. Strings that are empty are not told of.
type Operation struct {
	Method    string // a method that is not known shows as _OTHER
	Tool      string // its name, once it is known to exist; tools/call without one shows _OTHER
	Upstream  string // id
	Team      string // whose limits apply; several are joined with commas
	Version   string // protocol version of the hop
	Session   string // session id of the hop
	RequestID string // as text
	Transport string // TransportPipe or TransportTCP

	Outcome   string // never empty
	ErrorType string // "" for success
	Code      int64  // of a JSON-RPC error; 0 where there is none

	Away time.Duration // that the client took for a large result, which came in meanwhile
}

func (o *Operation) failed() bool { return o.ErrorType != "" }

// tool is what is shown for the tool.
func (o *Operation) tool() string {
	if o.Tool == "" && o.Method == methodCall {
		return other
	}
	return o.Tool
}

// spanName never holds what only the client says: no tool that is not known, no URI, no argument.
func (o *Operation) spanName() string {
	if o.Tool == "" {
		return knownMethod(o.Method)
	}
	return knownMethod(o.Method) + " " + o.Tool
}

// maxID bounds a request id in bytes, which the other side chooses.
const maxID = 128

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// attributes are those of the conventions that are the same on spans and on metrics.
func (o *Operation) attributes(set []attribute.KeyValue) []attribute.KeyValue {
	add := func(k attribute.Key, v string) {
		if v != "" {
			set = append(set, k.String(v))
		}
	}
	add(keyMethod, knownMethod(o.Method))
	add(keyTool, o.tool())
	if o.Method == methodCall {
		add(keyOperation, executeTool)
	}
	add(keyVersion, o.Version)
	add(keyTransport, o.Transport)
	add(keyUpstream, o.Upstream)
	add(keyTeam, o.Team)
	add(keyOutcome, o.Outcome)
	add(keyErrorType, o.ErrorType)
	return set
}

// Span is a span that is recorded, or the zero value, which records nothing.
type Span struct{ span trace.Span }

// Recorded reports whether anything is recorded.
func (s Span) Recorded() bool { return s.span != nil }

// TraceID is the id of the trace that the span is part of; "" where nothing is recorded.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return idOf(s.span.SpanContext())
}

// event adds an event.
func (s Span) event(name string, attributes ...attribute.KeyValue) {
	if s.span != nil {
		s.span.AddEvent(name, trace.WithAttributes(attributes...))
	}
}

// end names the span, says what became of it, and ends it.
func (s Span) end(o *Operation) {
	if s.span == nil {
		return
	}
	set := o.attributes(make([]attribute.KeyValue, 0, 16))
	if o.Session != "" {
		set = append(set, keySession.String(o.Session))
	}
	if o.RequestID != "" {
		set = append(set, keyRequestID.String(clip(o.RequestID, maxID)))
	}
	if o.Code != 0 {
		set = append(set, keyStatusCode.String(itoa(o.Code)))
	}
	s.span.SetName(o.spanName())
	s.span.SetAttributes(set...)
	if o.failed() {
		s.span.SetStatus(codes.Error, o.Outcome)
	}
	s.span.End()
}

// StartServer begins the SERVER span of a client's request. The context that it returns carries the span.
func (t *Telemetry) StartServer(ctx context.Context, method string, a *Account) (context.Context, Span) {
	if t == nil || t.tracer == nil {
		return ctx, Span{}
	}
	current := a.current()
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	if traceID(a.meta.parent) != "" && a.header.parent != "" && a.header.parent != a.meta.parent {
		if sc := a.header.spanContext(); sc.IsValid() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sc}))
		}
	}
	ctx, s := t.tracer.Start(extract(ctx, current), knownMethod(method), opts...)
	if !s.IsRecording() {
		return ctx, Span{}
	}
	return ctx, Span{s}
}

// EndServer says what became of a client's request: its span ends, and it is counted. ctx is the one that
// StartServer returned.
func (t *Telemetry) EndServer(ctx context.Context, s Span, o *Operation, took time.Duration) {
	s.end(o)
	if t == nil {
		return
	}
	b := t.server.bind(o)
	t.serverOperation.Record(ctx, took.Seconds(), b.record...)
	if o.Method != methodCall {
		return
	}
	t.calls.Add(ctx, 1, b.call...)
	switch o.Outcome {
	case "rate_limited", "concurrency_limited":
		t.limits.Add(ctx, 1, b.limit...)
	}
}

// Trip is one request on its way to an upstream and back.
type Trip struct {
	// Carries is the trace context that the request has to take along.
	Carries Outgoing

	t        *Telemetry
	ctx      context.Context // only handed on to instruments, for the span in it
	span     Span
	account  *Account
	began    time.Time
	progress int
}

// StartTrip begins the CLIENT span of a request to an upstream. account is that of the client's request, or nil for
// a request of Headgate's own.
func (t *Telemetry) StartTrip(ctx context.Context, method, upstream string, account *Account) *Trip {
	p := &Trip{t: t, ctx: ctx, account: account, began: time.Now()}
	own := account == nil
	if own {
		p.account = &Account{}
	}
	p.account.Attempts++
	if t != nil && t.tracer != nil && (own || trace.SpanFromContext(ctx).IsRecording()) {
		var s trace.Span
		p.ctx, s = t.tracer.Start(ctx, knownMethod(method), trace.WithSpanKind(trace.SpanKindClient))
		if s.IsRecording() {
			p.span = Span{s}
			if n := p.account.Attempts; n > 1 {
				s.SetAttributes(keyAttempt.Int(n), keyRetryReason.String(p.account.lastError))
			} else if !own {
				s.SetAttributes(keyAttempt.Int(n))
			}
		}
	}
	if p.account.Attempts > 1 && t != nil {
		t.retried(p.ctx, upstream, p.account.lastError)
	}
	p.Carries = p.account.outgoing(p.ctx, p.span.Recorded())
	return p
}

// maxProgress bounds the progress events of one span.
const maxProgress = 16

// Progress notes that the upstream reported progress. It is called by one goroutine at a time.
func (p *Trip) Progress() {
	if p.progress < maxProgress && p.span.Recorded() {
		p.progress++
		p.span.event(eventProgress)
	}
}

// End says what became of the request.
func (p *Trip) End(o *Operation) {
	took := time.Since(p.began) - o.Away
	p.account.Upstream += took
	p.account.lastError = o.ErrorType
	p.span.end(o)
	if p.t != nil {
		p.t.clientOperation.Record(p.ctx, took.Seconds(), p.t.client.bind(o).record...)
	}
}

// Repaired notes on the span in ctx that the session with an upstream had to be set up again.
func (t *Telemetry) Repaired(ctx context.Context, upstream, fault string) {
	if t == nil || t.tracer == nil {
		return
	}
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.AddEvent(eventSession, trace.WithAttributes(keyUpstream.String(upstream), keyFault.String(fault)))
	}
}

// Queued says how long a call waited for a turn before it was sent.
func (t *Telemetry) Queued(ctx context.Context, a *Account, upstream string, waited time.Duration) {
	if a != nil {
		a.Queue += waited
	}
	if t == nil {
		return
	}
	t.queued(ctx, upstream, waited)
	if s := trace.SpanFromContext(ctx); t.tracer != nil && s.IsRecording() {
		s.AddEvent(eventQueued, trace.WithAttributes(keyUpstream.String(upstream), keyQueueWait.Float64(waited.Seconds())))
	}
}

// Refused notes on the span in ctx that a breaker which is not closed kept a call from being sent.
func (t *Telemetry) Refused(ctx context.Context, upstream string, state BreakerState) {
	if t == nil || t.tracer == nil {
		return
	}
	if s := trace.SpanFromContext(ctx); s.IsRecording() {
		s.AddEvent(eventBreaker, trace.WithAttributes(keyUpstream.String(upstream), keyBreaker.String(string(state))))
	}
}

// TraceOf is the trace id of a request: that of its span, else the one that the client gave; "" for none.
func TraceOf(ctx context.Context, a *Account) string {
	if id := idOf(trace.SpanContextFromContext(ctx)); id != "" {
		return id
	}
	return a.TraceID()
}
