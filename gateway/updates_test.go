package gateway

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// watchable is a server with one resource that it lets clients watch.
func watchable(s *mcptest.Server) *mcptest.Server {
	library{resources: []string{resourceDef("x://a"), resourceDef("x://b")}, templates: []string{templateDef("t://{id}")}}.shelve(s)
	if s.Era == mcptest.Legacy {
		s.Methods["resources/subscribe"] = func(c *mcptest.Call) { c.Result(`{}`) }
		s.Methods["resources/unsubscribe"] = func(c *mcptest.Call) { c.Result(`{}`) }
	}
	return s
}

// subscriptions is how many subscriptions of a resource the server has been asked for.
func subscriptions(s *mcptest.Server, uri string) (n int) {
	for _, r := range s.Requests() {
		if (r.Method == "resources/subscribe" || r.Method == "subscriptions/listen") && strings.Contains(string(r.Body), `"`+uri+`"`) {
			n++
		}
	}
	return n
}

// listener is a client that watches a resource.
type listener struct {
	name  string
	next  func() string
	meta  string // what its notifications have in _meta
	close func() // the client goes
}

// listeners subscribes one client of each kind to a resource.
func (g *gate) listeners(uri string) []listener {
	g.t.Helper()
	filter := `{"resourceSubscriptions":[` + string(wire.AppendString(nil, uri)) + `]}`
	subscribe := `{"uri":` + string(wire.AppendString(nil, uri)) + `}`
	session := g.open()
	get := g.get(session)
	if got := g.post(legacyBody("1", "resources/subscribe", subscribe), session).message(); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		g.t.Fatalf("legacy http: %s", got)
	}
	listen := g.listenStream("7", filter)
	legacyPipe, modernPipe := g.pipe(), g.pipe()
	legacyPipe.shakeHands()
	if got := legacyPipe.call("1", legacyBody("1", "resources/subscribe", subscribe)); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		g.t.Fatalf("legacy stdio: %s", got)
	}
	modernPipe.send(modernBody("7", "subscriptions/listen", `"notifications":`+filter))
	for name, got := range map[string]string{"modern http": listen.next(), "modern stdio": modernPipe.next()} {
		if at(g.t, got, "params", "notifications") != filter || at(g.t, got, "method") != `"notifications/subscriptions/acknowledged"` {
			g.t.Fatalf("%s: %s", name, got)
		}
	}
	const id = `"io.modelcontextprotocol/subscriptionId":7`
	ends := func(p *pipeClient) func() {
		return func() {
			p.in.Close()
			if err := p.finish(); err != nil {
				g.t.Error(err)
			}
		}
	}
	return []listener{
		{"legacy http", get.next, "", func() { g.do(g.request("DELETE", "", session)) }},
		{"modern http", listen.next, id, listen.close},
		{"legacy stdio", legacyPipe.next, "", ends(legacyPipe)},
		{"modern stdio", modernPipe.next, id, ends(modernPipe)},
	}
}

// hear wants every listener to be told of a resource next.
func hear(t *testing.T, what string, list []listener, uri string, more string) {
	t.Helper()
	for _, l := range list {
		got := l.next()
		meta := at(t, got, "params", "_meta")
		if at(t, got, "method") != `"notifications/resources/updated"` || at(t, got, "params", "uri") != `"`+uri+`"` || !strings.Contains(got, more) {
			t.Errorf("%s: %s heard %s", what, l.name, got)
		}
		if l.meta == "" && strings.Contains(meta, "subscriptionId") || l.meta != "" && !strings.Contains(meta, l.meta) {
			t.Errorf("%s: %s heard with _meta %s", what, l.name, meta)
		}
	}
}

// TestUpdateStorm: what comes in a burst is told once for each resource, or a few times, and the last of it
// is not lost.
func TestUpdateStorm(t *testing.T) {
	s := watchable(&mcptest.Server{Era: mcptest.Legacy})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	awaitServer(t, s, "the stream", func() bool { return s.Streams() == 1 })
	listen := g.listenStream("7", `{"resourceSubscriptions":["x://a","x://b"]}`)
	listen.next()
	const storm = 2000
	for i := range storm {
		s.Broadcast("notifications/resources/updated", fmt.Sprintf(`{"uri":"x://a","n":%d}`, i))
	}
	s.Broadcast("notifications/resources/updated", `{"uri":"x://b"}`)
	last, told := "", 0
	for {
		got := listen.next()
		told++
		if at(t, got, "params", "uri") == `"x://b"` {
			break
		}
		last = at(t, got, "params", "n")
	}
	if last != fmt.Sprint(storm-1) || told > storm/10 {
		t.Errorf("%d notifications of %d, the last with n %s", told, storm+1, last)
	}
}

// TestSubResources: a server may tell of a part of what is watched.
func TestSubResources(t *testing.T) {
	s := watchable(&mcptest.Server{Era: mcptest.Legacy})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	awaitServer(t, s, "the stream", func() bool { return s.Streams() == 1 })
	list := g.listeners("headgate://x/t://5")
	s.Broadcast("notifications/resources/updated", `{"uri":"t://55"}`)
	s.Broadcast("notifications/resources/updated", `{"uri":"t://5"}`)
	hear(t, "the resource", list, "headgate://x/t://5", "")
	s.Broadcast("notifications/resources/updated", `{"uri":"t://5/part"}`)
	hear(t, "a part of it", list, "headgate://x/t://5/part", "")
}

