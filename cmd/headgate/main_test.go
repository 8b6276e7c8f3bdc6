package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/mcptest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	if mcptest.RunChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// headgate runs the program with no input, and returns what it printed.
func headgate(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs output
	err = run(t.Context(), args, nil, strings.NewReader(""), &out, &errs)
	return out.String(), errs.String(), err
}

// golden compares a text with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("output differs from %s (go test -update rewrites it)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// write writes a file and returns its path. A file that is there is replaced in one step.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}

// output is a writer whose text can be read and waited for while it is written.
type output struct {
	mu      sync.Mutex // guards the fields below
	buf     bytes.Buffer
	changed chan struct{} // closed by the next write
}

var _ io.Writer = (*output)(nil)

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.buf.Write(p)
}

func (o *output) String() string {
	text, _ := o.look()
	return text
}

func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.buf.String(), o.changed
}

// await waits for the first whole line that contains text.
func (o *output) await(t *testing.T, text string) string {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		all, changed := o.look()
		for line := range strings.Lines(all) {
			if strings.HasSuffix(line, "\n") && strings.Contains(line, text) {
				return line
			}
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("%q was not printed; there is:\n%s", text, all)
		}
	}
}

// program is a run of the program beside the test.
type program struct {
	out, log output
	signal   context.CancelFunc // what SIGTERM does
	done     chan error         // gets what run returned
}

func start(t *testing.T, stdin io.Reader, environ []string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{signal: cancel, done: make(chan error, 1)}
	go func() { p.done <- run(ctx, args, environ, stdin, &p.out, &p.log) }()
	t.Cleanup(cancel)
	return p
}

// end waits until the program has ended.
func (p *program) end(t *testing.T) error {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case err := <-p.done:
		return err
	case <-limit.C:
		t.Fatalf("the program does not end; its log:\n%s", p.log.String())
		return nil
	}
}

// member returns a string member of a line of the log.
func member(t *testing.T, line, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("a line of the log is not JSON: %v: %s", err, line)
	}
	s, _ := m[name].(string)
	return s
}
