//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// binary is the built program, npm the folder of the real servers.
var binary, npm string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "headgate-integration-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "headgate")
		build := exec.Command("go", "build", "-o", binary, "../cmd/headgate")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building headgate:", err)
			return 1
		}
		npm, err = filepath.Abs("npm")
		if err == nil {
			_, err = os.Stat(filepath.Join(npm, "node_modules"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the real servers are not installed; run make integration:", err)
			return 1
		}
		return m.Run()
	}())
}

// script is the path of a real server's program.
func script(name string) string {
	return filepath.Join(npm, "node_modules", "@modelcontextprotocol", "server-"+name, "dist", "index.js")
}

// world is the set of real servers behind one Headgate.
type world struct {
	dir     string // what the filesystem server may read
	config  string
	webURL  string // of the everything server over Streamable HTTP
	servers map[string][]string
}

// newWorld starts the everything server over both HTTP transports and writes a configuration for
// these and for all three servers over stdio.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: filepath.Join(dir, "files")}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "greeting.txt"), []byte("Grüße, \"world\" <&> \u2028 9007199254740993\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	web, old := startNodeServer(t, "streamableHttp"), startNodeServer(t, "sse")
	w.webURL = "http://" + web + "/mcp"
	w.servers = map[string][]string{
		"everything": {"node", script("everything"), "stdio"},
		"files":      {"node", script("filesystem"), w.dir},
		"memory":     {"node", script("memory")},
	}
	config := map[string]any{
		"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0",
		"upstreams": map[string]any{
			"everything": entry(w.servers["everything"], nil),
			// A shell in between, as launchers are: the server is Headgate's grandchild.
			"files":  entry([]string{"sh", "-c", `"$@"; exit $?`, "sh", "node", script("filesystem"), w.dir}, nil),
			"memory": entry(w.servers["memory"], map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}),
			"web":    map[string]any{"url": w.webURL},
			"old":    map[string]any{"type": "sse", "url": "http://" + old + "/sse"},
		},
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	w.config = filepath.Join(dir, "headgate.json")
	if err := os.WriteFile(w.config, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func entry(command []string, env map[string]string) map[string]any {
	e := map[string]any{"command": command[0], "args": command[1:]}
	if env != nil {
		e["env"] = env
	}
	return e
}

// startNodeServer starts the everything server over HTTP, until the end of the test, and returns its
// address.
func startNodeServer(t *testing.T, transport string) string {
	t.Helper()
	addr := freeAddr(t)
	cmd := exec.Command("node", script("everything"), transport)
	_, port, _ := net.SplitHostPort(addr)
	cmd.Env = append(os.Environ(), "PORT="+port)
	own := ownGroup(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitListener(t, own(), "the everything server over "+transport, addr)
	return addr
}

// freeAddr is an address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	return mcptest.Reserve(t)
}

// awaitListener waits until somebody listens on an address.
func awaitListener(t *testing.T, ended <-chan struct{}, what, addr string) {
	t.Helper()
	await(t, ended, what, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// await looks again and again until cond holds.
func await(t *testing.T, ended <-chan struct{}, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !cond(); {
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("%s: the process has ended", what)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// process is a running headgate serve.
type process struct {
	cmd             *exec.Cmd
	endpoint, admin string
	log             string // file
	ended           <-chan struct{}
}

func startHeadgate(t *testing.T, config string) *process {
	t.Helper()
	p := &process{log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(binary, "serve", "--config", config)
	p.cmd.Stderr = log
	own := ownGroup(t, p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.ended = own()
	t.Cleanup(func() {
		if text, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("the log of headgate:\n%s", text)
		}
	})
	await(t, p.ended, "headgate", func() bool {
		text, _ := os.ReadFile(p.log)
		for line := range bytes.Lines(text) {
			var m struct{ Msg, Listen, Admin string }
			if json.Unmarshal(line, &m) == nil && m.Msg == "ready" {
				p.endpoint, p.admin = m.Listen, m.Admin
				return true
			}
		}
		return false
	})
	await(t, p.ended, "the servers behind headgate", func() bool {
		resp, err := http.Get(p.admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// reply is the answer to one request, as the bytes that came.
type reply struct {
	Result, Error json.RawMessage
	notes         []json.RawMessage // params of the progress notifications before it
}

func (r reply) String() string {
	if r.Error != nil {
		return "error " + string(r.Error)
	}
	return "result " + string(r.Result)
}

// client is somebody who sends requests: to a real server or to Headgate, of one era over one transport.
type client func(t *testing.T, method, params string) reply

// message is any JSON-RPC message.
type message struct {
	ID            json.RawMessage
	Method        string
	Params        json.RawMessage
	Result, Error json.RawMessage
}

func (m *message) take(r *reply) (done bool) {
	if m.Method == "notifications/progress" {
		r.notes = append(r.notes, m.Params)
	}
	if m.Method == "" && m.ID != nil {
		r.Result, r.Error = m.Result, m.Error
		return true
	}
	return false
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"integration","version":"1"}}`

// capableHello is from a client that servers may ask everything.
const capableHello = `{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}},` +
	`"clientInfo":{"name":"integration","version":"1"}}`

// overStdio starts a command and opens a legacy session with it over its pipes.
func overStdio(t *testing.T, env []string, command ...string) client {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	own := ownGroup(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	own()
	w.Close()
	t.Cleanup(func() { r.Close() })
	out, id := bufio.NewReader(r), 0
	call := func(t *testing.T, method, params string) (answer reply) {
		t.Helper()
		id++
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
		for {
			line, err := out.ReadBytes('\n')
			if err != nil {
				t.Fatalf("%s: %v", command[0], err)
			}
			var m message
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatalf("%s: %v: %s", command[0], err, line)
			}
			if m.take(&answer) {
				return answer
			}
		}
	}
	if r := call(t, "initialize", hello); r.Error != nil {
		t.Fatalf("initialize: %s", r.Error)
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return call
}

// overHTTP opens a legacy session at a Streamable HTTP endpoint.
func overHTTP(t *testing.T, endpoint string) client {
	t.Helper()
	return overHTTPAs(t, endpoint, hello)
}

// overHTTPAs is overHTTP for a client that introduces itself with hello.
func overHTTPAs(t *testing.T, endpoint, hello string) client {
	t.Helper()
	header := http.Header{}
	call := func(t *testing.T, method, params string) reply {
		t.Helper()
		r, h := post(t, endpoint, header, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
		if s := h.Get("Mcp-Session-Id"); s != "" {
			header.Set("Mcp-Session-Id", s)
			header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		return r
	}
	if r := call(t, "initialize", hello); r.Error != nil {
		t.Fatalf("initialize: %s", r.Error)
	}
	post(t, endpoint, header, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return call
}

// modern speaks the stateless revision; the answers' resultType, which only it has, is left out.
func modern(endpoint string) client {
	return func(t *testing.T, method, params string) reply {
		t.Helper()
		var p struct {
			Name string
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		if err := json.Unmarshal([]byte(params), &p); err != nil {
			t.Fatal(err)
		}
		meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": struct{}{}}
		for k, v := range p.Meta {
			meta[k] = v
		}
		m, err := json.Marshal(meta)
		if err != nil {
			t.Fatal(err)
		}
		params = strings.Replace(params, `,"_meta":{"progressToken":"p"}}`, "}", 1)
		sep := ","
		if params == "{}" {
			sep = ""
		}
		header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}}
		if p.Name != "" {
			header.Set("Mcp-Name", p.Name)
		}
		r, _ := post(t, endpoint, header, fmt.Sprintf(`{"jsonrpc":"2.0","id":"m","method":%q,"params":%s%s"_meta":%s}}`, method, strings.TrimSuffix(params, "}"), sep, m))
		if r.Result != nil {
			if n := bytes.Count(r.Result, []byte(`"resultType":"complete"`)); n != 1 {
				t.Errorf("resultType stands %d times in %s", n, r.Result)
			}
			for _, form := range []string{`"resultType":"complete",`, `,"resultType":"complete"`} {
				r.Result = bytes.Replace(r.Result, []byte(form), nil, 1)
			}
		}
		return r
	}
}

// post sends one message and reads the answer in either form.
func post(t *testing.T, endpoint string, header http.Header, body string) (r reply, answered http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.Lines(string(text)) {
			if data, ok := strings.CutPrefix(line, "data:"); ok && strings.TrimSpace(data) != "" {
				all = append(all, data)
			}
		}
	} else if len(text) > 0 {
		all = append(all, string(text))
	}
	for _, data := range all {
		var m message
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatalf("the answer to %s: %v: %s", body, err, data)
		}
		m.take(&r)
	}
	return r, resp.Header
}

// descendants returns the processes below pid, with their command lines.
func descendants(t *testing.T, pid int) map[int]string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parent := map[int]int{}
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			if ppid, ok := parentOf(id); ok {
				parent[id] = ppid
			}
		}
	}
	found := map[int]string{}
	for more := true; more; {
		more = false
		for id, up := range parent {
			if _, known := found[id]; !known && (up == pid || found[up] != "") {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id))
				found[id] = " " + strings.ReplaceAll(string(line), "\x00", " ")
				more = true
			}
		}
	}
	return found
}

// parentOf returns the parent of a process that is there and has not ended.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 || f[0] == "Z" {
		return 0, false
	}
	ppid, err := strconv.Atoi(f[1])
	return ppid, err == nil
}

// stop sends SIGTERM and returns how the process ended.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("headgate does not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("headgate ended with status %d", code)
	}
}

func names(t *testing.T, list json.RawMessage) (all []string, definitions map[string]string) {
	t.Helper()
	var l struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(list, &l); err != nil {
		t.Fatalf("a list: %v: %s", err, list)
	}
	definitions = map[string]string{}
	for _, raw := range l.Tools {
		var def struct{ Name string }
		if err := json.Unmarshal(raw, &def); err != nil {
			t.Fatal(err)
		}
		all = append(all, def.Name)
		definitions[def.Name] = string(raw)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(all)))) != len(all) {
		t.Errorf("a name is listed twice: %q", all)
	}
	return all, definitions
}
