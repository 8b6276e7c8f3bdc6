package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/otlptest"
)

// lastMeta is what the last call of a server had for trace context in its _meta.
func lastMeta(t *testing.T, s *mcptest.Server) (parent, state, baggage string) {
	t.Helper()
	all := s.Requests()
	for _, r := range slices.Backward(all) {
		if r.Method == "tools/call" {
			if v := r.Header.Values("Traceparent"); len(v) > 0 {
				t.Errorf("the context went into a header: %q", v)
			}
			get := func(name string) string { return at(t, string(r.Body), "params", "_meta", name) }
			return get("traceparent"), get("tracestate"), get("baggage")
		}
	}
	t.Fatal("no call was received")
	return "", "", ""
}

// contexts are the ways in which a client can say what trace it is in.
var contexts = map[string]struct {
	meta   string
	header []string
	trace  string // whose trace counts; "" for one of Headgate's own
	linked bool
	// off is what the upstream is told when nothing is recorded: parent, tracestate, baggage.
	off [3]string
}{
	"none": {},
	"header only": {header: []string{"Traceparent: " + parentOf("a1"), "Tracestate: h=1", "Baggage: u=2"}, trace: "a1",
		off: [3]string{`"` + parentOf("a1") + `"`, `"h=1"`, `"u=2"`}},
	"_meta only": {meta: metaParent(parentOf("a2")) + `,"tracestate":"m=1","baggage":"w=2"`, trace: "a2",
		off: [3]string{`"` + parentOf("a2") + `"`, `"m=1"`, `"w=2"`}},
	"both, different": {meta: metaParent(parentOf("a3")), header: []string{"Traceparent: " + parentOf("b3"), "Tracestate: h=1"}, trace: "a3", linked: true,
		off: [3]string{`"` + parentOf("a3") + `"`, "", ""}},
	"both, the same": {meta: metaParent(parentOf("a4")), header: []string{"Traceparent: " + parentOf("a4")}, trace: "a4",
		off: [3]string{`"` + parentOf("a4") + `"`, "", ""}},
	"malformed in _meta": {meta: `"traceparent":"00-xyz-01","tracestate":",,=","baggage":"%%%"`,
		off: [3]string{`"00-xyz-01"`, `",,="`, `"%%%"`}},
	"of another type":     {meta: `"traceparent":7,"tracestate":{},"baggage":[]`, off: [3]string{"7", "{}", "[]"}},
	"malformed in header": {header: []string{"Traceparent: 00-00000000000000000000000000000000-00000000000000aa-01"}},
	"malformed in _meta, good header": {meta: metaParent("00-" + strings.Repeat("A", 32) + "-00000000000000aa-01"), header: []string{"Traceparent: " + parentOf("a5")},
		trace: "a5", off: [3]string{`"00-` + strings.Repeat("A", 32) + `-00000000000000aa-01"`, "", ""}},
	"good _meta, malformed header": {meta: metaParent(parentOf("a6")), header: []string{"Traceparent: x"}, trace: "a6",
		off: [3]string{`"` + parentOf("a6") + `"`, "", ""}},
	"two headers":     {header: []string{"Traceparent: " + parentOf("a7"), "Traceparent: " + parentOf("a8")}},
	"baggage alone":   {meta: `"baggage":"w=2"`, off: [3]string{"", "", `"w=2"`}},
	"a later version": {meta: metaParent("01-" + traceOf("a9") + "-00000000000000aa-01-more"), trace: "a9", off: [3]string{`"01-` + traceOf("a9") + `-00000000000000aa-01-more"`, "", ""}},
}

