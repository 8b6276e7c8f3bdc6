package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
)

// TestUnionIsWhatTheTeamsHave: a caller of two teams has at /mcp every name that one of them has, and a name
// that both have leads to a server that the caller may use. What a team keeps from its members takes no name
// from another's.
func TestUnionIsWhatTheTeamsHave(t *testing.T) {
	red := &mcptest.Server{Tools: signed("red", "query", "drop")}
	blue := &mcptest.Server{Tools: signed("blue", "query", "drop")}
	redEntry, blueEntry := entry(red.StartHTTP(t)), entry(blue.StartHTTP(t))
	for name, tt := range map[string]struct {
		blue string // rules of the team that comes first
		want map[string]string
	}{
		"both":           {`[{"allow":["*"]}]`, map[string]string{"db_query": "blue/query", "db_drop": "blue/drop"}},
		"after a grant":  {`[{"allow":["*"],"require_scope":["db:write"]}]`, map[string]string{"db_query": "red/query", "db_drop": "red/drop"}},
		"denied":         {`[{"allow":["*"]},{"deny":["db_query"]}]`, map[string]string{"db_query": "red/query", "db_drop": "blue/drop"}},
		"not allowed":    {`[{"allow":["none"]}]`, map[string]string{"db_query": "red/query", "db_drop": "red/drop"}},
		"not to be told": {`[{"allow":["*"],"when":"caller.claims.none == 1"}]`, map[string]string{"db_query": "red/query", "db_drop": "red/drop"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := launch(t, parseConfig(t, nil, keys(keyEntry("duo", "blue", "red")),
				`"teams":{"blue":{"own_upstreams":{"db":`+blueEntry+`},"rules":`+tt.blue+`},
					"red":{"own_upstreams":{"db":`+redEntry+`},"rules":[{"allow":["*"]}]}}`), Options{})
			for _, session := range []string{"", g.openAs("duo")} {
				if got := fmt.Sprint(g.listAs("duo", session)); got != "[db_drop db_query]" {
					t.Errorf("the list is %s", got)
				}
				for tool, owner := range tt.want {
					if r := g.callAs("duo", session, tool); !strings.Contains(at(t, r.body, "result", "content"), `"`+owner+`"`) {
						t.Errorf("%s: %d %s, want the answer of %s", tool, r.status, r.body, owner)
					}
				}
			}
			explained, _ := g.Explain(authz.NewCaller("duo", []string{"blue", "red"}, nil), "")
			var shown []string
			for _, e := range explained {
				if e.Decision.Allowed {
					shown = append(shown, e.Name)
				}
			}
			if fmt.Sprint(shown) != "[db_drop db_query]" {
				t.Errorf("explained are %v: %+v", shown, explained)
			}
		})
	}
}

// TestChangeBetweenRequestAndStream: a list that changes after a request for a stream was let in, and
// before the stream stands, is told of, and so is a change back to what it was.
func TestChangeBetweenRequestAndStream(t *testing.T) {
	g := launch(t, parseConfig(t, map[string]string{"x": entry((&mcptest.Server{Tools: mcptest.Builtin("a")}).StartHTTP(t))}), Options{})
	at, _ := g.admit(authz.Anonymous(), "")
	g.disturb()
	w := g.watch(at)
	defer w.close()
	for _, when := range []string{"before the stream stood", "back again"} {
		select {
		case <-w.signal:
			if !w.changed(g.Gateway).tools {
				t.Errorf("%s: the change is not seen", when)
			}
		default:
			t.Errorf("%s: no signal", when)
		}
		g.disturb()
	}
}

