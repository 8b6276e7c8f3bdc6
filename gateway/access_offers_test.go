package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
)

// offersGate is to prompts and resources what accessGate is to tools.
func offersGate(t *testing.T) *gate {
	server := func(name, era string, l library, uris ...string) string {
		l.capabilities = `"completions":{}`
		l.read = readers("of "+name, missingModern, uris...)
		return entry(l.shelve(&mcptest.Server{Name: name, Era: era}).StartHTTP(t))
	}
	up := map[string]string{
		"hub": server("hub", mcptest.Modern, library{prompts: []string{promptDef("read"), promptDef("delete"), promptDef("pay")},
			resources: []string{resourceDef("doc://open"), resourceDef("doc://secret")}, templates: []string{templateDef("note://{id}"), templateDef("pay://{id}")}},
			"doc://open", "doc://secret", "note://5", "note://9", "pay://1"),
		"files": server("files", mcptest.Legacy, library{prompts: []string{promptDef("read")}, resources: []string{resourceDef("doc://open"), resourceDef("doc://files")},
			templates: []string{templateDef("note://{id}")}}, "doc://open", "doc://files", "note://5", "note://9"),
	}
	db := func(name string) string {
		return server(name, mcptest.Modern, library{prompts: []string{promptDef("query")}, resources: []string{resourceDef("db://rows")}}, "db://rows")
	}
	teams := `"teams":{
		"red":{"upstreams":["hub"],"own_upstreams":{"db":` + db("red's") + `},"rules":[{"allow":["*"]},{"deny":["*_delete","doc://secret","note://9*"]}]},
		"blue":{"upstreams":["hub","files"],"own_upstreams":{"db":` + db("blue's") + `},
			"rules":[{"allow":["server:files","db_*","db://*"]},{"allow":["doc://*"],"when":"tool.kind == 'resource' && caller.subject.startsWith('b')"}]},
		"green":{"upstreams":["hub"],"rules":[{"allow":["hub_delete"]},{"allow":["hub_pay","pay://*"],"require_scope":["pay:more"]}]},
		"empty":{"upstreams":["hub"],"rules":[{"deny":["hub_read"]}]}}`
	auth := keys(keyEntry("ann", "red"), keyEntry("bob", "blue"), keyEntry("cid", "blue"), keyEntry("dan", "red", "blue"), keyEntry("eve", "empty"), keyEntry("gus", "green"), keyEntry("fay"))
	return launch(t, parseConfig(t, up, auth, teams), Options{})
}

