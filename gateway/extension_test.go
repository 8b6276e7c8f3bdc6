package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// extended is a server with tools and capabilities that answers some methods with their params.
func extended(era, caps string, methods ...string) *mcptest.Server {
	s := &mcptest.Server{Era: era, Capabilities: caps, Methods: map[string]func(*mcptest.Call){}}
	s.Tools = append(mcptest.Builtin("echo"), mcptest.Tool{Def: `{"name":"start","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
		id := fmt.Sprint(c.Arguments()["id"])
		if era == mcptest.Legacy {
			c.Result(`{"task":{"taskId":"` + id + `","status":"working"}}`)
		} else {
			c.Result(`{"resultType":"task","taskId":"` + id + `","status":"working","ttlMs":1.0}`)
		}
	}})
	for _, m := range methods {
		s.Methods[m] = func(c *mcptest.Call) {
			c.Notify("notifications/tasks/status", `{"taskId":"a","x":1.0}`)
			c.Result(`{"got":` + string(c.Params) + `,"resultType":"odd"}`)
		}
	}
	return s
}

const tasksExtension = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// TestExtensionMethods: a method of an extension that one server announces passes to it as it is, with an unknown
// resultType and the notifications that belong to it; any other method does not exist.
func TestExtensionMethods(t *testing.T) {
	a := extended(mcptest.Modern, `{"extensions":{"com.acme/jobs":{"v":1.0},"com.acme/both":{}}}`, "jobs/run", "com.acme/jobs/x", "both/run", "other/run")
	b := extended(mcptest.Legacy, `{"experimental":{"lab":{}},"extensions":{"com.acme/both":{"v":2}}}`, "lab/run", "both/run")
	g := launch(t, parseConfig(t, map[string]string{"a": entry(a.StartHTTP(t)), "b": entry(b.StartHTTP(t))}), Options{})
	session := g.open()
	for _, tt := range []struct{ method, want string }{
		{"jobs/run", ""}, {"com.acme/jobs/x", ""}, {"lab/run", ""},
		{"both/run", "more than one server"}, {"other/run", "Method not found: other/run"}, {"jobs", "Method not found: jobs"},
		{"tools/run", "Method not found: tools/run"}, {"lab2/run", "Method not found: lab2/run"},
	} {
		modern := g.modern("1", tt.method, `"z":[ 1.0 ],"name":"n"`)
		legacy := g.post(legacyBody("1", tt.method, `{"z":[ 1.0 ],"name":"n"}`), session)
		if tt.want != "" {
			if modern.status != 404 || at(t, modern.message(), "error", "code") != "-32601" || !strings.Contains(at(t, modern.message(), "error", "message"), tt.want) {
				t.Errorf("%s, modern: %d %s", tt.method, modern.status, modern.body)
			}
			if at(t, legacy.message(), "error", "code") != "-32601" {
				t.Errorf("%s, legacy: %s", tt.method, legacy.body)
			}
			continue
		}
		for _, r := range []reply{modern, legacy} {
			got := at(t, r.message(), "result")
			if at(t, got, "resultType") != `"odd"` || !strings.Contains(got, `"z":[ 1.0 ],"name":"n"`) {
				t.Errorf("%s: %s", tt.method, r.body)
			}
			if e := r.events(); len(e) != 2 || at(t, e[0], "params") != `{"taskId":"a","x":1.0}` {
				t.Errorf("%s: %s", tt.method, r.body)
			}
		}
	}
	want := `{"tools":{"listChanged":true},"extensions":{"com.acme/both":{},"com.acme/jobs":{"v":1.0}},"experimental":{"lab":{}}}`
	if caps := at(t, g.modern("1", "server/discover", "").message(), "result", "capabilities"); caps != want {
		t.Errorf("capabilities %s", caps)
	}
}

// TestTasks: a task is its server's and its caller's, and nobody else's.
func TestTasks(t *testing.T) {
	methods := []string{"tasks/get", "tasks/update", "tasks/cancel"}
	a, b := extended(mcptest.Modern, tasksExtension, methods...), extended(mcptest.Modern, tasksExtension, methods...)
	l := extended(mcptest.Legacy, `{"tasks":{"list":{},"cancel":{}}}`, "tasks/get", "tasks/result")
	l.Methods["tasks/list"] = func(c *mcptest.Call) {
		c.Result(`{"tasks":[{"taskId":"else"},{"taskId":"l1","x":1.0}],"nextCursor":"n"}`)
	}
	entries := map[string]string{"a": entry(a.StartHTTP(t)), "b": entry(b.StartHTTP(t)), "l": entry(l.StartHTTP(t))}
	g := launch(t, parseConfig(t, entries, keyed), Options{})
	alice, bob := "Authorization: Bearer a", "Authorization: Bearer b"
	start := func(tool, id, who string) string {
		return g.capable("1", `"name":"`+tool+`","arguments":{"id":"`+id+`"}`, who).message()
	}
	if got := at(t, start("a_start", "one", alice), "result"); got != `{"resultType":"task","taskId":"one","status":"working","ttlMs":1.0}` {
		t.Errorf("%s", got)
	}
	start("b_start", "two", alice)
	start("l_start", "l1", alice)
	start("a_start", "same", alice)
	start("b_start", "same", alice)
	ask := func(method, id, who string) reply {
		return g.modern("1", method, `"taskId":"`+id+`","requestState":"s"`, who, "Mcp-Name: "+id)
	}
	for _, method := range methods {
		for id, s := range map[string]*mcptest.Server{"one": a, "two": b} {
			before := s.Count(method)
			if r := ask(method, id, alice); !strings.Contains(r.body, `"taskId":"`+id+`","requestState":"s"`) {
				t.Errorf("%s %s: %s", method, id, r.body)
			}
			if s.Count(method) != before+1 {
				t.Errorf("%s %s went elsewhere", method, id)
			}
			for _, r := range s.Requests() {
				if r.Method == method && r.Header.Get("Mcp-Name") != id {
					t.Errorf("%s %s: Mcp-Name %q", method, id, r.Header.Get("Mcp-Name"))
				}
			}
		}
		for name, r := range map[string]reply{"another's": ask(method, "one", bob), "unknown": ask(method, "x", alice), "two servers'": ask(method, "same", alice), "none": g.modern("1", method, `"taskId":7`, alice)} {
			if at(t, r.message(), "error", "code") != "-32602" {
				t.Errorf("%s, %s: %d %s", method, name, r.status, r.body)
			}
		}
	}
	if r := ask("tasks/get", "l1", alice); !strings.Contains(r.body, `"taskId":"l1"`) || l.Count("tasks/get") != 1 {
		t.Errorf("%s", r.body)
	}
	if n := a.Count("tasks/get") + b.Count("tasks/get"); n != 2 {
		t.Errorf("%d", n)
	}

	only := launch(t, parseConfig(t, map[string]string{"l": entries["l"]}, keyed), Options{})
	only.capable("1", `"name":"l_start","arguments":{"id":"l1"}`, alice)
	for who, want := range map[string]string{alice: `[{"taskId":"l1","x":1.0}]`, bob: `[]`} {
		r := only.modern("1", "tasks/list", "", who)
		if at(t, r.message(), "result", "tasks") != want || at(t, r.message(), "result", "nextCursor") != `"n"` {
			t.Errorf("%s: %s", who, r.body)
		}
	}
}

// TestUnseenServersAreNotAsked: what a caller does not see has no extensions for it.
func TestUnseenServersAreNotAsked(t *testing.T) {
	a, b := extended(mcptest.Modern, `{"extensions":{"com.acme/jobs":{}}}`, "jobs/run"), extended(mcptest.Modern, `{"extensions":{"com.acme/jobs":{"secret":1}}}`, "jobs/run")
	teams := `"teams":{"one":{"upstreams":["a","b"],"rules":[{"allow":["a_*"]}]},"none":{"upstreams":["a","b"],"rules":[{"deny":["*"]}]}}`
	auth := strings.Replace(strings.Replace(keyed, `"subject":"a"`, `"subject":"a","teams":["one"]`, 1), `"subject":"b"`, `"subject":"b","teams":["none"]`, 1)
	g := launch(t, parseConfig(t, map[string]string{"a": entry(a.StartHTTP(t)), "b": entry(b.StartHTTP(t))}, auth, teams), Options{})
	if r := g.modern("1", "jobs/run", "", "Authorization: Bearer a"); at(t, r.message(), "result", "resultType") != `"odd"` || a.Count("jobs/run") != 1 {
		t.Errorf("%s", r.body)
	}
	if r := g.modern("1", "jobs/run", "", "Authorization: Bearer b"); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if b.Count("jobs/run") != 0 {
		t.Error("the hidden server was asked")
	}
	if caps := at(t, g.modern("1", "server/discover", "", "Authorization: Bearer b").message(), "result", "capabilities"); strings.Contains(caps, "jobs") {
		t.Errorf("capabilities %s", caps)
	}
}

// TestTaskMemory: what is remembered of tasks is bounded, by caller and in all.
func TestTaskMemory(t *testing.T) {
	ts := newTasks()
	up := makeGateway(t, parseConfig(t, map[string]string{"a": embeddedEntry}), Options{Embedded: embed("a", &mcptest.Server{})}).snapshot.Load().upstreams[0]
	for i := range maxTasks + 1 {
		ts.note("o", up, fmt.Appendf(nil, `{"taskId":"%d"}`, i))
	}
	if _, known := ts.find("o", "0"); known {
		t.Error("the oldest is known")
	}
	if got, known := ts.find("o", "1"); !known || got != up {
		t.Error("the second is not known")
	}
	if _, known := ts.find("p", "1"); known {
		t.Error("another knows it")
	}
	for i := range maxTaskOwners {
		ts.note(fmt.Sprint(i), up, []byte(`{"task":{"taskId":"x"}}`))
	}
	if _, known := ts.find("o", "1"); known || len(ts.owners) != maxTaskOwners || ts.order.Len() != maxTaskOwners {
		t.Errorf("%d callers", len(ts.owners))
	}
	ts.note("o", up, []byte(`{"taskId":"`+strings.Repeat("x", maxTaskID+1)+`"}`))
	ts.note("o", up, []byte(`{"taskId":7}`))
	if ts.owners["o"] != nil {
		t.Error("an id that is none is remembered")
	}
}
