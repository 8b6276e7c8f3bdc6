package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// member of a test configuration: its key is "key-of-" and its name.
func keyEntry(name string, teams ...string) string {
	digest := sha256.Sum256([]byte("key-of-" + name))
	list, _ := json.Marshal(append([]string{}, teams...))
	return fmt.Sprintf(`{"name":%q,"subject":%q,"sha256":%q,"teams":%s}`, name, name, hex.EncodeToString(digest[:]), list)
}

func bearer(name string) string { return "Authorization: Bearer key-of-" + name }

func keys(entries ...string) string {
	return `"auth":{"api_keys":[` + strings.Join(entries, ",") + `]}`
}

// listAs lists the tools of a caller, as a modern client or on a session, and returns the names.
func (g *gate) listAs(name, session string) []string {
	g.t.Helper()
	var r reply
	if session == "" {
		r = g.modern("1", "tools/list", "", bearer(name))
	} else {
		r = g.post(legacyBody("1", "tools/list", ""), session, bearer(name))
	}
	if r.status != http.StatusOK {
		g.t.Errorf("list of %s: %d %s", name, r.status, r.body)
		return nil
	}
	return toolNames(g.t, at(g.t, r.body, "result"))
}

func (g *gate) openAs(name string) string {
	g.t.Helper()
	r := g.post(initializeBody, bearer(name))
	if r.status != http.StatusOK {
		g.t.Fatalf("initialize of %s: %d %s", name, r.status, r.body)
	}
	return sessionHeader + ": " + r.header.Get(sessionHeader)
}

// TestNobodyGetsAnothersList: 50 callers with 5 views list at the same time, in both eras, while the
// rules change back and forth and the upstream changes its list. Every list is one that the caller's
// own rules gave at some time.
func TestNobodyGetsAnothersList(t *testing.T) {
	s := &mcptest.Server{ListChanged: true, Tools: mcptest.Builtin("a0", "a1", "a2", "a3", "a4", "all")}
	h := s.StartHTTP(t)
	config := func(shift int) *configs.Config {
		var entries, teams []string
		for n := range 50 {
			entries = append(entries, keyEntry(fmt.Sprint("c", n), fmt.Sprint("t", n%5)))
		}
		for n := range 5 {
			teams = append(teams, fmt.Sprintf(`"t%d":{"upstreams":["x"],"rules":[{"allow":["x_a%d","x_all*"]}]}`, n, (n+shift)%5))
		}
		return parseConfig(t, map[string]string{"x": entry(h)}, keys(entries...), `"teams":{`+strings.Join(teams, ",")+`}`)
	}
	first, second := config(0), config(1)
	g := launch(t, first, Options{})
	// One team's share before and after the change of the rules, with and without the tool that comes.
	legal := make([]map[string]bool, 5)
	for n := range legal {
		legal[n] = map[string]bool{}
		for _, shift := range []int{0, 1} {
			own := fmt.Sprintf("x_a%d", (n+shift)%5)
			legal[n][fmt.Sprint([]string{own, "x_all"})] = true
			legal[n][fmt.Sprint([]string{own, "x_all", "x_all2"})] = true
		}
	}
	var stop atomic.Bool
	var callers sync.WaitGroup
	for n := range 50 {
		name := fmt.Sprint("c", n)
		session := ""
		if n%2 == 0 {
			session = g.openAs(name)
		}
		callers.Go(func() {
			for i := 0; i < 8 || !stop.Load(); i++ {
				if got := fmt.Sprint(g.listAs(name, session)); !legal[n%5][got] {
					t.Errorf("%s got %s", name, got)
					return
				}
			}
		})
	}
	for i := range 10 {
		cfg := first
		if i%2 == 0 {
			cfg = second
		}
		if err := g.Apply(cfg); err != nil {
			t.Error(err)
		}
		if i == 5 {
			s.SetTools(mcptest.Builtin("a0", "a1", "a2", "a3", "a4", "all", "all2"))
			s.NotifyToolsChanged()
			g.await("the new tool", func(s *snapshot) bool { return s.count() == 7 })
		}
	}
	stop.Store(true)
	callers.Wait()
}

