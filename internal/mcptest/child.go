package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv is the variable that makes a test binary play a child server.
const childEnv = "HEADGATE_MCPTEST_CHILD"

// childLife bounds every process that outlives its test.
const childLife = 10 * time.Minute

// ChildSpec says how a child process behaves as a stdio server.
type ChildSpec struct {
	// Era and Version are those of Server; an empty era means Legacy here.
	Era     string `json:"era,omitempty"`
	Version string `json:"version,omitempty"`
	// Tools names the tools to serve (see Builtin), by default echo, slow and
	// pid.
	Tools []string `json:"tools,omitempty"`
	// ListChanged declares the capability.
	ListChanged bool `json:"listChanged,omitempty"`
	// Banner is printed on stdout before anything else.
	Banner string `json:"banner,omitempty"`
	// Noise is a line printed on stdout before every message.
	Noise string `json:"noise,omitempty"`
	// Pretty prints a log object over several lines of stdout before every
	// message.
	Pretty bool `json:"pretty,omitempty"`
	// Blank prints an empty line on stdout before every message.
	Blank bool `json:"blank,omitempty"`
	// StderrText and then StderrBytes bytes in lines of 64 are written to
	// stderr before the first message is read.
	StderrText  string `json:"stderrText,omitempty"`
	StderrBytes int    `json:"stderrBytes,omitempty"`
	// StartDelayMs is a pause before the first message is read, in
	// milliseconds.
	StartDelayMs int `json:"startDelayMs,omitempty"`
	// ExitAtStart ends the process with this code, if it is not 0, after
	// stderr was written.
	ExitAtStart int `json:"exitAtStart,omitempty"`
	// SilentDiscover leaves unknown methods before initialize unanswered.
	SilentDiscover bool `json:"silentDiscover,omitempty"`
	// DieOnDiscover ends the process on server/discover.
	DieOnDiscover bool `json:"dieOnDiscover,omitempty"`
	// ExitOnCall adds the tool die, which ends the process.
	ExitOnCall bool `json:"exitOnCall,omitempty"`
	// EnvDump adds the tool env.
	EnvDump bool `json:"envDump,omitempty"`
	// BigLine adds the tool big and makes it answer one line of this many
	// bytes, line break not counted.
	BigLine int `json:"bigLine,omitempty"`
	// IgnoreEOF keeps the process alive after the end of stdin.
	IgnoreEOF bool `json:"ignoreEOF,omitempty"`
	// IgnoreTERM ignores SIGTERM.
	IgnoreTERM bool `json:"ignoreTERM,omitempty"`
	// SpawnGrandchild starts a process that ignores SIGTERM, shares stdout and
	// stderr, and whose id is in this file before the first message is read.
	SpawnGrandchild string `json:"spawnGrandchild,omitempty"`
	// Chaos makes it the child of a Chaos server instead, whose executions are written to this file, each as a
	// line with the nonce.
	Chaos string `json:"chaos,omitempty"`
	// HTTPFile makes it serve Streamable HTTP instead of its pipes, until it is killed; the file gets the URL.
	HTTPFile string `json:"httpFile,omitempty"`
	// PIDFile gets the process id.
	PIDFile string `json:"pidFile,omitempty"`
	// StartsFile gets one line more each time a child starts.
	StartsFile string `json:"startsFile,omitempty"`

	// Grandchild is set by SpawnGrandchild only.
	Grandchild bool `json:"grandchild,omitempty"`
}

// ChildCommand returns the command that runs the current test binary as a
// child server. Its TestMain must begin with RunChild.
func ChildCommand(spec ChildSpec) (command string, args []string, env map[string]string) {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	raw, _ := json.Marshal(spec)
	return exe, nil, map[string]string{childEnv: string(raw)}
}

// RunChild plays the child server that the environment asks for and says
// whether it did. A TestMain calls it first and returns if it is true.
func RunChild() bool {
	raw := os.Getenv(childEnv)
	if raw == "" {
		return false
	}
	var spec ChildSpec
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		fmt.Fprintf(os.Stderr, "reading %s: %v\n", childEnv, err)
		os.Exit(2)
	}
	if err := spec.run(); err != nil {
		fmt.Fprintf(os.Stderr, "child server: %v\n", err)
		os.Exit(1)
	}
	return true
}

