package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// auditConfig is the member of a configuration for a log in a folder of the test.
func auditConfig(t testing.TB, more string) (file, member string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "audit.jsonl")
	return file, `"audit":{"file":` + string(wire.AppendString(nil, file)) + more + `}`
}

// records reads an audit log and forgets it.
func records(t testing.TB, file string) []auditRecord {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []auditRecord
	for line := range strings.Lines(string(b)) {
		var r auditRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if at, err := time.Parse(time.RFC3339Nano, r.Time); err != nil || len(r.Time) != len("2026-01-02T15:04:05.123456789Z") || at.IsZero() {
			t.Errorf("time %q: %v", r.Time, err)
		}
		all = append(all, r)
	}
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	return all
}

// told is a record without what differs from run to run.
func (r auditRecord) told() string {
	s := fmt.Sprintf("%s %s/%s %v %s %s tool=%s upstream=%s", r.Event, r.Subject, r.Issuer, r.Teams, r.Client, r.Endpoint, r.Tool, r.Upstream)
	if r.Event == auditEnd {
		s = r.Event
	}
	if r.Decision != "" {
		s += " " + r.Decision + " by " + r.Rule
	}
	if r.Outcome != "" {
		s += fmt.Sprintf(" outcome=%s code=%d effect=%s", r.Outcome, r.Code, r.Effect)
	}
	return s
}

// TestAuditRecords: a call has two records that belong together, one that is kept back has one, with the rule that
// decided.
func TestAuditRecords(t *testing.T) {
	file, member := auditConfig(t, `,"required":true`)
	s := &mcptest.Server{Tools: mcptest.Builtin("echo", "boom", "fail", "drop", "pay", "slow")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, member,
		keys(keyEntry("ann", "red"), keyEntry("nil")),
		`"teams":{"red":{"upstreams":["x"],"limits":{"per_tool":{"x_echo":{"calls_per_minute":2}}},"rules":[{"allow":["*"]},{"deny":["x_drop"]},{"allow":["x_none"]}]},
			"blue":{"upstreams":["x"],"rules":[]}}`), Options{})
	session := g.openAs("ann")
	const who = " ann/ [red] http "
	const allowed = ` allowed by teams.red.rules[0] allows "*"`
	for _, c := range []struct {
		name string
		call func() reply
		want []string
	}{
		{"modern", func() reply { return g.callAs("ann", "", "x_echo") },
			[]string{"call" + who + "/mcp tool=x_echo upstream=x" + allowed, "end outcome=ok code=0 effect="}},
		{"legacy", func() reply { return g.callAs("ann", session, "x_echo") },
			[]string{"call" + who + "/mcp tool=x_echo upstream=x" + allowed, "end outcome=ok code=0 effect="}},
		{"over a limit", func() reply { return g.callAs("ann", "", "x_echo") },
			[]string{"refused" + who + "/mcp tool=x_echo upstream=x" + allowed + " outcome=rate_limited code=0 effect=not_started"}},
		{"isError", func() reply { return g.callAs("ann", "", "x_boom") },
			[]string{"call" + who + "/mcp tool=x_boom upstream=x" + allowed, "end outcome=tool_error code=0 effect="}},
		{"an error", func() reply { return g.callAs("ann", "", "x_fail") },
			[]string{"call" + who + "/mcp tool=x_fail upstream=x" + allowed, "end outcome=protocol_error code=7001 effect="}},
		{"hidden", func() reply { return g.callAs("ann", "", "x_drop") },
			[]string{"refused" + who + `/mcp tool=x_drop upstream=x denied by teams.red.rules[1] denies "x_drop" outcome=protocol_error code=-32602 effect=`}},
		{"unknown", func() reply { return g.callAs("ann", "", "x_no\u202e\u0085ne") },
			[]string{"refused" + who + "/mcp tool=x_no\u202e\u0085ne upstream= denied by there is no tool of this name outcome=protocol_error code=-32602 effect="}},
		{"at the endpoint of a team", func() reply { return g.endpoint("red").callAs("ann", "", "x_boom") },
			[]string{"call" + who + "/teams/red/mcp tool=x_boom upstream=x" + allowed, "end outcome=tool_error code=0 effect="}},
		{"of nobody's team", func() reply { return g.callAs("nil", "", "x_echo") },
			[]string{"refused nil/ [] http /mcp tool=x_echo upstream= denied by there is no tool of this name outcome=protocol_error code=-32602 effect="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.Executions("echo") + s.Executions("boom") + s.Executions("fail") + s.Executions("drop")
			r := c.call()
			got := records(t, file)
			var told []string
			for i, r := range got {
				told = append(told, r.told())
				if r.ID == "" || r.ID != got[0].ID {
					t.Errorf("record %d has the id %q", i, r.ID)
				}
				if (r.DurationMS != nil) != (r.Event != auditCall) || r.Event != auditEnd && string(r.Request) != "1" {
					t.Errorf("record %d is %+v", i, r)
				}
			}
			if strings.Join(told, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("\n got %q\nwant %q\nfor %s", told, c.want, r.body)
			}
			ran := s.Executions("echo") + s.Executions("boom") + s.Executions("fail") + s.Executions("drop") - before
			if (ran == 1) != (len(c.want) == 2) {
				t.Errorf("ran %d times for the records %q", ran, told)
			}
		})
	}
}

