package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// accessGate is a gateway with four teams: names that are hidden from one are another's, one id stands
// for two teams' own servers, and one tool asks for a scope.
func accessGate(t *testing.T, more ...string) (g *gate, callers []string, tools []string) {
	hub := &mcptest.Server{Tools: []mcptest.Tool{
		{Def: `{"name":"read","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`},
		{Def: `{"name":"write","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"delete","inputSchema":{"type":"object"}}`},
		{Def: `{"name":"pay","inputSchema":{"type":"object"}}`},
	}}
	files := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("read", "write")}
	redDB, blueDB := &mcptest.Server{Tools: mcptest.Builtin("query", "drop")}, &mcptest.Server{Tools: mcptest.Builtin("query")}
	teams := `"teams":{
		"red":{"upstreams":["hub"],"own_upstreams":{"db":` + entry(redDB.StartHTTP(t)) + `},
			"rules":[{"allow":["hub_*","db_*"]},{"deny":["*_delete","*_drop"]}]},
		"blue":{"upstreams":["hub","files"],"own_upstreams":{"db":` + entry(blueDB.StartHTTP(t)) + `},
			"rules":[{"allow":["annotation:readOnlyHint","server:db"]},{"allow":["files_write"],"when":"caller.subject.startsWith('b')"}]},
		"green":{"upstreams":["hub"],"rules":[{"allow":["hub_delete"]},{"allow":["hub_pay"],"require_scope":["pay:more","pay:some"]}]},
		"empty":{"upstreams":["hub"],"rules":[{"deny":["hub_read"]}]}}`
	auth := keys(keyEntry("ann", "red"), keyEntry("bob", "blue"), keyEntry("cid", "blue"), keyEntry("dan", "red", "green"),
		keyEntry("eve", "empty"), keyEntry("fay"), keyEntry("gus", "green"))
	g = launch(t, parseConfig(t, map[string]string{"hub": entry(hub.StartHTTP(t)), "files": entry(files.StartHTTP(t))}, append(more, auth, teams)...), Options{})
	return g, []string{"ann", "bob", "cid", "dan", "eve", "fay", "gus"},
		[]string{"hub_read", "hub_write", "hub_delete", "hub_pay", "files_read", "files_write", "db_query", "db_drop", "hub_none"}
}

// at makes requests go to a team's endpoint; "" is the union.
func (g *gate) endpoint(team string) *gate {
	there := *g
	there.url = strings.TrimSuffix(g.url, "/mcp") + endpoint(team).path()
	return &there
}

