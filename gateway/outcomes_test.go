package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/otlptest"
)

// told is what every signal has to say of a call.
type told struct {
	caller   string // ann unless it says otherwise
	tool     string // as called
	outcome  string
	error    string   // error.type; "" for success
	code     string   // rpc.response.status_code
	attempts []string // the error.type of each CLIENT span, "ok" for success
	unknown  bool     // the tool is not known, so its name shows nowhere
	unsent   string   // the code of CLIENT spans, if it is not code
}

func outcomeRows() map[string]told {
	return map[string]told{
		"ok":                  {tool: "x_echo", outcome: "ok", attempts: []string{"ok"}},
		"isError":             {tool: "x_boom", outcome: "tool_error", error: "tool_error", attempts: []string{"tool_error"}},
		"a JSON-RPC error":    {tool: "x_fail", outcome: "protocol_error", error: "7001", code: "7001", attempts: []string{"7001"}},
		"unknown tool":        {tool: "x_nope_" + plantedArgument, outcome: "protocol_error", error: "-32602", code: "-32602", unknown: true},
		"hidden tool":         {tool: "x_hidden", outcome: "protocol_error", error: "-32602", code: "-32602", unknown: true},
		"unavailable":         {tool: "down_echo", outcome: "unavailable", error: "unavailable", attempts: []string{"unavailable"}},
		"timeout":             {tool: "silent_plain", outcome: "timeout", error: "timeout", attempts: []string{"timeout"}},
		"connection lost":     {tool: "reset_plain", outcome: "connection_lost", error: "connection_lost", attempts: []string{"connection_lost"}},
		"bad answer":          {tool: "html_plain", outcome: "bad_upstream_answer", error: "bad_upstream_answer", code: "-32603", attempts: []string{"bad_upstream_answer"}, unsent: "-"},
		"result is no object": {tool: "string_plain", outcome: "bad_upstream_answer", error: "bad_upstream_answer", code: "-32603", attempts: []string{"bad_upstream_answer"}, unsent: "-"},
		"credentials refused": {tool: "unauthorized_plain", outcome: "credentials_refused", error: "credentials_refused", attempts: []string{"credentials_refused"}},
		"overloaded":          {tool: "toomany_plain", outcome: "overloaded", error: "overloaded", attempts: []string{"overloaded"}},
		"rate limited":        {caller: "bob", tool: "x_echo", outcome: "rate_limited", error: "rate_limited"},
		"concurrency limited": {caller: "con", tool: "x_echo", outcome: "concurrency_limited", error: "concurrency_limited"},
	}
}