// TestUnsubscribe: nothing is told of what a client no longer wants, and the server is unsubscribed.
func TestUnsubscribe(t *testing.T) {
	s := watchable(&mcptest.Server{Era: mcptest.Legacy})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	awaitServer(t, s, "the stream", func() bool { return s.Streams() == 1 })
	session := g.open()
	get := g.get(session)
	for _, uri := range []string{"x://a", "x://b", "x://a"} {
		if got := g.ask(session, "resources/subscribe", `"uri":"`+uri+`"`); at(t, got, "result") != "{}" {
			t.Errorf("%s: %s", uri, got)
		}
	}
	for _, uri := range []string{"x://a", "x://never"} {
		if got := g.ask(session, "resources/unsubscribe", `"uri":"`+uri+`"`); at(t, got, "result") != "{}" {
			t.Errorf("%s: %s", uri, got)
		}
	}
	awaitServer(t, s, "the unsubscription", func() bool { return s.Count("resources/unsubscribe") == 1 })
	s.Broadcast("notifications/resources/updated", `{"uri":"x://a"}`)
	s.Broadcast("notifications/resources/updated", `{"uri":"x://b"}`)
	if got := get.next(); at(t, got, "params", "uri") != `"x://b"` {
		t.Errorf("heard %s", got)
	}
	// Again, at once: the subscription must not be taken for the one that is being ended.
	for range 20 {
		g.ask(session, "resources/unsubscribe", `"uri":"x://b"`)
		g.ask(session, "resources/subscribe", `"uri":"x://b"`)
	}
	var last string
	for _, r := range s.Requests() {
		if strings.HasPrefix(r.Method, "resources/") && strings.Contains(string(r.Body), "x://b") {
			last = r.Method
		}
	}
	if last != "resources/subscribe" {
		t.Errorf("the server was last told %s", last)
	}
	g.do(g.request("DELETE", "", session))
	awaitServer(t, s, "the end of the subscription", func() bool { return s.Count("resources/unsubscribe") >= 2 })
}

