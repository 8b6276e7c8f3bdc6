package upstream

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// oddChild makes the test binary a child that serves the tools of the matrix; its value is the era.
const oddChild = "HEADGATE_ODD_CHILD"

// quickExit keeps the race detector from holding up the end of a child by a second.
const quickExit = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if mcptest.RunChild() {
		return
	}
	switch era := os.Getenv(oddChild); era {
	case "":
		goleak.VerifyTestMain(m)
	case "deaf":
		// It reads no more once it has been asked for its tools.
		s := oddServer(mcptest.Legacy)
		if err := s.ServeLines(context.Background(), &deafAfter{Reader: os.Stdin, word: `"tools/list"`}, os.Stdout); err != nil {
			os.Exit(1)
		}
	default:
		if err := oddServer(era).ServeLines(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
	}
}

// deafAfter reads until a word has come by, and then blocks for ever.
type deafAfter struct {
	io.Reader
	word string
	seen []byte
}

func (d *deafAfter) Read(p []byte) (int, error) {
	if bytes.Contains(d.seen, []byte(d.word)) {
		select {}
	}
	n, err := d.Reader.Read(p)
	d.seen = append(d.seen, p[:n]...)
	return n, err
}

// patience bounds every wait of a test; none of them is meant to last that long.
const patience = 30 * time.Second

// rig is an upstream that runs until its test ends.
type rig struct {
	*Upstream
	t    *testing.T
	log  *logBuffer
	stop func()

	mu      sync.Mutex // guards moved
	moved   chan struct{}
	changes int
}

// logBuffer holds what was logged.
type logBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// settings are those of an upstream named srv that nothing was said about.
func settings() *configs.Upstream {
	return &configs.Upstream{ID: "srv", Prefix: "srv", Type: "http", Era: "auto", ConnectTimeout: 10 * time.Second,
		CallTimeout: patience, MaxCallTimeout: 2 * patience, StartTimeout: patience, MaxAnswer: 32 << 20}
}

func httpAt(url string) *configs.Upstream {
	cfg := settings()
	cfg.URL = url
	return cfg
}

func childOf(spec mcptest.ChildSpec) *configs.Upstream {
	cfg := settings()
	cfg.Type = "stdio"
	cfg.Command, cfg.Args, cfg.Env = mcptest.ChildCommand(spec)
	cfg.Env["GORACE"] = quickExit
	return cfg
}

// ownChild is a child that plays what TestMain knows by this word.
func ownChild(word string) *configs.Upstream {
	cfg := settings()
	cfg.Type = "stdio"
	cfg.Command, cfg.Env = os.Args[0], map[string]string{oddChild: word, "GORACE": quickExit}
	return cfg
}

// piped is the script as an in-process server.
func piped(s *mcptest.Server) Options {
	return Options{Embedded: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		return s.ServeLines(ctx, in, out)
	}}
}

// run starts an upstream and stops it when the test ends.
func run(t *testing.T, cfg *configs.Upstream, opts Options) *rig {
	t.Helper()
	r := &rig{t: t, log: &logBuffer{}, moved: make(chan struct{})}
	opts.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opts.OnChange = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes++
		close(r.moved)
		r.moved = make(chan struct{})
	}
	if opts.MaxBackoff == 0 {
		opts.MaxBackoff = 100 * time.Millisecond
	}
	if opts.RereadGap == 0 {
		opts.RereadGap = 150 * time.Millisecond
	}
	if opts.exitGrace == 0 {
		opts.exitGrace = patience
	}
	r.Upstream = New(cfg, opts)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Logf("log of the upstream:\n%s", tail(r.log.String(), 6000))
		}
	})
	return r
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// up is run, and waits until calls are sent and the catalogue was read.
func up(t *testing.T, cfg *configs.Upstream, opts Options) *rig {
	t.Helper()
	r := run(t, cfg, opts)
	r.awaitUp()
	return r
}

// await waits until cond is true; it looks after every change that the upstream reports.
func (r *rig) await(what string, cond func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for {
		r.mu.Lock()
		moved := r.moved
		r.mu.Unlock()
		if cond() {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			r.t.Fatalf("waiting for %s: %+v", what, r.Status())
		}
	}
}

func (r *rig) awaitUp() {
	r.t.Helper()
	r.await("the server to be up", func() bool { return r.Status().State == Up })
}

func (r *rig) awaitTool(name string) {
	r.t.Helper()
	r.await("tool "+name, func() bool { return r.Catalogue().Tool(name) != nil })
}

// awaitAt waits until cond is true of what a script has received.
func awaitAt(t *testing.T, s *mcptest.Server, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Await(ctx, cond); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// eventually waits for what nothing announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waiting for %s", what)
		}
	}
}

// toolCall is a call as the gateway makes it.
func (r *rig) toolCall(name, args string) *Call {
	params, err := wire.ParseObject([]byte(`{"name":"srv_` + name + `","arguments":` + args + `}`))
	if err != nil {
		panic(err)
	}
	return &Call{Method: "tools/call", Params: params, Name: name, Tool: r.Catalogue().Tool(name)}
}

func (r *rig) call(name, args string) (*Reply, error) {
	return r.Call(r.t.Context(), r.toolCall(name, args))
}

// mustCall makes a call that has to succeed and returns its result.
func (r *rig) mustCall(name, args string) string {
	r.t.Helper()
	reply, err := r.call(name, args)
	if err != nil {
		r.t.Fatalf("calling %s: %v", name, err)
	}
	if reply.Error != nil {
		r.t.Fatalf("calling %s: error %s", name, reply.Error)
	}
	return string(reply.Result)
}

func (r *rig) logged(text string) bool { return strings.Contains(r.log.String(), text) }

// bothEras runs a test once for each era.
func bothEras(t *testing.T, f func(t *testing.T, era string)) {
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			f(t, era)
		})
	}
}

func tool(name string, call func(*mcptest.Call)) mcptest.Tool {
	return mcptest.Tool{Def: `{"name":"` + name + `","inputSchema":{"type":"object"}}`, Call: call}
}
