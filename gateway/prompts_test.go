package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// library makes a scripted server offer prompts, resources and templates, as raw definitions.
type library struct {
	prompts, resources, templates []string
	capabilities                  string // members besides prompts and resources
	// get, read and complete answer the three requests; nil gives what names the request.
	get, read, complete func(c *mcptest.Call)
}

// shelve puts the library on a server.
func (l library) shelve(s *mcptest.Server) *mcptest.Server {
	caps := []string{}
	if l.prompts != nil {
		caps = append(caps, `"prompts":{"listChanged":true}`)
	}
	if l.resources != nil || l.templates != nil {
		caps = append(caps, `"resources":{"listChanged":true,"subscribe":true}`)
	}
	if l.capabilities != "" {
		caps = append(caps, l.capabilities)
	}
	s.Capabilities = "{" + strings.Join(caps, ",") + "}"
	serve := func(member string, defs []string) func(c *mcptest.Call) {
		return func(c *mcptest.Call) { c.Result(`{"` + member + `":[` + strings.Join(defs, ",") + `]}`) }
	}
	answer := func(f func(c *mcptest.Call), otherwise func(c *mcptest.Call)) func(c *mcptest.Call) {
		if f != nil {
			return f
		}
		return otherwise
	}
	s.Methods = map[string]func(c *mcptest.Call){
		"prompts/list":             serve("prompts", l.prompts),
		"resources/list":           serve("resources", l.resources),
		"resources/templates/list": serve("resourceTemplates", l.templates),
		"prompts/get": answer(l.get, func(c *mcptest.Call) {
			c.Result(`{"messages":[{"role":"user","content":{"type":"text","text":` + string(c.Member("name")) + `}}],"resultType":"complete"}`)
		}),
		"resources/read": answer(l.read, func(c *mcptest.Call) {
			c.Result(`{"contents":[{"uri":` + string(c.Member("uri")) + `,"text":"of ` + s.Name + `"}],"resultType":"complete","ttlMs":7,"cacheScope":"public"}`)
		}),
		"completion/complete": answer(l.complete, func(c *mcptest.Call) {
			c.Result(`{"completion":{"values":["of ` + s.Name + `"]},"echo":` + string(c.Member("ref")) + `,"resultType":"complete"}`)
		}),
	}
	return s
}

func promptDef(name string) string { return `{"name":"` + name + `"}` }

func resourceDef(uri string) string { return `{"uri":"` + uri + `","name":"n"}` }

func templateDef(uri string) string { return `{"uriTemplate":"` + uri + `","name":"n"}` }

// ask sends a request as a caller of an era; params are the members of params. session is "" for a modern
// caller.
func (g *gate) ask(session, method, params string, header ...string) string {
	g.t.Helper()
	return g.asked(session, method, params, header...).message()
}

func (g *gate) asked(session, method, params string, header ...string) reply {
	g.t.Helper()
	if session != "" {
		return g.post(legacyBody("1", method, `{`+params+`}`), append(header, session)...)
	}
	if member := namedBy[method]; member != "" {
		name, _ := wire.String([]byte(at(g.t, `{`+params+`}`, member)))
		header = append(header, "Mcp-Name: "+wire.EncodeHeaderValue(name))
	}
	return g.post(modernBody("1", method, params), modernHeaders(method, header...)...)
}

// eras runs f for a modern and a legacy client.
func (g *gate) eras(f func(era, session string)) {
	g.t.Helper()
	f("modern", "")
	f("legacy", g.open())
}

// keysOf are the names or URIs in the result of a list.
func keysOf(t testing.TB, message, member, key string) (out []string) {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(at(t, message, "result", member)), &list); err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	for _, e := range list {
		name, _ := e[key].(string)
		out = append(out, name)
	}
	return out
}

