package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// fleet is five servers of both eras.
func fleet() map[string]*mcptest.Server {
	servers := map[string]*mcptest.Server{}
	for i, id := range []string{"delta", "alpha", "echo-1", "bravo", "charlie"} {
		s := &mcptest.Server{Era: mcptest.Modern, PageSize: 2, TTLMs: int64(1000 * (i + 50)), Instructions: "This is " + id + ".",
			Tools: mcptest.Builtin("zulu", "echo", "add", "New Tool", "calendar.read")}
		if i%2 == 1 {
			s.Era = mcptest.Legacy
		}
		library{prompts: []string{promptDef("zulu"), promptDef("a.b")}, resources: []string{resourceDef("r://shared"), resourceDef("r://" + id)},
			templates: []string{templateDef("t://{shared}")}, capabilities: map[bool]string{true: `"logging":{},"completions":{}`}[i%2 == 1]}.shelve(s)
		servers[id] = s
	}
	return servers
}

// TestListsAreAFunctionOfTheCatalogue connects five servers a hundred times, in another order each
// time, and wants the same bytes.
func TestListsAreAFunctionOfTheCatalogue(t *testing.T) {
	lists := make([]string, 100)
	var wg sync.WaitGroup
	for worker := range 10 {
		wg.Go(func() {
			for i := worker; i < len(lists); i += 10 {
				lists[i] = listOnce(t, uint64(i))
			}
		})
	}
	wg.Wait()
	for i, l := range lists {
		if l != lists[0] {
			t.Errorf("list %d differs:\n%s\n%s", i, clip(l), clip(lists[0]))
		}
	}
	if n := strings.Count(lists[0], `"inputSchema"`); n != 2*25 {
		t.Errorf("%d tools in two lists, want 50: %s", n, lists[0])
	}
}

// listOnce connects the fleet in an order of its own and returns all that clients are told of it.
func listOnce(t *testing.T, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 1))
	servers := fleet()
	entries := map[string]string{}
	release := map[string]chan struct{}{}
	o := Options{Embedded: map[string]upstream.ServeFunc{}}
	var order []string
	for id, s := range servers {
		order = append(order, id)
		entries[id] = embeddedEntry
		start := make(chan struct{})
		release[id] = start
		o.Embedded[id] = func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
			select {
			case <-start:
			case <-ctx.Done():
			}
			return s.ServeLines(ctx, in, out)
		}
	}
	slices.Sort(order)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	g := makeGateway(t, parseConfig(t, entries), o)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan struct{})
	run, stop := context.WithCancel(ctx)
	go func() {
		defer close(done)
		g.Run(run)
	}()
	for _, id := range order {
		close(release[id])
		if s := servers[id]; random.IntN(2) == 0 {
			if err := s.Await(ctx, func() bool { return s.Count("tools/list") == 3 }); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if err := g.WaitSettled(ctx); err != nil {
		t.Error(err)
	}
	s := g.snapshot.Load()
	told := string(s.shown().wholeList(prompts, upstream.Modern)) + string(s.shown().wholeList(resources, upstream.Modern)) + string(s.shown().wholeList(templates, upstream.Legacy)) +
		string(s.shown().list(upstream.Modern)) + "\n" + string(s.shown().list(upstream.Legacy)) + "\n" + string(g.discover(s.shown()).result) + fmt.Sprint(s.findings)
	stop()
	<-done
	return told
}

func TestAddingAnUpstreamRenamesNothing(t *testing.T) {
	a := &mcptest.Server{Tools: mcptest.Builtin("search", "echo")}
	b := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("search", "echo", "add")}
	aEntry, bEntry := entry(a.StartHTTP(t)), entry(b.StartHTTP(t))
	g := launch(t, parseConfig(t, map[string]string{"my-b": aEntry}), Options{})
	before := g.tools()
	if len(before) != 2 {
		t.Fatalf("%d tools", len(before))
	}
	g.Apply(parseConfig(t, map[string]string{"my-b": aEntry, "b": bEntry}))
	g.awaitTool("b_add", true)
	after := g.tools()
	if len(after) != 5 {
		t.Errorf("%d tools after the addition, want 5", len(after))
	}
	for _, tool := range before {
		if !slices.ContainsFunc(after, func(o ToolInfo) bool {
			return o.Name == tool.Name && o.Server == tool.Server && string(o.Definition) == string(tool.Definition)
		}) {
			t.Errorf("%s is gone or changed", tool.Name)
		}
	}
}

