package gateway

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/ledger"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// failureStatus asks the admin listener.
func (g *gate) failureStatus(query string) (status int, body string) {
	g.t.Helper()
	w := httptest.NewRecorder()
	g.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/status/failures"+query, nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return w.Code, string(b)
}

// outcomesOf are the counts of one tool.
func (g *gate) outcomesOf(tool string) map[string]int64 {
	r, _ := g.Failures(tool)
	return r.Totals.Outcomes
}

// TestLedgerCountsEveryFailure: each row of the failure table is counted under its own reason, and both channels of
// the servers under theirs, for clients of every kind.
func TestLedgerCountsEveryFailure(t *testing.T) {
	entries := map[string]string{}
	for id, fail := range failing() {
		s := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"plain","inputSchema":{"type":"object"}}`, Call: fail}}}
		entries[id] = entry(s.StartHTTP(t), timeFor(id))
	}
	down := (&mcptest.Server{Tools: mcptest.Builtin("plain")}).StartHTTP(t)
	entries["down"] = entry(down)
	own := &mcptest.Server{Tools: mcptest.Builtin("echo", "boom", "fail")}
	entries["own"] = entry(own.StartHTTP(t))
	g := launch(t, parseConfig(t, entries), Options{})
	down.Stop()
	session, pipe := g.open(), g.pipe()
	call := func(tool string) {
		g.callModern("1", tool, "{}")
		g.callLegacy(session, "1", tool, "{}")
		pipe.call("1", modernBody("1", "tools/call", callParams(tool, "{}")))
	}
	want := map[string]string{"own_echo": "ok", "own_boom": "tool_error", "own_fail": "protocol_error"}
	for id := range entries {
		if id != "own" {
			want[id+"_plain"] = failureRows(id, false).reason
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(want)) {
		t.Run(tool, func(t *testing.T) {
			call(tool)
			if got := g.outcomesOf(tool); !maps.Equal(got, map[string]int64{want[tool]: 3}) {
				t.Errorf("counted %v, want 3 of %s", got, want[tool])
			}
		})
	}
	call("no_such_tool")
	g.modern("1", "tools/call", `"name":7`, "Mcp-Name: x")
	g.modern("1", "tools/list", "")
	if got := g.outcomesOf(ledger.Unknown); !maps.Equal(got, map[string]int64{"protocol_error": 4}) {
		t.Errorf("calls of no tool: %v", got)
	}
	r, _ := g.Failures("")
	if r.Totals.Calls != int64(3*len(want)+4) || r.Totals.Outcomes["ok"] != 3 {
		t.Errorf("totals: %+v", r.Totals)
	}
	// Only what servers themselves say has a text.
	for _, tool := range r.Tools {
		if (len(tool.Texts) > 0) != (tool.Outcomes["tool_error"]+tool.Outcomes["protocol_error"] > 0) {
			t.Errorf("%s has the texts %+v", tool.Name, tool.Texts)
		}
	}
	if boom, _ := g.Failures("own_boom"); boom.Tools[0].Texts[0].Text != "boom: the tool failed on purpose" || boom.Tools[0].Upstream != "own" {
		t.Errorf("boom: %+v", boom.Tools)
	}
	if fail, _ := g.Failures("own_fail"); fail.Tools[0].Texts[0].Code != 7001 || fail.Tools[0].Texts[0].Text != "failed on purpose" {
		t.Errorf("fail: %+v", fail.Tools)
	}
}

// TestLedgerCountsWhatNoServerMakes: a cancelled call, one over a limit, and a bug.
func TestLedgerCountsWhatNoServerMakes(t *testing.T) {
	b := newBlocker()
	s := &mcptest.Server{Tools: []mcptest.Tool{b.tool}}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	pipe := g.pipe()
	pipe.send(modernBody("1", "tools/call", callParams("x_block", "{}")))
	awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })
	pipe.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	pipe.in.Close()
	if err := <-pipe.done; err != nil {
		t.Error(err)
	}
	pipe.done <- nil
	if got := g.outcomesOf("x_block"); !maps.Equal(got, map[string]int64{"cancelled": 1}) {
		t.Errorf("cancelled: %v", got)
	}
	g.snapshot.Store(g.snapshot.Load().ownerless())
	g.callModern("1", "broken", "{}")
	if got := g.outcomesOf(ledger.Unknown); !maps.Equal(got, map[string]int64{"internal": 1}) {
		t.Errorf("a bug: %v", got)
	}

	limited, _, _ := limitGate(t, `{"calls_per_minute":1}`)
	limited.callAs("ann", "", "x_echo")
	limited.callAs("ann", "", "x_echo")
	if got := limited.outcomesOf("x_echo"); !maps.Equal(got, map[string]int64{"ok": 1, "rate_limited": 1}) {
		t.Errorf("over a limit: %v", got)
	}
}

// teller is a server whose one tool fails with the text, or the raw result, that its arguments say.
func teller() *mcptest.Server {
	return &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"tell","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		if raw, ok := c.Arguments()["raw"].(string); ok {
			c.Result(raw)
			return
		}
		text, _ := c.Arguments()["text"].(string)
		c.ToolError(text)
	}}}}
}

func TestLedgerTexts(t *testing.T) {
	quote := func(s string) string { return string(wire.AppendString(nil, s)) }
	for _, c := range []struct{ name, arguments, want string }{
		{"masked", `{"text":"No invoice \"INV-1\" for ann@example.com in 12 ms"}`, "No invoice <value> for <email> in <n> ms"},
		{"json", `{"text":` + quote(`{"error":{"code":"not_found","message":"No invoice 17"},"status":404}`) + `}`, "not_found: No invoice <n>"},
		{"json in json in json", `{"text":` + quote(`{"error":{"error":{"message":"No invoice","error":{"message":"too deep"}}}}`) + `}`, "No invoice"},
		{"json of another kind", `{"text":` + quote(`{"rows":[1,2]}`) + `}`, "{<value>:[<n>]}"},
		{"several blocks", `{"raw":` + quote(`{"isError":true,"content":[{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"text","text":"one"},7,{"type":"text","text":"two"}]}`) + `}`, "one two"},
		{"no content", `{"raw":` + quote(`{"isError":true}`) + `}`, ""},
		{"content of another shape", `{"raw":` + quote(`{"isError":true,"content":"text"}`) + `}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := launch(t, parseConfig(t, map[string]string{"x": entry(teller().StartHTTP(t))}), Options{})
			g.callModern("1", "x_tell", c.arguments)
			r, _ := g.Failures("x_tell")
			if len(r.Tools) != 1 || len(r.Tools[0].Texts) != 1 || r.Tools[0].Texts[0].Text != c.want {
				t.Errorf("kept %+v, want %q", r.Tools, c.want)
			}
		})
	}
}

