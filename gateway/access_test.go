package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// keyOf is the entry of a key, "key-of-" and its name, that is not its subject's only one or has scopes.
func keyOf(name, subject string, teams, scopes []string) string {
	digest := sha256.Sum256([]byte("key-of-" + name))
	b, _ := json.Marshal(map[string]any{"name": name, "subject": subject, "sha256": hex.EncodeToString(digest[:]), "teams": teams, "scopes": scopes})
	return string(b)
}

// signed are tools whose answer says which server ran which of them.
func signed(server string, names ...string) []mcptest.Tool {
	var out []mcptest.Tool
	for _, name := range names {
		def := `{"name":"` + name + `","inputSchema":{"type":"object"}`
		if strings.HasPrefix(name, "read") {
			def += `,"annotations":{"readOnlyHint":true}`
		}
		out = append(out, mcptest.Tool{Def: def + `}`, Call: func(c *mcptest.Call) { c.Text(server + "/" + name) }})
	}
	return out
}

// callAs calls a tool as a modern client, or on a session.
func (g *gate) callAs(name, session, tool string) reply {
	g.t.Helper()
	if session != "" {
		return g.post(legacyBody("1", "tools/call", `{`+callParams(tool, `{}`)+`}`), session, bearer(name))
	}
	return g.post(modernBody("1", "tools/call", callParams(tool, `{}`)), modernHeaders("tools/call", "Mcp-Name: "+wire.EncodeHeaderValue(tool), bearer(name))...)
}

// visible is what is the same in two answers that a caller cannot tell apart.
func visible(r reply) string {
	h := r.header.Clone()
	h.Del("Date")
	h.Del("Content-Length") // the name that is echoed has a length
	return fmt.Sprint(r.status, h, r.body)
}