func TestAuditStepUp(t *testing.T) {
	file, member := auditConfig(t, `,"required":true`)
	s := &mcptest.Server{Tools: mcptest.Builtin("pay")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, member, keys(keyEntry("ann", "red")),
		`"teams":{"red":{"upstreams":["x"],"rules":[{"allow":["*"],"require_scope":["a:pay"]}]}}`), Options{})
	g.callAs("ann", "", "x_pay")
	got := records(t, file)
	if len(got) != 1 || got[0].Event != auditRefused || got[0].Decision != auditStepUp || !strings.Contains(got[0].Rule, "a:pay") || got[0].Outcome != "protocol_error" {
		t.Errorf("recorded %+v", got)
	}
}

// TestAuditOfEveryClient: stdio and the operator's own calls are recorded as those over HTTP are; a bug and a cancelled
// call end their records too.
func TestAuditOfEveryClient(t *testing.T) {
	file, member := auditConfig(t, `,"required":true`)
	b := newBlocker()
	s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), b.tool)}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, member), Options{})
	all := "allowed by no teams are configured, so everybody may use everything"
	want := func(client, outcome string, records []auditRecord) {
		t.Helper()
		if len(records) != 2 || records[0].Client != client || records[0].Event != auditCall || records[1].Event != auditEnd || records[1].Outcome != outcome ||
			!strings.Contains(records[0].told(), all) || records[0].Subject != "anonymous" {
			t.Errorf("%s: %+v", client, records)
		}
	}
	pipe := g.pipe()
	pipe.call("7", modernBody("7", "tools/call", callParams("x_echo", "{}")))
	want("stdio", "ok", records(t, file))
	pipe.call(`"init"`, initializeBody)
	pipe.call("8", legacyBody("8", "tools/call", `{`+callParams("x_echo", "{}")+`}`))
	want("stdio", "ok", records(t, file))
	g.Call(t.Context(), authz.Anonymous(), "", "x_echo", nil)
	want("local", "ok", records(t, file))

	pipe.send(modernBody("9", "tools/call", callParams("x_block", "{}")))
	awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })
	pipe.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
	pipe.in.Close()
	if err := <-pipe.done; err != nil {
		t.Error(err)
	}
	pipe.done <- nil
	want("stdio", "cancelled", records(t, file))

	g.snapshot.Store(g.snapshot.Load().ownerless())
	g.callModern("1", "broken", "{}")
	if got := records(t, file); len(got) != 1 || got[0].Outcome != "internal" || got[0].Event != auditRefused {
		t.Errorf("a bug: %+v", got)
	}
}

// TestAuditRequired: on a full disk no call is sent, in either era, and the answer and the log agree on the incident.
func TestAuditRequired(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"audit":{"file":"/dev/full","required":true}`), Options{})
	session, pipe := g.open(), g.pipe()
	for client, body := range map[string]string{
		"modern": g.callModern("1", "x_echo", "{}").body,
		"legacy": g.callLegacy(session, "1", "x_echo", "{}").body,
		"stdio":  pipe.call("1", modernBody("1", "tools/call", callParams("x_echo", "{}"))),
	} {
		incident := strings.Trim(at(t, body, "error", "data", "incident"), `"`)
		if at(t, body, "error", "code") != "-32603" || incident == "" || !strings.Contains(g.log.String(), "incident="+incident) ||
			at(t, body, "error", "data", "headgate") != `{"server":"x","reason":"internal","outcome":"not_started","retryable":false}` {
			t.Errorf("%s: %s", client, body)
		}
		if strings.Contains(body, "full") || strings.Contains(body, "space") {
			t.Errorf("%s is told of the file: %s", client, body)
		}
	}
	if n := s.Executions("echo"); n != 0 {
		t.Errorf("the tool ran %d times", n)
	}
	if n := strings.Count(g.log.String(), "audit log"); n != 2 { // once in the message, once in the error
		t.Errorf("logged %d times: %s", n, g.log.String())
	}
	if got := g.outcomesOf("x_echo"); got["internal"] != 3 {
		t.Errorf("the ledger has %v", got)
	}
	if r := g.modern("1", "tools/list", ""); !strings.Contains(r.body, "x_echo") {
		t.Errorf("lists go on: %s", r.body)
	}
}

