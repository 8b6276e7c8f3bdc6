package otlptest

import (
	"encoding/hex"
	"strconv"
	"strings"

	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Span is one span that arrived. Ids are in lower-case hex.
type Span struct {
	Name       string
	Kind       string // "SERVER", "CLIENT", …
	Trace      string
	ID         string
	Parent     string // "" for a root
	State      string // tracestate
	Links      []string
	Events     []Event
	Attributes map[string]string
	Resource   map[string]string
	Failed     bool   // the status is ERROR
	Message    string // of the status
}

// Event is one event of a span.
type Event struct {
	Name       string
	Attributes map[string]string
}

// Metric is one metric that arrived, with the attributes of its points.
type Metric struct {
	Name   string
	Points []map[string]string
}

func (r *Receiver) traces(q *tracepb.ExportTraceServiceRequest) {
	var all []Span
	for _, rs := range q.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				span := Span{
					Name:       s.GetName(),
					Kind:       strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"),
					Trace:      hex.EncodeToString(s.GetTraceId()),
					ID:         hex.EncodeToString(s.GetSpanId()),
					Parent:     hex.EncodeToString(s.GetParentSpanId()),
					State:      s.GetTraceState(),
					Attributes: attributes(s.GetAttributes()),
					Resource:   attributes(rs.GetResource().GetAttributes()),
					Failed:     s.GetStatus().GetCode() == spanpb.Status_STATUS_CODE_ERROR,
					Message:    s.GetStatus().GetMessage(),
				}
				for _, l := range s.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId())+"/"+hex.EncodeToString(l.GetSpanId()))
				}
				for _, e := range s.GetEvents() {
					span.Events = append(span.Events, Event{e.GetName(), attributes(e.GetAttributes())})
				}
				all = append(all, span)
			}
		}
	}
	r.tell(func() { r.spans = append(r.spans, all...) })
}

func (r *Receiver) take(q *metricspb.ExportMetricsServiceRequest) {
	var all []Metric
	for _, rm := range q.GetResourceMetrics() {
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				one := Metric{Name: m.GetName()}
				for _, p := range m.GetHistogram().GetDataPoints() {
					one.Points = append(one.Points, attributes(p.GetAttributes()))
				}
				for _, p := range m.GetSum().GetDataPoints() {
					one.Points = append(one.Points, attributes(p.GetAttributes()))
				}
				for _, p := range m.GetGauge().GetDataPoints() {
					one.Points = append(one.Points, attributes(p.GetAttributes()))
				}
				all = append(all, one)
			}
		}
	}
	r.tell(func() { r.metrics = append(r.metrics, all...) })
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	out := make(map[string]string, len(list))
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_BoolValue:
			out[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		case *commonpb.AnyValue_DoubleValue:
			out[kv.GetKey()] = strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
		default:
			out[kv.GetKey()] = kv.GetValue().String()
		}
	}
	return out
}