// TestPromptsOfTwoServers: prompts are named as tools are, so that two servers with one name do not meet;
// each is got, and completed, at its owner and under its own name (R05).
func TestPromptsOfTwoServers(t *testing.T) {
	a := library{prompts: []string{promptDef("review"), promptDef("a.b"), promptDef("zebra")}, capabilities: `"completions":{}`}.shelve(&mcptest.Server{Name: "A"})
	b := library{prompts: []string{promptDef("review")}, capabilities: `"completions":{}`}.shelve(&mcptest.Server{Name: "B", Era: mcptest.Legacy})
	g := launch(t, parseConfig(t, map[string]string{"b": entry(b.StartHTTP(t)), "a": entry(a.StartHTTP(t))}), Options{})
	dotted, _ := g.snapshot.Load().naming.Exposed("a", "a", "a.b")
	want := []string{dotted, "a_review", "a_zebra", "b_review"}
	slices.Sort(want)
	g.eras(func(era, session string) {
		if got := keysOf(t, g.ask(session, "prompts/list", ""), "prompts", "name"); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", era, got, want)
		}
		for name, own := range map[string]string{"a_review": "review", "b_review": "review", dotted: "a.b"} {
			server := a
			if name[0] == 'b' {
				server = b
			}
			before := server.Count("prompts/get")
			if got := g.ask(session, "prompts/get", `"name":"`+name+`","arguments":{"z":1.0,"a":9007199254740993}`); !strings.Contains(got, `"text":"`+own+`"`) {
				t.Errorf("%s: %s gives %s", era, name, got)
			}
			requests := server.Requests()
			if last := string(requests[len(requests)-1].Body); server.Count("prompts/get") != before+1 || !strings.Contains(last, `"arguments":{"z":1.0,"a":9007199254740993}`) {
				t.Errorf("%s: %s: the server got %s", era, name, last)
			}
			got := g.ask(session, "completion/complete", `"ref":{"type":"ref/prompt","name":"`+name+`","x":1.0},"argument":{"name":"z","value":"v"}`)
			if !strings.Contains(got, `"of `+server.Name+`"`) || !strings.Contains(got, `"echo":{"type":"ref/prompt","name":"`+own+`","x":1.0}`) {
				t.Errorf("%s: completion on %s gives %s", era, name, got)
			}
		}
		for _, name := range []string{"review", "a.review", "c_review", "A_review"} {
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unknown prompt: %s"}}`, name)
			for method, params := range map[string]string{"prompts/get": `"name":"` + name + `"`,
				"completion/complete": `"ref":{"type":"ref/prompt","name":"` + name + `"},"argument":{"name":"z","value":"v"}`} {
				if r := g.asked(session, method, params); r.message() != want || r.status != http.StatusOK {
					t.Errorf("%s: %s of %s: %d %s", era, method, name, r.status, r.message())
				}
			}
		}
		for method, params := range map[string]string{"prompts/get": `"name":7`, "completion/complete": `"ref":{"type":"ref/tool","name":"a_review"}`} {
			if got := g.ask(session, method, params, "Mcp-Name: 7"); at(t, got, "error", "code") != "-32602" {
				t.Errorf("%s: %s of %s: %s", era, method, params, got)
			}
		}
	})
}

// TestAdvertised: what is not there for a client is not advertised, and what is advertised is served
// (V07, V08).
func TestAdvertised(t *testing.T) {
	plain := func() *mcptest.Server { return &mcptest.Server{Tools: mcptest.Builtin("echo")} }
	for name, tt := range map[string]struct {
		servers map[string]*mcptest.Server
		want    string
		served  []string
	}{
		"tools": {map[string]*mcptest.Server{"a": plain()}, `{"tools":{"listChanged":true}}`, nil},
		"prompts": {map[string]*mcptest.Server{"a": plain(), "b": library{prompts: []string{promptDef("p")}}.shelve(plain())},
			`{"prompts":{"listChanged":true},"tools":{"listChanged":true}}`, []string{"prompts/list"}},
		"one each": {map[string]*mcptest.Server{"a": library{prompts: []string{promptDef("p")}, capabilities: `"completions":{}`}.shelve(plain()),
			"b": library{resources: []string{resourceDef("x://y")}}.shelve(&mcptest.Server{Era: mcptest.Legacy})},
			`{"completions":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`,
			[]string{"prompts/list", "resources/list", "resources/templates/list"}},
		"empty lists": {map[string]*mcptest.Server{"a": library{resources: []string{}, capabilities: `"logging":{},"resources":{}`}.shelve(plain())},
			`{"logging":{},"resources":{"listChanged":true},"tools":{"listChanged":true}}`, []string{"resources/list"}},
	} {
		t.Run(name, func(t *testing.T) {
			up := map[string]string{}
			for id, s := range tt.servers {
				up[id] = entry(s.StartHTTP(t))
			}
			g := launch(t, parseConfig(t, up), Options{})
			for what, body := range map[string]string{"discover": g.modern("1", "server/discover", "").body, "initialize": g.post(initializeBody).body} {
				if got := at(t, body, "result", "capabilities"); got != tt.want {
					t.Errorf("%s: %s, want %s", what, got, tt.want)
				}
			}
			g.eras(func(era, session string) {
				for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
					r := g.asked(session, method, "")
					if served := at(t, r.message(), "result") != ""; served != slices.Contains(tt.served, method) && !(served && method == "resources/templates/list" && len(tt.served) > 0) {
						t.Errorf("%s: %s: %d %s", era, method, r.status, r.message())
					} else if !served && at(t, r.message(), "error", "code") != "-32601" {
						t.Errorf("%s: %s: %d %s", era, method, r.status, r.message())
					}
				}
			})
		})
	}
}