// TestAccessMatrix holds lists and calls to one decision: for every caller, endpoint, era and name, a
// tool is listed exactly if it is not unknown when called, under its own spelling and no other.
func TestAccessMatrix(t *testing.T) {
	g, callers, tools := accessGate(t)
	expect := map[string][]string{ // by caller and endpoint
		"ann":       {"db_query", "hub_pay", "hub_read", "hub_write"},
		"ann red":   {"db_query", "hub_pay", "hub_read", "hub_write"},
		"bob":       {"db_query", "files_write", "hub_read"},
		"bob blue":  {"db_query", "files_write", "hub_read"},
		"cid":       {"db_query", "hub_read"},
		"cid blue":  {"db_query", "hub_read"},
		"dan":       {"db_query", "hub_delete", "hub_pay", "hub_read", "hub_write"},
		"dan red":   {"db_query", "hub_pay", "hub_read", "hub_write"},
		"dan green": {"hub_delete", "hub_pay"},
		"eve":       {},
		"eve empty": {},
		"fay":       {},
		"gus":       {"hub_delete", "hub_pay"},
		"gus green": {"hub_delete", "hub_pay"},
	}
	teamsOf := map[string][]string{"ann": {"red"}, "bob": {"blue"}, "cid": {"blue"}, "dan": {"green", "red"}, "eve": {"empty"}, "gus": {"green"}}
	nowhere := g.endpoint("nobody").modern("1", "tools/list", "", bearer("ann"))
	combinations := 0
	for _, caller := range callers {
		for _, team := range []string{"", "red", "blue", "green", "empty", "nobody"} {
			place := strings.TrimSpace(caller + " " + team)
			want, there := expect[place]
			door := g.endpoint(team)
			if !there {
				if r := door.modern("1", "tools/list", "", bearer(caller)); r.status != http.StatusNotFound || r.body != nowhere.body {
					t.Errorf("%s: %d %s, want what a team that does not exist gives", place, r.status, r.body)
				}
				combinations++
				continue
			}
			identity := authz.NewCaller(caller, teamsOf[caller], nil)
			explained, ok := g.Explain(identity, team)
			if !ok {
				t.Errorf("%s: nothing is explained", place)
			}
			for _, era := range []string{"modern", "legacy"} {
				session := ""
				if era == "legacy" {
					session = door.openAs(caller)
				}
				listed := door.listAs(caller, session)
				if !slices.Equal(listed, want) {
					t.Errorf("%s, %s: the list is %v, want %v", place, era, listed, want)
				}
				for _, e := range explained {
					if e.Decision.Allowed != slices.Contains(listed, e.Name) {
						t.Errorf("%s, %s: %s is explained as %+v", place, era, e.Name, e.Decision)
					}
				}
				for _, tool := range tools {
					_, bare, _ := strings.Cut(tool, "_")
					for _, name := range []string{tool, bare, strings.ToUpper(tool), strings.Replace(tool, "_", ".", 1), strings.Replace(tool, "_", "%5F", 1)} {
						combinations++
						var r reply
						if era == "legacy" {
							r = door.post(legacyBody("1", "tools/call", `{`+callParams(name, "")+`}`), session, bearer(caller))
						} else {
							r = door.post(modernBody("1", "tools/call", callParams(name, "")), modernHeaders("tools/call", "Mcp-Name: "+wire.EncodeHeaderValue(name), bearer(caller))...)
						}
						unknown := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown tool: %s"}}`, name)
						if callable := r.body != unknown || r.status != http.StatusOK; callable != slices.Contains(listed, name) {
							t.Errorf("%s, %s: %s is listed: %v, and its call gives %d %s", place, era, name, !callable, r.status, r.body)
						}
						// Red may pay as it is; where only green's rule allows it, the scopes are missing.
						if name == "hub_pay" && slices.Contains(listed, name) {
							stepUp := caller == "gus" || team == "green"
							challenge := r.header.Get("Www-Authenticate")
							asked := r.status == http.StatusForbidden && strings.Contains(challenge, `error="insufficient_scope"`) &&
								strings.Contains(challenge, `scope="pay:more pay:some"`) && strings.Contains(challenge, `resource_metadata="http`)
							if asked != stepUp {
								t.Errorf("%s, %s: step-up %v, want %v: %d %s %s", place, era, asked, stepUp, r.status, challenge, r.body)
							}
						}
					}
				}
			}
		}
	}
	if combinations < 500 {
		t.Errorf("%d combinations", combinations)
	}
	t.Logf("%d combinations", combinations)
}

// TestChallenge looks at what a caller without good credentials is told, and what is open all the same.
func TestChallenge(t *testing.T) {
	g, _, _ := accessGate(t, `"public_url":"https://gw.example.com/mcp","allowed_origins":["https://app.example.com"]`)
	list := modernBody("1", "tools/list", "")
	post := func(g *gate, header ...string) reply { return g.post(list, modernHeaders("tools/list", header...)...) }
	query := *g
	query.url += "?access_token=key-of-ann&authorization=Bearer%20key-of-ann"
	const metadata = `resource_metadata="https://gw.example.com/.well-known/oauth-protected-resource`
	for name, tt := range map[string]struct {
		r    reply
		code string
	}{
		"no token":           {post(g), ""},
		"forwarded headers":  {post(g, "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: http"), ""},
		"unknown token":      {post(g, "Authorization: Bearer nobody"), "invalid_token"},
		"another scheme":     {post(g, "Authorization: Basic key-of-ann"), "invalid_token"},
		"two headers":        {post(g, bearer("ann"), bearer("ann")), "invalid_token"},
		"token in the query": {post(&query), ""},
		"GET":                {g.do(g.request(http.MethodGet, "")), ""},
		"DELETE":             {g.do(g.request(http.MethodDelete, "")), ""},
		"a team":             {post(g.endpoint("red")), ""},
		"no such team":       {post(g.endpoint("nobody")), ""},
		"a page":             {post(g, "Origin: https://app.example.com"), ""},
	} {
		challenge := tt.r.header.Get("Www-Authenticate")
		if tt.r.status != http.StatusUnauthorized || !strings.HasPrefix(challenge, "Bearer ") || !strings.Contains(challenge, metadata) ||
			!strings.Contains(challenge, `scope="pay:more pay:some"`) || strings.Contains(challenge, "error=") != (tt.code != "") || !strings.Contains(challenge, tt.code) {
			t.Errorf("%s: %d %s", name, tt.r.status, challenge)
		}
		if name == "a page" && tt.r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
			t.Errorf("%s: %v", name, tt.r.header)
		}
	}
	root := strings.TrimSuffix(g.url, "/mcp")
	for path, resource := range map[string]string{"": "/mcp", "/mcp": "/mcp", "/teams/red/mcp": "/teams/red/mcp", "/teams/nobody/mcp": "/teams/nobody/mcp"} {
		open := *g
		open.url = root + metadataPath + path
		r := open.do(open.request(http.MethodGet, ""))
		if r.status != http.StatusOK || at(t, r.body, "resource") != `"https://gw.example.com`+resource+`"` || at(t, r.body, "bearer_methods_supported") != `["header"]` {
			t.Errorf("metadata of %q: %d %s", path, r.status, r.body)
		}
	}
	health := *g
	health.url = root + "/healthz"
	if r := health.do(health.request(http.MethodGet, "")); r.status != http.StatusOK {
		t.Errorf("healthz: %d", r.status)
	}
}

