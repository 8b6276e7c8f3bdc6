package telemetry

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func call(tool string) *Operation {
	return &Operation{Method: "tools/call", Tool: tool, Upstream: "u", Team: "t", Version: "2026-07-28", Transport: TransportTCP, Outcome: "ok"}
}

// TestCardinalityIsBounded: what others choose, however often, makes no more than so many series.
func TestCardinalityIsBounded(t *testing.T) {
	tel := open(t, Options{}, nil)
	for i := range 10_000 {
		tel.EndServer(t.Context(), Span{}, call(fmt.Sprintf("tool_%d", i)), time.Millisecond)
		code := int64(i)
		tel.EndServer(t.Context(), Span{}, &Operation{Method: fmt.Sprintf("method/%d", i), Transport: TransportTCP, Outcome: "protocol_error", ErrorType: fmt.Sprint(code), Code: code}, 0)
		team := call("one")
		team.Team = fmt.Sprintf("team-%d", i)
		tel.EndServer(t.Context(), Span{}, team, 0)
	}
	families := scrape(t, tel)
	values := map[string]map[string]bool{}
	for _, m := range families["mcp_server_operation_duration_seconds"].GetMetric() {
		for k, v := range labels(m) {
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			values[k][v] = true
		}
	}
	for label, most := range map[string]int{"gen_ai_tool_name": maxTools + 1, "mcp_method_name": 2, "error_type": maxCodes + 1, "headgate_team": maxTeams + 1} {
		if n := len(values[label]); n > most || n < 2 || !values[label]["_OTHER"] {
			t.Errorf("%s has %d values, want at most %d, one of them _OTHER", label, n, most)
		}
	}
	total := 0.0
	for _, m := range families["headgate_calls_total"].GetMetric() {
		total += m.GetCounter().GetValue()
	}
	if total != 20_000 {
		t.Errorf("%g calls are counted, want all", total)
	}
	if n := len(tel.server.ready); n > maxSets {
		t.Errorf("%d attribute sets are kept", n)
	}
}

// TestFullBindingsStillCount: when no more sets are kept, what is known keeps its name.
func TestFullBindingsStillCount(t *testing.T) {
	b := newBindings()
	for i := 0; len(b.ready) < maxSets; i++ {
		o := call(fmt.Sprintf("tool_%d", i%1000))
		o.Team = fmt.Sprintf("team-%d", i)
		b.bind(o)
	}
	if got := b.bind(call("tool_1")); got == nil || b.bind(call("tool_1")) == nil || len(b.ready) > maxSets {
		t.Errorf("binding %v, %d sets", got, len(b.ready))
	}
}

// TestCountingAllocatesNothing once a set is known.
func TestCountingAllocatesNothing(t *testing.T) {
	tel := open(t, Options{}, nil)
	o := call("echo")
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { tel.EndServer(ctx, Span{}, o, time.Millisecond) }); n > 1 {
		t.Errorf("%g allocations for a call", n)
	}
}

