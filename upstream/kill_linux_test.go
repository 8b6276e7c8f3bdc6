package upstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// TestKilledDuringCalls: SIGKILL in the middle of calls. Each of them is told at once that its outcome is
// not known, nothing is left of the process, and the next call is served as soon as the server is back.
func TestKilledDuringCalls(t *testing.T) {
	t.Parallel()
	const calls = 5
	during := func(t *testing.T, r *rig, kill func()) {
		t.Helper()
		var began, inFlight sync.WaitGroup
		for range calls {
			began.Add(1)
			c := r.toolCall("slow", `{"ms":600000}`)
			c.Progress = jsontext.Value("1")
			running := sync.OnceFunc(began.Done)
			c.Notify = func(string, jsontext.Value) { running() }
			inFlight.Go(func() {
				_, err := r.Call(t.Context(), c)
				wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
				running()
			})
		}
		began.Wait()
		kill()
		inFlight.Wait()
	}
	t.Run("child with a grandchild", func(t *testing.T) {
		t.Parallel()
		bothEras(t, func(t *testing.T, era string) {
			file := filepath.Join(t.TempDir(), "grandchild")
			r := up(t, childOf(mcptest.ChildSpec{Era: era, SpawnGrandchild: file}), Options{})
			pid, grandchild := r.pid(), readPID(t, file)
			during(t, r, func() {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			})
			eventually(t, "the end of the grandchild", func() bool { return !running(grandchild) })
			r.await("another process", func() bool { return r.Status().State == Up && r.Status().Restarts == 1 })
			if r.pid() == pid {
				t.Error("the process is the same")
			}
		})
	})
	t.Run("HTTP server", func(t *testing.T) {
		t.Parallel()
		bothEras(t, func(t *testing.T, era string) {
			first := httpProcess(t, era)
			r := up(t, httpAt(first.url), Options{})
			pid := r.pid()
			during(t, r, func() { first.kill(t) })
			_, err := r.call("pid", `{}`)
			wantFailure(t, err, failure.Unavailable, failure.NotStarted)
			second := httpProcess(t, era)
			other := up(t, httpAt(second.url), Options{})
			if other.pid() == pid {
				t.Error("the process is the same")
			}
		})
	})
}

// process is a server on HTTP in a process of its own.
type process struct {
	cmd *exec.Cmd
	url string
}

func httpProcess(t *testing.T, era string) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	command, args, env := mcptest.ChildCommand(mcptest.ChildSpec{Era: era, HTTPFile: file})
	p := &process{cmd: exec.Command(command, args...)}
	p.cmd.Env = childEnv(os.Environ(), env)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	eventually(t, "the URL", func() bool {
		raw, err := os.ReadFile(file)
		p.url = string(raw)
		return err == nil
	})
	return p
}

func (p *process) kill(t *testing.T) {
	if p.cmd.ProcessState == nil {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = p.cmd.Wait()
	}
}