// TestTraceContext reads the context from wherever it may stand, and looks at what upstreams of every kind are told.
func TestTraceContext(t *testing.T) {
	kinds := upstreamKinds()
	cfg, o := kindsConfig(t, kinds, func(*upstreamKind) []mcptest.Tool { return mcptest.Builtin("echo") })
	g := launchObserved(t, cfg, "http/protobuf", o)
	session := g.open()
	n := 0
	for name, c := range contexts {
		t.Run(name, func(t *testing.T) {
			for _, k := range kinds {
				n++
				id := fmt.Sprintf("r%d", n)
				var r reply
				if n%2 == 0 {
					r = g.traced("", `"`+id+`"`, k.id+"_echo", c.meta, c.header...)
				} else {
					r = g.post(legacyBody(`"`+id+`"`, "tools/call", `{"name":"`+k.id+`_echo","_meta":{`+c.meta+`}}`), append(c.header, session)...)
				}
				if r.status != http.StatusOK || at(t, r.message(), "result") == "" {
					t.Fatalf("%s: %d %s", k.id, r.status, r.body)
				}
				server, client := g.pair(t, id)
				if c.trace != "" && (server.Trace != traceOf(c.trace) || server.Parent != "00000000000000aa") {
					t.Errorf("%s: trace %s under %s", k.id, server.Trace, server.Parent)
				}
				if c.trace == "" && server.Parent != "" {
					t.Errorf("%s: the span has the parent %s", k.id, server.Parent)
				}
				if c.linked != (len(server.Links) == 1) {
					t.Errorf("%s: links %q", k.id, server.Links)
				}
				parent, _, baggage := lastMeta(t, &k.server)
				if want := `"00-` + client.Trace + `-` + client.ID + `-01"`; client.Trace != server.Trace || client.Parent != server.ID || parent != want {
					t.Errorf("%s: it is told %s, the span of the attempt is %s", k.id, parent, want)
				}
				if sane := c.off[2] == "" || strings.Contains(c.off[2], "="); sane && baggage != c.off[2] {
					t.Errorf("%s: baggage %s, want %s", k.id, baggage, c.off[2])
				}
				if line := g.accessLine(id); line["trace_id"] != server.Trace {
					t.Errorf("%s: the log says trace %v, want %s", k.id, line["trace_id"], server.Trace)
				}
				transport := "tcp"
				if k.lines {
					transport = "pipe"
				}
				hasAttributes(t, client, map[string]string{"network.transport": transport, "headgate.upstream": k.id})
			}
		})
	}
}

// pair waits for the SERVER span of a request id, and its one child.
func (o *observed) pair(t *testing.T, id string) (server, client otlptest.Span) {
	t.Helper()
	o.Await(t, "the span of request "+id, func() bool {
		for _, s := range o.Spans() {
			if s.Kind == "SERVER" && s.Attributes["jsonrpc.request.id"] == id {
				server = s
				return true
			}
		}
		return false
	})
	_, children := o.spans(server.Trace)
	for _, s := range children {
		if s.Parent == server.ID {
			return server, s
		}
	}
	t.Fatalf("request %s has no attempt", id)
	return
}

// TestTraceContextPasses: where nothing is recorded, the client's own context goes on as it came, and one that came
// in headers is put where the upstream can see it.
func TestTraceContextPasses(t *testing.T) {
	for how, variables := range map[string]map[string]string{
		"off":                      {"OTEL_TRACES_EXPORTER": "none"},
		"disabled":                 {"OTEL_SDK_DISABLED": "true"},
		"sampled by nobody":        {"OTEL_TRACES_SAMPLER": "always_off"},
		"no telemetry whatsoever":  nil,
		"an unknown exporter":      {"OTEL_TRACES_EXPORTER": "carrier-pigeon"},
		"two exporters by a comma": {"OTEL_TRACES_EXPORTER": "otlp,console"},
	} {
		t.Run(how, func(t *testing.T) {
			r := otlptest.Start(t)
			exportTo(t, r.HTTP, "http/protobuf")
			for k, v := range variables {
				t.Setenv(k, v)
			}
			kinds := upstreamKinds()
			cfg, o := kindsConfig(t, kinds, func(*upstreamKind) []mcptest.Tool { return mcptest.Builtin("echo") })
			var g *gate
			if variables == nil {
				g = launch(t, cfg, o)
			} else {
				g = launchTold(t, cfg, o)
			}
			for name, c := range contexts {
				for _, k := range kinds {
					if r := g.traced("", "1", k.id+"_echo", c.meta, c.header...); r.status != http.StatusOK {
						t.Fatalf("%s: %s: %d %s", name, k.id, r.status, r.body)
					}
					parent, state, baggage := lastMeta(t, &k.server)
					if got := [3]string{parent, state, baggage}; got != c.off {
						t.Errorf("%s: %s is told %q, want %q", name, k.id, got, c.off)
					}
				}
			}
			if n := len(r.Spans()); n > 0 {
				t.Errorf("%d spans were exported", n)
			}
			if how == "an unknown exporter" && strings.Count(g.log.String(), "OTEL_TRACES_EXPORTER") != 1 {
				t.Errorf("nobody is told of the exporter: %s", g.log.String())
			}
		})
	}
}

