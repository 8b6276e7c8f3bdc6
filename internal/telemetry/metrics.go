package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// buckets are the boundaries, in seconds, that the conventions for MCP give for durations.
func buckets() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
}

// instruments are all that is counted and measured.
type instruments struct {
	meter  metric.Meter
	server *bindings
	client *bindings

	serverOperation, clientOperation, serverSession, clientSession metric.Float64Histogram
	queue, reloadDuration                                          metric.Float64Histogram
	calls, retries, changes, reloads, limits, streams, dropped     metric.Int64Counter
	turnedAway, messages                                           metric.Int64Counter
	breaker                                                        metric.Int64Gauge
	reloadTime                                                     metric.Float64Gauge
	gauges                                                         gauges
}

// gauges are read when somebody looks.
type gauges struct {
	inFlight, sessions, up, tools, findings metric.Int64ObservableGauge
}

// newInstruments makes them. The errors of a meter are of names and units, which are constants here.
func newInstruments(m metric.Meter) (i instruments, err error) {
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	histogram := func(name, text string) metric.Float64Histogram {
		h, e := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), buckets())
		keep(e)
		return h
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, e := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		keep(e)
		return c
	}
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		g, e := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		keep(e)
		return g
	}
	i = instruments{
		meter: m, server: newBindings(), client: newBindings(),
		serverOperation: histogram(metricServerOperation, "Requests of clients, from arrival to answer."),
		clientOperation: histogram(metricClientOperation, "Requests to upstreams, each attempt by itself."),
		serverSession:   histogram(metricServerSession, "Sessions of clients."),
		clientSession:   histogram(metricClientSession, "Connections to upstreams."),
		queue:           histogram(metricQueue, "Time that calls waited for a turn before they were sent."),
		reloadDuration:  histogram(metricReloadDuration, "Time that reloads of the configuration took."),
		calls:           counter(metricCalls, "{call}", "Calls of tools, by what became of them."),
		retries:         counter(metricRetries, "{attempt}", "Attempts after the first of a call."),
		changes:         counter(metricChanges, "{change}", "Changes of an upstream's catalogue."),
		reloads:         counter(metricReloads, "{reload}", "Reloads of the configuration, by result."),
		limits:          counter(metricLimits, "{call}", "Calls that a limit kept from being made."),
		streams:         counter(metricStreams, "{stream}", "Streams that ended before they should."),
		dropped:         counter(metricSpansDropped, "{span}", "Spans that were not exported."),
		turnedAway:      counter(metricTurnedAway, "{request}", "What was turned away and never became a request of MCP, by reason."),
		messages:        counter(metricMessages, "{message}", "Messages that were dropped since the client did not read."),
		gauges: gauges{
			inFlight: gauge(metricInFlight, "{request}", "Requests of clients that are being answered."),
			sessions: gauge(metricSessions, "{session}", "Sessions of legacy clients that are open."),
			up:       gauge(metricUp, "", "Whether calls are sent to the upstream: 1 or 0."),
			tools:    gauge(metricTools, "{tool}", "Tools that the upstream offers."),
			findings: gauge(metricFindings, "{finding}", "What was withheld or repaired in the catalogue, by rule."),
		},
	}
	var e error
	i.breaker, e = m.Int64Gauge(metricBreaker, metric.WithDescription("1 for the state that the upstream's breaker is in, 0 for the others."))
	keep(e)
	i.reloadTime, e = m.Float64Gauge(metricReloadTime, metric.WithUnit("s"), metric.WithDescription("When the configuration in force was loaded, in seconds since 1970."))
	keep(e)
	return i, err
}

// State is what the gauges show at one moment.
type State struct {
	InFlight, Sessions int64
	Upstreams          []UpstreamState
	Findings           map[FindingKey]int64
}

// UpstreamState is the state of one upstream.
type UpstreamState struct {
	ID, Team string // Team is "" for a shared one
	Up       bool
	Tools    int64
}

// FindingKey tells findings apart as far as the gauge does.
type FindingKey struct{ Upstream, Rule string }

// Watch has read called whenever the gauges are looked at. It must not block. The returned function ends that.
func (t *Telemetry) Watch(read func() State) (stop func()) {
	if t == nil {
		return func() {}
	}
	g := &t.gauges
	r, err := t.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := read()
		o.ObserveInt64(g.inFlight, s.InFlight)
		o.ObserveInt64(g.sessions, s.Sessions)
		for _, u := range s.Upstreams {
			set := []attribute.KeyValue{keyUpstream.String(u.ID)}
			if u.Team != "" {
				set = append(set, keyTeam.String(u.Team))
			}
			with := metric.WithAttributes(set...)
			up := int64(0)
			if u.Up {
				up = 1
			}
			o.ObserveInt64(g.up, up, with)
			o.ObserveInt64(g.tools, u.Tools, with)
		}
		for k, n := range s.Findings {
			o.ObserveInt64(g.findings, n, metric.WithAttributes(keyUpstream.String(k.Upstream), keyRule.String(k.Rule)))
		}
		return nil
	}, g.inFlight, g.sessions, g.up, g.tools, g.findings)
	if err != nil {
		return func() {} // cannot be: the instruments are this meter's own
	}
	return func() { _ = r.Unregister() }
}

