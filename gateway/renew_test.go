package gateway

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
)

// TestStreamsFollowTheirCallers: a reload that moves a caller to another team is told to it, and one that
// withdraws its key ends its streams.
func TestStreamsFollowTheirCallers(t *testing.T) {
	up := map[string]string{"a": entry((&mcptest.Server{Tools: mcptest.Builtin("one")}).StartHTTP(t)),
		"b": entry((&mcptest.Server{Tools: mcptest.Builtin("two")}).StartHTTP(t))}
	const teams = `"teams":{"ta":{"upstreams":["a"],"rules":[{"allow":["*"]}]},"tb":{"upstreams":["b"],"rules":[{"allow":["*"]}]}}`
	g := launch(t, parseConfig(t, up, keys(keyEntry("alice", "ta"), keyEntry("bob", "tb")), teams), Options{})
	session := g.openAs("alice")
	get := g.openStream(g.request(http.MethodGet, "", session, "Accept: text/event-stream", bearer("alice")))
	listen := g.openStream(g.request(http.MethodPost, modernBody("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`),
		modernHeaders("subscriptions/listen", bearer("alice"))...))
	if ack := listen.next(); !strings.Contains(ack, "acknowledged") {
		t.Fatal(ack)
	}
	if err := g.Apply(parseConfig(t, up, keys(keyEntry("alice", "tb"), keyEntry("bob", "tb")), teams)); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*stream{"the GET stream": get, "the subscription": listen} {
		if got := s.next(); !strings.Contains(got, "list_changed") {
			t.Errorf("after the move %s says %q", what, got)
		}
	}
	if err := g.Apply(parseConfig(t, up, keys(keyEntry("bob", "tb")), teams)); err != nil {
		t.Fatal(err)
	}
	if got := listen.next(); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("the subscription ends with %q", got)
	}
	for what, s := range map[string]*stream{"the GET stream": get, "the subscription": listen} {
		if got := s.next(); got != "" {
			t.Errorf("after the withdrawal %s says %q", what, got)
		}
	}
}

// TestStreamsEndWithTheirTokens: a stream is dismissed a little after the end of its caller's token, and
// one without a token never.
func TestStreamsEndWithTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := makeGateway(t, configs.Default(), Options{})
		at, _ := g.admit(authz.Anonymous(), "")
		lasting := g.watch(at)
		defer lasting.close()
		at.caller.Claims = map[string]any{"exp": float64(time.Now().Add(time.Minute).Unix())}
		ending := g.watch(at)
		defer ending.close()
		began := time.Now()
		<-ending.over
		if took := time.Since(began); took < time.Minute || took > time.Minute+expiryGrace {
			t.Errorf("dismissed after %v", took)
		}
		time.Sleep(time.Hour)
		select {
		case <-lasting.over:
			t.Error("a stream without a token is dismissed")
		default:
		}
	})
}
