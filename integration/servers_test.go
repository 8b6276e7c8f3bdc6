//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestRealServers puts one Headgate in front of the real servers over every transport, and holds what
// comes through it against what the servers say when they are asked directly.
func TestRealServers(t *testing.T) {
	w := newWorld(t)
	direct := map[string]client{
		"everything": overStdio(t, nil, w.servers["everything"]...),
		"files":      overStdio(t, nil, w.servers["files"]...),
		"memory":     overStdio(t, []string{"MEMORY_FILE_PATH=" + t.TempDir() + "/memory.jsonl"}, w.servers["memory"]...),
		"web":        overHTTP(t, w.webURL),
	}
	direct["old"] = direct["everything"]
	p := startHeadgate(t, w.config)
	through := map[string]client{
		"modern over HTTP":  modern(p.endpoint),
		"legacy over HTTP":  overHTTP(t, p.endpoint),
		"legacy over stdio": overStdio(t, nil, binary, "stdio", "--config", w.config),
	}
	awaitTools(t, through["legacy over stdio"], withAsking(toolNames(t, through["modern over HTTP"])))
	// Servers list more for a client that they can ask: for Headgate, those that have a session for each client
	// of it, and over stdio, where it has one client, all.
	capable := overHTTPAs(t, w.webURL, capableHello)
	offered := maps.Clone(direct)
	offered["web"] = capable
	toOne := maps.Clone(offered)
	toOne["everything"], toOne["old"] = capable, capable

	for kind, c := range through {
		t.Run("list/"+kind, func(t *testing.T) {
			if kind == "legacy over stdio" {
				compareLists(t, toOne, c)
			} else {
				compareLists(t, offered, c)
			}
		})
		t.Run("call/"+kind, func(t *testing.T) { compareCalls(t, w, direct, c) })
		t.Run("progress/"+kind, func(t *testing.T) { progress(t, c) })
	}
	t.Run("a killed server", func(t *testing.T) { killed(t, p, through["modern over HTTP"]) })
	t.Run("stop", func(t *testing.T) {
		// Two servers, and a shell with a third, which may still be on its way back.
		var before map[int]string
		await(t, p.ended, "the processes of headgate", func() bool {
			before = descendants(t, p.cmd.Process.Pid)
			return len(before) >= 4
		})
		p.stop(t)
		for pid, line := range before {
			await(t, nil, "the end of"+line, func() bool { _, there := parentOf(pid); return !there })
		}
	})
}

func toolNames(t *testing.T, c client) []string {
	all, _ := names(t, c(t, "tools/list", "{}").Result)
	return all
}