// TestFetchingIsCancelled: a client that gives up on a prompt, a resource or a completion cancels it at the
// server, in either era, and what was reported before reached it (M08).
func TestFetchingIsCancelled(t *testing.T) {
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		for method, params := range map[string]string{"prompts/get": `"name":"x_p"`, "resources/read": `"uri":"r://x"`,
			"completion/complete": `"ref":{"type":"ref/prompt","name":"x_p"},"argument":{"name":"a","value":""}`} {
			t.Run(era+" "+method, func(t *testing.T) {
				t.Parallel()
				started, ended := make(chan struct{}, 1), make(chan struct{}, 1)
				stuck := func(c *mcptest.Call) {
					c.Notify("notifications/progress", `{"progressToken":`+c.ProgressToken()+`,"progress":1,"x":1.0}`)
					started <- struct{}{}
					<-c.Ctx.Done()
					ended <- struct{}{}
				}
				s := library{prompts: []string{promptDef("p")}, resources: []string{resourceDef("r://x")}, get: stuck, read: stuck, complete: stuck,
					capabilities: `"completions":{}`}.shelve(&mcptest.Server{Era: era})
				g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
				p := g.pipe()
				p.shakeHands()
				p.send(legacyBody("5", method, `{`+params+`,"_meta":{"progressToken":"mine"}}`))
				<-started
				if got := p.next(); at(t, got, "params") != `{"progressToken":"mine","progress":1,"x":1.0}` {
					t.Errorf("progress: %s", got)
				}
				p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
				<-ended
				if got := p.call("6", legacyBody("6", "ping", "")); at(t, got, "result") != "{}" {
					t.Errorf("then: %s", got)
				}
				if era == mcptest.Legacy {
					awaitServer(t, s, "the cancellation", func() bool { return len(s.Cancelled()) == 1 })
				}
			})
		}
	}
}

// TestHiddenIsNotAdvertised: who may use no prompt and no resource of a server is not told that there are
// any, and finds the lists empty.
func TestHiddenIsNotAdvertised(t *testing.T) {
	s := library{prompts: []string{promptDef("p")}, resources: []string{resourceDef("r://x")}, capabilities: `"completions":{}`}.shelve(&mcptest.Server{
		Tools: mcptest.Builtin("echo"), Instructions: "Ask for x."})
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, keys(keyEntry("ann", "all"), keyEntry("bob", "some"), keyEntry("cid", "prompts")),
		`"teams":{"all":{"upstreams":["x"],"rules":[{"allow":["*"]}]},"some":{"upstreams":["x"],"rules":[{"allow":["x_echo"]}]},"prompts":{"upstreams":["x"],"rules":[{"allow":["x_p"]}]}}`), Options{})
	for who, want := range map[string]string{
		"ann": `{"completions":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`,
		"bob": `{"tools":{"listChanged":true}}`,
		"cid": `{"completions":{},"prompts":{"listChanged":true},"tools":{"listChanged":true}}`,
	} {
		if got := g.modern("1", "server/discover", "", bearer(who)).body; at(t, got, "result", "capabilities") != want || !strings.Contains(got, "Ask for x.") {
			t.Errorf("%s: %s", who, got)
		}
	}
	for method, member := range map[string]string{"prompts/list": "prompts", "resources/list": "resources"} {
		if got := g.ask("", method, "", bearer("bob")); at(t, got, "result", member) != "[]" {
			t.Errorf("%s: %s", method, got)
		}
	}
}
