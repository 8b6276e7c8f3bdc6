package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/telemetry"
)

const turnedAway = "headgate_requests_turned_away_total"

// TestTurnedAway: what never becomes a request has no span and no place in the other metrics, and is counted here, each
// once and by its reason.
func TestTurnedAway(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	as := issuer("secret").Start(t)
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))},
		`"auth":{"api_keys":[`+keyEntry("ann", "t")+`],"jwt":{"issuer":"`+as.URL+`","jwks_url":"`+closedPort(t)+`/keys","audience":"a"}}`,
		`"teams":{"t":{"upstreams":["x"],"rules":[{"allow":["*"]}]},"u":{"upstreams":["x"]}}`,
		`"overload":{"sessions":1,"streams":1,"caller_streams":1}`, `"max_body":"2KiB"`), Options{})
	list := modernBody("1", "tools/list", "")
	modern := modernHeaders("tools/list", bearer("ann"))
	ann := func(more ...string) []string { return append(more, bearer("ann")) }
	other := func(path string) *http.Request {
		r := g.request(http.MethodPost, list, modern...)
		r.URL.Path = path
		return r
	}
	session := g.openAs("ann") // the only one there is room for
	for _, tt := range []struct {
		name, reason string
		request      *http.Request
		status       int
	}{
		{"another origin", "forbidden", g.request("POST", list, append(modern, "Origin: https://evil.example")...), 403},
		{"no key", "no_credentials", g.request("POST", list, modernHeaders("tools/list")...), 401},
		{"an unknown key", "bad_credentials", g.request("POST", list, bearer("nobody")), 401},
		{"a token of an issuer that is down", "unverified_credentials", g.request("POST", list, "Authorization: Bearer "+as.Sign(map[string]any{"sub": "ann", "aud": "a"})), 503},
		{"another's team", "no_such_path", other("/teams/u/mcp"), 404},
		{"a team that is not there", "no_such_path", other("/teams/none/mcp"), 404},
		{"a path that is not there", "no_such_path", other("/sse"), 404},
		{"PUT", "method_not_allowed", g.request("PUT", list, modern...), 405},
		{"GET of no session", "method_not_allowed", g.request("GET", "", ann()...), 405},
		{"DELETE of no session", "method_not_allowed", g.request("DELETE", "", ann()...), 405},
		{"text", "content_type", g.request("POST", list, append(modern, "Content-Type: text/plain")...), 415},
		{"for HTML", "not_acceptable", g.request("POST", list, append(modern, "Accept: text/html")...), 406},
		{"a stream as JSON", "not_acceptable", g.request("GET", "", ann(session, "Accept: application/json")...), 406},
		{"a large body", "too_large", g.request("POST", list+strings.Repeat(" ", 2<<10), modern...), 413},
		{"half a message", "malformed", g.request("POST", list[:30], modern...), 400},
		{"a list", "malformed", g.request("POST", "["+list+"]", modern...), 400},
		{"two versions", "malformed", g.request("POST", list, append(modern, "Mcp-Protocol-Version: 2026-07-28")...), 400},
		{"an answer to nothing", "malformed", g.request("POST", `{"jsonrpc":"2.0","id":1,"result":{"_meta":`+modernMeta()+`}}`, modern...), 400},
		{"no session", "no_session", g.request("POST", legacyBody("1", "tools/list", ""), ann()...), 400},
		{"an unknown session", "no_session", g.request("POST", legacyBody("1", "tools/list", ""), ann(sessionHeader+": x")...), 404},
		{"a version no session has", "no_session", g.request("GET", "", ann(session, "Mcp-Protocol-Version: 2026-07-28")...), 400},
		{"a session too many", "overloaded", g.request("POST", initializeBody, ann()...), 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, of := g.metric(turnedAway), g.metric(turnedAway, "headgate_reason", tt.reason, "network_transport", "tcp")
			answered := g.metric("mcp_server_operation_duration_seconds")
			if r := g.do(tt.request); r.status != tt.status {
				t.Errorf("%d %s", r.status, r.body)
			}
			if g.metric(turnedAway) != all+1 || g.metric(turnedAway, "headgate_reason", tt.reason, "network_transport", "tcp") != of+1 {
				t.Errorf("%g are counted, %g of them as %s; before: %g and %g", g.metric(turnedAway),
					g.metric(turnedAway, "headgate_reason", tt.reason), tt.reason, all, of)
			}
			// A session too many was a request all the same.
			if n := g.metric("mcp_server_operation_duration_seconds"); n != answered && tt.reason != "overloaded" {
				t.Errorf("%g requests are counted beside it", n-answered)
			}
		})
	}
	all := g.metric(turnedAway)
	passes(t, "a call", g.callAs("ann", "", "x_echo"))
	g.post(modernBody("1", "tools/call", callParams("x_none", "{}")), append(modernHeaders("tools/call", "Mcp-Name: x_none"), bearer("ann"))...)
	if n := g.metric(turnedAway); n != all {
		t.Errorf("%g calls are counted as turned away", n-all)
	}

	pipe := g.pipe()
	for reason, line := range map[string]string{"malformed": `{"jsonrpc"`, "too_large": list + strings.Repeat(" ", 2<<10) + "x"} {
		pipe.send(line)
		if got := pipe.next(); at(t, got, "error", "code") == "" {
			t.Errorf("%s: %s", reason, got)
		}
		if n := g.metric(turnedAway, "headgate_reason", reason, "network_transport", "pipe"); n != 1 {
			t.Errorf("%s: %g lines are counted", reason, n)
		}
	}
}