// TestListChangedIsForThoseConcerned: a change that one team cannot see is told to the other alone.
func TestListChangedIsForThoseConcerned(t *testing.T) {
	a := &mcptest.Server{ListChanged: true, Instructions: "A's secret ways", Capabilities: `{"logging":{}}`, Tools: mcptest.Builtin("one")}
	b := &mcptest.Server{ListChanged: true, Instructions: "How B works", Tools: mcptest.Builtin("one")}
	g := launch(t, parseConfig(t, map[string]string{"a": entry(a.StartHTTP(t)), "b": entry(b.StartHTTP(t))},
		keys(keyEntry("alice", "ta"), keyEntry("bob", "tb")),
		`"teams":{"ta":{"upstreams":["a"],"rules":[{"allow":["*"]}]},"tb":{"upstreams":["b"],"rules":[{"allow":["*"]}]}}`), Options{})
	for _, s := range []*mcptest.Server{a, b} {
		awaitServer(t, s, "the subscription", func() bool { return s.Streams() == 1 })
	}
	open := func(name string) (get, listen *stream) {
		session := g.openAs(name)
		get = g.openStream(g.request(http.MethodGet, "", session, "Accept: text/event-stream", bearer(name)))
		listen = g.openStream(g.request(http.MethodPost, modernBody("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`),
			modernHeaders("subscriptions/listen", bearer(name))...))
		if ack := listen.next(); !strings.Contains(ack, "acknowledged") {
			t.Fatalf("%s: %s", name, ack)
		}
		return get, listen
	}
	aliceGet, aliceListen := open("alice")
	bobGet, bobListen := open("bob")

	a.SetTools(mcptest.Builtin("one", "two"))
	a.NotifyToolsChanged()
	for _, s := range []*stream{aliceGet, aliceListen} {
		if got := s.next(); !strings.Contains(got, "list_changed") {
			t.Errorf("Alice hears %q", got)
		}
	}
	b.SetTools(mcptest.Builtin("one", "three"))
	b.NotifyToolsChanged()
	g.await("both changes", func(s *snapshot) bool { return s.count() == 4 })
	for _, s := range []*stream{bobGet, bobListen} {
		if got := s.next(); !strings.Contains(got, "list_changed") {
			t.Errorf("Bob hears %q", got)
		}
	}

	discover := g.modern("1", "server/discover", "", bearer("bob")).body
	handshake := g.post(initializeBody, bearer("bob")).body
	for what, body := range map[string]string{"discover": discover, "initialize": handshake} {
		if strings.Contains(body, "secret ways") || strings.Contains(body, `"logging"`) || !strings.Contains(body, "How B works") {
			t.Errorf("%s tells Bob %s", what, body)
		}
	}
	if got := at(t, g.modern("1", "tools/list", "", bearer("bob")).body, "result", "cacheScope"); got != `"private"` {
		t.Errorf("cacheScope %s", got)
	}
	// What comes next on each stream is its end: nobody was told of what is not theirs.
	g.Drain()
	for who, s := range map[string]*stream{"Alice": aliceGet, "Bob": bobGet} {
		if got := s.next(); got != "" {
			t.Errorf("%s heard %s besides, on the GET stream", who, got)
		}
	}
	for who, s := range map[string]*stream{"Alice": aliceListen, "Bob": bobListen} {
		if got := s.next(); !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("%s heard %s besides, on the subscription", who, got)
		}
	}
}

