package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// readers answers reads of some URIs, and of all others with an error of the server's choice.
func readers(name, missing string, uris ...string) func(c *mcptest.Call) {
	return func(c *mcptest.Call) {
		for _, uri := range uris {
			if string(c.Member("uri")) == `"`+uri+`"` {
				c.Result(`{"contents":[{"uri":"` + uri + `","text":"` + name + `"}],"resultType":"complete","ttlMs":7,"cacheScope":"public"}`)
				return
			}
		}
		c.Error(missing)
	}
}

const (
	missingModern = `{"code":-32602,"message":"no such thing","data":{"why":1.0}}`
	missingLegacy = `{"code":-32002,"message":"no such thing","data":{"why":1.0}}`
)

func readText(t testing.TB, message string) string {
	t.Helper()
	_, after, ok := strings.Cut(at(t, message, "result", "contents"), `"text":"`)
	if !ok {
		return message
	}
	got, _, _ := strings.Cut(after, `"`)
	return got
}

// TestSameURIOnTwoServers: the first in order keeps the URI, the other is listed under an alias; what is
// listed is what is read, whichever server comes up first, and whichever is there (R01, R02).
func TestSameURIOnTwoServers(t *testing.T) {
	a := library{resources: []string{resourceDef("config://app"), resourceDef("a://only")}, templates: []string{templateDef("x://{id}")}}.shelve(&mcptest.Server{Name: "A"})
	b := library{resources: []string{resourceDef("config://app"), resourceDef("headgate://a/config://app")}, templates: []string{templateDef("x://{id}"), templateDef("y://{id}")},
		capabilities: `"completions":{}`}.shelve(&mcptest.Server{Name: "B", Era: mcptest.Legacy})
	aEntry, bEntry := entry(a.StartHTTP(t)), entry(b.StartHTTP(t))
	g := launch(t, parseConfig(t, map[string]string{"b": bEntry, "a": aEntry}), Options{})
	g.eras(func(era, session string) {
		listed := keysOf(t, g.ask(session, "resources/list", ""), "resources", "uri")
		if want := []string{"a://only", "config://app", "headgate://b/config://app", "headgate://b/headgate://a/config://app"}; !slices.Equal(listed, want) {
			t.Errorf("%s: resources %v", era, listed)
		}
		if got := keysOf(t, g.ask(session, "resources/templates/list", ""), "resourceTemplates", "uriTemplate"); !slices.Equal(got, []string{"headgate://b/x://{id}", "x://{id}", "y://{id}"}) {
			t.Errorf("%s: templates %v", era, got)
		}
		for uri, want := range map[string]string{"a://only": "of A", "config://app": "of A", "headgate://b/config://app": "of B", "headgate://a/config://app": "of A",
			"headgate://b/headgate://a/config://app": "of B", "x://5": "of A", "headgate://b/x://5": "of B", "y://5": "of B", "headgate://a/x://5": "of A"} {
			got := g.ask(session, "resources/read", `"uri":"`+uri+`"`)
			own := uri
			if strings.HasPrefix(own, aliasScheme) {
				_, own, _ = readAlias(own)
			}
			if readText(t, got) != want || !strings.Contains(got, `"uri":"`+own+`"`) {
				t.Errorf("%s: %s gives %s", era, uri, got)
			}
		}
		for uri, own := range map[string]string{"y://{id}": "y://{id}", "headgate://b/x://{id}": "x://{id}"} {
			got := g.ask(session, "completion/complete", `"ref":{"type":"ref/resource","uri":"`+uri+`"},"argument":{"name":"id","value":""}`)
			if !strings.Contains(got, `"of B"`) || !strings.Contains(got, `"echo":{"type":"ref/resource","uri":"`+own+`"}`) {
				t.Errorf("%s: completion of %s: %s", era, uri, got)
			}
		}
		if got := g.ask(session, "completion/complete", `"ref":{"type":"ref/resource","uri":"x://{id}"},"argument":{"name":"id","value":""}`); at(t, got, "result", "completion", "values") != "[]" {
			t.Errorf("%s: a server without completions: %s", era, got)
		}
		if got := g.ask(session, "completion/complete", `"ref":{"type":"ref/resource","uri":"z://{id}"},"argument":{"name":"id","value":""}`); at(t, got, "error", "message") != `"Unknown resource template: z://{id}"` {
			t.Errorf("%s: completion of nothing: %s", era, got)
		}
	})
	if a.Count("completion/complete") != 0 {
		t.Error("a server was asked for completions that it does not have")
	}
	if !slices.ContainsFunc(g.Status().Findings, func(f upstream.Finding) bool {
		return f.Server == "b" && f.Rule == "uri_collision" && f.Tool == "config://app"
	}) {
		t.Errorf("findings: %+v", g.Status().Findings)
	}
	if s := g.Status().Upstreams[1]; s.Resources != 2 || s.Templates != 2 || s.Prompts != 0 {
		t.Errorf("status: %+v", s)
	}
}

