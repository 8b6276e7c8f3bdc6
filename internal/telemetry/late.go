package telemetry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// LateWriter writes what it is given a moment later, from a goroutine of its own, all that has come meanwhile at once:
// a request that logs a line does not wait for the system, and many share one write.
//
// Loggers of this package write their warnings and errors through it at once. Only lines of less weight can be lost,
// those of the last moment before a process is killed.
type LateWriter struct {
	out   io.Writer
	wake  chan struct{} // capacity 1: there is something to write
	hurry chan struct{} // capacity 1: somebody waits for it
	done  chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards the fields below
	moved  *sync.Cond // something was written, or the writer is closed
	buf    []byte
	spare  []byte // for the next buf
	busy   bool   // out is being written to
	closed bool
}

const (
	// lateness is how long a line waits for others.
	lateness = 10 * time.Millisecond
	// lateMost bounds what waits, in bytes; then writers wait, too.
	lateMost = 1 << 20
)

// NewLateWriter starts a writer to out. Close ends it.
func NewLateWriter(out io.Writer) *LateWriter {
	w := &LateWriter{out: out, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{})}
	w.moved = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// Write takes p; it returns no error of out. After Close it writes at once.
func (w *LateWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.buf) >= lateMost && !w.closed {
		signal(w.hurry)
		w.moved.Wait()
	}
	if w.closed {
		return w.out.Write(p)
	}
	if len(w.buf) == 0 {
		signal(w.wake)
	}
	w.buf = append(w.buf, p...)
	return len(p), nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Flush returns when all that was given before is written.
func (w *LateWriter) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.buf) > 0 || w.busy {
		signal(w.hurry)
		w.moved.Wait()
	}
}

// Close writes what is left and ends the goroutine. It is called once.
func (w *LateWriter) Close() error {
	w.Flush()
	w.mu.Lock()
	w.closed = true
	w.moved.Broadcast()
	w.mu.Unlock()
	close(w.wake)
	<-w.done
	return nil
}

func (w *LateWriter) run() {
	defer close(w.done)
	pause := time.NewTimer(lateness)
	defer pause.Stop()
	for range w.wake {
		pause.Reset(lateness)
		select {
		case <-pause.C:
		case <-w.hurry:
		}
		w.drain()
	}
	w.drain()
}

// drain writes what has come.
func (w *LateWriter) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.buf
	w.buf, w.busy = w.spare[:0], true
	w.mu.Unlock()
	if len(b) > 0 {
		_, _ = w.out.Write(b) // nobody is left to be told
	}
	w.mu.Lock()
	w.spare, w.busy = b, false
	w.moved.Broadcast()
}

// prompt is a handler whose warnings and errors are written at once.
type prompt struct {
	slog.Handler
	w *LateWriter
}

func (h prompt) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.w.Flush()
	}
	return err
}

func (h prompt) WithAttrs(a []slog.Attr) slog.Handler { return prompt{h.Handler.WithAttrs(a), h.w} }
func (h prompt) WithGroup(name string) slog.Handler   { return prompt{h.Handler.WithGroup(name), h.w} }

var _ slog.Handler = prompt{}