// TestAccessReachesItsOwner: a name leads to the server that the caller's own list means by it, at every
// endpoint, where names are made in another way than at the next; every other spelling of it is unknown,
// in an answer that nothing tells apart, and reaches no server.
func TestAccessReachesItsOwner(t *testing.T) {
	servers := map[string]*mcptest.Server{
		"hub":     {Tools: signed("hub", "read", "write", "pay")},
		"old":     {Era: mcptest.Legacy, Tools: signed("old", "read", "write")},
		"db@red":  {Tools: signed("db@red", "query", "drop", "read_red")},
		"db@blue": {Tools: signed("db@blue", "query", "drop", "read_blue")},
	}
	own := func(id string) string { return `"own_upstreams":{"db":` + entry(servers[id].StartHTTP(t)) + `}` }
	g := launch(t, parseConfig(t, map[string]string{"hub": entry(servers["hub"].StartHTTP(t)), "old": entry(servers["old"].StartHTTP(t))},
		keys(keyOf("rex", "rex", []string{"red"}, nil), keyOf("bea", "bea", []string{"blue"}, nil), keyOf("bo", "bo", []string{"blue"}, []string{"a:pay", "b:pay"}),
			keyOf("duo", "duo", []string{"red", "blue"}, []string{"a:pay"}), keyOf("gil", "gil", []string{"green"}, nil), keyOf("nil", "nil", nil, nil)),
		`"teams":{
			"red":{"upstreams":["hub"],"naming":{"separator":"."},`+own("db@red")+`,"rules":[{"allow":["hub_write","server:db"]},{"deny":["db_drop","hub.write"]}]},
			"blue":{"upstreams":["hub","old"],`+own("db@blue")+`,"rules":[{"allow":["annotation:readOnlyHint","db_query"]},
				{"allow":["hub_pay"],"require_scope":["b:pay","a:pay"]},{"allow":["old_write"],"when":"caller.subject == 'duo'"},{"deny":["server:old"],"when":"caller.subject == 'bo'"}]},
			"green":{"upstreams":["old"],"naming":{"separator":"__"},"rules":[{"allow":["*"]},{"deny":["old_write"],"when":"tool.name == 'old_write' && caller.subject == 'gil'"}]}}`), Options{})

	const stepUp = "403"
	expect := map[string]map[string]string{ // by caller and endpoint: what a name leads to
		// Rules mean the names of /mcp, whatever a team's own endpoint makes of them.
		"rex":      {"hub_write": "hub/write", "db_query": "db@red/query", "db_read_red": "db@red/read_red"},
		"rex red":  {"hub.write": "hub/write", "db.query": "db@red/query", "db.read_red": "db@red/read_red"},
		"bea":      {"hub_read": "hub/read", "old_read": "old/read", "db_query": "db@blue/query", "db_read_blue": "db@blue/read_blue", "hub_pay": stepUp},
		"bo":       {"hub_read": "hub/read", "db_query": "db@blue/query", "db_read_blue": "db@blue/read_blue", "hub_pay": "hub/pay"},
		"duo red":  {"hub.write": "hub/write", "db.query": "db@red/query", "db.read_red": "db@red/read_red"},
		"duo blue": {"hub_read": "hub/read", "old_read": "old/read", "old_write": "old/write", "db_query": "db@blue/query", "db_read_blue": "db@blue/read_blue", "hub_pay": stepUp},
		// Both teams have a db with a query: the first team's has the name.
		"duo": {"hub_read": "hub/read", "hub_write": "hub/write", "old_read": "old/read", "old_write": "old/write", "hub_pay": stepUp,
			"db_query": "db@blue/query", "db_read_blue": "db@blue/read_blue", "db_read_red": "db@red/read_red"},
		"gil":       {"old_read": "old/read"},
		"gil green": {"old__read": "old/read"},
		"nil":       {},
	}
	expect["bea blue"], expect["bo blue"] = expect["bea"], expect["bo"]
	teams := map[string][]string{"rex": {"red"}, "bea": {"blue"}, "bo": {"blue"}, "duo": {"red", "blue"}, "gil": {"green"}}
	scopes := map[string][]string{"bo": {"a:pay", "b:pay"}, "duo": {"a:pay"}}

	// Every way to write every tool.
	spellings := map[string]bool{"": true, "_": true, "db": true, "db_": true, "hub/read": true}
	for id, s := range servers {
		server, _, _ := strings.Cut(id, "@")
		for _, tool := range s.Tools {
			name := strings.Trim(at(t, tool.Def, "name"), `"`)
			for _, separator := range []string{"_", ".", "-", "__", "%5F", "%2E", "/", ""} {
				spellings[server+separator+name] = true
			}
			spellings[name], spellings[strings.ToUpper(server+"_"+name)], spellings[server+"_"+name+" "] = true, true, true
		}
	}
	never := "no_such_thing"
	ran, combinations := 0, 0
	for _, place := range slices.Sorted(maps.Keys(expect)) {
		want := expect[place]
		caller, team, _ := strings.Cut(place, " ")
		door := g.endpoint(team)
		explained, _ := g.Explain(authz.NewCaller(caller, teams[caller], scopes[caller]), team)
		said := map[string]string{}
		for _, e := range explained {
			if e.Decision.Allowed {
				said[e.Name] = e.Original
				if (len(e.Decision.Scopes) > 0) != (want[e.Name] == stepUp) || e.Decision.Why == "" {
					t.Errorf("%s: %s is explained as %+v", place, e.Name, e.Decision)
				}
			}
		}
		for _, era := range []string{"modern", "legacy"} {
			session := ""
			if era == "legacy" {
				session = door.openAs(caller)
			}
			if listed := door.listAs(caller, session); !slices.Equal(listed, slices.Sorted(maps.Keys(want))) || !slices.Equal(listed, slices.Sorted(maps.Keys(said))) {
				t.Errorf("%s, %s: the list is %v, want %v; explained are %v", place, era, listed, want, said)
			}
			unknown := visible(door.callAs(caller, session, never))
			for _, name := range slices.Sorted(maps.Keys(spellings)) {
				combinations++
				r := door.callAs(caller, session, name)
				switch owner := want[name]; owner {
				case "":
					b := string(wire.AppendString(nil, name))
					if got := strings.Replace(visible(r), "tool: "+b[1:len(b)-1], "tool: "+never, 1); got != unknown {
						t.Errorf("%s, %s: %q gives %s, want %s", place, era, name, got, unknown)
					}
				case stepUp:
					challenge := r.header.Get("Www-Authenticate")
					where := `resource_metadata="` + strings.TrimSuffix(g.url, "/mcp") + metadataPath + endpoint(team).path() + `"`
					if r.status != http.StatusForbidden || challenge != `Bearer error="insufficient_scope", `+where+`, scope="a:pay b:pay"` {
						t.Errorf("%s, %s: %s gives %d %s %s", place, era, name, r.status, challenge, r.body)
					}
				default:
					ran++
					if r.status != http.StatusOK || !strings.Contains(at(t, r.body, "result", "content"), `"`+owner+`"`) {
						t.Errorf("%s, %s: %s gives %d %s, want the answer of %s", place, era, name, r.status, r.body, owner)
					}
				}
			}
		}
	}
	executed := 0
	for _, s := range servers {
		for _, tool := range s.Tools {
			executed += s.Executions(strings.Trim(at(t, tool.Def, "name"), `"`))
		}
	}
	if executed != ran {
		t.Errorf("the servers ran %d calls, %d were allowed", executed, ran)
	}
	if combinations < 500 {
		t.Errorf("%d combinations", combinations)
	}
}