func TestBareNamesThatCollide(t *testing.T) {
	a := &mcptest.Server{Tools: []mcptest.Tool{{Def: `{"name":"echo","description":"of a","inputSchema":{"type":"object"}}`}}}
	b := &mcptest.Server{Tools: mcptest.Builtin("echo", "other")}
	g := launch(t, parseConfig(t, map[string]string{
		"b": entry(b.StartHTTP(t), `"prefix":""`), "a": entry(a.StartHTTP(t), `"prefix":""`)}), Options{})
	tools := g.tools()
	if len(tools) != 2 || tools[0].Name != "echo" || tools[0].Server != "a" || tools[1].Name != "other" {
		t.Errorf("tools: %+v", tools)
	}
	want := upstream.Finding{Server: "b", Tool: "echo", Rule: "name_collision"}
	if !slices.ContainsFunc(g.Status().Findings, func(f upstream.Finding) bool {
		return f.Server == want.Server && f.Tool == want.Tool && f.Rule == want.Rule && strings.Contains(f.Text, "prefix")
	}) {
		t.Errorf("findings: %+v", g.Status().Findings)
	}
}

// toolNames are the names in the result of a list.
func toolNames(t testing.TB, result string) []string {
	t.Helper()
	var names []string
	for rest := result; ; {
		_, after, ok := strings.Cut(rest, `{"name":"`)
		if !ok {
			return names
		}
		name, _, _ := strings.Cut(after, `"`)
		names, rest = append(names, name), after
	}
}

func TestPaging(t *testing.T) {
	s := &mcptest.Server{ListChanged: true, Tools: mcptest.Builtin("a", "b", "c", "d", "e", "f", "g")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"lists":{"page_size":3}`), Options{})
	session := g.open()
	page := map[string]func(cursor string) string{
		"modern": func(cursor string) string {
			if cursor != "" {
				cursor = `"cursor":` + cursor
			}
			return at(t, g.modern("1", "tools/list", cursor).body, "result")
		},
		"legacy": func(cursor string) string {
			if cursor != "" {
				cursor = `{"cursor":` + cursor + `}`
			}
			return at(t, g.post(legacyBody("1", "tools/list", cursor), session).body, "result")
		},
	}
	first := map[string]string{}
	for client, list := range page {
		var got [][]string
		cursor := ""
		for range 5 {
			result := list(cursor)
			got = append(got, toolNames(t, result))
			if cursor = at(t, result, "nextCursor"); cursor == "" {
				break
			}
			if first[client] == "" {
				first[client] = cursor
			}
		}
		if s := fmt.Sprint(got); s != "[[x_a x_b x_c] [x_d x_e x_f] [x_g]]" {
			t.Errorf("%s: pages %s", client, s)
		}
	}
	// A cursor holds its place although the tool it names, and others, are gone.
	s.SetTools(mcptest.Builtin("a", "bb", "e", "f", "g"))
	s.NotifyToolsChanged()
	g.awaitTool("x_c", false)
	for client, list := range page {
		if got := fmt.Sprint(toolNames(t, list(first[client]))); got != "[x_e x_f x_g]" {
			t.Errorf("%s: after the change the next page is %s", client, got)
		}
	}
}

func TestBadCursors(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("a", "b", "c")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"lists":{"page_size":1}`), Options{})
	anonymous := guest{caller: authz.Anonymous()}.owner()
	good := g.cursors.make("tools/list", anonymous, "x_a")
	if got := fmt.Sprint(toolNames(t, g.modern("1", "tools/list", `"cursor":"`+good+`"`).body)); got != "[x_b]" {
		t.Fatalf("the good cursor gives %s", got)
	}
	tampered := []byte(good)
	tampered[3] ^= 1
	tests := []struct{ name, cursor string }{
		{"empty", `""`},
		{"a number", `7`},
		{"an object", `{}`},
		{"no base64", `"%%%"`},
		{"too short", `"QUJD"`},
		{"too long", `"` + strings.Repeat("A", 5000) + `"`},
		{"tampered", `"` + string(tampered) + `"`},
		{"a name added", `"` + good + `QUJD"`},
		{"of another method", `"` + g.cursors.make("prompts/list", anonymous, "x_a") + `"`},
		{"of another caller", `"` + g.cursors.make("tools/list", guest{caller: authz.Caller{Subject: "somebody"}}.owner(), "x_a") + `"`},
		{"of another process", `"` + newCursors().make("tools/list", "anonymous", "x_a") + `"`},
		{"of an upstream", `"page:1"`},
	}
	session := g.open()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for client, body := range map[string]string{
				"modern": g.modern("1", "tools/list", `"cursor":`+tt.cursor).body,
				"legacy": g.post(legacyBody("1", "tools/list", `{"cursor":`+tt.cursor+`}`), session).body,
			} {
				if at(t, body, "error", "code") != "-32602" {
					t.Errorf("%s: %s", client, body)
				}
			}
		})
	}
}