// TestSessionsAndCursorsAreBound: neither works for somebody else or somewhere else.
func TestSessionsAndCursorsAreBound(t *testing.T) {
	g, _, _ := accessGate(t, `"lists":{"page_size":1}`)
	session := g.openAs("dan")
	unknown := sessionHeader + ": nothing"
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		for name, door := range map[string]*gate{"another caller": g, "another endpoint": g.endpoint("red")} {
			who := "dan"
			if name == "another caller" {
				who = "ann"
			}
			foreign := door.do(door.request(method, legacyBody("1", "tools/list", ""), session, bearer(who)))
			none := door.do(door.request(method, legacyBody("1", "tools/list", ""), unknown, bearer(who)))
			if foreign.status != http.StatusNotFound || foreign.body != none.body {
				t.Errorf("%s of %s: %d %s", method, name, foreign.status, foreign.body)
			}
		}
	}
	first := g.modern("1", "tools/list", "", bearer("dan"))
	cursor := `"cursor":` + at(t, first.body, "result", "nextCursor")
	if r := g.modern("1", "tools/list", cursor, bearer("dan")); at(t, r.body, "result", "tools") == "" {
		t.Errorf("the caller's own cursor: %s", r.body)
	}
	for name, r := range map[string]reply{
		"another caller":   g.modern("1", "tools/list", cursor, bearer("ann")),
		"another endpoint": g.endpoint("red").modern("1", "tools/list", cursor, bearer("dan")),
	} {
		if at(t, r.body, "error", "code") != "-32602" {
			t.Errorf("the cursor of %s: %s", name, r.body)
		}
	}
}

// TestLimits: a call over a limit is a result that says which limit it was, and is never sent.
func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct{ limits, reason, text string }{
		"rate":             {`{"calls_per_minute":1}`, "rate_limited", "team t"},
		"rate of a caller": {`{"per_caller":{"calls_per_minute":1}}`, "rate_limited", "caller"},
		"rate of a tool":   {`{"per_tool":{"x_e*":{"calls_per_minute":1}}}`, "rate_limited", "tool x_echo"},
		"concurrency":      {`{"concurrent":1}`, "concurrency_limited", "team t"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlocker()
			s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), b.tool)}
			g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("ann", "t"), keyEntry("bob", "u")),
				`"teams":{"t":{"upstreams":["x"],"rules":[{"allow":["*"]}],"limits":`+tt.limits+`},"u":{"upstreams":["x"],"rules":[{"allow":["*"]}]}}`), Options{})
			call := func(who, tool string) reply {
				return g.post(modernBody("1", "tools/call", callParams("x_"+tool, `{}`)), modernHeaders("tools/call", "Mcp-Name: x_"+tool, bearer(who))...)
			}
			before := 1
			if tt.reason == "concurrency_limited" {
				before = 0
				held := make(chan reply, 1)
				go func() { held <- call("ann", "block") }()
				awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })
				defer func() {
					close(b.release)
					<-held
				}()
			} else if r := call("ann", "echo"); at(t, r.body, "result", "structuredContent") == "" {
				t.Fatalf("the first call: %s", r.body)
			}
			r := call("ann", "echo")
			failure := at(t, r.body, "result", "_meta", "dev.headgate/failure")
			if r.status != http.StatusOK || at(t, r.body, "result", "isError") != "true" || at(t, failure, "reason") != `"`+tt.reason+`"` ||
				at(t, failure, "outcome") != `"not_started"` || at(t, failure, "retryAfterMs") == "" || !strings.Contains(at(t, r.body, "result", "content"), tt.text) {
				t.Errorf("over the limit: %d %s", r.status, r.body)
			}
			if r := call("bob", "echo"); at(t, r.body, "result", "structuredContent") == "" {
				t.Errorf("another team: %s", r.body)
			}
			if n := s.Executions("echo"); n != before+1 {
				t.Errorf("%d executions, want %d", n, before+1)
			}
		})
	}
}