// TestHiddenIsNotWatched: a resource that a caller may not read is answered as one that is not there, and
// one that is taken away while it is watched is told of no more, until it is given back.
func TestHiddenIsNotWatched(t *testing.T) {
	s := watchable(&mcptest.Server{})
	deaf := library{resources: []string{resourceDef("d://a")}, capabilities: `"resources":{}`}.shelve(&mcptest.Server{})
	up := map[string]string{"x": entry(s.StartHTTP(t)), "deaf": entry(deaf.StartHTTP(t))}
	config := func(rules string) []string {
		return []string{keys(keyEntry("bob", "t"), keyEntry("ann", "all")),
			`"teams":{"all":{"upstreams":["x","deaf"],"rules":[{"allow":["*"]}]},"t":{"upstreams":["x","deaf"],"rules":[` + rules + `]}}`}
	}
	g := launch(t, parseConfig(t, up, config(`{"allow":["*"]},{"deny":["x://a"]}`)...), Options{})
	listen := func(who string) *stream {
		body := modernBody("7", "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a","x://b","x://c","d://a","headgate://x/x://a"]}`)
		return g.openStream(g.request("POST", body, modernHeaders("subscriptions/listen", bearer(who))...))
	}
	bob, ann := listen("bob"), listen("ann")
	for name, l := range map[string]struct {
		s    *stream
		want string
	}{"bob": {bob, `["x://b"]`}, "ann": {ann, `["x://a","x://b","headgate://x/x://a"]`}} {
		if got := l.s.next(); at(t, got, "params", "notifications", "resourceSubscriptions") != l.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	session := g.openAs("bob")
	hidden := g.ask(session, "resources/subscribe", `"uri":"x://a"`, bearer("bob"))
	unknown := g.ask(session, "resources/subscribe", `"uri":"x://q"`, bearer("bob"))
	if strings.Replace(unknown, "x://q", "x://a", 1) != hidden || at(t, hidden, "error", "code") != "-32002" {
		t.Errorf("hidden: %s\nunknown: %s", hidden, unknown)
	}
	if got := g.ask(session, "resources/subscribe", `"uri":"d://a"`, bearer("bob")); at(t, got, "error", "code") != "-32601" {
		t.Errorf("a server that does not offer it: %s", got)
	}
	if err := g.Apply(parseConfig(t, up, config(`{"allow":["x://a"]}`)...)); err != nil {
		t.Fatal(err)
	}
	s.Broadcast("notifications/resources/updated", `{"uri":"x://b"}`)
	hear(t, "who may", []listener{{"ann", ann.next, `"io.modelcontextprotocol/subscriptionId":7`, ann.close}}, "x://b", "")
	if err := g.Apply(parseConfig(t, up, config(`{"allow":["*"]}`)...)); err != nil {
		t.Fatal(err)
	}
	s.Broadcast("notifications/resources/updated", `{"uri":"x://b","second":1}`)
	got := bob.next()
	if at(t, got, "params", "uri") != `"x://b"` || at(t, got, "params", "_meta") == "" {
		t.Errorf("given back: %s", got)
	}
}

// TestTooManyWatched: a caller has a bound.
func TestTooManyWatched(t *testing.T) {
	s := watchable(&mcptest.Server{Era: mcptest.Legacy})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("bob"), keyEntry("ann"))), Options{})
	us := newUpdates()
	defer us.close()
	bob, _ := g.admit(authz.NewCaller("bob", nil, nil), "")
	ann, _ := g.admit(authz.NewCaller("ann", nil, nil), "")
	for range maxCallerWatched {
		g.watched.add(bob.caller.Key(), maxWatched, maxCallerWatched)
	}
	if a, ok := us.add(t.Context(), g.Gateway, bob, "x://a", upstream.Legacy); ok || !strings.Contains(string(a.err), "too many resources") {
		t.Errorf("one too many: %t %s", ok, a.err)
	}
	if a, ok := us.add(t.Context(), g.Gateway, ann, "x://a", upstream.Legacy); !ok {
		t.Errorf("another caller: %s", a.err)
	}
}

// TestWatchedThroughReload: a listener stays subscribed when a reload replaces the server's connection or
// gives the resource to another server, and hears of one update, since it may have missed one.
func TestWatchedThroughReload(t *testing.T) {
	a, b := watchable(&mcptest.Server{Name: "A"}), watchable(&mcptest.Server{Name: "B"})
	aHTTP, bHTTP := a.StartHTTP(t), b.StartHTTP(t)
	g := launch(t, parseConfig(t, map[string]string{"m": entry(aHTTP)}), Options{})
	list := g.listeners("x://a")
	for i, l := range list {
		list[i].next = func() string { // a list without the resource may be announced in between
			for {
				if got := l.next(); !strings.Contains(got, "list_changed") {
					return got
				}
			}
		}
	}
	apply := func(s *mcptest.Server, h *mcptest.HTTP, id string, more ...string) {
		t.Helper()
		before := subscriptions(s, "x://a")
		if err := g.Apply(parseConfig(t, map[string]string{id: entry(h, more...)})); err != nil {
			t.Fatal(err)
		}
		hear(t, "after a reload", list, "x://a", "")
		awaitServer(t, s, "the subscription", func() bool { return subscriptions(s, "x://a") == before+1 })
	}
	apply(a, aHTTP, "m", `"call_timeout":"7s"`) // another connection to the same server
	apply(b, bHTTP, "m")                        // another server with the same id
	apply(a, aHTTP, "z")                        // and one with another id
	awaitServer(t, a, "the streams", func() bool { return a.Streams() == 2 })
	awaitServer(t, b, "the end at the other server", func() bool { return b.Streams() == 0 })
	a.Broadcast("notifications/resources/updated", `{"uri":"x://a","big":"`+strings.Repeat("x", 10_000)+`"}`)
	for _, l := range list {
		if got := l.next(); len(got) > 1000 || at(t, got, "params", "uri") != `"x://a"` {
			t.Errorf("%s heard %s", l.name, clip(got))
		}
	}
}

// TestWatchedAgain: a resource that its server refused when it came back is watched again once the server
// lists it anew.
func TestWatchedAgain(t *testing.T) {
	s := watchable(&mcptest.Server{Era: mcptest.Legacy})
	ready, refused := make(chan struct{}), make(chan struct{}, 16)
	var restarted atomic.Bool
	s.Methods["resources/subscribe"] = func(c *mcptest.Call) {
		select {
		case <-ready:
			c.Result(`{}`)
			return
		default:
		}
		if restarted.Load() {
			c.Error(missingLegacy)
			refused <- struct{}{}
			return
		}
		c.Result(`{}`)
	}
	list := s.Methods["resources/list"]
	s.Methods["resources/list"] = func(c *mcptest.Call) {
		select {
		case <-ready:
			c.Result(`{"resources":[` + resourceDef("x://a") + `,` + resourceDef("x://new") + `]}`)
		default:
			list(c)
		}
	}
	h := s.StartHTTP(t)
	g := launch(t, parseConfig(t, map[string]string{"x": entry(h)}), Options{})
	awaitServer(t, s, "the stream", func() bool { return s.Streams() == 1 })
	listen := g.listenStream("7", `{"resourceSubscriptions":["x://a"]}`)
	listen.next()
	restarted.Store(true)
	h.Stop()
	s.Forget()
	h.Start()
	<-refused
	awaitServer(t, s, "the stream", func() bool { return s.Streams() == 1 })
	close(ready)
	s.Broadcast("notifications/resources/list_changed", "")
	if got := listen.next(); at(t, got, "params", "uri") != `"x://a"` {
		t.Errorf("heard %s", got)
	}
	awaitServer(t, s, "the subscription", func() bool { return subscriptions(s, "x://a") >= 3 })
}