// TestAccessMatrixOfOffers holds lists to what may be used: for every caller, endpoint, era and name, a
// prompt or a resource is listed exactly if it is not unknown when it is asked for, completed or watched,
// and what explains it says the same.
func TestAccessMatrixOfOffers(t *testing.T) {
	g := offersGate(t)
	const openOfHub = "headgate://hub/doc://open" // where files has the plain one
	type shows struct{ prompts, resources, templates []string }
	red := shows{[]string{"db_query", "hub_pay", "hub_read"}, []string{"db://rows", "doc://open"}, []string{"note://{id}", "pay://{id}"}}
	cid := shows{[]string{"db_query", "files_read"}, []string{"db://rows", "doc://files", "doc://open"}, []string{"note://{id}"}}
	bob := shows{[]string{"db_query", "files_read"}, []string{"db://rows", "doc://files", "doc://open", "doc://secret", openOfHub}, []string{"note://{id}"}}
	green := shows{[]string{"hub_delete", "hub_pay"}, nil, []string{"pay://{id}"}}
	expect := map[string]shows{
		"ann": red, "ann red": red, "bob": bob, "bob blue": bob, "cid": cid, "cid blue": cid, "gus": green, "gus green": green,
		"eve": {}, "eve empty": {}, "fay": {}, "dan red": red, "dan blue": cid,
		"dan": {[]string{"db_query", "files_read", "hub_pay", "hub_read"}, []string{"db://rows", "doc://files", "doc://open", "headgate://db/db://rows", openOfHub},
			[]string{"headgate://hub/note://{id}", "note://{id}", "pay://{id}"}},
	}
	// Instances of templates, and aliases that no list shows, by whether they can be read.
	readable := map[string][]string{
		"ann": {"note://5", "pay://1", "headgate://hub/doc://open"}, "bob": {"note://5", "note://9", openOfHub, "headgate://hub/doc://secret", "headgate://files/note://9"},
		"cid": {"note://5", "note://9", "headgate://files/note://9"}, "gus": {"pay://1"},
		"dan": {"note://5", "note://9", "pay://1", openOfHub, "headgate://files/note://9"},
	}
	teamsOf := map[string][]string{"ann": {"red"}, "bob": {"blue"}, "cid": {"blue"}, "dan": {"blue", "red"}, "eve": {"empty"}, "gus": {"green"}}
	names := []string{"hub_read", "hub_delete", "hub_pay", "files_read", "db_query", "read", "HUB_READ", "hub_none"}
	uris := []string{"doc://open", "doc://secret", "doc://files", "db://rows", "headgate://files/doc://open", "headgate://db/db://rows", "doc://none", "DOC://open", "doc://open/"}
	extra := []string{"note://5", "note://9", "pay://1", "headgate://hub/doc://open", "headgate://hub/doc://secret", "headgate://files/note://9"}
	combinations := 0
	for place, want := range expect {
		caller, team, _ := strings.Cut(place, " ")
		door := g.endpoint(team)
		identity := authz.NewCaller(caller, teamsOf[caller], nil)
		for _, era := range []string{"modern", "legacy"} {
			session := ""
			if era == "legacy" {
				session = door.openAs(caller)
			}
			for _, list := range []struct {
				method, member, key string
				listing             Listing
				want                []string
			}{{"prompts/list", "prompts", "name", Prompts, want.prompts}, {"resources/list", "resources", "uri", Resources, want.resources},
				{"resources/templates/list", "resourceTemplates", "uriTemplate", Templates, want.templates}} {
				message := door.ask(session, list.method, "", bearer(caller))
				if caller == "fay" {
					if at(t, message, "error", "code") != "-32601" {
						t.Errorf("%s, %s: %s: %s", place, era, list.method, message)
					}
					continue
				}
				if got := keysOf(t, message, list.member, list.key); !slices.Equal(got, list.want) {
					t.Errorf("%s, %s: %s: %v, want %v", place, era, list.method, got, list.want)
				}
				if era == "modern" && at(t, message, "result", "cacheScope") != `"private"` {
					t.Errorf("%s: %s: %s", place, list.method, message)
				}
				explained, _ := g.ExplainOffers(identity, team, list.listing)
				var allowed []string
				for _, e := range explained {
					if e.Decision.Allowed {
						allowed = append(allowed, e.Name)
					}
				}
				if slices.Sort(allowed); !slices.Equal(allowed, list.want) || len(explained) < len(allowed) {
					t.Errorf("%s: %s is explained as %+v", place, list.method, explained)
				}
			}
			if caller == "fay" {
				continue
			}
			stepUp := func(r reply, what string) {
				if r.status == http.StatusForbidden && caller != "gus" {
					t.Errorf("%s, %s: %s: a step-up: %s", place, era, what, r.body)
				}
				if strings.Contains(what, "pay") && caller == "gus" && (r.status != http.StatusForbidden || !strings.Contains(r.header.Get("Www-Authenticate"), `scope="pay:more"`)) {
					t.Errorf("%s, %s: %s: no step-up: %d %s", place, era, what, r.status, r.body)
				}
			}
			for _, name := range names {
				unknown := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown prompt: %s"}}`, name)
				for method, params := range map[string]string{"prompts/get": `"name":"` + name + `"`,
					"completion/complete": `"ref":{"type":"ref/prompt","name":"` + name + `"},"argument":{"name":"a","value":""}`} {
					combinations++
					r := door.asked(session, method, params, bearer(caller))
					listed := slices.Contains(want.prompts, name)
					if (r.message() == unknown && r.status == http.StatusOK) == listed {
						t.Errorf("%s, %s: %s of %s (listed: %v): %d %s", place, era, method, name, listed, r.status, r.body)
					}
					if listed {
						stepUp(r, name)
					}
				}
			}
			code := map[string]string{"modern": "-32602", "legacy": "-32002"}[era]
			for _, uri := range append(slices.Clone(uris), extra...) {
				combinations++
				unknown := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%s,"message":"Resource not found","data":{"uri":"%s"}}}`, code, uri)
				may := slices.Contains(want.resources, uri)
				if slices.Contains(extra, uri) {
					if team != "" {
						continue
					}
					may = slices.Contains(readable[caller], uri)
				} else if strings.HasPrefix(uri, "headgate://files/") {
					may = slices.Contains(want.resources, "doc://files") // it is listed by its plain name
				}
				if uri == "doc://none" || uri == "DOC://open" || uri == "doc://open/" || uri == "headgate://db/db://rows" && place != "dan" {
					continue // asked for where rules allow it: TestUnlistedIsRuled
				}
				r := door.asked(session, "resources/read", `"uri":"`+uri+`"`, bearer(caller))
				if (r.message() == unknown && r.status == http.StatusOK) == may {
					t.Errorf("%s, %s: reading %s (may: %v): %d %s", place, era, uri, may, r.status, r.body)
				}
				if may {
					stepUp(r, uri)
				}
				if session != "" {
					r := door.asked(session, "resources/subscribe", `"uri":"`+uri+`"`, bearer(caller))
					if !may && r.message() != unknown {
						t.Errorf("%s: watching %s: %s", place, uri, r.body)
					}
				}
			}
			for _, uri := range []string{"note://{id}", "pay://{id}", "headgate://hub/note://{id}", "none://{id}"} {
				combinations++
				unknown := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown resource template: %s"}}`, uri)
				r := door.asked(session, "completion/complete", `"ref":{"type":"ref/resource","uri":"`+uri+`"},"argument":{"name":"id","value":""}`, bearer(caller))
				if listed := slices.Contains(want.templates, uri); (r.message() == unknown) == listed {
					t.Errorf("%s, %s: completing %s (listed: %v): %s", place, era, uri, listed, r.body)
				}
			}
		}
	}
	if combinations < 500 {
		t.Errorf("%d combinations", combinations)
	}
	t.Logf("%d combinations", combinations)
}