// BreakerState is a state of a breaker.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed   BreakerState = "closed"
	BreakerOpen     BreakerState = "open"
	BreakerHalfOpen BreakerState = "half_open"
)

// Breaker says which state the breaker of an upstream is in; "" if there is none any more.
func (t *Telemetry) Breaker(upstream string, now BreakerState) {
	if t == nil {
		return
	}
	for _, s := range []BreakerState{BreakerClosed, BreakerOpen, BreakerHalfOpen} {
		v := int64(0)
		if s == now {
			v = 1
		}
		t.breaker.Record(context.Background(), v, metric.WithAttributes(keyUpstream.String(upstream), keyBreaker.String(string(s))))
	}
}

// CatalogueChanged counts a change of an upstream's catalogue.
func (t *Telemetry) CatalogueChanged(upstream string) {
	if t != nil {
		t.changes.Add(context.Background(), 1, metric.WithAttributes(keyUpstream.String(upstream)))
	}
}

// Reloaded says how a reload of the configuration went. The first loading counts as one.
func (t *Telemetry) Reloaded(ok bool, took time.Duration) {
	if t == nil {
		return
	}
	result := "error"
	if ok {
		result = "ok"
		t.reloadTime.Record(context.Background(), float64(time.Now().UnixMilli())/1000)
	}
	with := metric.WithAttributes(keyResult.String(result))
	t.reloads.Add(context.Background(), 1, with)
	t.reloadDuration.Record(context.Background(), took.Seconds(), with)
}

// The sides on which a stream can be dropped.
const (
	SideClient   = "client"
	SideUpstream = "upstream"
)

// StreamDropped counts a stream that ended before it should; upstream is "" on the side of clients.
func (t *Telemetry) StreamDropped(side, upstream string) {
	if t == nil {
		return
	}
	set := []attribute.KeyValue{keySide.String(side)}
	if upstream != "" {
		set = append(set, keyUpstream.String(upstream))
	}
	t.streams.Add(context.Background(), 1, metric.WithAttributes(set...))
}

// Refusal is why something that a client sent never became a request of MCP, of which spans and the other metrics tell.
type Refusal string

// The refusals there are.
const (
	RefusedForbidden   Refusal = "forbidden" // host or origin
	RefusedAnonymous   Refusal = "no_credentials"
	RefusedCredentials Refusal = "bad_credentials"
	RefusedUnverified  Refusal = "unverified_credentials" // the issuer's keys are not known
	RefusedPath        Refusal = "no_such_path"
	RefusedMethod      Refusal = "method_not_allowed"
	RefusedContentType Refusal = "content_type"
	RefusedAccept      Refusal = "not_acceptable"
	RefusedLarge       Refusal = "too_large"
	RefusedSlow        Refusal = "too_slow"
	RefusedUnreadable  Refusal = "unreadable" // the connection broke
	RefusedMalformed   Refusal = "malformed"  // bytes that are no message, or one that means nothing here
	RefusedSession     Refusal = "no_session"
	RefusedOverloaded  Refusal = "overloaded" // of large bodies, sessions or streams
)

// TurnedAway counts what was refused before it became a request.
func (t *Telemetry) TurnedAway(why Refusal, transport string) {
	if t != nil {
		t.turnedAway.Add(context.Background(), 1, metric.WithAttributes(keyReason.String(string(why)), keyTransport.String(transport)))
	}
}

// MessageDropped counts a message that a client has lost because it did not read those before.
func (t *Telemetry) MessageDropped(transport string) {
	if t != nil {
		t.messages.Add(context.Background(), 1, metric.WithAttributes(keyTransport.String(transport)))
	}
}

// ServerSession says how long a session of a client stood.
func (t *Telemetry) ServerSession(version, transport string, took time.Duration) {
	if t != nil {
		t.serverSession.Record(context.Background(), took.Seconds(), metric.WithAttributes(session(version, transport, "")...))
	}
}

// ClientSession says how long a connection to an upstream stood.
func (t *Telemetry) ClientSession(upstream, version, transport string, took time.Duration) {
	if t != nil {
		t.clientSession.Record(context.Background(), took.Seconds(), metric.WithAttributes(session(version, transport, upstream)...))
	}
}

func session(version, transport, upstream string) []attribute.KeyValue {
	set := []attribute.KeyValue{keyTransport.String(transport)}
	if version != "" {
		set = append(set, keyVersion.String(version))
	}
	if upstream != "" {
		set = append(set, keyUpstream.String(upstream))
	}
	return set
}

func (t *Telemetry) retried(ctx context.Context, upstream, reason string) {
	if reason == "" {
		reason = other
	}
	t.retries.Add(ctx, 1, metric.WithAttributes(keyUpstream.String(upstream), keyReason.String(reason)))
}

func (t *Telemetry) queued(ctx context.Context, upstream string, waited time.Duration) {
	t.queue.Record(ctx, waited.Seconds(), metric.WithAttributes(keyUpstream.String(upstream)))
}