func (spec ChildSpec) run() error {
	if spec.IgnoreTERM || spec.Grandchild {
		signal.Ignore(syscall.SIGTERM)
	}
	if spec.Grandchild {
		_, _ = os.NewFile(3, "ready").WriteString("x")
		<-time.After(childLife)
		return nil
	}
	if err := spec.start(); err != nil {
		return err
	}
	if spec.Chaos != "" {
		k := NewChaos(spec.Era)
		k.ListChanged, k.process = spec.ListChanged, true
		k.Ran = func(nonce string) {
			if err := appendLine(spec.Chaos, nonce); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		return k.ServeLines(context.Background(), &pitfall{in: os.Stdin}, os.Stdout)
	}
	srv := &Server{Name: "child", Era: spec.Era, Version: spec.Version, Tools: spec.tools(),
		ListChanged: spec.ListChanged, SilentDiscover: spec.SilentDiscover}
	if srv.Era == "" {
		srv.Era = Legacy
	}
	srv.OnRequest = func(c *Call) bool {
		if spec.DieOnDiscover && c.Method == "server/discover" {
			os.Exit(1)
		}
		return false
	}
	if spec.HTTPFile != "" {
		if err := writeWhole(spec.HTTPFile, srv.StartHTTP(processTB{}).URL); err != nil {
			return err
		}
		<-time.After(childLife)
		return nil
	}
	err := srv.ServeLines(context.Background(), os.Stdin, spec.output(os.Stdout))
	if spec.IgnoreEOF {
		<-time.After(childLife)
	}
	return err
}

// start does what comes before the first message.
func (spec ChildSpec) start() error {
	if spec.PIDFile != "" {
		if err := writeWhole(spec.PIDFile, strconv.Itoa(os.Getpid())); err != nil {
			return err
		}
	}
	if spec.StartsFile != "" {
		if err := appendLine(spec.StartsFile, "start"); err != nil {
			return err
		}
	}
	if spec.SpawnGrandchild != "" {
		if err := spawnGrandchild(spec.SpawnGrandchild); err != nil {
			return err
		}
	}
	if spec.Banner != "" {
		fmt.Println(spec.Banner)
	}
	if spec.StderrText != "" {
		fmt.Fprintln(os.Stderr, spec.StderrText)
	}
	line := strings.Repeat("e", 63) + "\n"
	for left := spec.StderrBytes; left > 0; left -= len(line) {
		fmt.Fprint(os.Stderr, line[max(0, len(line)-left):])
	}
	if spec.ExitAtStart != 0 {
		os.Exit(spec.ExitAtStart)
	}
	if spec.StartDelayMs > 0 {
		<-time.After(time.Duration(spec.StartDelayMs) * time.Millisecond)
	}
	return nil
}

// processTB stands for a test in a process that is none: what fails ends it, and nothing is cleaned up.
type processTB struct{ testing.TB }

func (processTB) Helper() {}

func (processTB) Cleanup(func()) {}

func (processTB) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func (spec ChildSpec) tools() []Tool {
	names := spec.Tools
	if names == nil {
		names = []string{"echo", "slow", "pid"}
	}
	if spec.ExitOnCall {
		names = append(names, "die")
	}
	if spec.EnvDump {
		names = append(names, "env")
	}
	tools := Builtin(names...)
	if spec.BigLine > 0 {
		big := Builtin("big")[0]
		big.Call = func(c *Call) {
			empty := len(response(c.ID, `{"content":[{"type":"text","text":""}]}`))
			if c.modern {
				empty += len(`,"resultType":"complete"`)
			}
			c.Text(strings.Repeat("x", max(0, spec.BigLine-empty)))
		}
		tools = append(tools, big)
	}
	return tools
}

// output puts the asked-for noise before every message.
func (spec ChildSpec) output(out io.Writer) io.Writer {
	noise := ""
	if spec.Noise != "" {
		noise += spec.Noise + "\n"
	}
	if spec.Blank {
		noise += "\n"
	}
	if spec.Pretty {
		noise += "{\n  \"level\": \"info\",\n  \"text\": \"not a message\"\n}\n"
	}
	if noise == "" {
		return out
	}
	return writerFunc(func(p []byte) (int, error) {
		if _, err := io.WriteString(out, noise); err != nil {
			return 0, err
		}
		return out.Write(p)
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// spawnGrandchild starts the process and waits until it ignores SIGTERM.
func spawnGrandchild(pidFile string) error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = ready.Close() }()
	command, _, env := ChildCommand(ChildSpec{Grandchild: true})
	cmd := exec.Command(command)
	cmd.Env = append(os.Environ(), childEnv+"="+env[childEnv])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the grandchild: %w", err)
	}
	_ = theirs.Close()
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the grandchild: %w", err)
	}
	return writeWhole(pidFile, strconv.Itoa(cmd.Process.Pid))
}

// writeWhole writes a file that is never seen half written.
func writeWhole(path, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".pid-*")
	if err != nil {
		return fmt.Errorf("creating a file: %w", err)
	}
	_, err = tmp.WriteString(text)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	_, err = f.WriteString(line + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