// outcomeGate has servers for all of them. ann is in a team without limits, bob and con in such with limits that
// are used up.
func outcomeGate(t *testing.T, protocol string) *observed {
	b := newBlocker()
	x := &mcptest.Server{Tools: append(mcptest.Builtin("echo", "boom", "fail", "hidden"), b.tool)}
	entries := map[string]string{"x": entry(x.StartHTTP(t))}
	for _, id := range []string{"silent", "reset", "html", "string", "unauthorized", "toomany"} {
		s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"plain","inputSchema":{"type":"object"}}`, Call: failing()[id]}}}
		entries[id] = entry(s.StartHTTP(t), timeFor(id))
	}
	down := (&mcptest.Server{Tools: mcptest.Builtin("echo")}).StartHTTP(t)
	entries["down"] = entry(down, `"retries":0`)
	var ids []string
	for id := range entries {
		ids = append(ids, `"`+id+`"`)
	}
	team := func(name, limits string) string {
		return `"` + name + `":{"upstreams":[` + strings.Join(ids, ",") + `],"limits":` + limits + `,"rules":[{"allow":["*"]},{"deny":["x_hidden"]}]}`
	}
	o := launchObserved(t, parseConfig(t, entries, keys(keyEntry("ann", "t"), keyEntry("bob", "rate"), keyEntry("con", "one")),
		`"teams":{`+team("t", "{}")+`,`+team("rate", `{"calls_per_minute":1}`)+`,`+team("one", `{"concurrent":1}`)+`}`), protocol, Options{})
	down.Stop()
	passes(t, "bob's one call", o.traced("bob", "1", "x_echo", ""))
	held := make(chan reply, 1)
	go func() { held <- o.traced("con", "2", "x_block", "") }()
	awaitServer(t, x, "con's call", func() bool { return x.Executions("block") == 1 })
	t.Cleanup(func() {
		close(b.release)
		<-held
	})
	return o
}

// TestOutcomes goes through the failure table: spans, metrics and the log say the same of each call.
func TestOutcomes(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			o := outcomeGate(t, protocol)
			n := 0
			for name, want := range outcomeRows() {
				n++
				id := "c" + string(rune('0'+n/10)) + string(rune('0'+n%10))
				t.Run(name, func(t *testing.T) {
					o.t = t
					want.check(t, o, id)
				})
			}
			o.t = t
		})
	}
}

func (w told) check(t *testing.T, o *observed, id string) {
	caller, team := "ann", "t"
	if w.caller != "" {
		caller, team = w.caller, map[string]string{"bob": "rate", "con": "one"}[w.caller]
	}
	tool, upstream := w.tool, ""
	if upstream, _, _ = strings.Cut(tool, "_"); w.unknown {
		tool, upstream = "_OTHER", ""
	}
	before := o.metric("headgate_calls_total", "gen_ai_tool_name", tool, "headgate_outcome", w.outcome, "headgate_team", team, "headgate_upstream", upstream)
	if r := o.traced(caller, `"`+id+`"`, w.tool, metaParent(parentOf(id[1:]))+`,"tracestate":"v=1","baggage":"k=v"`, "Traceparent: "+parentOf("ff")); r.status != http.StatusOK {
		t.Errorf("HTTP %d", r.status)
	}

	server, children := o.spans(traceOf(id[1:]))
	name := "tools/call"
	if !w.unknown {
		name += " " + w.tool
	}
	if server.Name != name || server.Parent != "00000000000000aa" || server.State != "v=1" {
		t.Errorf("the span is %q with parent %q, state %q", server.Name, server.Parent, server.State)
	}
	if len(server.Links) != 1 || server.Links[0] != traceOf("ff")+"/00000000000000aa" {
		t.Errorf("links: %q", server.Links)
	}
	hasAttributes(t, server, map[string]string{
		"mcp.method.name": "tools/call", "mcp.protocol.version": "2026-07-28", "gen_ai.tool.name": tool,
		"gen_ai.operation.name": "execute_tool", "jsonrpc.request.id": id, "network.transport": "tcp", "headgate.upstream": upstream,
		"headgate.team": team, "headgate.outcome": w.outcome, "error.type": w.error, "rpc.response.status_code": w.code,
	})
	hasStatus(t, server, w.error != "", w.outcome)
	if server.Resource["service.name"] != "headgate" || server.Resource["service.version"] != "1.2.3" {
		t.Errorf("resource: %v", server.Resource)
	}
	w.checkAttempts(t, server, children, upstream)
	w.checkMetrics(t, o, tool, upstream, team, before)
	w.checkLog(t, o.accessLine(id), id, caller, team, upstream)
}

func (w told) checkAttempts(t *testing.T, server otlptest.Span, children []otlptest.Span, upstream string) {
	if w.outcome == "unavailable" {
		// Whether the server is known to be gone before anything is sent is a matter of timing.
		if len(children) > 4 {
			t.Errorf("%d attempts", len(children))
		}
	} else if len(children) != len(w.attempts) {
		t.Fatalf("%d attempts, want %d", len(children), len(w.attempts))
	}
	for i, s := range children {
		want, outcome := w.attempts[0], w.outcome
		if want == "ok" {
			want = ""
		}
		_, own, _ := strings.Cut(w.tool, "_")
		if s.Kind != "CLIENT" || s.Parent != server.ID || s.Name != "tools/call "+own {
			t.Errorf("attempt: %+v", s)
		}
		code := w.code
		if w.unsent != "" {
			code = ""
		}
		hasAttributes(t, s, map[string]string{
			"mcp.method.name": "tools/call", "mcp.protocol.version": "2026-07-28", "gen_ai.tool.name": own, "network.transport": "tcp",
			"headgate.upstream": upstream, "headgate.outcome": outcome, "error.type": want, "rpc.response.status_code": code,
			"headgate.attempt": string(rune('1' + i)), "mcp.session.id": "", "headgate.team": "",
		})
		hasStatus(t, s, want != "", outcome)
	}
}

func (w told) checkMetrics(t *testing.T, o *observed, tool, upstream, team string, before float64) {
	same := []string{"gen_ai_tool_name", tool, "headgate_outcome", w.outcome, "headgate_team", team, "headgate_upstream", upstream}
	if got := o.metric("headgate_calls_total", same...); got != before+1 {
		t.Errorf("headgate_calls_total went from %g to %g", before, got)
	}
	if got := o.metric("mcp_server_operation_duration_seconds", append(same, "error_type", w.error, "mcp_method_name", "tools/call",
		"network_transport", "tcp", "mcp_protocol_version", "2026-07-28", "gen_ai_operation_name", "execute_tool")...); got != before+1 {
		t.Errorf("mcp_server_operation_duration_seconds counts %g", got)
	}
	if len(w.attempts) > 0 && w.outcome != "unavailable" {
		_, own, _ := strings.Cut(w.tool, "_")
		if got := o.metric("mcp_client_operation_duration_seconds", "gen_ai_tool_name", own, "headgate_upstream", upstream, "headgate_outcome", w.outcome, "error_type", w.error); got < 1 {
			t.Errorf("mcp_client_operation_duration_seconds counts %g", got)
		}
	}
	if limit, is := strings.CutSuffix(w.outcome, "_limited"); is {
		if got := o.metric("headgate_limits_hit_total", "headgate_limit", limit, "headgate_team", team, "gen_ai_tool_name", tool); got != 1 {
			t.Errorf("headgate_limits_hit_total counts %g", got)
		}
	}
}

func (w told) checkLog(t *testing.T, line map[string]any, id, caller, team, upstream string) {
	level := "INFO"
	failed := w.error != "" && w.outcome != "tool_error" && w.outcome != "protocol_error"
	if failed {
		level = "WARN"
	}
	want := map[string]any{"msg": "call", "level": level, "method": "tools/call", "outcome": w.outcome, "subject": caller, "team": team,
		"request_id": id, "trace_id": traceOf(id[1:])}
	if !w.unknown {
		want["tool"], want["upstream"] = w.tool, upstream
	}
	if failed || w.outcome == "protocol_error" {
		want["reason"] = w.error
	}
	for k, v := range want {
		if line[k] != v {
			t.Errorf("the log says %s=%v, want %v", k, line[k], v)
		}
	}
	for _, k := range []string{"time", "took_ms", "upstream_ms", "queue_ms", "attempts", "request_bytes", "answer_bytes"} {
		if _, has := line[k]; !has {
			t.Errorf("the log has no %s: %v", k, line)
		}
	}
	if _, has := line["tool"]; has == w.unknown {
		t.Errorf("the log names a tool: %v", line)
	}
}

// hasAttributes compares attributes; "" means that there is none.
func hasAttributes(t *testing.T, s otlptest.Span, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got, has := s.Attributes[k]; got != v || has != (v != "") {
			t.Errorf("%s has %s = %q, want %q", s.Name, k, got, v)
		}
	}
}

// hasStatus checks that the status is ERROR exactly if there is an error, in a word of Headgate's.
func hasStatus(t *testing.T, s otlptest.Span, failed bool, outcome string) {
	t.Helper()
	if !failed {
		outcome = ""
	}
	if s.Failed != failed || s.Message != outcome {
		t.Errorf("%s: ERROR is %t, with %q; want %t, %q", s.Name, s.Failed, s.Message, failed, outcome)
	}
}

// TestTriesShow: each try is a span and a round trip of its own, with its number and what led to it, and the
// server is told of the span that it serves.
func TestTriesShow(t *testing.T) {
	var told []string
	n := 0
	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"safe","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`, Call: func(c *mcptest.Call) {
		told = append(told, strings.Trim(string(c.Meta("traceparent")), `"`))
		switch n++; n {
		case 1:
			c.Reset()
		case 2:
			c.Raw(http.StatusTooManyRequests, "text/plain", "")
		default:
			c.Text("done")
		}
	}}}}
	o := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("ann"))), "grpc", Options{})
	if r := o.traced("ann", `"c1"`, "x_safe", metaParent(parentOf("c1"))); !strings.Contains(r.body, "done") {
		t.Fatalf("%d %s", r.status, r.body)
	}
	server, children := o.spans(traceOf("c1"))
	if len(children) != 3 || len(told) != 3 {
		t.Fatalf("%d spans for %d tries", len(children), len(told))
	}
	for i, reason := range []string{"", "connection_lost", "overloaded"} {
		s := children[i]
		hasAttributes(t, s, map[string]string{"headgate.attempt": string(rune('1' + i)), "headgate.retry.reason": reason})
		hasStatus(t, s, i < 2, []string{"connection_lost", "overloaded", "ok"}[i])
		if s.Parent != server.ID || told[i] != "00-"+traceOf("c1")+"-"+s.ID+"-01" {
			t.Errorf("try %d has the span %s under %s, and the server was told %s", i, s.ID, s.Parent, told[i])
		}
	}
	for reason, want := range map[string]float64{"connection_lost": 1, "overloaded": 1} {
		if got := o.metric("headgate_upstream_retries_total", "headgate_upstream", "x", "headgate_reason", reason); got != want {
			t.Errorf("%s: %g retries are counted", reason, got)
		}
	}
}

