package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// free keeps a test's addresses apart from those of other programs.
var free = []string{"HEADGATE_LISTEN=127.0.0.1:0", "HEADGATE_ADMIN_LISTEN=127.0.0.1:0"}

// serve starts the program and returns it with its endpoint.
func serve(t *testing.T, args ...string) (p *program, endpoint string) {
	t.Helper()
	p = start(t, strings.NewReader(""), free, append([]string{"serve"}, args...)...)
	return p, member(t, p.log.await(t, `"msg":"ready"`), "listen")
}

// post sends one request of the modern revision and returns the answer's body.
func post(endpoint, method, name, params string) (string, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequest(http.MethodPost, endpoint, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", method)
	if name != "" {
		req.Header.Set("Mcp-Name", name)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func callTool(endpoint, name string) (string, error) {
	return post(endpoint, "tools/call", name, `"name":"`+name+`","arguments":{},`)
}

func TestServeTheDemo(t *testing.T) {
	p, endpoint := serve(t)
	p.log.await(t, `"msg":"the server is up","upstream":"flights"`)
	p.log.await(t, `"msg":"the server is up","upstream":"ledger"`)
	if answer, err := callTool(endpoint, "no_such_tool"); err != nil || !strings.Contains(answer, "Unknown tool: no_such_tool") {
		t.Errorf("answer %q, %v", answer, err)
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Errorf("ended with %v", err)
	}
	p.log.await(t, `"msg":"draining"`)
	p.log.await(t, `"msg":"stopped"`)
	if out := p.out.String(); out != "" {
		t.Errorf("stdout has %q", out)
	}
}

// A flag is stronger than the environment.
func TestListenFlag(t *testing.T) {
	p := start(t, strings.NewReader(""), []string{"HEADGATE_LISTEN=127.0.0.1:1", "HEADGATE_ADMIN_LISTEN=off"}, "serve", "--listen", "127.0.0.1:0")
	endpoint := member(t, p.log.await(t, `"msg":"ready"`), "listen")
	if strings.Contains(endpoint, ":1/") || !strings.HasPrefix(endpoint, "http://127.0.0.1:") || !strings.HasSuffix(endpoint, "/mcp") {
		t.Errorf("it listens on %s", endpoint)
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}

func TestListenAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ key, other string }{
		{"listen", "HEADGATE_ADMIN_LISTEN=off"},
		{"admin_listen", "HEADGATE_LISTEN=127.0.0.1:0"},
	} {
		t.Run(c.key, func(t *testing.T) {
			p := start(t, strings.NewReader(""), []string{c.other, "HEADGATE_" + strings.ToUpper(c.key) + "=" + taken.Addr().String()}, "serve")
			err := p.end(t)
			if !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("ended with %v", err)
			}
			want := fmt.Sprintf("headgate: %s: listen tcp %s: bind: address already in use; set another address for %s\n", c.key, taken.Addr(), c.key)
			if got := p.log.String(); got != want {
				t.Errorf("stderr has %q, want %q", got, want)
			}
		})
	}
}

// A signal ends the accepting of calls at once and the process only when those in flight have their answers.
func TestSignalWaitsForCallsInFlight(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{
		Def: `{"name":"wait","inputSchema":{"type":"object"}}`,
		Call: func(c *mcptest.Call) {
			close(arrived)
			select {
			case <-release:
				c.Text("finished")
			case <-c.Ctx.Done():
			}
		},
	}}}
	config := write(t, t.TempDir(), "headgate.yaml", fmt.Sprintf("upstreams:\n  up: {type: http, url: %q}\n", s.StartHTTP(t).URL))
	p, endpoint := serve(t, "-c", config)
	awaitListed(t, endpoint, "up_wait")

	type answer struct {
		body string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		body, err := callTool(endpoint, "up_wait")
		got <- answer{body, err}
	}()
	select {
	case <-arrived:
	case a := <-got:
		t.Fatalf("answered before it arrived: %q, %v", a.body, a.err)
	}
	p.signal()
	p.log.await(t, `"msg":"draining"`)
	select {
	case err := <-p.done:
		t.Fatalf("ended with a call in flight: %v", err)
	case a := <-got:
		t.Fatalf("the call was cut off: %q, %v", a.body, a.err)
	default:
	}
	close(release)
	if a := <-got; a.err != nil || !strings.Contains(a.body, `"text":"finished"`) {
		t.Errorf("answer %q, %v", a.body, a.err)
	}
	if err := p.end(t); err != nil {
		t.Errorf("ended with %v", err)
	}
	if n := s.Executions("wait"); n != 1 {
		t.Errorf("%d executions", n)
	}
	if _, err := callTool(endpoint, "up_wait"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: %v", err)
	}
}