// TestUnseenServers: of a server of which a caller sees nothing, nothing is said, whatever keeps it from
// the caller; a cursor that was given before does not show what has been hidden since; and methods that
// Headgate does not serve answer alike for what is hidden, shown, or not there.
func TestUnseenServers(t *testing.T) {
	a := &mcptest.Server{Instructions: "A's secret ways", Capabilities: `{"logging":{}}`, Tools: mcptest.Builtin("one", "two")}
	b := &mcptest.Server{Instructions: "How B works", Tools: mcptest.Builtin("one", "two", "three")}
	up := map[string]string{"a": entry(a.StartHTTP(t)), "b": entry(b.StartHTTP(t))}
	config := func(rules string) []string {
		return []string{`"lists":{"page_size":1}`, keys(keyEntry("bob", "t"), keyEntry("ann", "all")),
			`"teams":{"all":{"upstreams":["a","b"],"rules":[{"allow":["*"]}]},"t":{"upstreams":["a","b"],"rules":[` + rules + `]}}`}
	}
	g := launch(t, parseConfig(t, up, config(`{"allow":["*"]}`)...), Options{})
	first := g.modern("1", "tools/list", "", bearer("bob"))
	cursor := `"cursor":` + at(t, first.body, "result", "nextCursor")
	if names := fmt.Sprint(toolNames(t, at(t, first.body, "result"))); names != "[a_one]" {
		t.Fatalf("the first page is %s", names)
	}
	for name, rules := range map[string]string{
		"denied":              `{"allow":["*"]},{"deny":["server:a","b_one"]}`,
		"not allowed":         `{"allow":["b_t*"]}`,
		"by a condition":      `{"allow":["*"],"when":"tool.server == 'b' && tool.original != 'one'"}`,
		"cannot be evaluated": `{"allow":["b_t*"]},{"allow":["a_*"],"when":"caller.claims.none == 1"}`,
	} {
		if err := g.Apply(parseConfig(t, up, config(rules)...)); err != nil {
			t.Fatal(err)
		}
		for what, body := range map[string]string{
			"discover":   g.modern("1", "server/discover", "", bearer("bob")).body,
			"initialize": g.post(initializeBody, bearer("bob")).body,
		} {
			if strings.Contains(body, "secret ways") || strings.Contains(body, "Server a") || strings.Contains(body, `"logging"`) || !strings.Contains(body, "How B works") {
				t.Errorf("%s: %s says %s", name, what, body)
			}
		}
		if r := g.post(initializeBody, bearer("ann")).body; !strings.Contains(r, "secret ways") || !strings.Contains(r, `"logging"`) {
			t.Errorf("%s: who sees all is told %s", name, r)
		}
		r := g.modern("1", "tools/list", cursor, bearer("bob"))
		if names := fmt.Sprint(toolNames(t, at(t, r.body, "result"))); names != "[b_three]" {
			t.Errorf("%s: an old cursor leads to %s", name, r.body)
		}
		for method, params := range map[string]string{
			"completion/complete": `"ref":{"type":"ref/tool","name":"%s"},"argument":{"name":"%[1]s","value":"%[1]s"}`,
			"prompts/get":         `"name":"%s"`,
			"resources/read":      `"uri":"%s"`,
			"resources/subscribe": `"uri":"%s"`,
			"tasks/get":           `"taskId":"%s"`,
		} {
			ask := func(tool string) string {
				p := fmt.Sprintf(params, tool)
				modern := g.post(modernBody("1", method, p), modernHeaders(method, "Mcp-Name: "+tool, bearer("bob"))...)
				if modern.status != http.StatusNotFound {
					t.Errorf("%s of %s: %d %s", method, tool, modern.status, modern.body)
				}
				legacy := g.post(legacyBody("1", method, `{`+p+`}`), g.openAs("bob"), bearer("bob"))
				return strings.ReplaceAll(visible(modern)+visible(legacy), tool, "…")
			}
			hidden, shown, none := ask("a_one"), ask("b_two"), ask("b_none")
			if hidden != none || shown != none {
				t.Errorf("%s: %s tells apart:\n%s\n%s\n%s", name, method, hidden, shown, none)
			}
		}
	}
}

// TestRulesChangeIsForThoseConcerned: a reload that changes what one team may use is told to its members
// alone, and of them only to those who did not have the same by another team's rules already.
func TestRulesChangeIsForThoseConcerned(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("one", "two")}
	up := map[string]string{"x": entry(s.StartHTTP(t))}
	config := func(tools string) []string {
		return []string{keys(keyEntry("alice", "ta"), keyEntry("bob", "tb"), keyEntry("duo", "ta", "tb")),
			`"teams":{"ta":{"upstreams":["x"],"rules":[{"allow":["` + tools + `"]}]},"tb":{"upstreams":["x"],"rules":[{"allow":["*"]}]}}`}
	}
	g := launch(t, parseConfig(t, up, config("x_one")...), Options{})
	callers := []string{"alice", "bob", "duo"} // duo has had both tools by tb all along
	gets, listens := map[string]*stream{}, map[string]*stream{}
	for _, who := range callers {
		gets[who] = g.openStream(g.request(http.MethodGet, "", g.openAs(who), "Accept: text/event-stream", bearer(who)))
		listens[who] = g.openStream(g.request(http.MethodPost, modernBody("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`),
			modernHeaders("subscriptions/listen", bearer(who))...))
		if ack := listens[who].next(); !strings.Contains(ack, "acknowledged") {
			t.Fatalf("%s: %s", who, ack)
		}
	}
	if err := g.Apply(parseConfig(t, up, config("*")...)); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]string{"GET": gets["alice"].next(), "listen": listens["alice"].next()} {
		if !strings.Contains(got, "list_changed") {
			t.Errorf("on %s Alice hears %q", what, got)
		}
	}
	g.Drain()
	for _, who := range callers {
		if got := gets[who].next(); got != "" {
			t.Errorf("%s heard %s on the GET stream", who, got)
		}
		if got := listens[who].next(); !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("%s heard %s on the subscription", who, got)
		}
	}
}