// TestTurnedAwayBodies: bodies that do not come.
func TestTurnedAwayBodies(t *testing.T) {
	gateway := makeGateway(t, parseConfig(t, nil), Options{Telemetry: openTelemetry(t, telemetry.Options{})})
	gateway.bodyTime = 100 * time.Millisecond
	g := serve(t, gateway)
	slow := g.dial()
	fmt.Fprint(slow, postHead(100, "")+`{"jsonrpc"`)
	_, _ = io.Copy(io.Discard, slow)
	g.awaitMetric(1, turnedAway, "headgate_reason", "too_slow")
	gone := g.dial()
	fmt.Fprint(gone, postHead(100, "")+`{"jsonrpc"`)
	gone.Close()
	poll(t, "the one that broke off", func() bool {
		return g.metric(turnedAway, "headgate_reason", "unreadable") == 1 || g.metric(turnedAway, "headgate_reason", "too_slow") == 2
	})
}

// TestDroppedMessages: what a client loses because it does not read is counted, and what comes after the answer is not.
func TestDroppedMessages(t *testing.T) {
	gateway := makeGateway(t, parseConfig(t, nil), Options{Telemetry: openTelemetry(t, telemetry.Options{})})
	g := &gate{Gateway: gateway, t: t}
	const dropped = "headgate_messages_dropped_total"
	w := &heldRecorder{ResponseRecorder: httptest.NewRecorder(), hold: make(chan struct{})}
	r := newResponder(w, nil, acceptable{json: true, stream: true})
	r.telemetry = gateway.opts.Telemetry
	sent := 0
	for range 2 * notifyQueue {
		if r.send([]byte(`{}`)) {
			sent++
		}
	}
	close(w.hold)
	r.finish(http.StatusOK, []byte(`{}`))
	r.notify("late", nil)
	if n := g.metric(dropped, "network_transport", "tcp"); sent < notifyQueue || n != float64(2*notifyQueue-sent) {
		t.Errorf("%g are counted, %d were sent", n, sent)
	}

	n := &stdioNotifier{client: &stdioClient{g: gateway, out: make(chan []byte, 1)}}
	for range 3 {
		n.notify("n", nil)
	}
	n.close()
	n.notify("late", nil)
	if n := g.metric(dropped, "network_transport", "pipe"); n != 2 {
		t.Errorf("%g are counted", n)
	}
}
