package upstream

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// running reports whether a process runs; one that only waits to be collected does not.
func running(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func readPID(t *testing.T, file string) int {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestChildIsALeaderAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		spec mcptest.ChildSpec
	}{
		{"well behaved", mcptest.ChildSpec{}},
		{"ignores the end of its input", mcptest.ChildSpec{IgnoreEOF: true}},
		{"ignores that and SIGTERM", mcptest.ChildSpec{IgnoreEOF: true, IgnoreTERM: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "grandchild")
			tt.spec.SpawnGrandchild = file
			r := up(t, childOf(tt.spec), Options{})
			pid, grandchild := r.pid(), readPID(t, file)
			if pgid, err := syscall.Getpgid(pid); err != nil || pgid != pid || pgid == syscall.Getpgrp() {
				t.Errorf("group %d of process %d, %v", pgid, pid, err)
			}
			if !running(grandchild) {
				t.Fatal("there is no grandchild")
			}
			r.stop()
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
				t.Error("the child is still there, or was not waited for")
			}
			eventually(t, "the end of the grandchild", func() bool { return !running(grandchild) })
		})
	}
}

func TestKilledChildTakesItsChildrenAlong(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "grandchild")
	r := up(t, childOf(mcptest.ChildSpec{SpawnGrandchild: file}), Options{})
	pid, grandchild := r.pid(), readPID(t, file)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the grandchild", func() bool { return !running(grandchild) })
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("the child was not waited for")
	}
}

func TestNoisyChild(t *testing.T) {
	t.Parallel()
	t.Run("stderr", func(t *testing.T) {
		t.Parallel()
		r := up(t, childOf(mcptest.ChildSpec{StderrText: "\x1b[31mred\x1b[0m", StderrBytes: 1 << 20}), Options{})
		r.mustCall("echo", `{}`)
		r.stop()
		log := r.log.String()
		if n := strings.Count(log, "msg=stderr "); n == 0 || n > stderrLines+1 {
			t.Errorf("%d lines of stderr were logged", n)
		}
		if !strings.Contains(log, "stderr lines not shown") || strings.Contains(log, "\x1b") || !strings.Contains(log, "upstream=srv") {
			t.Errorf("log %s", tail(log, 1000))
		}
	})
	t.Run("stdout", func(t *testing.T) {
		t.Parallel()
		bothEras(t, func(t *testing.T, era string) {
			r := up(t, childOf(mcptest.ChildSpec{Era: era, Banner: "Welcome to my server! {", Noise: "INFO a line of log", Blank: true, Pretty: true}), Options{})
			for range 20 {
				r.mustCall("echo", `{}`)
			}
			n := strings.Count(r.log.String(), "that is not a message is skipped")
			if n == 0 || n > 20 || !r.logged("Welcome to my server!") {
				t.Errorf("%d lines of stdout were logged", n)
			}
			if got := r.Status(); got.Tries != 1 || got.State != Up {
				t.Errorf("status %+v", got)
			}
		})
	})
}

func TestSecretsOfAChildAreMasked(t *testing.T) {
	t.Parallel()
	const secret = `sk-ünlikely"to\be-guessed`
	spec := mcptest.ChildSpec{Banner: "token " + secret, StderrText: "my token is " + secret + "!", ExitAtStart: 3}
	cfg := childOf(spec)
	cfg.Env["TOKEN"] = secret
	r := run(t, cfg, Options{lastWords: patience})
	r.await("a failure", func() bool { return r.Status().State == Down })
	got := r.Status().Error
	if !strings.Contains(got, "exit status 3") || !strings.Contains(got, "my token is ***!") {
		t.Errorf("error %s", got)
	}
	r.stop()
	for _, text := range []string{got, r.log.String()} {
		if strings.Contains(text, "guessed") || strings.Contains(text, "ünlikely") {
			t.Errorf("the secret shows in %s", tail(text, 1000))
		}
	}
	if !r.logged("token ***") {
		t.Error("nothing of it was logged")
	}
}