// TestTemplatePrecedence: the template with the most literal characters has a URI, whatever the order of
// the servers, and of equals the first server (R04).
func TestTemplatePrecedence(t *testing.T) {
	up := map[string]string{}
	for id, list := range map[string][]string{
		"a": {"x://{id}", "f:///{+path}"}, "b": {"x://items/{id}", "q://s{?a,b}"}, "c": {"x://items/{id}", "f:///docs/{+path}", "w://{id}/{sub}", "broken://{"},
	} {
		var defs []string
		for _, text := range list {
			defs = append(defs, templateDef(text))
		}
		up[id] = entry(library{templates: defs, resources: []string{}}.shelve(&mcptest.Server{Name: id}).StartHTTP(t))
	}
	g := launch(t, parseConfig(t, up), Options{})
	g.eras(func(era, session string) {
		for uri, want := range map[string]string{"x://5": "of a", "x://items/5": "of b", "f:///x/y/z": "of a", "f:///docs/y/z": "of c", "q://s?a=1&b=2": "of b", "w://1/2": "of c"} {
			if got := g.ask(session, "resources/read", `"uri":"`+uri+`"`); readText(t, got) != want {
				t.Errorf("%s: %s gives %s", era, uri, got)
			}
		}
	})
	if !slices.ContainsFunc(g.Status().Findings, func(f upstream.Finding) bool { return f.Server == "c" && f.Rule == "uri_template" }) {
		t.Errorf("findings: %+v", g.Status().Findings)
	}
}

// TestNotFound: a resource that is not there has the code of the client's era, whichever the server used;
// what else the server says of it stays, and other errors pass as they are.
func TestNotFound(t *testing.T) {
	const refused = `{"code":-32050,"message":"not today","data":[1.0]}`
	up := map[string]string{}
	for id, tt := range map[string]struct{ era, missing string }{
		"mm": {mcptest.Modern, missingModern}, "ml": {mcptest.Modern, missingLegacy}, "lm": {mcptest.Legacy, missingModern}, "ll": {mcptest.Legacy, missingLegacy},
	} {
		s := library{resources: []string{resourceDef(id + "://gone"), resourceDef(id + "://refused")}}.shelve(&mcptest.Server{Era: tt.era})
		s.Methods["resources/read"] = func(c *mcptest.Call) {
			if strings.Contains(string(c.Member("uri")), "refused") {
				c.Error(refused)
				return
			}
			c.Error(tt.missing)
		}
		up[id] = entry(s.StartHTTP(t))
	}
	g := launch(t, parseConfig(t, up), Options{})
	g.eras(func(era, session string) {
		want, code := missingModern, "-32602"
		if era == "legacy" {
			want, code = missingLegacy, "-32002"
		}
		for id := range up {
			r := g.asked(session, "resources/read", `"uri":"`+id+`://gone"`)
			if got := at(t, r.message(), "error"); got != want || r.status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", era, id, r.status, r.message())
			}
			if got := at(t, g.ask(session, "resources/read", `"uri":"`+id+`://refused"`), "error"); got != refused {
				t.Errorf("%s: %s: %s", era, id, got)
			}
		}
		for _, uri := range []string{"q://nobody", "headgate://mm/", "headgate://nobody/mm://gone", "headgate://"} {
			got := g.ask(session, "resources/read", `"uri":"`+uri+`"`)
			if want := `{"jsonrpc":"2.0","id":1,"error":{"code":` + code + `,"message":"Resource not found","data":{"uri":"` + uri + `"}}}`; got != want {
				t.Errorf("%s: %s: %s", era, uri, got)
			}
		}
		if got := g.ask(session, "resources/read", `"uri":[]`, "Mcp-Name: x"); at(t, got, "error", "code") != "-32602" {
			t.Errorf("%s: no URI: %s", era, got)
		}
	})
}

