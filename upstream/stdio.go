package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// inherited are the variables of Headgate's own environment that a child gets beside those of its
// configuration: what a program needs to find its tools and its user's files, and nothing that is
// known to carry credentials.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "TZ",
	"SYSTEMROOT", "SYSTEMDRIVE", "APPDATA", "LOCALAPPDATA", "PROGRAMFILES", "PROGRAMDATA", "USERPROFILE", "PATHEXT", "COMSPEC",
	"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}

// How long a child may take to leave after its input was closed, and again after SIGTERM.
const (
	eofGrace  = 2 * time.Second
	termGrace = 3 * time.Second
)

// child is a server that runs as a process of Headgate's own, in a process group of its own.
type child struct {
	*duplex
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *stderrLog
	exited chan struct{} // closed once the process has been waited for
	status error         // how it ended; valid after exited

	exitGrace time.Duration
}

// startChild starts the configured command. The process lives until close; ctx bounds nothing here.
func (u *Upstream) startChild() (_ *child, err error) {
	cmd := exec.Command(u.cfg.Command, u.cfg.Args...)
	cmd.Dir = u.cfg.Cwd
	cmd.Env = childEnv(os.Environ(), u.cfg.Env)
	ownGroup(cmd)

	var ends []*os.File
	defer func() {
		if err != nil {
			for _, f := range ends {
				f.Close()
			}
		}
	}()
	pipe := func() (r, w *os.File, err error) {
		r, w, err = os.Pipe()
		if err == nil {
			ends = append(ends, r, w)
		}
		return r, w, err
	}
	inR, inW, err := pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := pipe()
	if err != nil {
		return nil, err
	}
	errR, errW, err := pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW

	c := &child{cmd: cmd, stdin: inW, stdout: outR, exited: make(chan struct{}), exitGrace: u.opts.exitGrace}
	started := make(chan error, 1)
	// On Linux the child is to die with Headgate, and the kernel ties that to the thread that started
	// it: this goroutine keeps the thread until the child is gone.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.status = cmd.Wait()
		}
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %q: %w", u.cfg.Command, startError(err))
	}
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	c.stderr = drainStderr(errR, u.log, u.redact, u.opts.lastWords)
	lines := wire.NewLineReader(outR, int(u.cfg.MaxAnswer))
	read := func() ([]byte, error) {
		line, err := nextLine(lines)
		return line, c.broken("reading from the server", err)
	}
	write := func(o *outgoing) error {
		return c.broken("writing to the server", o.writeLine(inW))
	}
	c.duplex = u.newDuplex(read, write, func() { inW.Close() })
	return c, nil
}

// startError drops the part of exec's error that repeats the command.
func startError(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// close ends the child as the specification asks (2026-07-28, basic/transports/stdio, "Shutdown"):
// input closed, then SIGTERM, then SIGKILL, the last two to the whole group, so that no grandchild
// survives. It returns when the process has been waited for and every pipe is closed.
func (c *child) close() {
	c.fail(errClosed)
	if !c.waitExit(eofGrace) {
		signalGroup(c.cmd, false)
		c.waitExit(termGrace)
	}
	// The group gets its SIGKILL even when the child itself is gone: its own children may not be.
	signalGroup(c.cmd, true)
	<-c.exited
	// A process that left the group may still hold the pipes; closing our ends frees the readers.
	c.stdout.Close()
	c.duplex.wg.Wait()
	c.stderr.close()
}

func (c *child) waitExit(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}

// watch fails the connection with the child's own last words when it exits, so that nobody waits
// for a pipe that a grandchild holds open.
func (c *child) watch() {
	select {
	case <-c.exited:
		c.fail(c.exitError())
	case <-c.gone:
	}
}

// broken replaces the error of a pipe by the child's own last words, if it breaks because the child
// is gone.
func (c *child) broken(doing string, err error) error {
	var big *wire.OversizeError
	if err == nil || errors.As(err, &big) {
		return err
	}
	if c.waitExit(c.exitGrace) {
		return c.exitError()
	}
	return pipeError(doing, err)
}

func (c *child) exitError() error {
	what := "exit status 0"
	if c.status != nil {
		what = c.status.Error()
	}
	if tail := c.stderr.lastLines(); tail != "" {
		return fmt.Errorf("the process ended: %s; its last words: %q", what, tail)
	}
	return fmt.Errorf("the process ended: %s", what)
}

func childEnv(own []string, configured map[string]string) []string {
	var env []string
	for _, kv := range own {
		name, _, _ := strings.Cut(kv, "=")
		if _, set := configured[name]; !set && slices.ContainsFunc(inherited, func(n string) bool { return strings.EqualFold(n, name) }) {
			env = append(env, kv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		env = append(env, name+"="+configured[name])
	}
	return env
}

// stderrLog copies a child's stderr into the log, a bounded number of lines a minute, and keeps the
// last of it for error texts. It always reads on, so that the child never blocks on a full pipe.
type stderrLog struct {
	r        *os.File
	patience time.Duration // of lastLines
	done     chan struct{}

	mu   sync.Mutex // guards tail
	tail []string
}

const (
	stderrLines   = 200 // logged per minute
	stderrLineLen = 2048
	stderrTail    = 5
)

func drainStderr(r *os.File, log *slog.Logger, redact *masker, patience time.Duration) *stderrLog {
	s := &stderrLog{r: r, patience: patience, done: make(chan struct{})}
	limit := newLimiter(stderrLines, time.Minute)
	go func() {
		defer close(s.done)
		lines := wire.NewLineReader(r, stderrLineLen)
		for {
			line, err := lines.Next()
			var long *wire.OversizeError
			if errors.As(err, &long) {
				line, err = long.Head[:min(len(long.Head), stderrLineLen)], nil
			}
			if err != nil {
				if n := limit.takeDropped(); n > 0 {
					log.Info("stderr lines not shown", "count", n)
				}
				return
			}
			text := redact.Replace(string(bytes.TrimRight(bytes.ToValidUTF8(line, []byte("\uFFFD")), " \t\r")))
			if text == "" {
				continue
			}
			s.mu.Lock()
			if len(s.tail) == stderrTail {
				s.tail = s.tail[1:]
			}
			s.tail = append(s.tail, clip(text, 300))
			s.mu.Unlock()
			if limit.allow() {
				log.Info("stderr", "line", text)
			}
		}
	}()
	return s
}

// lastLines returns the end of what the child wrote. It waits briefly for the pipe to run dry, since
// a process can be gone before its last line has been read.
func (s *stderrLog) lastLines() string {
	t := time.NewTimer(s.patience)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.tail, "\n")
}

func (s *stderrLog) close() {
	s.r.Close()
	<-s.done
}

var _ transport = (*child)(nil)
