package telemetry

import (
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// How many values of one kind metrics show; whatever comes later shows as _OTHER.
const (
	maxTools     = 2000
	maxTeams     = 500 // and combinations of them
	maxUpstreams = 1000
	maxCodes     = 100
	// maxSets bounds the attribute sets that are kept ready.
	maxSets = 20_000
)

// bindings keep attribute sets ready, so that counting a request allocates nothing.
type bindings struct {
	mu        sync.RWMutex // guards the fields below
	ready     map[opKey]*binding
	tools     values
	teams     values
	upstreams values
	codes     values
}

// opKey is what an attribute set is made of.
type opKey struct {
	method, tool, upstream, team, version, transport, outcome, errorType string
}

// binding is an attribute set in the forms in which instruments take it.
type binding struct {
	record []metric.RecordOption
	call   []metric.AddOption // tool, upstream, team, outcome
	limit  []metric.AddOption // tool, team, limit
}

func newBindings() *bindings {
	return &bindings{
		ready:     make(map[opKey]*binding),
		tools:     values{max: maxTools},
		teams:     values{max: maxTeams},
		upstreams: values{max: maxUpstreams},
		codes:     values{max: maxCodes},
	}
}

func (b *bindings) bind(o *Operation) *binding {
	key := opKey{knownMethod(o.Method), o.tool(), o.Upstream, o.Team, o.Version, o.Transport, o.Outcome, o.ErrorType}
	b.mu.RLock()
	found := b.ready[key]
	b.mu.RUnlock()
	if found != nil {
		return found
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	shown := key
	shown.tool = b.tools.show(key.tool)
	shown.team = b.teams.show(key.team)
	shown.upstream = b.upstreams.show(key.upstream)
	if shown.errorType != shown.outcome {
		shown.errorType = b.codes.show(key.errorType)
	}
	if found = b.ready[shown]; found == nil {
		found = newBinding(&shown)
		b.keep(shown, found)
	}
	b.keep(key, found)
	return found
}

// keep has room for what is shown before it has room for what is not. b.mu is held.
func (b *bindings) keep(key opKey, v *binding) {
	if len(b.ready) < maxSets {
		b.ready[cloned(key)] = v
	}
}

// cloned cuts the strings of a key off the request they stood in.
func cloned(k opKey) opKey {
	for _, s := range []*string{&k.method, &k.tool, &k.upstream, &k.team, &k.version, &k.transport, &k.outcome, &k.errorType} {
		*s = strings.Clone(*s)
	}
	return k
}

func newBinding(k *opKey) *binding {
	o := Operation{Method: k.method, Tool: k.tool, Upstream: k.upstream, Team: k.team, Version: k.version, Transport: k.transport,
		Outcome: k.outcome, ErrorType: k.errorType}
	calls := []attribute.KeyValue{keyTool.String(o.tool()), keyOutcome.String(o.Outcome)}
	limit := []attribute.KeyValue{keyTool.String(o.tool()), keyLimit.String(strings.TrimSuffix(o.Outcome, "_limited"))}
	if o.Upstream != "" {
		calls = append(calls, keyUpstream.String(o.Upstream))
	}
	if o.Team != "" {
		calls = append(calls, keyTeam.String(o.Team))
		limit = append(limit, keyTeam.String(o.Team))
	}
	return &binding{
		record: []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(o.attributes(nil)...))},
		call:   []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(calls...))},
		limit:  []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(limit...))},
	}
}

// values are the different values of one attribute that have been shown, up to a bound.
type values struct {
	max  int
	seen map[string]bool
}

func (v *values) show(s string) string {
	if s == "" || s == other || v.seen[s] {
		return s
	}
	if len(v.seen) >= v.max {
		return other
	}
	if v.seen == nil {
		v.seen = make(map[string]bool)
	}
	v.seen[strings.Clone(s)] = true
	return s
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