// TestLinksLeadBack: a URI that a server gave a caller in a result is read from that server, by that
// caller.
func TestLinksLeadBack(t *testing.T) {
	serve := func(name string) *mcptest.Server {
		s := library{prompts: []string{promptDef("p")}, resources: []string{resourceDef(name + "://index")},
			get: func(c *mcptest.Call) {
				c.Result(`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"l://prompt","text":"t"}}},{"role":"user","content":[{"type":"resource_link","uri":"l://list","name":"n"}]}]}`)
			},
			read: func(c *mcptest.Call) {
				if string(c.Member("uri")) == `"`+name+`://index"` {
					c.Result(`{"contents":[{"uri":"l://read","text":"index"}]}`)
					return
				}
				c.Result(`{"contents":[{"uri":` + string(c.Member("uri")) + `,"text":"of ` + name + `"}]}`)
			}}.shelve(&mcptest.Server{})
		s.Tools = []mcptest.Tool{{Def: `{"name":"t","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			c.Result(`{"content":[{"type":"resource_link","uri":"l://link","name":"n"},{"type":"resource","resource":{"uri":"l://embedded","blob":""}},{"type":"text","text":"\"uri\":\"l://text\""}]}`)
		}}}
		return s
	}
	up := map[string]string{"a": entry(serve("a").StartHTTP(t)), "b": entry(serve("b").StartHTTP(t))}
	g := launch(t, parseConfig(t, up, keys(keyEntry("ann"), keyEntry("bob"))), Options{})
	read := func(who, uri string) string {
		return readText(t, g.ask("", "resources/read", `"uri":"`+uri+`"`, bearer(who)))
	}
	if r := g.post(modernBody("1", "tools/call", callParams("b_t", "")), modernHeaders("tools/call", "Mcp-Name: b_t", bearer("ann"))...); r.status != http.StatusOK {
		t.Fatal(r.body)
	}
	g.ask("", "prompts/get", `"name":"b_p"`, bearer("ann"))
	if got := read("ann", "b://index"); got != "index" {
		t.Fatal(got)
	}
	for _, uri := range []string{"l://link", "l://embedded", "l://prompt", "l://list", "l://read"} {
		if got := read("ann", uri); got != "of b" {
			t.Errorf("%s: %s", uri, got)
		}
		// Nobody gave it to him, so the servers are asked in order.
		if got := read("bob", uri); got != "of a" {
			t.Errorf("%s, another caller: %s", uri, got)
		}
	}
	if got := read("ann", "l://text"); got != "of a" {
		t.Errorf("what only looks like a link: %s", got)
	}
}

// TestLinksAreBounded fills the memory of links.
func TestLinksAreBounded(t *testing.T) {
	ls := newLinks()
	owner := memberKey{"", "x"}
	long := strings.Repeat("u", 1000)
	for i := range 1000 {
		ls.remember("ann", owner, []string{fmt.Sprintf("%s%d", long, i)})
	}
	if _, ok := ls.owner("ann", long+"999"); !ok {
		t.Error("the last link is forgotten")
	}
	if _, ok := ls.owner("ann", long+"0"); ok {
		t.Error("the first of 1000 long links is still remembered")
	}
	ls.remember("ann", owner, []string{strings.Repeat("u", maxLink+1)})
	if _, ok := ls.owner("ann", strings.Repeat("u", maxLink+1)); ok {
		t.Error("an endless link is remembered")
	}
	for i := range 2 * maxLinks / maxCallerLinks {
		who := fmt.Sprint(i)
		for n := range maxCallerLinks / (len(long) + linkCost) {
			ls.remember(who, owner, []string{fmt.Sprintf("%s%d", long, n)})
		}
		if ls.size > maxLinks {
			t.Fatalf("%d bytes are remembered", ls.size)
		}
	}
	if len(ls.callers) != ls.order.Len() || len(ls.callers) > 2*maxLinks/maxCallerLinks-1 {
		t.Errorf("%d callers, %d in order", len(ls.callers), ls.order.Len())
	}
	sum := 0
	for e := ls.order.Front(); e != nil; e = e.Next() {
		c := e.Value.(*callerLinks)
		sum += c.size
		if c.size > maxCallerLinks || len(c.byURI) != c.order.Len() {
			t.Errorf("%s holds %d bytes", c.caller, c.size)
		}
	}
	if sum != ls.size {
		t.Errorf("%d bytes are counted, %d are there", ls.size, sum)
	}
}

// TestAskingAround: a URI that nobody lists is asked for in order, until a server knows it; what is not
// "not found" is the answer, and a server that cannot be asked is passed over.
func TestAskingAround(t *testing.T) {
	a := library{resources: []string{}, read: readers("a", missingLegacy, "n://a")}.shelve(&mcptest.Server{Era: mcptest.Legacy})
	b := library{resources: []string{}, read: readers("b", `{"code":0,"message":"whatever"}`, "n://b", "n://c")}.shelve(&mcptest.Server{Era: mcptest.Legacy})
	c := library{resources: []string{}, read: readers("c", missingModern, "n://c", "n://d")}.shelve(&mcptest.Server{})
	tools := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	aHTTP := a.StartHTTP(t)
	g := launch(t, parseConfig(t, map[string]string{"a": entry(aHTTP), "b": entry(b.StartHTTP(t)), "c": entry(c.StartHTTP(t)), "0": entry(tools.StartHTTP(t))}),
		Options{})
	g.eras(func(era, session string) {
		for uri, want := range map[string]string{"n://a": "a", "n://b": "b", "n://c": "b", "n://d": "c"} {
			if got := g.ask(session, "resources/read", `"uri":"`+uri+`"`); readText(t, got) != want {
				t.Errorf("%s: %s: %s", era, uri, got)
			}
		}
		if got := g.ask(session, "resources/read", `"uri":"n://none"`); at(t, got, "error", "message") != `"Resource not found"` {
			t.Errorf("%s: %s", era, got)
		}
	})
	before := b.Count("resources/read")
	g.ask("", "resources/read", `"uri":"n://d"`)
	if n := b.Count("resources/read"); n != before {
		t.Errorf("a URI that a server is known to have was asked for %d times elsewhere", n-before)
	}
	if tools.Count("resources/read") != 0 {
		t.Error("a server without resources was asked")
	}
	aHTTP.Stop()
	if got := g.ask("", "resources/read", `"uri":"n://fresh"`); at(t, got, "error", "data", "headgate", "server") != `"a"` || at(t, got, "error", "code") != "-32603" {
		t.Errorf("nobody else knows it: %s", got)
	}
	c.Methods["resources/read"] = readers("c", missingModern, "n://fresh")
	if got := readText(t, g.ask("", "resources/read", `"uri":"n://fresh"`)); got != "c" {
		t.Errorf("one server is down, another knows it: %s", got)
	}
}

// TestReadFailures: what Headgate cannot carry to its end is an error with a marker, since these methods
// have no other channel.
func TestReadFailures(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	stuck := func(c *mcptest.Call) {
		select {
		case <-c.Ctx.Done():
		case <-hang:
		}
	}
	broken := func(c *mcptest.Call) { c.Raw(http.StatusOK, "application/json", `{"jsonrpc":"2.0","id":1}`) }
	for name, tt := range map[string]struct {
		answer  func(c *mcptest.Call)
		down    bool
		reason  string
		outcome string
		retry   string
		text    string
	}{
		"unavailable": {nil, true, "unavailable", "not_started", "true", "server x cannot be reached"},
		"timeout":     {stuck, false, "timeout", "unknown", "true", "server x did not answer within 2 seconds"},
		"reset":       {func(c *mcptest.Call) { c.Reset() }, false, "connection_lost", "unknown", "true", "connection to server x was lost"},
		"not MCP":     {broken, false, "bad_upstream_answer", "unknown", "false", "server x is not valid MCP"},
	} {
		t.Run(name, func(t *testing.T) {
			s := library{prompts: []string{promptDef("p")}, resources: []string{resourceDef("r://x")}, get: tt.answer, read: tt.answer, complete: tt.answer,
				capabilities: `"completions":{}`}.shelve(&mcptest.Server{})
			h := s.StartHTTP(t)
			more := []string{`"retries":0`, `"breaker":{"failures":0}`}
			if tt.reason == "timeout" {
				more = append(more, `"call_timeout":"2s"`)
			}
			g := launch(t, parseConfig(t, map[string]string{"x": entry(h, more...)}), Options{})
			if tt.down {
				h.Stop()
			}
			g.eras(func(era, session string) {
				for method, params := range map[string]string{"prompts/get": `"name":"x_p"`, "resources/read": `"uri":"r://x"`,
					"completion/complete": `"ref":{"type":"ref/prompt","name":"x_p"},"argument":{"name":"a","value":""}`} {
					r := g.asked(session, method, params)
					m := r.message()
					marker := at(t, m, "error", "data", "headgate")
					if r.status != http.StatusOK || at(t, m, "error", "code") != "-32603" || at(t, marker, "reason") != `"`+tt.reason+`"` || at(t, marker, "server") != `"x"` ||
						at(t, marker, "outcome") != `"`+tt.outcome+`"` || at(t, marker, "retryable") != tt.retry || !strings.Contains(at(t, m, "error", "message"), tt.text) {
						t.Errorf("%s: %s: %d %s", era, method, r.status, m)
					}
					if strings.Contains(m, h.URL) || strings.Contains(m, "127.0.0.1") {
						t.Errorf("%s: %s: an address: %s", era, method, m)
					}
				}
			})
		})
	}
}

// TestCachingHints: hints of reads pass as they are, those of lists are the least of the servers', and what
// a legacy server gives is not to be kept.
func TestCachingHints(t *testing.T) {
	modern := library{resources: []string{resourceDef("m://x")}, prompts: []string{promptDef("p")}}.shelve(&mcptest.Server{})
	modern.Methods["prompts/list"] = func(c *mcptest.Call) {
		c.Result(`{"prompts":[` + promptDef("p") + `],"ttlMs":4000,"cacheScope":"public"}`)
	}
	legacy := library{resources: []string{resourceDef("l://x")}, read: func(c *mcptest.Call) { c.Result(` {"contents":[]}`) }}.shelve(&mcptest.Server{Era: mcptest.Legacy})
	g := launch(t, parseConfig(t, map[string]string{"m": entry(modern.StartHTTP(t)), "l": entry(legacy.StartHTTP(t))}), Options{})
	for method, want := range map[string]string{"prompts/list": "4000", "resources/list": "300000", "resources/templates/list": "300000"} {
		if got := g.ask("", method, ""); at(t, got, "result", "ttlMs") != want || at(t, got, "result", "cacheScope") != `"public"` {
			t.Errorf("%s: %s", method, got)
		}
	}
	if got := g.ask("", "resources/read", `"uri":"m://x"`); at(t, got, "result", "ttlMs") != "7" || at(t, got, "result", "cacheScope") != `"public"` {
		t.Errorf("a modern server: %s", got)
	}
	if got := g.ask("", "resources/read", `"uri":"l://x"`); at(t, got, "result") != `{"ttlMs":0,"cacheScope":"private","resultType":"complete","contents":[]}` {
		t.Errorf("a legacy server: %s", got)
	}
	session := g.open()
	if got := g.ask(session, "resources/read", `"uri":"l://x"`); at(t, got, "result") != `{"contents":[]}` {
		t.Errorf("a legacy server to a legacy client: %s", got)
	}
	if got := g.ask(session, "resources/list", ""); strings.Contains(got, "ttlMs") || strings.Contains(got, "resultType") {
		t.Errorf("a list for a legacy client: %s", got)
	}
}

// TestPagesOfLists: all pages of every server, and pages to clients, for every kind of list.
func TestPagesOfLists(t *testing.T) {
	long := "long://" + strings.Repeat("x", 3000)
	s := library{prompts: []string{promptDef("a"), promptDef("b"), promptDef("c")}, resources: []string{resourceDef("r://a"), resourceDef(long), resourceDef("s://b")},
		templates: []string{templateDef("r://{a}"), templateDef("r://{b}"), templateDef("r://{c}")}}.shelve(&mcptest.Server{})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"lists":{"page_size":1}`), Options{})
	g.eras(func(era, session string) {
		for method, tt := range map[string]struct {
			member, key string
			want        []string
		}{
			"prompts/list":             {"prompts", "name", []string{"x_a", "x_b", "x_c"}},
			"resources/list":           {"resources", "uri", []string{long, "r://a", "s://b"}},
			"resources/templates/list": {"resourceTemplates", "uriTemplate", []string{"r://{a}", "r://{b}", "r://{c}"}},
		} {
			var got []string
			params := ""
			for range 4 {
				page := g.ask(session, method, params)
				got = append(got, keysOf(t, page, tt.member, tt.key)...)
				next := at(t, page, "result", "nextCursor")
				if next == "" {
					break
				}
				params = `"cursor":` + next
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %s: %v", era, method, got)
			}
			if other := g.ask(session, "tools/list", params); at(t, other, "error", "code") != "-32602" {
				t.Errorf("%s: a cursor of %s for another list: %s", era, method, other)
			}
		}
	})
}

// TestListsThatFail: a list that cannot be read costs itself and nothing else (L17).
func TestListsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(c *mcptest.Call)
		rule   string
	}{
		"method not found": {func(c *mcptest.Call) { c.Error(`{"code":-32601,"message":"no"}`) }, "capability"},
		"error":            {func(c *mcptest.Call) { c.Error(`{"code":-32603,"message":"no"}`) }, "list"},
		"HTTP 500":         {func(c *mcptest.Call) { c.Raw(http.StatusInternalServerError, "text/html", "<h1>no") }, "list"},
		"HTTP 503":         {func(c *mcptest.Call) { c.Raw(http.StatusServiceUnavailable, "text/html", "<h1>no") }, "list"},
		"not a list":       {func(c *mcptest.Call) { c.Result(`{"prompts":{}}`) }, "list"},
		"silence":          {func(c *mcptest.Call) { <-c.Ctx.Done() }, "list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := library{prompts: []string{promptDef("p")}, resources: []string{resourceDef("r://x")}}.shelve(&mcptest.Server{Tools: mcptest.Builtin("echo")})
			s.Methods["prompts/list"] = tt.answer
			o := Options{}
			if name == "silence" {
				o.Upstream.ListTimeout = 2 * time.Second
			}
			g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"retries":0`)}), o)
			if got := keysOf(t, g.ask("", "resources/list", ""), "resources", "uri"); !slices.Equal(got, []string{"r://x"}) {
				t.Errorf("resources: %v", got)
			}
			if got := g.tools(); len(got) != 1 {
				t.Errorf("tools: %v", got)
			}
			if got := g.ask("", "prompts/list", ""); at(t, got, "result", "prompts") != "[]" {
				t.Errorf("prompts: %s", got)
			}
			if !slices.ContainsFunc(g.Status().Findings, func(f upstream.Finding) bool { return f.Rule == tt.rule && f.Kind == "prompt" }) {
				t.Errorf("findings: %+v", g.Status().Findings)
			}
		})
	}
}

// TestChangedListsOfEachKind: each kind of announcement goes to those whose own list of the kind has
// changed.
func TestChangedListsOfEachKind(t *testing.T) {
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		t.Run(era, func(t *testing.T) {
			s := library{prompts: []string{promptDef("p")}, resources: []string{resourceDef("r://x")}, templates: []string{}}.shelve(&mcptest.Server{Era: era})
			change := make(chan struct{})
			list := func(member, before, after string) func(c *mcptest.Call) {
				return func(c *mcptest.Call) {
					select {
					case <-change:
						c.Result(`{"` + member + `":[` + after + `]}`)
					default:
						c.Result(`{"` + member + `":[` + before + `]}`)
					}
				}
			}
			s.Methods["resources/list"] = list("resources", resourceDef("r://x"), resourceDef("r://y"))
			g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
			awaitServer(t, s, "the stream", func() bool { return s.Streams() == 1 })
			get := g.get(g.open())
			all := g.listenStream("1", `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`)
			some := g.listenStream("2", `{"promptsListChanged":true}`)
			for _, l := range []*stream{all, some} {
				l.next()
			}
			close(change)
			s.Broadcast("notifications/prompts/list_changed", "") // no prompt has changed
			s.Broadcast("notifications/resources/list_changed", "")
			if got := get.next(); got != `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}` {
				t.Errorf("GET: %s", got)
			}
			if got := all.next(); got != `{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}` {
				t.Errorf("listen: %s", got)
			}
			g.Drain()
			if got := some.next(); !strings.Contains(got, `"resultType":"complete"`) {
				t.Errorf("who asked for prompts alone heard %s", got)
			}
			if got := all.next(); !strings.Contains(got, `"resultType":"complete"`) {
				t.Errorf("then came %s", got)
			}
		})
	}
}