func TestReloadOnFileChange(t *testing.T) {
	server := func(name string) string {
		s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{
			Def:  `{"name":"who","inputSchema":{"type":"object"}}`,
			Call: func(c *mcptest.Call) { c.Text("I am " + name) },
		}}}
		return s.StartHTTP(t).URL
	}
	dir := t.TempDir()
	one := fmt.Sprintf("upstreams:\n  one: {type: http, url: %q}\n", server("one"))
	two := one + fmt.Sprintf("  two: {type: http, url: %q}\n", server("two"))
	config := write(t, dir, "headgate.yaml", one)
	p, endpoint := serve(t, "-c", config)
	awaitListed(t, endpoint, "one_who")

	write(t, dir, "headgate.yaml", two)
	p.log.await(t, `"msg":"configuration reloaded","cause":"file changed","upstreams":2`)
	awaitListed(t, endpoint, "two_who")
	mustAnswer(t, endpoint, "two_who", "I am two")

	write(t, dir, "headgate.yaml", two+"  three: {}\nlisten_on: x\n")
	line := p.log.await(t, `"msg":"reload failed, the old configuration stays in force"`)
	for _, want := range []string{"listen_on: unknown key", "upstreams.three: "} {
		if text := member(t, line, "error"); !strings.Contains(text, want) {
			t.Errorf("the log does not have %q: %q", want, text)
		}
	}
	mustAnswer(t, endpoint, "one_who", "I am one")
	mustAnswer(t, endpoint, "two_who", "I am two")

	// The file is still watched after it was broken.
	write(t, dir, "headgate.yaml", strings.Replace(two, "  one:", "  uno:", 1))
	awaitListed(t, endpoint, "uno_who")
	mustAnswer(t, endpoint, "uno_who", "I am one")
	mustAnswer(t, endpoint, "one_who", "Unknown tool: one_who")

	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}

// awaitListed waits until a tool is in the list, a moment after the log says that its server is up.
func awaitListed(t *testing.T, endpoint, tool string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		list, err := post(endpoint, "tools/list", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(list, `"name":"`+tool+`"`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not listed: %s", tool, list)
		}
	}
}

func mustAnswer(t *testing.T, endpoint, tool, want string) {
	t.Helper()
	if answer, err := callTool(endpoint, tool); err != nil || !strings.Contains(answer, want) {
		t.Errorf("%s answers %q, %v, want %q", tool, answer, err, want)
	}
}

// The children of a server are gone when serve returns, with those that the child has started.
func TestServeEndsItsChildren(t *testing.T) {
	dir := t.TempDir()
	config, pids := childConfig(t, dir)
	p, _ := serve(t, "-c", config)
	p.log.await(t, `"msg":"the server is up"`)
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
	mustBeGone(t, pids...)
}

// childConfig writes a configuration with one child that has a child of its own, which ignores
// SIGTERM, and returns the files that will hold their process ids.
func childConfig(t *testing.T, dir string, settings ...string) (config string, pidFiles []string) {
	t.Helper()
	pidFiles = []string{filepath.Join(dir, "child"), filepath.Join(dir, "grandchild")}
	command, _, environ := mcptest.ChildCommand(mcptest.ChildSpec{PIDFile: pidFiles[0], SpawnGrandchild: pidFiles[1]})
	text := fmt.Sprintf("upstreams:\n  kid:\n    command: %q\n    env:\n", command)
	for name, value := range environ {
		text += fmt.Sprintf("      %s: %q\n", name, value)
	}
	return write(t, dir, "headgate.yaml", text+strings.Join(settings, "\n")), pidFiles
}

// mustBeGone fails the test unless the processes whose ids are in the files end. They were killed
// before it is called; the kernel takes a moment over it.
func mustBeGone(t *testing.T, pidFiles ...string) {
	t.Helper()
	for _, file := range pidFiles {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(b))
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); alive(pid); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s is still running as %d", filepath.Base(file), pid)
			}
		}
	}
}

// alive reports whether a process runs. One that has ended and waits to be reaped, as an orphan does
// where no init process cares, has ended.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}