// withAsking adds what a Headgate over stdio offers as well: it has one client, which servers may ask on any
// stream, and the everything servers on stdio and HTTP+SSE list those tools that ask only to clients that say
// they can be asked. The one on Streamable HTTP is told so by every Headgate.
func withAsking(tools []string) []string {
	all := slices.Clone(tools)
	for _, name := range tools {
		if tool, ok := strings.CutPrefix(name, "web_"); ok {
			all = append(all, "everything_"+tool, "old_"+tool)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// awaitTools waits until a Headgate that has just been started offers what another one does.
func awaitTools(t *testing.T, c client, want []string) {
	t.Helper()
	await(t, nil, "the list", func() bool { return slices.Equal(toolNames(t, c), want) })
}

func compareLists(t *testing.T, direct map[string]client, c client) {
	want := map[string]string{}
	for id, d := range direct {
		all, definitions := names(t, d(t, "tools/list", "{}").Result)
		if len(all) < 5 {
			t.Errorf("%s has only %q", id, all)
		}
		for name, def := range definitions {
			was, is := fmt.Sprintf(`"name":%q`, name), fmt.Sprintf(`"name":%q`, id+"_"+name)
			want[id+"_"+name] = strings.Replace(def, was, is, 1)
		}
	}
	all, definitions := names(t, c(t, "tools/list", "{}").Result)
	if !slices.IsSorted(all) {
		t.Errorf("the list is not sorted: %q", all)
	}
	for name, def := range want {
		if definitions[name] != def {
			t.Errorf("%s: got\n%s\nwant\n%s", name, definitions[name], def)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d tools, want %d: %q", len(all), len(want), all)
	}
	if again, _ := names(t, c(t, "tools/list", "{}").Result); !slices.Equal(again, all) {
		t.Errorf("the second list differs: %q", again)
	}
}

func compareCalls(t *testing.T, w *world, direct map[string]client, c client) {
	path, err := json.Marshal(w.dir + "/greeting.txt")
	if err != nil {
		t.Fatal(err)
	}
	entity := `{"entities":[{"name":"Headgate","entityType":"gate","observations":["opens","grüßt"]}]}`
	for _, call := range []struct {
		server, tool, arguments string
		isError                 bool
	}{
		{"everything", "echo", `{"message":"\u0000 ü 😀 <&>"}`, false},
		{"web", "echo", `{"message":"over HTTP"}`, false},
		{"old", "echo", `{"message":"over HTTP+SSE"}`, false},
		{"everything", "get-sum", `{"a":0.1,"b":0.2}`, false},
		{"everything", "get-structured-content", `{"location":"Chicago"}`, false},
		{"web", "get-structured-content", `{"location":"New York"}`, false},
		{"everything", "get-annotated-message", `{"messageType":"error","includeImage":true}`, false},
		{"old", "get-annotated-message", `{"messageType":"debug","includeImage":true}`, false},
		{"everything", "get-tiny-image", `{}`, false},
		{"web", "get-tiny-image", `{}`, false},
		{"everything", "get-resource-links", `{"count":3}`, false},
		{"everything", "get-sum", `{"a":"one"}`, true},
		{"web", "echo", `{}`, true},
		{"old", "echo", `{}`, true},
		{"files", "read_text_file", `{"path":` + string(path) + `}`, false},
		{"files", "list_allowed_directories", `{}`, false},
		{"files", "read_text_file", `{"path":"/etc/passwd"}`, true},
		{"memory", "create_entities", entity, false},
		{"memory", "read_graph", `{}`, false},
		{"memory", "search_nodes", `{"query":"gate"}`, false},
		{"memory", "delete_entities", `{"entityNames":["Headgate"]}`, false},
		{"memory", "add_observations", `{"observations":[{"entityName":"nobody","contents":["x"]}]}`, true},
	} {
		params := func(name string) string { return fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, call.arguments) }
		want := direct[call.server](t, "tools/call", params(call.tool))
		got := c(t, "tools/call", params(call.server+"_"+call.tool))
		if got.String() != want.String() {
			t.Errorf("%s of %s with %s: got\n%s\nwant\n%s", call.tool, call.server, call.arguments, got, want)
		}
		var result struct{ IsError bool }
		if err := json.Unmarshal(want.Result, &result); err != nil || result.IsError != call.isError {
			t.Errorf("%s of %s with %s: %v, isError is %t: %s", call.tool, call.server, call.arguments, err, result.IsError, want)
		}
	}
	want := `{"code":-32602,"message":"Unknown tool: echo"}`
	if got := c(t, "tools/call", `{"name":"echo","arguments":{"message":"x"}}`); string(got.Error) != want {
		t.Errorf("an unknown tool: %s", got)
	}
}

func progress(t *testing.T, c client) {
	for _, server := range []string{"everything", "web", "old"} {
		r := c(t, "tools/call", `{"name":"`+server+`_trigger-long-running-operation","arguments":{"duration":0.3,"steps":3},"_meta":{"progressToken":"p"}}`)
		if !strings.Contains(string(r.Result), "Long running operation completed") {
			t.Errorf("%s: %s", server, r)
		}
		for i, want := range []string{"1", "2", "3"} {
			var n struct {
				Progress, Total json.Number
				ProgressToken   string
			}
			if i >= len(r.notes) {
				t.Errorf("%s: only %d progress notifications", server, len(r.notes))
				break
			}
			if err := json.Unmarshal(r.notes[i], &n); err != nil || n.Progress.String() != want || n.Total.String() != "3" || n.ProgressToken != "p" {
				t.Errorf("%s: %v: progress is %s, want %s", server, err, r.notes[i], want)
			}
		}
	}
}

// killed shows that the first call after a server's death is served by a new process.
func killed(t *testing.T, p *process, c client) {
	for _, call := range []struct{ program, tool, arguments string }{
		{"server-memory", "memory_read_graph", `{}`},
		{"server-filesystem", "files_list_allowed_directories", `{}`},
		{"server-everything", "everything_echo", `{"message":"still here"}`},
	} {
		killed := 0
		for pid, line := range descendants(t, p.cmd.Process.Pid) {
			if up, _ := parentOf(pid); up == p.cmd.Process.Pid && strings.Contains(line, call.program) {
				killed++
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				// A program of many threads is dead only when its parent has been told of it.
				await(t, nil, "the end of"+line, func() bool { return syscall.Kill(pid, 0) != nil })
			}
		}
		if killed == 0 {
			t.Errorf("%s is not a process of headgate", call.program)
		}
		r := c(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, call.tool, call.arguments))
		var result struct{ IsError bool }
		if err := json.Unmarshal(r.Result, &result); err != nil || result.IsError {
			t.Errorf("%s after its server was killed: %v: %s", call.tool, err, r)
		}
		if !slices.Contains(toolNames(t, c), call.tool) {
			t.Errorf("%s is not listed any more", call.tool)
		}
	}
}