// TestQueueAndBreakerShow: a call that waited for its turn says so, and one that a breaker kept back too.
func TestQueueAndBreakerShow(t *testing.T) {
	b := newBlocker()
	s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), b.tool, mcptest.Tool{
		Def: `{"name":"reset","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Reset() }})}
	o := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"concurrent":1`, `"queue_timeout":"30s"`,
		`"breaker":{"failures":1,"open_for":"1h"}`)}, keys(keyEntry("ann"))), "grpc", Options{})
	o.awaitMetric(1, "headgate_breaker_state", "headgate_upstream", "x", "headgate_breaker_state", "closed")
	held := make(chan reply, 2)
	go func() { held <- o.traced("ann", `"c1"`, "x_block", metaParent(parentOf("c1"))) }()
	awaitServer(t, s, "the first call", func() bool { return s.Executions("block") == 1 })
	go func() { held <- o.traced("ann", `"c2"`, "x_echo", metaParent(parentOf("c2"))) }()
	poll(t, "the second call to wait", func() bool { return o.Status().Upstreams[0].Waiting == 1 })
	close(b.release)
	<-held
	<-held
	server, _ := o.spans(traceOf("c2"))
	if len(server.Events) != 1 || server.Events[0].Name != "headgate.queued" || server.Events[0].Attributes["headgate.upstream"] != "x" {
		t.Errorf("events of the call that waited: %+v", server.Events)
	}
	if got := o.metric("headgate_queue_duration_seconds", "headgate_upstream", "x"); got != 1 {
		t.Errorf("%g waits are counted", got)
	}
	o.traced("ann", `"c3"`, "x_reset", metaParent(parentOf("c3")))
	o.traced("ann", `"c4"`, "x_echo", metaParent(parentOf("c4")))
	server, children := o.spans(traceOf("c4"))
	if len(children) != 0 || len(server.Events) != 1 || server.Events[0].Name != "headgate.breaker" || server.Events[0].Attributes["headgate.breaker.state"] != "open" {
		t.Errorf("a call that the breaker kept back: %d attempts, events %+v", len(children), server.Events)
	}
	o.awaitMetric(1, "headgate_breaker_state", "headgate_upstream", "x", "headgate_breaker_state", "open")
	if got := o.metric("headgate_breaker_state", "headgate_upstream", "x", "headgate_breaker_state", "closed"); got != 0 {
		t.Errorf("closed is %g", got)
	}
}