// TestParentDecidesSampling: the default sampler follows the flag of the client.
func TestParentDecidesSampling(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), "http/protobuf", Options{})
	unsampled := strings.TrimSuffix(parentOf("c1"), "1") + "0"
	g.traced("", "1", "x_echo", metaParent(unsampled))
	if parent, _, _ := lastMeta(t, s); parent != `"`+unsampled+`"` {
		t.Errorf("the upstream is told %s", parent)
	}
	g.traced("", "2", "x_echo", metaParent(parentOf("c2")))
	g.spans(traceOf("c2"))
	for _, span := range g.Spans() {
		if span.Trace == traceOf("c1") {
			t.Errorf("%s was exported", span.Name)
		}
	}
}

// TestCancelledAndInternal are the outcomes that send nothing, or what nobody meant to send.
func TestCancelledAndInternal(t *testing.T) {
	b := newBlocker()
	s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), b.tool)}
	g := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), "grpc", Options{})
	abort := g.abortable(modernBody(`"gone"`, "tools/call", callParams("x_block", "{}"), metaParent(parentOf("d1"))), modernHeaders("tools/call", "Mcp-Name: x_block")...)
	awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })
	abort()
	server, children := g.spans(traceOf("d1"))
	hasAttributes(t, server, map[string]string{"headgate.outcome": "cancelled", "error.type": "cancelled", "gen_ai.tool.name": "x_block"})
	hasStatus(t, server, true, "cancelled")
	if len(children) != 1 || children[0].Attributes["error.type"] != "cancelled" {
		t.Errorf("attempts: %+v", children)
	}
	if line := g.accessLine("gone"); line["outcome"] != "cancelled" || line["level"] != "INFO" {
		t.Errorf("the log says %v", line)
	}

	g.snapshot.Store(g.snapshot.Load().ownerless())
	g.traced("", `"bug"`, "broken", metaParent(parentOf("d2")))
	server, _ = g.spans(traceOf("d2"))
	hasAttributes(t, server, map[string]string{"headgate.outcome": "internal", "error.type": "internal", "rpc.response.status_code": "-32603"})
	hasStatus(t, server, true, "internal")
	for _, outcome := range []string{"cancelled", "internal"} {
		g.awaitMetric(1, "headgate_calls_total", "headgate_outcome", outcome)
	}
}

// TestRetriesShow: a call that was sent twice has two attempts, and the second says why.
func TestRetriesShow(t *testing.T) {
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
	g := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), "http/protobuf", Options{})
	s.Forget()
	passes(t, "the call", g.traced("", `"r"`, "x_echo", metaParent(parentOf("e1"))))
	server, children := g.spans(traceOf("e1"))
	if len(children) != 2 {
		t.Fatalf("%d attempts", len(children))
	}
	hasAttributes(t, children[0], map[string]string{"headgate.attempt": "1", "error.type": "session_lost", "headgate.retry.reason": ""})
	hasStatus(t, children[0], true, "session_lost")
	hasAttributes(t, children[1], map[string]string{"headgate.attempt": "2", "error.type": "", "headgate.retry.reason": "session_lost"})
	hasAttributes(t, server, map[string]string{"headgate.outcome": "ok", "error.type": ""})
	if len(server.Events) != 1 || server.Events[0].Name != "headgate.session.reinitialise" || server.Events[0].Attributes["headgate.hop.fault"] != "session_lost" {
		t.Errorf("events: %+v", server.Events)
	}
	if got := g.metric("headgate_upstream_retries_total", "headgate_upstream", "x", "headgate_reason", "session_lost"); got != 1 {
		t.Errorf("%g retries are counted", got)
	}
	if line := g.accessLine("r"); line["attempts"] != 2.0 {
		t.Errorf("the log says %v", line)
	}
}