func TestMergedCapabilitiesAndInstructions(t *testing.T) {
	a := &mcptest.Server{Instructions: "  Ask a first.\n", TTLMs: 45_000, Tools: mcptest.Builtin("echo")}
	b := &mcptest.Server{Era: mcptest.Legacy, Instructions: strings.Repeat("ö", 4000), Capabilities: `{"logging":{}}`, Tools: mcptest.Builtin("echo")}
	c := &mcptest.Server{TTLMs: 90_000, Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{
		"a": entry(a.StartHTTP(t), `"prefix":""`), "b": entry(b.StartHTTP(t)), "c": entry(c.StartHTTP(t))}), Options{Version: "9.9"})
	discover := at(t, g.modern("1", "server/discover", "").body, "result")
	initialize := at(t, g.post(initializeBody).body, "result")
	for from, result := range map[string]string{"discover": discover, "initialize": initialize} {
		if got := at(t, result, "capabilities"); got != `{"logging":{},"tools":{"listChanged":true}}` {
			t.Errorf("%s: capabilities %s", from, got)
		}
		text := at(t, result, "instructions")
		if !strings.HasPrefix(text, `"Server a:\nAsk a first.\n\nServer b (its tools begin with b_):\nöö`) || !strings.HasSuffix(text, `ö…"`) {
			t.Errorf("%s: instructions %.200s", from, text)
		}
		if len(text) > maxInstructions+200 {
			t.Errorf("%s: instructions of %d bytes", from, len(text))
		}
	}
	if got := at(t, discover, "ttlMs") + at(t, discover, "cacheScope"); got != `45000"public"` {
		t.Errorf("discover: ttlMs and cacheScope %s", got)
	}
	list := at(t, g.modern("1", "tools/list", "").body, "result")
	if got := at(t, list, "ttlMs") + at(t, list, "cacheScope"); got != `45000"public"` {
		t.Errorf("tools/list: ttlMs and cacheScope %s", got)
	}
	if got := at(t, discover, "_meta", metaServerInfo); got != `{"name":"headgate","version":"9.9"}` {
		t.Errorf("serverInfo %s", got)
	}
}