// TestEveryInstrument uses each, and looks for it where Prometheus reads it.
func TestEveryInstrument(t *testing.T) {
	tel := open(t, Options{Version: "1.2.3"}, map[string]string{"OTEL_SERVICE_NAME": "front"})
	stop := tel.Watch(func() State {
		return State{InFlight: 3, Sessions: 4, Upstreams: []UpstreamState{{ID: "a", Up: true, Tools: 7}, {ID: "a", Team: "t"}},
			Findings: map[FindingKey]int64{{"a", "duplicate_name"}: 2}}
	})
	tel.EndServer(t.Context(), Span{}, &Operation{Method: "tools/call", Tool: "a_x", Upstream: "a", Team: "t", Outcome: "rate_limited", ErrorType: "rate_limited"}, time.Second)
	account := &Account{}
	for _, e := range []string{"session_lost", ""} {
		trip := tel.StartTrip(t.Context(), "tools/call", "a", account)
		trip.End(&Operation{Method: "tools/call", Tool: "x", Upstream: "a", Outcome: "ok", ErrorType: e})
	}
	tel.Queued(t.Context(), account, "a", 2*time.Second)
	tel.Queued(t.Context(), account, "a", time.Second)
	tel.Breaker("a", BreakerClosed)
	tel.Breaker("a", BreakerOpen)
	tel.CatalogueChanged("a")
	tel.Reloaded(true, time.Millisecond)
	tel.Reloaded(false, time.Millisecond)
	tel.StreamDropped(SideUpstream, "a")
	tel.StreamDropped(SideClient, "")
	tel.ServerSession("2025-11-25", TransportTCP, time.Minute)
	tel.ClientSession("a", "2026-07-28", TransportPipe, time.Minute)
	tel.dropped.Add(t.Context(), 1)
	if account.Queue != 3*time.Second || account.Attempts != 2 {
		t.Errorf("account: %+v", account)
	}
	families := scrape(t, tel)
	for name, want := range map[string]map[string]float64{
		"headgate_calls_total":                    {"rate_limited": 1},
		"headgate_requests_in_flight":             {"": 3},
		"headgate_sessions":                       {"": 4},
		"headgate_upstream_up":                    {"a": 1, "a t": 0},
		"headgate_catalogue_tools":                {"a": 7, "a t": 0},
		"headgate_catalogue_findings":             {"a duplicate_name": 2},
		"headgate_catalogue_changes_total":        {"a": 1},
		"headgate_upstream_retries_total":         {"a session_lost": 1},
		"headgate_breaker_state":                  {"a closed": 0, "a open": 1, "a half_open": 0},
		"headgate_queue_duration_seconds":         {"a": 2},
		"headgate_config_reloads_total":           {"ok": 1, "error": 1},
		"headgate_config_reload_duration_seconds": {"ok": 1, "error": 1},
		"headgate_limits_hit_total":               {"rate": 1},
		"headgate_streams_dropped_total":          {"upstream a": 1, "client": 1},
		"headgate_telemetry_spans_dropped_total":  {"": 1},
		"mcp_server_operation_duration_seconds":   {"rate_limited": 1},
		"mcp_client_operation_duration_seconds":   {"ok": 1, "ok session_lost": 1},
		"mcp_server_session_duration_seconds":     {"2025-11-25": 1},
		"mcp_client_session_duration_seconds":     {"a 2026-07-28": 1},
	} {
		got := map[string]float64{}
		for _, m := range families[name].GetMetric() {
			key := ""
			all := labels(m)
			for _, l := range shownLabels[name] {
				if all[l] != "" {
					key += " " + all[l]
				}
			}
			if key != "" {
				key = key[1:]
			}
			got[key] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if at := families["headgate_config_reload_time_seconds"].GetMetric()[0].GetGauge().GetValue(); time.Since(time.UnixMilli(int64(at*1000))) > time.Hour {
		t.Errorf("the reload is said to be at %g", at)
	}
	info := labels(families["target_info"].GetMetric()[0])
	if info["service_name"] != "front" || info["service_version"] != "1.2.3" {
		t.Errorf("target_info: %v", info)
	}
	var bounds []float64
	for _, b := range families["mcp_server_operation_duration_seconds"].GetMetric()[0].GetHistogram().GetBucket() {
		bounds = append(bounds, b.GetUpperBound())
	}
	if want := []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}; !slices.Equal(bounds[:len(want)], want) {
		t.Errorf("buckets %v", bounds)
	}
	stop()
	if f := scrape(t, tel)["headgate_sessions"]; f != nil {
		t.Errorf("a gauge is read of what has ended: %v", f)
	}
}

// shownLabels are the labels by which TestEveryInstrument tells the metrics of a family apart.
var shownLabels = map[string][]string{
	"headgate_calls_total":                    {"headgate_outcome"},
	"headgate_upstream_up":                    {"headgate_upstream", "headgate_team"},
	"headgate_catalogue_tools":                {"headgate_upstream", "headgate_team"},
	"headgate_catalogue_findings":             {"headgate_upstream", "headgate_rule"},
	"headgate_catalogue_changes_total":        {"headgate_upstream"},
	"headgate_upstream_retries_total":         {"headgate_upstream", "headgate_reason"},
	"headgate_breaker_state":                  {"headgate_upstream", "headgate_breaker_state"},
	"headgate_queue_duration_seconds":         {"headgate_upstream"},
	"headgate_config_reloads_total":           {"headgate_result"},
	"headgate_config_reload_duration_seconds": {"headgate_result"},
	"headgate_limits_hit_total":               {"headgate_limit"},
	"headgate_streams_dropped_total":          {"headgate_side", "headgate_upstream"},
	"mcp_server_operation_duration_seconds":   {"headgate_outcome"},
	"mcp_client_operation_duration_seconds":   {"headgate_outcome", "error_type"},
	"mcp_server_session_duration_seconds":     {"mcp_protocol_version"},
	"mcp_client_session_duration_seconds":     {"headgate_upstream", "mcp_protocol_version"},
}

// TestNothingIsTold: nil takes everything.
func TestNothingIsTold(t *testing.T) {
	var tel *Telemetry
	ctx, span := tel.StartServer(t.Context(), "tools/call", &Account{})
	trip := tel.StartTrip(ctx, "tools/call", "a", nil)
	trip.Progress()
	trip.End(call("x"))
	tel.EndServer(ctx, span, call("x"), 0)
	tel.Repaired(ctx, "a", "session_lost")
	tel.Queued(ctx, nil, "a", 0)
	tel.Refused(ctx, "a", BreakerOpen)
	tel.Breaker("a", BreakerOpen)
	tel.CatalogueChanged("a")
	tel.Reloaded(true, 0)
	tel.StreamDropped(SideClient, "")
	tel.ServerSession("", "", 0)
	tel.ClientSession("", "", "", 0)
	tel.Watch(func() State { return State{} })()
	if err := tel.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
