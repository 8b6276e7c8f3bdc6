package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// builtProgram builds headgate.
func builtProgram(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "headgate")
	build := exec.Command("go", "build", "-o", file, "../../cmd/headgate")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building headgate: %v\n%s", err, out)
	}
	return file
}

// held is an upstream whose calls wait for a word.
type held struct {
	*mcptest.Server
	release chan struct{}
}

func newHeld(era string) *held {
	h := &held{release: make(chan struct{})}
	h.Server = &mcptest.Server{Era: era, ListChanged: true, Tools: []mcptest.Tool{{
		Def: `{"name":"wait","inputSchema":{"type":"object"}}`,
		Call: func(c *mcptest.Call) {
			select {
			case <-h.release:
				c.Text("finished")
			case <-c.Ctx.Done():
			}
		},
	}}}
	return h
}

func (h *held) await(t *testing.T, calls int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.Await(ctx, func() bool { return h.Executions("wait") == calls }); err != nil {
		t.Fatalf("%d of %d calls arrived: %v", h.Executions("wait"), calls, err)
	}
}

// program is the built headgate as a process.
type program struct {
	cmd  *exec.Cmd
	log  *bufio.Reader
	pids []string // files with process ids of what it starts
}

// launch starts it with two upstreams on HTTP and a child that has a child of its own, which ignores SIGTERM.
func launch(t *testing.T, file, command string, modern, legacy *held, in io.Reader, out io.Writer) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{pids: []string{filepath.Join(dir, "child"), filepath.Join(dir, "grandchild")}}
	kid, _, env := mcptest.ChildCommand(mcptest.ChildSpec{PIDFile: p.pids[0], SpawnGrandchild: p.pids[1]})
	vars, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "headgate.json")
	text := fmt.Sprintf(`{"listen":"127.0.0.1:0","admin_listen":"off","log":{"format":"json"},"upstreams":{"m":{"url":%q},"l":{"url":%q},"kid":{"command":%q,"env":%s}}}`,
		modern.StartHTTP(t).URL, legacy.StartHTTP(t).URL, kid, vars)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(file, command, "--config", config)
	p.cmd.Stdin, p.cmd.Stdout = in, out
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.log = bufio.NewReader(log)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// awaitLog reads the log up to as many lines that hold a text.
func (p *program) awaitLog(t *testing.T, text string, times int) string {
	t.Helper()
	for {
		line, err := p.log.ReadString('\n')
		if err != nil {
			t.Fatalf("%q is not in the log: %v", text, err)
		}
		if strings.Contains(line, text) {
			if times--; times == 0 {
				return line
			}
		}
	}
}

// end waits for the end of the process, which is to be a good one, and of everything it started.
func (p *program) end(t *testing.T) {
	t.Helper()
	rest, _ := io.ReadAll(p.log)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("headgate ended with %v; the rest of its log:\n%s", err, rest)
	}
	for _, file := range p.pids {
		pid, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
			if _, rest, _ := strings.Cut(string(stat), ") "); err != nil || strings.HasPrefix(rest, "Z") {
				return ""
			}
			return filepath.Base(file) + " still runs as " + string(pid)
		})
	}
}

// TestSignalDuringCalls sends SIGTERM to the real program while calls of both eras to upstreams of both are in
// flight, and streams are open: the calls are answered, the streams end with what ends them, and no
// process is left.
func TestSignalDuringCalls(t *testing.T) {
	file := builtProgram(t)
	t.Run("HTTP", func(t *testing.T) { signalOverHTTP(t, file) })
	t.Run("stdio", func(t *testing.T) { signalOverStdio(t, file) })
}

func signalOverHTTP(t *testing.T, file string) {
	modern, legacy := newHeld(mcptest.Modern), newHeld(mcptest.Legacy)
	p := launch(t, file, "serve", modern, legacy, nil, nil)
	var ready struct{ Listen string }
	if err := json.Unmarshal([]byte(p.awaitLog(t, `"msg":"ready"`, 1)), &ready); err != nil {
		t.Fatal(err)
	}
	p.awaitLog(t, `"msg":"the server is up"`, 3)
	w := &world{url: ready.Listen, ledger: newLedger(1), tidy: true}
	one, other := &client{w: w, name: "modern", modern: true}, &client{w: w, name: "legacy"}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, l := newHTTP(ctx, one), newHTTP(ctx, other)
	if got := l.ask(ctx, "0", "initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"signal","version":"1"}`); got == nil || got.Result == nil {
		t.Fatal("no session")
	}
	var streams, calls sync.WaitGroup
	stream := func(h *httpConn, method, mcp, body, want string) {
		resp, err := h.send(ctx, method, mcp, body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a stream: %v %v", resp, err)
		}
		streams.Go(func() {
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Contains(text, []byte(want)) {
				t.Errorf("a stream ends with %v and does not say %q: %s", err, want, text)
			}
		})
	}
	stream(m, http.MethodPost, "subscriptions/listen", one.body("9", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`), `"resultType":"complete"`)
	stream(l, http.MethodGet, "", "", "")
	for _, h := range []*httpConn{m, l} {
		for id, tool := range []string{"m_wait", "l_wait"} {
			calls.Go(func() {
				got := h.ask(ctx, fmt.Sprint(id+1), "tools/call", `"name":"`+tool+`","arguments":{}`)
				if got == nil || got.Result == nil || len(got.Result.Content) != 1 || got.Result.Content[0].Text != "finished" {
					t.Errorf("%s client, %s: %+v", h.c.name, tool, got)
				}
			})
		}
	}
	modern.await(t, 2)
	legacy.await(t, 2)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	streams.Wait() // they end first, while the calls go on
	close(modern.release)
	close(legacy.release)
	calls.Wait()
	m.tr.CloseIdleConnections()
	l.cancel()
	l.reading.Wait()
	l.tr.CloseIdleConnections()
	p.end(t)
	for _, problem := range w.ledger.problems.first {
		t.Error(problem)
	}
}

func signalOverStdio(t *testing.T, file string) {
	modern, legacy := newHeld(mcptest.Modern), newHeld(mcptest.Legacy)
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inW.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outR.Close()
	p := launch(t, file, "stdio", modern, legacy, inR, outW)
	inR.Close()
	outW.Close()
	p.awaitLog(t, `"msg":"the server is up"`, 3)
	c := &client{modern: true}
	requests := []string{c.body("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)}
	for i, tool := range []string{"m_wait", "l_wait", "m_wait", "l_wait"} {
		requests = append(requests, c.body(fmt.Sprint(i+2), "tools/call", `"name":"`+tool+`","arguments":{}`))
	}
	if _, err := io.WriteString(inW, strings.Join(requests, "\n")+"\n"); err != nil {
		t.Fatal(err)
	}
	modern.await(t, 2)
	legacy.await(t, 2)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for lines := bufio.NewScanner(outR); lines.Scan(); {
		if m := read(lines.Bytes()); m != nil && m.ID != nil {
			answers[string(m.ID)] = lines.Text()
			if string(m.ID) == "1" { // the end of the subscription, while the calls go on
				close(modern.release)
				close(legacy.release)
			}
		}
	}
	if !strings.Contains(answers["1"], `"resultType":"complete"`) {
		t.Errorf("the end of the subscription: %s", answers["1"])
	}
	for _, id := range []string{"2", "3", "4", "5"} {
		if !strings.Contains(answers[id], `"text":"finished"`) {
			t.Errorf("call %s: %s", id, answers[id])
		}
	}
	p.end(t)
}