// TestLedgerTraceID: the example trace is the one that the client named, in the body or, in its absence, in the header.
func TestLedgerTraceID(t *testing.T) {
	const body, header = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct{ name, meta, header, want string }{
		{"body", "00-" + body + "-b7ad6b7169203331-01", "00-" + header + "-00f067aa0ba902b7-01", body},
		{"header", "", "00-" + header + "-00f067aa0ba902b7-01", header},
		{"none", "", "", ""},
		{"no trace id", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "", ""},
		{"not one", "<script>-<script>", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := launch(t, parseConfig(t, map[string]string{"x": entry(teller().StartHTTP(t))}), Options{})
			var meta []string
			if c.meta != "" {
				meta = []string{`"traceparent":"` + c.meta + `"`}
			}
			headers := modernHeaders("tools/call", "Mcp-Name: x_tell")
			if c.header != "" {
				headers = append(headers, "Traceparent: "+c.header)
			}
			g.post(modernBody("1", "tools/call", callParams("x_tell", `{"text":"no"}`), meta...), headers...)
			r, _ := g.Failures("x_tell")
			if got := r.Tools[0].Texts[0].TraceID; got != c.want {
				t.Errorf("trace %q, want %q", got, c.want)
			}
		})
	}
}

// TestLedgerWithoutTexts: where the configuration does not let texts be kept there are counts alone, and a reload that
// takes the permission away forgets those that are there.
func TestLedgerWithoutTexts(t *testing.T) {
	server := entry(teller().StartHTTP(t))
	on, off := parseConfig(t, map[string]string{"x": server}), parseConfig(t, map[string]string{"x": server}, `"failures":{"texts":false}`)
	g := launch(t, on, Options{})
	holds := func(texts int, failed int64) {
		t.Helper()
		r, _ := g.Failures("x_tell")
		if len(r.Tools[0].Texts) != texts || r.Tools[0].Failed != failed || r.Texts != (texts > 0) {
			t.Errorf("%+v, want %d texts and %d failures", r, texts, failed)
		}
	}
	g.callModern("1", "x_tell", `{"text":"wrong"}`)
	holds(1, 1)
	g.Apply(off)
	holds(0, 1)
	g.callModern("1", "x_tell", `{"text":"wrong"}`)
	holds(0, 2)
	g.Apply(on)
	g.callModern("1", "x_tell", `{"text":"wrong"}`)
	holds(1, 3)

	elsewhere := launch(t, parseConfig(t, map[string]string{"x": server}, `"listen":"0.0.0.0:8080"`, keys(keyOf("ann", "ann", nil, nil))), Options{})
	if r, _ := elsewhere.Failures(""); r.Texts {
		t.Error("texts are kept where others than this machine listen")
	}
}

