package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/telemetry"
)

// process is one process of the benchmark.
type process struct {
	cmd   *exec.Cmd
	addr  string         // where it serves
	debug string         // where it tells of its runtime
	in    io.WriteCloser // its end makes a process of this program end; nil for headgate
}

// fleet is all processes of a run.
type fleet struct {
	o         options
	exe       string
	dir       string
	procs     []*process
	server    *process
	collector *process
	at        map[string]endpoint // by way and place
	environ   []string            // more of the environment of headgate
}

func newFleet(ctx context.Context, o options) (f *fleet, err error) {
	f = &fleet{o: o, at: map[string]endpoint{}}
	if f.exe, err = os.Executable(); err != nil {
		return nil, err
	}
	if f.dir, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
		return nil, err
	}
	if f.server, err = f.self("server", ""); err == nil {
		f.collector, err = f.self("collector", "")
	}
	if err != nil {
		f.stop()
		return nil, err
	}
	return f, nil
}

// endpoint starts what a way at a place needs, if it does not run yet.
func (f *fleet) endpoint(ctx context.Context, name string, p place) (e endpoint, err error) {
	key := name
	if name != direct && name != proxied {
		key = fmt.Sprintf("%s %+v", name, p)
	}
	if e, ok := f.at[key]; ok {
		if name == direct || name == proxied {
			e.path = serverPath(p.tools)
		}
		return e, nil
	}
	switch name {
	case direct:
		e = endpoint{proc: f.server, path: serverPath(p.tools)}
	case proxied:
		e = endpoint{path: serverPath(p.tools)}
		e.proc, err = f.self("proxy", f.server.addr)
	case sdk:
		target := "http://" + f.server.addr + serverPath(p.tools)
		if p.stdio {
			target = strconv.Itoa(p.tools)
		}
		e = endpoint{path: "/mcp", legacy: sdkSessions, prefixed: true}
		e.proc, err = f.self("sdk", target)
	default:
		e, err = f.headgate(ctx, name, p)
	}
	if err == nil {
		f.at[key] = e
	}
	return e, err
}

// self starts this program in another role.
func (f *fleet) self(role, target string) (*process, error) {
	cmd := exec.Command(f.exe, "-role", role, "-target", target)
	cmd.Stderr = os.Stderr
	p := &process{cmd: cmd}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f.procs = append(f.procs, p)
	if _, err := fmt.Fscan(out, &p.addr, &p.debug); err != nil {
		return nil, fmt.Errorf("starting the %s: %w", role, err)
	}
	return p, nil
}

// headgate starts the built program and waits until it is ready. Its log goes to a file, as it would.
func (f *fleet) headgate(ctx context.Context, name string, p place) (endpoint, error) {
	var w way
	for _, known := range ways {
		if known.name == name {
			w = known
		}
	}
	base := filepath.Join(f.dir, fmt.Sprintf("headgate-%d", len(f.procs)))
	if err := os.WriteFile(base+".yaml", w.config(p, f.server.addr, f.exe), 0o600); err != nil {
		return endpoint{}, err
	}
	log, err := os.Create(base + ".log")
	if err != nil {
		return endpoint{}, err
	}
	defer log.Close()
	program := f.o.headgate
	if name == before {
		program = f.o.against
	}
	cmd := exec.Command(program, "serve", "--config", base+".yaml")
	cmd.Env = append(w.environ(os.Environ(), f.collector.addr), f.environ...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return endpoint{}, err
	}
	proc := &process{cmd: cmd}
	f.procs = append(f.procs, proc)
	admin, err := proc.await(ctx, base+".log")
	if err != nil {
		return endpoint{}, err
	}
	e := endpoint{proc: proc, path: "/mcp", prefixed: true, keyed: w.full}
	return e, poll(ctx, func() error {
		_, err := get(ctx, admin+"/readyz")
		return err
	})
}

// await reads the log of headgate until its addresses are there.
func (p *process) await(ctx context.Context, file string) (admin string, err error) {
	err = poll(ctx, func() error {
		said, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(said) {
			var m struct{ Msg, Listen, Admin, Debug string }
			if json.Unmarshal(line, &m) != nil {
				continue
			}
			if u, err := url.Parse(m.Debug); err == nil && m.Debug != "" {
				p.debug = u.Host
			}
			if u, err := url.Parse(m.Listen); err == nil && m.Msg == "ready" {
				p.addr, admin = u.Host, m.Admin
				return nil
			}
		}
		return fmt.Errorf("headgate is not ready; it said %s", said)
	})
	return admin, err
}

// poll repeats f until it succeeds, at most for half a minute.
func poll(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// stop ends all processes, those behind others last.
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
	_ = os.RemoveAll(f.dir)
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

// memory is what the process knows of its memory; with collect, after garbage has been given back.
func (p *process) memory(ctx context.Context, collect bool) (m telemetry.Memory, err error) {
	from := "http://" + p.debug + "/debug/memory"
	if collect {
		from += "?gc=1"
	}
	b, err := get(ctx, from)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}