// TestUnlistedIsRuled: a URI that nobody lists is asked for only at servers where the caller may read it.
func TestUnlistedIsRuled(t *testing.T) {
	a := library{resources: []string{}}.shelve(&mcptest.Server{Name: "A"})
	b := library{resources: []string{}}.shelve(&mcptest.Server{Name: "B"})
	g := launch(t, parseConfig(t, map[string]string{"a": entry(a.StartHTTP(t)), "b": entry(b.StartHTTP(t))}, keys(keyEntry("ann", "t")),
		`"teams":{"t":{"upstreams":["a","b"],"rules":[{"allow":["server:b","n://open*"]},{"deny":["n://*/secret"]}]}}`), Options{})
	for uri, want := range map[string]string{"n://x": "of B", "n://open": "of A", "headgate://a/n://open1": "of A", "headgate://b/n://x": "of B",
		"headgate://a/n://x": "", "n://b/secret": "", "headgate://b/n://b/secret": "", "n://open/secret": ""} {
		got := g.ask("", "resources/read", `"uri":"`+uri+`"`, bearer("ann"))
		if want == "" && at(t, got, "error", "message") != `"Resource not found"` || want != "" && readText(t, got) != want {
			t.Errorf("%s: %s", uri, got)
		}
	}
	for _, r := range slices.Concat(a.Requests(), b.Requests()) {
		if strings.Contains(string(r.Body), "secret") || r.Method == "resources/read" && strings.Contains(string(r.Body), "headgate:") {
			t.Errorf("a server was asked: %s", r.Body)
		}
	}
}