// TestAuditNotRequired: a log that cannot be written costs records and no calls.
func TestAuditNotRequired(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, `"audit":{"file":"/dev/full"}`), Options{})
	for range 5 {
		if r := g.callModern("1", "x_echo", `{"a":1}`); at(t, r.body, "result", "structuredContent") != `{"a":1}` {
			t.Errorf("%s", r.body)
		}
	}
	g.stop()
	if st := g.Status().Audit; st == nil || st.Lost != 10 || st.File != "/dev/full" {
		t.Errorf("status: %+v", st)
	}
	if n := strings.Count(g.log.String(), "calls are not recorded in the audit log"); n != 1 {
		t.Errorf("logged %d times: %s", n, g.log.String())
	}
}

// TestAuditFlushesAtTheEnd: what was taken is written when Run has returned; with and without required the records are
// the same.
func TestAuditFlushesAtTheEnd(t *testing.T) {
	for _, required := range []string{"true", "false"} {
		file, member := auditConfig(t, `,"required":`+required)
		s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, member), Options{})
		var wg sync.WaitGroup
		const workers, each = 4, 25
		for range workers {
			wg.Go(func() {
				for range each {
					g.callModern("1", "x_echo", "{}")
				}
			})
		}
		wg.Wait()
		g.stop()
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		events := map[string][]string{}
		for _, r := range records(t, file) {
			events[r.ID] = append(events[r.ID], r.Event)
		}
		if len(events) != workers*each {
			t.Errorf("required %s: %d calls are recorded", required, len(events))
		}
		for id, list := range events {
			if fmt.Sprint(list) != "[call end]" {
				t.Errorf("required %s: %s has the records %v", required, id, list)
			}
		}
	}
}

// TestAuditArguments: what is recorded of them is what was asked for, and nothing else that is secret ever is.
func TestAuditArguments(t *testing.T) {
	const arguments = `{ "password" : "hunter2", "n":9007199254740993, "t":"a\u001b[31m` + "\u0085\u202e" + `" }`
	for _, kind := range []string{"none", "hash", "full"} {
		t.Run(kind, func(t *testing.T) {
			file, member := auditConfig(t, `,"required":true,"arguments":"`+kind+`"`)
			s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
			g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"headers":{"Authorization":"Bearer upstream-token"}`)}, member,
				keys(keyEntry("ann", "red")), `"teams":{"red":{"upstreams":["x"],"rules":[{"allow":["*"]}]}}`), Options{})
			session := g.openAs("ann")
			g.post(legacyBody("1", "tools/call", `{`+callParams("x_echo", arguments)+`}`), session, bearer("ann"))
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := records(t, file)
			if len(got) != 2 {
				t.Fatalf("records %q", b)
			}
			if strings.Contains(string(b), "hunter2") != (kind == "full") || (got[0].ArgumentsSHA256 != "") != (kind == "hash") {
				t.Errorf("recorded %s", b)
			}
			if kind == "full" && at(t, string(got[0].Arguments), "n") != "9007199254740993" {
				t.Errorf("arguments %s", got[0].Arguments)
			}
			for _, secret := range []string{"key-of-ann", "upstream-token", strings.TrimPrefix(session, sessionHeader+": "), "\x1b", "\u0085", "\u202e"} {
				if strings.Contains(string(b), secret) {
					t.Errorf("%q is in the log: %s", secret, b)
				}
			}
			if got[0].Session == "" {
				t.Error("the records of one session cannot be told")
			}
		})
	}
}

// TestAuditOddArguments: what clients send does not keep a call out of the log, or a line from being one.
func TestAuditOddArguments(t *testing.T) {
	file, member := auditConfig(t, `,"required":true,"arguments":"full"`)
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, member), Options{})
	for name, arguments := range map[string]string{
		"absent":        "",
		"null":          "null",
		"invalid utf-8": "{\"a\":\"\xff\xfe\"}",
		"half a pair":   `{"a":"\ud800"}`,
		"names twice":   `{"a":1,"a":2}`,
		"lines":         "{\n\"a\"\r\n:\t1}",
		"deep":          `{"a":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + `}`,
	} {
		r := g.callModern("1", "x_echo", arguments)
		if _, err := os.Stat(file); err != nil && r.status != 200 {
			continue // the first of all, and refused
		}
		got := records(t, file)
		if ran := r.status == 200; ran && (len(got) != 2 || arguments != "" && got[0].Arguments == nil && got[0].ArgumentsSHA256 == "") || !ran && len(got) != 0 {
			t.Errorf("%s: %d %.100s, records %+v", name, r.status, r.body, got)
		}
	}
}

// TestAuditRotation: max_size and keep hold.
func TestAuditRotation(t *testing.T) {
	file, member := auditConfig(t, `,"required":true,"max_size":"1KiB","keep":2`)
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}, member), Options{})
	for range 30 {
		g.callModern("1", "x_echo", "{}")
	}
	all, err := filepath.Glob(file + "*")
	if err != nil || len(all) != 3 {
		t.Fatalf("files %q, %v", all, err)
	}
	for _, f := range all {
		if info, err := os.Stat(f); err != nil || info.Size() > 1024 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, info, err)
		}
		if len(records(t, f)) == 0 {
			t.Errorf("%s is empty", f)
		}
	}
}