// TestProgressShows, up to a bound.
func TestProgressShows(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"busy","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		for i := range 100 {
			c.Progress(float64(i), 0, plantedResult)
		}
		c.Text("done")
	}}}}
	g := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), "http/protobuf", Options{})
	g.traced("", "1", "x_busy", metaParent(parentOf("f1"))+`,"progressToken":1`)
	_, children := g.spans(traceOf("f1"))
	if len(children) != 1 || len(children[0].Events) != 16 || children[0].Events[0].Name != "mcp.progress" || len(children[0].Events[0].Attributes) > 0 {
		t.Errorf("attempts: %+v", children)
	}
}

// TestOtherRequestsShow: every request of a client has a span and is counted, under a method that is known.
func TestOtherRequestsShow(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launchObserved(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"log":{"level":"debug"}`), "http/protobuf", Options{})
	session := g.open()
	g.post(legacyBody(`"list"`, "tools/list", ""), session)
	g.post(legacyBody(`"odd"`, "secret/"+plantedArgument, ""), session)
	g.modern(`"disc"`, "server/discover", "")
	for id, want := range map[string]map[string]string{
		"init": {"name": "initialize", "version": "2025-11-25", "session": ""},
		"list": {"name": "tools/list", "version": "2025-11-25", "session": strings.TrimPrefix(session, sessionHeader+": ")},
		"odd":  {"name": "_OTHER", "version": "2025-11-25", "error": "-32601", "session": strings.TrimPrefix(session, sessionHeader+": ")},
		"disc": {"name": "server/discover", "version": "2026-07-28", "session": ""},
	} {
		var span otlptest.Span
		g.Await(t, id, func() bool {
			for _, s := range g.Spans() {
				if s.Kind == "SERVER" && s.Attributes["jsonrpc.request.id"] == id {
					span = s
				}
			}
			return span.Name != ""
		})
		if span.Name != want["name"] {
			t.Errorf("%s: the span is %q", id, span.Name)
		}
		hasAttributes(t, span, map[string]string{"mcp.method.name": want["name"], "mcp.protocol.version": want["version"], "error.type": want["error"],
			"mcp.session.id": want["session"], "network.transport": "tcp", "gen_ai.tool.name": "", "gen_ai.operation.name": ""})
		if got := g.metric("mcp_server_operation_duration_seconds", "mcp_method_name", want["name"], "mcp_protocol_version", want["version"]); got != 1 {
			t.Errorf("%s is counted %g times", id, got)
		}
		if line := g.accessLine(id); line["msg"] != "request" || line["level"] != "DEBUG" {
			t.Errorf("%s: the log says %v", id, line)
		}
	}
	// Headgate's own requests are traces of their own.
	g.Await(t, "Headgate's own requests", func() bool {
		return slices.ContainsFunc(g.Spans(), func(s otlptest.Span) bool {
			return s.Name == "tools/list" && s.Kind == "CLIENT" && s.Parent == "" && s.Attributes["headgate.upstream"] == "x"
		})
	})
	for _, r := range s.Requests() {
		if r.Method == "tools/list" && at(t, string(r.Body), "params", "_meta", "traceparent") == "" {
			t.Errorf("the server is told of no trace: %s", r.Body)
		}
	}
}