func TestDeadUpstreams(t *testing.T) {
	alive := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	dead := (&mcptest.Server{}).StartHTTP(t)
	dead.Stop()
	entries := map[string]string{"dead": entry(dead), "missing": `{"command":"/nonexistent/headgate-test"}`}
	ready := func(g *gate) (int, string) {
		w := httptest.NewRecorder()
		g.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	t.Run("all", func(t *testing.T) {
		g := launch(t, parseConfig(t, entries), Options{})
		if code, text := ready(g); code != http.StatusServiceUnavailable || text != "no upstream is up\n" {
			t.Errorf("readyz: %d %s", code, text)
		}
		for _, u := range g.Status().Upstreams {
			if u.Error == "" {
				t.Errorf("status gives no reason: %+v", u)
			}
		}
	})
	t.Run("some", func(t *testing.T) {
		entries["alive"] = entry(alive.StartHTTP(t))
		g := launch(t, parseConfig(t, entries), Options{})
		if code, text := ready(g); code != http.StatusOK {
			t.Errorf("readyz: %d %s", code, text)
		}
		if got := fmt.Sprint(toolNames(t, g.modern("1", "tools/list", "").body)); got != "[alive_echo]" {
			t.Errorf("list: %s", got)
		}
		g.Drain()
		if code, text := ready(g); code != http.StatusServiceUnavailable || text != "draining\n" {
			t.Errorf("readyz while draining: %d %s", code, text)
		}
	})
	t.Run("not yet", func(t *testing.T) {
		silent := &mcptest.Server{OnRequest: func(c *mcptest.Call) bool { <-c.Ctx.Done(); return true }}
		g := launchUnsettled(t, parseConfig(t, map[string]string{"silent": entry(silent.StartHTTP(t))}), Options{})
		if code, text := ready(g); code != http.StatusServiceUnavailable || text != "upstreams are being connected\n" {
			t.Errorf("readyz: %d %s", code, text)
		}
		// Start-up waits for nobody: clients are served at once.
		if r := g.modern("1", "tools/list", ""); r.status != http.StatusOK {
			t.Errorf("list: %d %s", r.status, r.body)
		}
	})
}

// TestReloadKeepsReadiness: a gateway that serves is not taken out of service because a reload connects
// something slow.
func TestReloadKeepsReadiness(t *testing.T) {
	alive := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	hangs := &mcptest.Server{OnRequest: func(c *mcptest.Call) bool { <-c.Ctx.Done(); return true }}
	entries := map[string]string{"alive": entry(alive.StartHTTP(t)), "changed": entry(alive.StartHTTP(t))}
	g := launch(t, parseConfig(t, entries), Options{})
	slow := hangs.StartHTTP(t)
	entries["new"], entries["changed"] = entry(slow), entry(slow)
	if err := g.Apply(parseConfig(t, entries)); err != nil {
		t.Fatal(err)
	}
	if ok, why := g.Ready(); !ok {
		t.Errorf("not ready: %s", why)
	}
	if g.snapshot.Load().settled {
		t.Error("the slow servers are connected already")
	}
}

// TestListThatLacksAServer: whoever keeps a list that is short, because a server cannot be reached, keeps
// it for a short time only.
func TestListThatLacksAServer(t *testing.T) {
	alive := (&mcptest.Server{TTLMs: 600_000, Tools: mcptest.Builtin("echo")}).StartHTTP(t)
	dead := (&mcptest.Server{}).StartHTTP(t)
	dead.Stop()
	g := launch(t, parseConfig(t, map[string]string{"alive": entry(alive), "dead": entry(dead)},
		keys(keyEntry("k")), `"teams":{"with":{"upstreams":["alive","dead"],"rules":[{"allow":["*"]}]},"without":{"upstreams":["alive"],"rules":[{"allow":["*"]}]}}`), Options{})
	for team, want := range map[string]string{"with": "30000", "without": "300000"} {
		caller := authz.NewCaller("c", []string{team}, nil)
		v := g.snapshot.Load().viewFor(caller, "")
		for method, a := range map[string]answer{"tools/list": {result: v.list(upstream.Modern)}, "server/discover": g.discover(v)} {
			if got := at(t, string(a.result), "ttlMs"); got != want {
				t.Errorf("%s %s: ttlMs %s, want %s", team, method, got, want)
			}
		}
	}
	open := launch(t, parseConfig(t, map[string]string{"alive": entry(alive), "dead": entry(dead)}), Options{})
	if got := at(t, open.modern("1", "tools/list", "").body, "result", "ttlMs"); got != "30000" {
		t.Errorf("without teams: ttlMs %s", got)
	}
}

// TestFirstList: a client that lists as soon as it can gets what upstreams that start at once offer,
// their instructions in the handshake included; one that hangs holds it up for the grace at most, and
// the list says that more is to come.
func TestFirstList(t *testing.T) {
	s := &mcptest.Server{Instructions: "How X works", Tools: mcptest.Builtin("echo")}
	up := map[string]string{"x": entry(s.StartHTTP(t))}
	g := launchUnsettled(t, parseConfig(t, up), Options{})
	if r := g.post(initializeBody); !strings.Contains(r.body, "How X works") {
		t.Errorf("the handshake: %s", r.body)
	}
	if got := fmt.Sprint(toolNames(t, at(t, g.modern("1", "tools/list", "").body, "result"))); got != "[x_echo]" {
		t.Errorf("the first list is %s", got)
	}
	hangs := &mcptest.Server{OnRequest: func(c *mcptest.Call) bool { <-c.Ctx.Done(); return true }}
	up["y"] = entry(hangs.StartHTTP(t))
	g = launchUnsettled(t, parseConfig(t, up), Options{})
	r := g.modern("1", "tools/list", "").body
	if got := fmt.Sprint(toolNames(t, at(t, r, "result"))); got != "[x_echo]" || at(t, r, "result", "ttlMs") != "0" {
		t.Errorf("beside a server that hangs the first list is %s", r)
	}
}