func TestArgumentsHash(t *testing.T) {
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"order and space", `{"a":1,"b":"x"}`, "{ \"b\" : \"\\u0078\",\n\"a\":1 }", true},
		{"floats", `{"a":1.50}`, `{"a":1.5}`, true},
		{"other value", `{"a":1}`, `{"a":2}`, false},
		{"large integers", `{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{"twice", `{"a":1,"a":2}`, `{"a":2}`, false},
	} {
		if got := argumentsHash([]byte(c.a)) == argumentsHash([]byte(c.b)); got != c.same {
			t.Errorf("%s: same is %t", c.name, got)
		}
	}
	sum := sha256.Sum256([]byte(`{"a":[true],"b":1}`)) // what anybody computes who knows the call
	if got := argumentsHash([]byte(`{"b": 1, "a": [true]}`)); got != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s", got)
	}
}

// TestAuditReload: a call's records are in one file, whatever a reload does meanwhile; a log that cannot be opened
// leaves everything as it was.
func TestAuditReload(t *testing.T) {
	oldFile, oldMember := auditConfig(t, `,"required":true`)
	newFile, newMember := auditConfig(t, `,"arguments":"full","required":true`)
	b := newBlocker()
	s := &mcptest.Server{Tools: append(mcptest.Builtin("echo"), b.tool)}
	server := map[string]string{"x": entry(s.StartHTTP(t))}
	g := launch(t, parseConfig(t, server, oldMember), Options{})
	called := make(chan reply, 1)
	go func() { called <- g.callModern("1", "x_block", `{"n":1}`) }()
	awaitServer(t, s, "the call", func() bool { return s.Executions("block") == 1 })

	if err := g.Apply(parseConfig(t, server, `"audit":{"file":"/no/such/folder/audit"}`)); err == nil || !strings.Contains(err.Error(), "/no/such/folder does not exist") {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := g.Apply(parseConfig(t, server, newMember)); err != nil {
		t.Fatal(err)
	}
	g.callModern("1", "x_echo", `{"n":2}`)
	close(b.release)
	<-called
	g.retired.Wait()
	if got := records(t, oldFile); len(got) != 2 || got[0].Tool != "x_block" || got[1].Event != auditEnd || got[0].Arguments != nil {
		t.Errorf("the old file: %+v", got)
	}
	if got := records(t, newFile); len(got) != 2 || got[0].Tool != "x_echo" || string(got[0].Arguments) != `{"n":2}` {
		t.Errorf("the new file: %+v", got)
	}
	if err := g.Apply(parseConfig(t, server)); err != nil {
		t.Fatal(err)
	}
	g.callModern("1", "x_echo", `{"n":3}`)
	if got := records(t, newFile); len(got) != 0 || g.Status().Audit != nil {
		t.Errorf("turned off: %+v", got)
	}
}

// TestOpenAudit: what is wrong with the file is known before anything is served.
func TestOpenAudit(t *testing.T) {
	file, member := auditConfig(t, "")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := makeGateway(t, parseConfig(t, nil, member), Options{}).OpenAudit(); err == nil || !strings.Contains(err.Error(), "audit.file: ") || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	if err := makeGateway(t, parseConfig(t, nil), Options{}).OpenAudit(); err != nil {
		t.Errorf("no log: %v", err)
	}
}

func TestEscapeControls(t *testing.T) {
	in := "{\"a\":\"é\u0085\u2028\u202e\x7f\u200b\xffz\"}"
	if got, want := string(escapeControls([]byte(in))), `{"a":"é\u0085\u2028\u202e\u007f\u200b\ufffdz"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
