package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// TestTextNames: every text has a name in the configuration, and none is there without a text.
func TestTextNames(t *testing.T) {
	const entry = `{"upstreams":{"a":{"command":"x","texts":{"%s":"Do this."}}}}`
	_, err := configs.Parse("c.json", fmt.Appendf(nil, entry, "?"), configs.Options{})
	_, list, _ := strings.Cut(err.Error(), "expected one of ")
	allowed := strings.Fields(list)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(allowed, name) {
			t.Errorf("the text %s cannot be replaced", name)
		}
	}
	for _, name := range allowed {
		_, ok := texts[name]
		if !ok && texts[name+"_unknown"].fact == "" {
			t.Errorf("%s is a name of nothing", name)
		}
	}
}

// TestTexts renders the text of every case, as it is built in and replaced: by the case, and by the reason.
func TestTexts(t *testing.T) {
	const unknown = "The outcome of this call is unknown: "
	tests := []struct {
		name       string
		failure    failure.Failure
		repeatable bool
		key, fact  string // of the override by case, and what stays of the text
		mark       string
	}{
		{"unavailable", failure.Failure{Reason: failure.Unavailable, Outcome: failure.NotStarted}, false, "unavailable", "",
			`"reason":"unavailable","outcome":"not_started","retryable":true`},
		{"timeout, not sent", failure.Failure{Reason: failure.Timeout, Outcome: failure.NotStarted, Limit: time.Minute}, false, "timeout_not_started", "",
			`"reason":"timeout","outcome":"not_started","retryable":true`},
		{"timeout, safe", failure.Failure{Reason: failure.Timeout, Outcome: failure.Unknown, Limit: time.Minute}, true, "timeout_repeatable",
			"Tool a_do gave no answer: its server a did not finish within 60 seconds. ", `"reason":"timeout","outcome":"unknown","retryable":true`},
		{"timeout, unknown", failure.Failure{Reason: failure.Timeout, Outcome: failure.Unknown, Limit: time.Minute}, false, "timeout_unknown",
			unknown + "tool a_do was sent to server a, which did not finish within 60 seconds. The action may or may not have happened. ",
			`"reason":"timeout","outcome":"unknown","retryable":false`},
		{"lost, safe", failure.Failure{Reason: failure.ConnectionLost, Outcome: failure.Unknown}, true, "connection_lost_repeatable",
			"Tool a_do gave no answer: the connection to its server a was lost after the call was sent. ", `"reason":"connection_lost","outcome":"unknown","retryable":true`},
		{"lost, unknown", failure.Failure{Reason: failure.ConnectionLost, Outcome: failure.Unknown}, false, "connection_lost_unknown",
			unknown + "the connection to server a was lost after tool a_do was sent to it. The action may or may not have happened. ",
			`"reason":"connection_lost","outcome":"unknown","retryable":false`},
		{"rate", failure.Failure{Reason: failure.RateLimited, Outcome: failure.NotStarted, Bound: "9 a minute", RetryAfter: time.Second}, false, "rate_limited", "",
			`"reason":"rate_limited","outcome":"not_started","retryable":true,"retryAfterMs":1000`},
		{"guarded", failure.Failure{Reason: failure.Guarded, Outcome: failure.NotStarted, RetryAfter: 9 * time.Minute}, true, "guarded",
			"Tool a_do was not sent to server a again: the same call was made a short while ago and its outcome is unknown, so the action may have happened already. ",
			`"reason":"guarded","outcome":"not_started","retryable":false,"retryAfterMs":540000`},
		{"arguments", failure.Failure{Reason: failure.InvalidArguments, Outcome: failure.NotStarted}, true, "invalid_arguments", "",
			`"reason":"invalid_arguments","outcome":"not_started","retryable":false`},
		{"result", failure.Failure{Reason: failure.InvalidResult, Outcome: failure.Unknown}, true, "invalid_result",
			"Tool a_do was run by server a, which reports no error; its answer is withheld, since it does not fit the tool's output schema. The action has most likely been done. ",
			`"reason":"invalid_result","outcome":"unknown","retryable":false`},
		{"bad answer", failure.Failure{Reason: failure.BadUpstreamAnswer, Outcome: failure.Unknown}, true, "bad_upstream_answer",
			"The answer of server a to tool a_do is not valid MCP ", `"reason":"bad_upstream_answer","outcome":"unknown","retryable":false`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.failure
			f.Server = "a"
			to := func(texts map[string]string) *tool {
				return &tool{name: "a_do", repeatable: tt.repeatable, rules: newRules("", &configs.Upstream{Texts: texts})}
			}
			built := failureText(&f, &tool{name: "a_do", repeatable: tt.repeatable})
			if !strings.HasPrefix(built, strings.TrimSuffix(tt.fact, " ")) || strings.ContainsAny(built, "{}") || !strings.Contains(built, "a_do") {
				t.Errorf("built in: %s", built)
			}
			const own = "Ask {server} about {tool}{tool} in {seconds}; {\"a\":1}."
			want := tt.fact + "Ask a about a_doa_do in "
			for _, texts := range []map[string]string{
				{tt.key: own, "overloaded": "no"},
				{string(f.Reason): own},
				{tt.key: own, string(f.Reason): own},
			} {
				if got := failureText(&f, to(texts)); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "; {\"a\":1}.") {
					t.Errorf("%v:\n got %s\nwant %s…", texts, got, want)
				}
			}
			if got := string(marker(&f, retryable(&f, tt.repeatable))); got != `{"server":"a",`+tt.mark+`}` {
				t.Errorf("marker %s", got)
			}
		})
	}
}

// TestConfiguredTexts: what an operator wrote reaches callers of both eras and leaves the rest of the answer, and
// a reload changes it without a new connection.
func TestConfiguredTexts(t *testing.T) {
	s := &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"lost","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Reset() }},
		{Def: `{"name":"busy","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { retryAfter(c, http.StatusTooManyRequests, "7") }},
	}}
	h := s.StartHTTP(t)
	config := func(advice string) *configs.Config {
		raw, _ := json.Marshal(advice)
		return parseConfig(t, map[string]string{"x": entry(h, `"texts":{"connection_lost":`+string(raw)+`,"overloaded":"{tool} of {server}: {seconds}."}`)})
	}
	g := launch(t, config("Call bookings_find."), Options{})
	connected := s.Count("server/discover")
	session := g.open()
	check := func(advice string) {
		t.Helper()
		for era, r := range map[string]func(tool string) reply{
			"modern": func(tool string) reply { return g.callModern("1", tool, "{}") },
			"legacy": func(tool string) reply { return g.callLegacy(session, "1", tool, "{}") },
		} {
			lost := r("x_lost").message()
			if !strings.Contains(lost, `"text":"The outcome of this call is unknown: the connection to server x was lost after tool x_lost was sent to it. `+
				`The action may or may not have happened. `+advice+`"`) || !strings.Contains(lost, `"outcome":"unknown","retryable":false`) {
				t.Errorf("%s: %s", era, lost)
			}
			if busy := r("x_busy").message(); !strings.Contains(busy, `"text":"x_busy of x: 7 seconds."`) {
				t.Errorf("%s: %s", era, busy)
			}
		}
	}
	check("Call bookings_find.")
	if err := g.Apply(config("Ask the desk.")); err != nil {
		t.Fatal(err)
	}
	check("Ask the desk.")
	if n := s.Count("server/discover"); n != connected {
		t.Errorf("connected %d times for a change of texts", n)
	}
}