// TestReloadOfRules: valid, invalid and valid configurations come while callers call; no call fails
// that both allow, and what is taken away is gone at once from lists and calls.
func TestReloadOfRules(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo", "add")}
	h := s.StartHTTP(t)
	text := func(allow, when string) string {
		return fmt.Sprintf(`{%s,"teams":{"ta":{"upstreams":["x"],"rules":[{"allow":[%s],"when":%q}]}},"upstreams":{"x":%s}}`,
			keys(keyEntry("alice", "ta")), allow, when, entry(h))
	}
	parse := func(doc string) (*configs.Config, error) {
		return configs.Parse("test.json", []byte(doc), configs.Options{CheckRules: authz.CheckRules})
	}
	both, err := parse(text(`"x_echo","x_add"`, "true"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := parse(text(`"x_echo"`, "true"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(text(`"x_echo"`, "caller.nobody")); err == nil || !strings.Contains(err.Error(), "teams.ta.rules[0].when") {
		t.Fatalf("an expression with a mistake: %v", err)
	}
	unchecked, err := configs.Parse("test.json", []byte(text(`"x_echo"`, "caller.nobody")), configs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := launch(t, both, Options{})
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := 0; i < 20 || !stop.Load(); i++ {
				r := g.post(modernBody("1", "tools/call", callParams("x_echo", `{"n":1}`)), modernHeaders("tools/call", "Mcp-Name: x_echo", bearer("alice"))...)
				if at(t, r.body, "result", "structuredContent") != `{"n":1}` {
					t.Errorf("%d %s", r.status, r.body)
					return
				}
			}
		})
	}
	for range 10 {
		if err := g.Apply(one); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(g.listAs("alice", "")); got != "[x_echo]" {
			t.Errorf("the list is %s", got)
		}
		r := g.post(modernBody("1", "tools/call", callParams("x_add", `{}`)), modernHeaders("tools/call", "Mcp-Name: x_add", bearer("alice"))...)
		if at(t, r.body, "error", "message") != `"Unknown tool: x_add"` {
			t.Errorf("the call of what was taken away: %s", r.body)
		}
		if g.Apply(unchecked) == nil {
			t.Error("rules with a mistake were put in force")
		}
		if err := g.Apply(both); err != nil {
			t.Error(err)
		}
	}
	stop.Store(true)
	callers.Wait()
	if n := s.Count("server/discover"); n != 1 {
		t.Errorf("the upstream was connected %d times", n)
	}
}

// TestTeamFileWithAFault: the fault of one team's file keeps that team as it was; the others change.
func TestTeamFileWithAFault(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("a", "b")}
	h := s.StartHTTP(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("headgate.json", fmt.Sprintf(`{%s,"include":["team-*.json"],"upstreams":{"x":%s}}`,
		keys(keyEntry("alice", "team-a"), keyEntry("bob", "team-b")), entry(h)))
	rules := func(tool string) string { return `{"upstreams":["x"],"rules":[{"allow":["` + tool + `"]}]}` }
	write("team-a.json", rules("x_a"))
	write("team-b.json", rules("x_a"))
	options := configs.Options{CheckRules: authz.CheckRules}
	cfg, err := configs.Load(filepath.Join(dir, "headgate.json"), options)
	if err != nil {
		t.Fatal(err)
	}
	g := launch(t, cfg, Options{})
	write("team-a.json", `{"upstreams":["x"],"rules":[{"allow":["*"],"when":"caller.nobody"}]}`)
	write("team-b.json", rules("x_b"))
	options.Previous = cfg
	next, err := configs.Load(filepath.Join(dir, "headgate.json"), options)
	if err != nil {
		t.Fatal(err)
	}
	if len(next.TeamErrors) != 1 || !strings.Contains(next.TeamErrors[0].String(), "team-a.json: rules[0].when") {
		t.Errorf("the faults are %v", next.TeamErrors)
	}
	if err := g.Apply(next); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(g.listAs("alice", "")), fmt.Sprint(g.listAs("bob", "")); a != "[x_a]" || b != "[x_b]" {
		t.Errorf("team-a has %s, team-b %s", a, b)
	}
}

// TestSecretsStayInside plants a mark in everything that is secret and looks for it wherever Headgate
// says something.
func TestSecretsStayInside(t *testing.T) {
	const mark = "pl4nted-s3cret"
	s := &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"odd","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Raw(500, "text/html", "<h1>"+c.Header.Get("Authorization")+"</h1>") }},
		{Def: `{"name":"gone","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Reset() }},
	}}
	h := s.StartHTTP(t)
	digest := sha256.Sum256([]byte("key-" + mark))
	doc := fmt.Sprintf(`{"auth":{"api_keys":[{"name":"k","subject":"alice","sha256":%q,"teams":["t"]}]},
		"teams":{"t":{"upstreams":["x","down","child"],"rules":[{"allow":["*"]}]}},
		"upstreams":{"x":{"url":%q,"headers":{"Authorization":"Bearer %[3]s"}},
			"down":{"url":"http://user:%[3]s@127.0.0.1:1/mcp?token=%[3]s"},
			"child":{"command":"sh","args":["-c","echo $TOKEN >&2; echo $TOKEN; exit 3"],"env":{"TOKEN":"%[3]s"}}}}`, hex.EncodeToString(digest[:]), h.URL, mark)
	cfg, err := configs.Parse("test.json", []byte(doc), configs.Options{CheckRules: authz.CheckRules})
	if err != nil {
		t.Fatal(err)
	}
	logs := new(logBuffer)
	g := launch(t, cfg, Options{Logger: slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	var said bytes.Buffer
	auth := "Authorization: Bearer key-" + mark
	for _, tool := range []string{"x_odd", "x_gone", "none"} {
		r := g.post(modernBody("1", "tools/call", callParams(tool, `{"password":"x"}`)), modernHeaders("tools/call", "Mcp-Name: "+tool, auth)...)
		fmt.Fprintln(&said, r.body, r.header)
	}
	for _, wrong := range []string{"Authorization: Bearer " + mark, "Authorization: Basic " + mark, "Authorization: Bearer a." + mark + ".c"} {
		r := g.post(modernBody("1", "tools/list", ""), modernHeaders("tools/list", wrong)...)
		if r.status != http.StatusUnauthorized {
			t.Errorf("%s: %d", wrong, r.status)
		}
		fmt.Fprintln(&said, r.body, r.header)
	}
	status, _ := json.Marshal(g.Status())
	printed, _ := json.Marshal(cfg.Redacted())
	for what, text := range map[string]string{"answers": said.String(), "log": logs.String(), "status": string(status),
		"configuration": string(printed) + fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg.Upstreams["x"])} {
		if i := strings.Index(text, mark); i >= 0 {
			t.Errorf("%s: …%s…", what, text[max(0, i-200):i+len(mark)])
		}
	}
	if !strings.Contains(logs.String(), "exit status 3") {
		t.Error("the log does not say how the child ended")
	}
}

// TestRightsAreForgotten: what is remembered of callers is bounded.
func TestRightsAreForgotten(t *testing.T) {
	v := newViews()
	for n := range 3 * maxRights {
		v.rights(fmt.Append(nil, n))
	}
	if len(v.byRights) != maxRights || len(v.order) != maxRights {
		t.Errorf("%d rights are remembered, %d in order", len(v.byRights), len(v.order))
	}
	if !slices.Contains(v.order, fmt.Sprint(3*maxRights-1)) {
		t.Error("the newest is not among them")
	}
}

// TestViewsAreForgotten: what the views of callers take is bounded, and one that was forgotten is made
// again when its caller comes back.
func TestViewsAreForgotten(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo", "slow")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("alice", "t")),
		`"teams":{"t":{"upstreams":["x"],"rules":[{"allow":["x_echo"]}]}}`), Options{})
	caller := authz.NewCaller("alice", []string{"t"}, nil)
	now := g.snapshot.Load()
	before := now.viewFor(caller, "")
	list := string(before.list(upstream.Modern))
	if got := now.views.bytes; got < len(list) {
		t.Errorf("the views have cost %d bytes, and one list is %d", got, len(list))
	}
	if now.viewFor(caller, "") != before {
		t.Error("the view is made anew")
	}
	now.views.charge(maxViewBytes)
	if n := len(now.views.byRights) + len(now.views.byBits) + len(now.views.order); n != 0 {
		t.Errorf("%d are remembered", n)
	}
	after := now.viewFor(caller, "")
	if after == before || string(after.list(upstream.Modern)) != list {
		t.Error("the view is not made again, or differs")
	}
}