// TestLedgerIsBounded: clients that invent names, and a server that invents texts, leave no more than the bounds.
func TestLedgerIsBounded(t *testing.T) {
	g := launch(t, parseConfig(t, map[string]string{"x": entry(teller().StartHTTP(t))}), Options{})
	for n := range 300 {
		text := strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j").Replace(fmt.Sprint(n))
		g.callModern("1", "name "+text, "{}")
		g.callModern("1", "x_tell", `{"text":"`+text+strings.Repeat(" x", 5000)+`"}`)
	}
	r, _ := g.Failures("")
	if len(r.Tools) != 2 || r.Totals.Failed != 600 {
		t.Errorf("%d tools, totals %+v", len(r.Tools), r.Totals)
	}
	for _, tool := range r.Tools {
		if len(tool.Texts) != ledger.MaxTexts || tool.OtherTexts != 300-ledger.MaxTexts {
			t.Errorf("%s has %d texts and %d others", tool.Name, len(tool.Texts), tool.OtherTexts)
		}
		for _, text := range tool.Texts {
			if len(text.Text) > ledger.MaxText {
				t.Errorf("a text of %d bytes", len(text.Text))
			}
		}
	}
}

// TestFailureStatus: what the admin listener answers.
func TestFailureStatus(t *testing.T) {
	g := launch(t, parseConfig(t, map[string]string{"x": entry(teller().StartHTTP(t))}), Options{})
	if status, body := g.failureStatus("?tool=x_tell"); status != http.StatusOK || at(t, body, "tools") != "[]" {
		t.Errorf("a tool that was not called: %d %s", status, body)
	}
	if status, body := g.failureStatus("?tool=x_none"); status != http.StatusNotFound || at(t, body, "error") != `"unknown tool"` {
		t.Errorf("no such tool: %d %s", status, body)
	}
	secrets := []string{"hunter two", "S3cr3tT0kenValue0123", "ann@example.com", "secret-host.example", "/srv/private"}
	g.callModern("1", "x_tell", `{"text":"password \"hunter two\" and S3cr3tT0kenValue0123 of ann@example.com at https://secret-host.example/x are not in /srv/private/x"}`)
	for _, query := range []string{"", "?tool=x_tell"} {
		status, body := g.failureStatus(query)
		if status != http.StatusOK || at(t, body, "totals", "failed") != "1" || !strings.Contains(body, `"tool": "x_tell"`) {
			t.Errorf("%q: %d %s", query, status, body)
		}
		for _, secret := range secrets {
			if strings.Contains(body, secret) {
				t.Errorf("%s is shown: %s", secret, body)
			}
		}
	}
}

// TestSuccessCostsNothing: the ledger allocates nothing for a call that succeeds.
func TestSuccessCostsNothing(t *testing.T) {
	g := makeGateway(t, parseConfig(t, nil), Options{})
	x := &exchange{method: "tools/call", routed: route{tool: "x_echo", upstream: "x"}}
	a := answer{result: jsontext.Value(`{"content":[]}`)}
	g.remember(x, a, verdictOf(a))
	if n := testing.AllocsPerRun(100, func() { g.remember(x, a, verdictOf(a)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRemember is what the ledger and the audit log, which is off, add to a call that succeeds.
func BenchmarkRemember(b *testing.B) {
	g := makeGateway(b, parseConfig(b, nil), Options{})
	x := &exchange{method: "tools/call", routed: route{tool: "x_echo", upstream: "x"}}
	a := answer{result: jsontext.Value(`{"content":[]}`)}
	v := verdictOf(a)
	b.ReportAllocs()
	for b.Loop() {
		g.remember(x, a, v)
	}
}
