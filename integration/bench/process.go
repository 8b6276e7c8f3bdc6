package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one process of the benchmark.
type process struct {
	cmd  *exec.Cmd
	addr string
	in   io.WriteCloser // nil for headgate
	out  *bufio.Reader
}

// fleet is all processes of a run.
type fleet struct {
	o     options
	dir   string
	procs []*process
}

// self starts this program in another role.
func (f *fleet) self(role, target, profile string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-role", role, "-target", target, "-profile", profile)
	cmd.Stderr = os.Stderr
	p := &process{cmd: cmd}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f.procs = append(f.procs, p)
	line, err := p.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// headgate starts the built program in front of a server and waits until it is ready.
func (f *fleet) headgate(ctx context.Context, server string) (*process, error) {
	config := filepath.Join(f.dir, fmt.Sprintf("headgate-%d.yaml", len(f.procs)))
	if err := os.WriteFile(config, gatewayConfig(server, "127.0.0.1:0"), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(f.o.headgate, "serve", "--config", config)
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, out: bufio.NewReader(log)}
	f.procs = append(f.procs, p)
	var said bytes.Buffer
	for {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("starting headgate: %w; it said %s", err, said.Bytes())
		}
		said.Write(line)
		var m struct{ Msg, Listen, Admin string }
		if json.Unmarshal(line, &m) != nil || m.Msg != "ready" {
			continue
		}
		u, err := url.Parse(m.Listen)
		if err != nil {
			return nil, err
		}
		p.addr = u.Host
		go func() { _, _ = io.Copy(io.Discard, p.out) }()
		return p, awaitReady(ctx, m.Admin+"/readyz")
	}
}

func awaitReady(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("headgate is not ready: %w", ctx.Err())
		}
	}
}

// stop ends all processes, the last first.
func (f *fleet) stop() {
	for i := len(f.procs) - 1; i >= 0; i-- {
		p := f.procs[i]
		if p.in != nil {
			p.in.Close()
		} else {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
		if err := p.cmd.Wait(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.cmd.Path, err)
		}
	}
}

// tick is the unit of CPU times in /proc, which Linux fixes for programs.
const tick = 10 * time.Millisecond

// cpu is the CPU time that the process has used, in user and in system mode (proc_pid_stat(5)).
func (p *process) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may hold anything.
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, errors.New("unknown form of /proc/PID/stat")
	}
	var sum time.Duration
	for _, field := range f[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// rss is the resident memory of the process in bytes.
func (p *process) rss() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("no VmRSS in /proc/PID/status")
}
