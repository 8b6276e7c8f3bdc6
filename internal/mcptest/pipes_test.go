package mcptest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// pipe is the client's end of a server that reads lines.
type pipe struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func (p pipe) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("sending %s: %v", line, err)
	}
}

func (p pipe) next() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("reading a line: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func serveLines(t *testing.T, s *Server) pipe {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- s.ServeLines(context.WithoutCancel(t.Context()), inR, outW)
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_, _ = io.Copy(io.Discard, outR)
		if err := <-done; err != nil {
			t.Errorf("ServeLines: %v", err)
		}
	})
	return pipe{t, inW, bufio.NewReader(outR)}
}

const (
	initLine        = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	initializedLine = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func TestLinesLegacy(t *testing.T) {
	s := &Server{Era: Legacy, Tools: append(Builtin("slow"), Tool{Name: "ask", Call: func(c *Call) {
		result, rpcErr := c.Ask("elicitation/create", `{"message":"?"}`)
		c.Structured(`{"result":` + string(result) + `,"error":"` + string(rpcErr) + `"}`)
	}})}
	p := serveLines(t, s)
	p.send(`{"jsonrpc":"2.0","id":9,"method":"server/discover"}`)
	if got := p.next(); !strings.Contains(got, `"id":9,"error":{"code":-32601`) {
		t.Errorf("discover: %s", got)
	}
	p.send(initLine)
	if got := p.next(); !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
		t.Errorf("initialize: %s", got)
	}
	p.send(initializedLine)
	if err := s.Await(t.Context(), func() bool { return s.Streams() == 1 }); err != nil {
		t.Fatal(err)
	}
	go s.NotifyToolsChanged()
	if got := p.next(); !strings.Contains(got, "list_changed") {
		t.Errorf("notified: %s", got)
	}

	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
	if got := p.next(); got != `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}` {
		t.Errorf("asked: %s", got)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
	if got := p.next(); !strings.Contains(got, `"structuredContent":{"result":{"action":"accept"},"error":""}`) {
		t.Errorf("answered: %s", got)
	}

	p.send(`{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"slow","arguments":{"ms":100000},"_meta":{"progressToken":3}}}`)
	if got := p.next(); !strings.Contains(got, `"progressToken":3,"progress":50,"total":100000`) {
		t.Errorf("progress: %s", got)
	}
	// The server may be writing progress while it is sent the rest.
	go func() {
		_, err := io.WriteString(p.in, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`+"\n"+
			`{"jsonrpc":"2.0","id":"after","method":"ping"}`+"\n")
		if err != nil {
			t.Errorf("sending: %v", err)
		}
	}()
	for line := p.next(); !strings.Contains(line, `"id":"after"`); line = p.next() {
		if strings.Contains(line, `"id":"s"`) {
			t.Errorf("cancelled call answered: %s", line)
		}
	}
	if err := s.Await(t.Context(), func() bool { return len(s.Cancelled()) == 1 }); err != nil || s.Cancelled()[0] != `"s"` {
		t.Errorf("cancelled %v, %v", s.Cancelled(), err)
	}
}

func TestLinesModern(t *testing.T) {
	s := &Server{ListChanged: true, Tools: Builtin("echo")}
	p := serveLines(t, s)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if got := p.next(); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("without _meta: %s", got)
	}
	p.send(initLine)
	if got := p.next(); !strings.Contains(got, "supported versions: 2026-07-28") {
		t.Errorf("initialize: %s", got)
	}
	p.send(`{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`)
	if got := p.next(); !strings.Contains(got, "acknowledged") {
		t.Errorf("listen: %s", got)
	}
	go s.NotifyToolsChanged()
	if got := p.next(); !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":5`) {
		t.Errorf("notified: %s", got)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	if err := s.Await(t.Context(), func() bool { return s.Streams() == 0 }); err != nil {
		t.Fatal(err)
	}
}

func TestSSE(t *testing.T) {
	s := &Server{Era: Legacy, Version: "2024-11-05", Tools: Builtin("add")}
	h := s.StartSSE(t)
	c := client(t)
	base := strings.TrimSuffix(h.URL, "/sse")
	if resp, _ := do(t, c, request(t, "POST", h.URL, initLine)); resp.StatusCode != 405 {
		t.Errorf("POST to the stream: %d, want 405", resp.StatusCode)
	}
	stream, err := c.Do(request(t, http.MethodGet, h.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	ev := events{t, bufio.NewReader(stream.Body)}
	endpoint := base + ev.next()
	post := func(body string) {
		t.Helper()
		if resp, _ := do(t, c, request(t, "POST", endpoint, body)); resp.StatusCode != 202 {
			t.Errorf("POST: %d, want 202", resp.StatusCode)
		}
	}
	post(initLine)
	if got := ev.next(); !strings.Contains(got, `"protocolVersion":"2024-11-05"`) {
		t.Errorf("initialize: %s", got)
	}
	post(initializedLine)
	post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":0.5}}}`)
	if got := ev.next(); !strings.Contains(got, `"text":"2.5"`) {
		t.Errorf("call: %s", got)
	}
	s.NotifyToolsChanged()
	if got := ev.next(); !strings.Contains(got, "list_changed") {
		t.Errorf("notified: %s", got)
	}
	if resp, _ := do(t, c, request(t, "POST", base+"/messages?sessionId=no", initLine)); resp.StatusCode != 404 {
		t.Errorf("other session: %d, want 404", resp.StatusCode)
	}
}

// child starts a child server and returns its pipes and its stderr.
func child(t *testing.T, spec ChildSpec) (p pipe, stderr *strings.Builder, cmd *exec.Cmd) {
	t.Helper()
	command, args, env := ChildCommand(spec)
	cmd = exec.Command(command, args...)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	stderr = &strings.Builder{}
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = outW
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = outW.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = outR.Close()
	})
	return pipe{t, in, bufio.NewReader(outR)}, stderr, cmd
}

func TestChild(t *testing.T) {
	dir := t.TempDir()
	starts, pids := filepath.Join(dir, "starts"), filepath.Join(dir, "pid")
	p, stderr, cmd := child(t, ChildSpec{Banner: "hello", Noise: "noise", Blank: true, Pretty: true, Tools: []string{"pid"}, BigLine: 3000, ExitOnCall: true,
		EnvDump: true, StderrText: "words", StderrBytes: 100, PIDFile: pids, StartsFile: starts, StartDelayMs: 1})
	message := func() string {
		t.Helper()
		want := []string{"noise", "", "{", `  "level": "info",`, `  "text": "not a message"`, "}"}
		for _, w := range want {
			if got := p.next(); got != w {
				t.Fatalf("got line %q, want %q", got, w)
			}
		}
		return p.next()
	}
	if got := p.next(); got != "hello" {
		t.Errorf("banner: %q", got)
	}
	p.send(initLine)
	if got := message(); !strings.Contains(got, `"name":"child"`) {
		t.Errorf("initialize: %s", got)
	}
	p.send(initializedLine)
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}`
	p.send(fmt.Sprintf(call, "pid"))
	pid := strconv.Itoa(cmd.Process.Pid)
	if got := message(); !strings.Contains(got, `"text":"`+pid+`"`) {
		t.Errorf("pid: %s, want %s", got, pid)
	}
	p.send(fmt.Sprintf(call, "big"))
	if got := message(); len(got) != 3000 {
		t.Errorf("big line has %d bytes, want 3000", len(got))
	}
	p.send(fmt.Sprintf(call, "env"))
	if got := message(); !strings.Contains(got, childEnv) {
		t.Errorf("env: %s", got)
	}
	p.send(fmt.Sprintf(call, "die"))
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("die ended with %v", err)
	}
	filler := strings.Repeat("e", 63) + "\n" + strings.Repeat("e", 35) + "\n"
	if got := stderr.String(); !strings.HasPrefix(got, "words\n"+filler) {
		t.Errorf("stderr has %q", got)
	}
	for path, want := range map[string]string{pids: pid, starts: "start\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
}

func TestChildEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec ChildSpec
		send string
		code int
	}{
		{"end of input", ChildSpec{}, "", 0},
		{"exit at start", ChildSpec{ExitAtStart: 3}, "", 3},
		{"die on discover", ChildSpec{DieOnDiscover: true}, `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _, cmd := child(t, tt.spec)
			if tt.send != "" {
				p.send(tt.send)
			} else {
				_ = p.in.Close()
			}
			if _, err := io.ReadAll(p.out); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.code {
				t.Errorf("exit code %d, want %d", got, tt.code)
			}
		})
	}
}

func TestChildStubborn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "grandchild")
	p, _, cmd := child(t, ChildSpec{Era: Modern, IgnoreEOF: true, IgnoreTERM: true, SpawnGrandchild: file, Tools: []string{"echo"}})
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"b":1,"a":2},` + meta + `}}`)
	if got := p.next(); !strings.Contains(got, `"structuredContent":{"b":1,"a":2},"resultType":"complete"`) {
		t.Errorf("echo: %s", got)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = grandchild.Kill() }()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := grandchild.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("grandchild: %v", err)
	}
	// The child still answers after SIGTERM, and the grandchild still runs.
	p.send(`{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{` + meta + `}}`)
	if got := p.next(); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("after SIGTERM: %s", got)
	}
	_ = p.in.Close()
	if err := grandchild.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("grandchild after SIGTERM: %v", err)
	}
}