// TestAccessCredentials: a key counts in the one place for it, and what is said to everybody else is the
// same wherever they looked and whatever they say of themselves.
func TestAccessCredentials(t *testing.T) {
	g, _, _ := accessGate(t, `"allowed_origins":["https://app.example.com"]`)
	root := strings.TrimSuffix(g.url, "/mcp")
	list := func(g *gate, header ...string) reply {
		return g.post(modernBody("1", "tools/list", ""), modernHeaders("tools/list", header...)...)
	}
	for name, header := range map[string][]string{
		"small letters": {"Authorization: bearer key-of-ann"}, "great letters": {"Authorization: BEARER key-of-ann"}, "spaces": {"Authorization: Bearer   key-of-ann"},
	} {
		if r := list(g, header...); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	query := *g
	query.url += "?access_token=key-of-ann&token=key-of-ann&api_key=key-of-ann"
	for name, tt := range map[string]struct {
		r    reply
		code string
	}{
		"nothing":           {list(g), ""},
		"forwarded":         {list(g, "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "Forwarded: host=evil.example;proto=https"), ""},
		"query":             {list(&query), ""},
		"cookie":            {list(g, "Cookie: token=key-of-ann; Authorization=Bearer key-of-ann"), ""},
		"other headers":     {list(g, "X-Api-Key: key-of-ann", "Proxy-Authorization: Bearer key-of-ann"), ""},
		"form":              {g.post("access_token=key-of-ann", "Content-Type: application/x-www-form-urlencoded"), ""},
		"session only":      {g.post(legacyBody("1", "tools/list", ""), g.openAs("ann")), ""},
		"query and unknown": {list(&query, "Authorization: Bearer x"), "invalid_token"},
		"scheme alone":      {list(g, "Authorization: Bearer"), "invalid_token"},
		"key alone":         {list(g, "Authorization: key-of-ann"), "invalid_token"},
		"two in one":        {list(g, "Authorization: Bearer key-of-ann, Bearer key-of-ann"), "invalid_token"},
		"key and more":      {list(g, "Authorization: Bearer key-of-ann x"), "invalid_token"},
		"case of the key":   {list(g, "Authorization: Bearer KEY-OF-ANN"), "invalid_token"},
		"good then bad":     {list(g, bearer("ann"), "Authorization: Bearer x"), "invalid_token"},
		"much":              {list(g, "Authorization: Bearer "+strings.Repeat("a.", 50<<10)), "invalid_token"},
	} {
		want := `Bearer resource_metadata="` + root + metadataPath + `/mcp", scope="pay:more pay:some"`
		if tt.code != "" {
			want = strings.Replace(want, "Bearer ", `Bearer error="`+tt.code+`", `, 1)
		}
		if got := tt.r.header.Values("Www-Authenticate"); tt.r.status != http.StatusUnauthorized || len(got) != 1 || got[0] != want || strings.Contains(tt.r.body, "key-of") {
			t.Errorf("%s: %d %q %s, want %s", name, tt.r.status, got, tt.r.body, want)
		}
	}

	// A name in the path stays within the quotes of the challenge.
	odd := *g
	odd.url = root + `/teams/a%22,%20error=%22insufficient_scope%0D%0AX:%20y/mcp`
	if c := list(&odd).header.Get("Www-Authenticate"); strings.Count(c, `"`) != 4 || strings.Contains(c, " error=") || !strings.Contains(c, "/teams/a%22") {
		t.Errorf("the challenge at an odd path: %s", c)
	}

	// Pages of allowed origins can read every refusal, those of others none.
	origin := "Origin: https://app.example.com"
	for name, tt := range map[string]struct {
		r      reply
		status int
	}{
		"401":       {list(g, origin), http.StatusUnauthorized},
		"403":       {g.post(modernBody("1", "tools/call", callParams("hub_pay", "")), modernHeaders("tools/call", "Mcp-Name: hub_pay", bearer("gus"), origin)...), http.StatusForbidden},
		"404":       {list(g.endpoint("red"), bearer("bob"), origin), http.StatusNotFound},
		"preflight": {g.do(g.request(http.MethodOptions, "", origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")), http.StatusNoContent},
	} {
		if tt.r.status != tt.status || tt.r.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" || !strings.Contains(tt.r.header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
			t.Errorf("%s: %d %v", name, tt.r.status, tt.r.header)
		}
	}
	for _, header := range [][]string{{"Origin: https://evil.example"}, {"Origin: https://evil.example", bearer("ann")}, {origin, "Origin: https://evil.example", bearer("ann")}} {
		if r := list(g, header...); r.status != http.StatusForbidden || r.header.Get("Access-Control-Allow-Origin") != "" || r.header.Get("Www-Authenticate") != "" {
			t.Errorf("%v: %d %v", header, r.status, r.header)
		}
	}
}

// TestAccessForeignTeams: a team that is not the caller's is told from one that does not exist by nothing.
func TestAccessForeignTeams(t *testing.T) {
	g, _, _ := accessGate(t)
	session := g.openAs("ann")
	for name, ask := range map[string]func(g *gate) reply{
		"list":       func(g *gate) reply { return g.modern("1", "tools/list", "", bearer("ann")) },
		"call":       func(g *gate) reply { return g.callAs("ann", "", "hub_read") },
		"initialize": func(g *gate) reply { return g.post(initializeBody, bearer("ann")) },
		"session":    func(g *gate) reply { return g.callAs("ann", session, "hub_read") },
		"no message": func(g *gate) reply { return g.post("{", bearer("ann")) },
		"GET":        func(g *gate) reply { return g.do(g.request(http.MethodGet, "", session, bearer("ann"))) },
		"DELETE":     func(g *gate) reply { return g.do(g.request(http.MethodDelete, "", session, bearer("ann"))) },
		"PUT":        func(g *gate) reply { return g.do(g.request(http.MethodPut, "", bearer("ann"))) },
	} {
		none := ask(g.endpoint("nobody"))
		if foreign := ask(g.endpoint("blue")); foreign.status != http.StatusNotFound || visible(foreign) != visible(none) {
			t.Errorf("%s: %s, of a team that does not exist: %s", name, visible(foreign), visible(none))
		}
	}
	// Without a caller there is nothing to tell apart either, save the path that was asked for.
	foreign, none := g.endpoint("blue").post("{"), g.endpoint("nobody").post("{")
	if got := strings.ReplaceAll(visible(foreign), "/blue/", "/nobody/"); foreign.status != http.StatusUnauthorized || got != visible(none) {
		t.Errorf("%s, of a team that does not exist: %s", got, visible(none))
	}
}

// TestAccessMetadata: the documents need no caller, say the configured URL whatever the request says of
// itself, and are not there where nobody needs credentials.
func TestAccessMetadata(t *testing.T) {
	configured, _, _ := accessGate(t, `"public_url":"https://gw.example.com/base/mcp"`)
	silent, _, _ := accessGate(t)
	open := launch(t, parseConfig(t, nil), Options{})
	root := func(g *gate) string { return strings.TrimSuffix(g.url, "/mcp") }
	get := func(g *gate, method, path string, header ...string) reply {
		there := *g
		there.url = root(g) + path
		return there.do(there.request(method, "", header...))
	}
	forwarded := []string{"X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "X-Forwarded-Prefix: /evil", "Forwarded: host=evil.example"}
	for path, endpoint := range map[string]string{
		"": "/mcp", "/": "/mcp", "/mcp": "/mcp", "/mcp/": "/mcp", "/teams/red/mcp": "/teams/red/mcp", "/teams/nobody/mcp": "/teams/nobody/mcp",
	} {
		for _, tt := range []struct {
			g    *gate
			base string
		}{{configured, "https://gw.example.com/base"}, {silent, root(silent)}} {
			want := `{"resource":"` + tt.base + endpoint + `","scopes_supported":["pay:more","pay:some"],"bearer_methods_supported":["header"],"resource_name":"Headgate"}`
			for _, header := range [][]string{nil, forwarded, {"Authorization: Bearer nonsense"}} {
				if r := get(tt.g, http.MethodGet, metadataPath+path, header...); r.status != http.StatusOK || r.body != want || r.header.Get("Content-Type") != "application/json" {
					t.Errorf("%s %v: %d %s, want %s", path, header, r.status, r.body, want)
				}
			}
			if r := get(tt.g, http.MethodHead, metadataPath+path); r.status != http.StatusOK || r.body != "" {
				t.Errorf("HEAD %s: %d %s", path, r.status, r.body)
			}
			if r := get(tt.g, http.MethodPost, metadataPath+path); r.status != http.StatusMethodNotAllowed {
				t.Errorf("POST %s: %d %s", path, r.status, r.body)
			}
		}
		if r := get(open, http.MethodGet, metadataPath+path); r.status != http.StatusNotFound {
			t.Errorf("%s without authentication: %d %s", path, r.status, r.body)
		}
	}
	for _, path := range []string{"/other", "/teams/mcp", "/teams//mcp", "/teams/red", "/teams/a/b/mcp", "/mcp/more", "/TEAMS/red/mcp"} {
		there := *silent
		there.http = &http.Client{Transport: silent.http.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		if r := get(&there, http.MethodGet, metadataPath+path); r.status == http.StatusOK {
			t.Errorf("metadata of %s: %d %s", path, r.status, r.body)
		}
	}
	// The challenge leads to a document about the very endpoint that gave it, also where a path comes before.
	for _, team := range []string{"", "red", "nobody"} {
		c := configured.endpoint(team).post("{").header.Get("Www-Authenticate")
		if want := `resource_metadata="https://gw.example.com` + metadataPath + "/base" + endpoint(team).path() + `"`; !strings.Contains(c, want) {
			t.Errorf("team %q: %s, want %s", team, c, want)
		}
	}
	if r := get(silent, http.MethodGet, "/healthz"); r.status != http.StatusOK || r.body != "ok\n" {
		t.Errorf("healthz: %d %s", r.status, r.body)
	}
}

// TestAccessSessions: a session and a cursor are the subject's at one endpoint, whichever key it comes
// with, as long as the configuration lets it in there.
func TestAccessSessions(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("a", "b", "c")}
	shared := map[string]string{"x": entry(s.StartHTTP(t))}
	team := func(name string) string { return `"` + name + `":{"upstreams":["x"],"rules":[{"allow":["*"]}]}` }
	ann := []string{keyOf("ann", "ann", []string{"t", "u"}, nil), keyOf("ann2", "ann", []string{"t", "u"}, nil)}
	bob := keyOf("bob", "bob", []string{"t", "u"}, nil)
	more := `"lists":{"page_size":1}`
	g := launch(t, parseConfig(t, shared, more, keys(append(ann, bob)...), `"teams":{`+team("t")+`,`+team("u")+`}`), Options{})
	use := func(door *gate, method, session, who string) reply {
		return door.do(door.request(method, legacyBody("1", "tools/list", ""), session, bearer(who)))
	}
	doors := map[string]*gate{"": g, "t": g.endpoint("t"), "u": g.endpoint("u")}
	for home, door := range doors {
		session := door.openAs("ann")
		cursor := `"cursor":` + at(t, door.modern("1", "tools/list", "", bearer("ann")).body, "result", "nextCursor")
		onSession := `"cursor":` + at(t, use(door, http.MethodPost, session, "ann").body, "result", "nextCursor")
		for place, there := range doors {
			for _, who := range []string{"ann", "ann2", "bob"} {
				own := place == home && who != "bob"
				for _, c := range []string{cursor, onSession} {
					r := there.modern("1", "tools/list", c, bearer(who))
					if names := at(t, r.body, "result", "tools"); strings.Contains(names, `"x_b"`) != own || (at(t, r.body, "error", "code") == "-32602") == own {
						t.Errorf("the cursor of %q used by %s at %q: %s", home, who, place, r.body)
					}
				}
				if own {
					if r := use(there, http.MethodPost, session, who); r.status != http.StatusOK {
						t.Errorf("the session of %q used by %s: %d %s", home, who, r.status, r.body)
					}
					continue
				}
				for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
					foreign, none := use(there, method, session, who), use(there, method, sessionHeader+": nothing", who)
					if foreign.status != http.StatusNotFound || visible(foreign) != visible(none) {
						t.Errorf("%s on the session of %q by %s at %q: %s, on none: %s", method, home, who, place, visible(foreign), visible(none))
					}
				}
			}
		}
		// Whoever was refused has ended nothing; the subject's other key does.
		if r := use(door, http.MethodDelete, session, "ann2"); r.status != http.StatusNoContent {
			t.Errorf("DELETE with the other key: %d %s", r.status, r.body)
		}
		if r := use(door, http.MethodPost, session, "ann"); r.status != http.StatusNotFound {
			t.Errorf("after DELETE: %d %s", r.status, r.body)
		}
	}

	// A session opens nothing that its caller has lost.
	inTeam, inUnion := doors["t"].openAs("ann"), g.openAs("bob")
	if err := g.Apply(parseConfig(t, shared, more, keys(keyOf("ann", "ann", []string{"u"}, nil)), `"teams":{`+team("t")+`,`+team("u")+`}`)); err != nil {
		t.Fatal(err)
	}
	if r, none := use(doors["t"], http.MethodPost, inTeam, "ann"), use(g.endpoint("nobody"), http.MethodPost, inTeam, "ann"); r.status != http.StatusNotFound || visible(r) != visible(none) {
		t.Errorf("a session in a team that was left: %d %s", r.status, r.body)
	}
	if r := use(g, http.MethodPost, inUnion, "bob"); r.status != http.StatusUnauthorized {
		t.Errorf("a session of a key that was withdrawn: %d %s", r.status, r.body)
	}
}

// TestAccessOneNameForTwo: of two tools that have one name, a caller gets the first that it may use; where
// a team's own names tell the two apart, it gets both.
func TestAccessOneNameForTwo(t *testing.T) {
	a, b := &mcptest.Server{Tools: signed("a", "q_r")}, &mcptest.Server{Tools: signed("b", "r")}
	red, blue := &mcptest.Server{Tools: signed("red", "query")}, &mcptest.Server{Tools: signed("blue", "query", "other")}
	g := launch(t, parseConfig(t, map[string]string{"a": entry(a.StartHTTP(t), `"prefix":"p"`), "b": entry(b.StartHTTP(t), `"prefix":"p_q"`)},
		keys(keyEntry("ann", "dots"), keyEntry("duo", "blue", "red")),
		`"teams":{"dots":{"upstreams":["a","b"],"naming":{"separator":"."},"rules":[{"allow":["p_q_r"]}]},
			"red":{"own_upstreams":{"db":`+entry(red.StartHTTP(t))+`},"rules":[{"allow":["*"]}]},
			"blue":{"own_upstreams":{"db":`+entry(blue.StartHTTP(t))+`},"rules":[{"allow":["*other"]}]}}`), Options{})
	for _, tt := range []struct {
		caller, team string
		want         map[string]string // names and what they lead to
	}{
		{"ann", "", map[string]string{"p_q_r": "a/q_r"}},
		{"ann", "dots", map[string]string{"p.q_r": "a/q_r", "p_q.r": "b/r"}},
		{"duo", "", map[string]string{"db_query": "red/query", "db_other": "blue/other"}},
	} {
		door := g.endpoint(tt.team)
		if listed := door.listAs(tt.caller, ""); !slices.Equal(listed, slices.Sorted(maps.Keys(tt.want))) {
			t.Errorf("%s at %q: %v, want %v", tt.caller, tt.team, listed, tt.want)
		}
		for name, owner := range tt.want {
			if r := door.callAs(tt.caller, "", name); !strings.Contains(at(t, r.body, "result", "content"), `"`+owner+`"`) {
				t.Errorf("%s at %q: %s gives %s, want the answer of %s", tt.caller, tt.team, name, r.body, owner)
			}
		}
	}
}