func TestRedact(t *testing.T) {
	cfg := httpAt("https://user:url-password@example.com/mcp?key=query-secret&v=1")
	cfg.Headers = map[string]string{"Authorization": "Bearer header-secret", "X-Key": "header-secret-longer"}
	u := New(cfg, Options{})
	for text, want := range map[string]string{
		"a header-secret b":      "a *** b",
		"header-secret-longer":   "***",
		"Bearer header-secret":   "***",
		"x url-password y":       "x *** y",
		"?key=query-secret":      "?key=***",
		"nothing to hide, v=1":   "nothing to hide, v=1",
		"HEADER-SECRET is other": "HEADER-SECRET is other",
	} {
		if got := u.Redact(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestChildThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.Type, cfg.Command, cfg.Args = "stdio", "sh", []string{"-c", "echo one >&2; echo boom >&2; exit 7"}
	for range 5 {
		r := run(t, cfg, Options{MaxBackoff: time.Hour, lastWords: patience})
		r.await("a failure", func() bool { return r.Status().State == Down })
		if got := r.Status().Error; !strings.Contains(got, "exit status 7") || !strings.Contains(got, "boom") {
			t.Errorf("error %s", got)
		}
		_, err := r.Call(t.Context(), &Call{Method: "tools/call", Name: "x"})
		wantFailure(t, err, failure.Unavailable, failure.NotStarted)
		r.stop()
	}
	t.Run("not found", func(t *testing.T) {
		cfg := settings()
		cfg.Type, cfg.Command = "stdio", "no-such-program-here"
		r := run(t, cfg, Options{})
		r.await("a failure", func() bool { return r.Status().State == Down })
		if got := r.Status().Error; !strings.Contains(got, `starting "no-such-program-here"`) || !strings.Contains(got, "not found") {
			t.Errorf("error %s", got)
		}
	})
}

func TestEnvironmentOfAChild(t *testing.T) {
	for _, kv := range [][2]string{{"HEADGATE_OWN_SECRET", "s"}, {"HTTP_PROXY", "http://127.0.0.1:1"}, {"AWS_SECRET_ACCESS_KEY", "s"}, {"GITHUB_TOKEN", "s"},
		{"LANG", "C"}, {"TZ", "UTC"}, {"HOME", "/home/somebody"}} {
		t.Setenv(kv[0], kv[1])
	}
	cfg := childOf(mcptest.ChildSpec{EnvDump: true})
	cfg.Env["MINE"], cfg.Env["TZ"] = "yes", "Europe/Stockholm"
	cfg.Cwd = t.TempDir()
	r := up(t, cfg, Options{})
	var result struct{ StructuredContent map[string]string }
	if err := json.Unmarshal([]byte(r.mustCall("env", `{}`)), &result); err != nil {
		t.Fatal(err)
	}
	env := result.StructuredContent
	for name, want := range map[string]string{"MINE": "yes", "TZ": "Europe/Stockholm", "LANG": "C", "HOME": "/home/somebody", "PATH": os.Getenv("PATH")} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	for name := range env {
		if _, configured := cfg.Env[name]; configured || name == "PWD" {
			continue
		}
		known := false
		for _, n := range inherited {
			known = known || n == name
		}
		if !known {
			t.Errorf("%s reached the child", name)
		}
	}
}

// A child that does not read holds up its own calls and nothing else.
func TestDeafChild(t *testing.T) {
	t.Parallel()
	cfg := ownChild("deaf")
	cfg.CallTimeout = 2 * time.Second // within which the first call has begun to be written
	r := up(t, cfg, Options{})
	other := up(t, ownChild(mcptest.Legacy), Options{})
	_, err := r.call("plain", `{"big":"`+strings.Repeat("x", 1<<20)+`"}`)
	wantFailure(t, err, failure.Timeout, failure.Unknown)
	_, err = r.call("plain", `{}`)
	wantFailure(t, err, failure.Timeout, failure.NotStarted)
	other.mustCall("plain", `{}`)
	if got := r.Status(); got.State != Up {
		t.Errorf("status %+v", got)
	}
	r.stop()
	if got := r.Status(); got.State != Stopped {
		t.Errorf("status %+v", got)
	}
}

func TestChildThatClosesItsOutput(t *testing.T) {
	t.Parallel()
	cfg := settings()
	cfg.Type, cfg.Command, cfg.Args = "stdio", "sh", []string{"-c", "exec >&-; read x; read x"}
	r := run(t, cfg, Options{exitGrace: time.Millisecond})
	r.await("a failure", func() bool { return r.Status().State == Down })
	if got := r.Status().Error; !strings.Contains(got, "EOF") && !strings.Contains(got, "the process ended") {
		t.Errorf("error %s", got)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Not parallel: it counts what the whole process holds.
func TestNothingIsLeftBehind(t *testing.T) {
	modern := &mcptest.Server{ListChanged: true, Tools: mcptest.Builtin("echo")}
	legacy := &mcptest.Server{Era: mcptest.Legacy, ListChanged: true, Tools: mcptest.Builtin("echo")}
	cycle := func(name string, r *rig) {
		r.awaitUp()
		r.mustCall("echo", `{}`)
		r.stop()
		if r.Status().State != Stopped {
			t.Errorf("%s: %+v", name, r.Status())
		}
	}
	m, l, s := modern.StartHTTP(t), legacy.StartHTTP(t), legacy.StartSSE(t)
	all := func() {
		cycle("child", run(t, childOf(mcptest.ChildSpec{ListChanged: true}), Options{}))
		cycle("embedded", run(t, settings(), piped(modern)))
		m.Start()
		l.Start()
		s.Start()
		cycle("modern", run(t, httpAt(m.URL), Options{}))
		cycle("legacy", run(t, httpAt(l.URL), Options{}))
		cycle("sse", run(t, httpAt(s.URL), Options{}))
		m.Stop()
		l.Stop()
		s.Stop()
		cfg := settings()
		cfg.Type, cfg.Command = "stdio", "no-such-program-here"
		r := run(t, cfg, Options{})
		r.await("a failure", func() bool { return r.Status().State == Down })
		r.stop()
	}
	all()
	files, routines := descriptors(t), runtime.NumGoroutine()
	for range 50 {
		all()
	}
	eventually(t, "descriptors and goroutines to go", func() bool { return descriptors(t) <= files && runtime.NumGoroutine() <= routines })
}
