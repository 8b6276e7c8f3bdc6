package telemetry

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// gated is an output that takes nothing until it is opened.
type gated struct {
	open   chan struct{}
	mu     sync.Mutex // guards the fields below
	text   strings.Builder
	writes int
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes++
	return g.text.Write(p)
}

func TestLateWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gated{open: make(chan struct{})}
		w := NewLateWriter(out)
		log := NewLogger(w, JSON, new(Levels))
		for range 100 {
			log.With("a", 1).Info("a line")
		}
		synctest.Wait()
		warned := make(chan struct{})
		go func() {
			log.WithGroup("g").Warn("a warning")
			close(warned)
		}()
		synctest.Wait()
		select {
		case <-warned:
			t.Error("a warning did not wait until it was written")
		default:
		}
		close(out.open)
		<-warned
		if got := out.text.String(); strings.Count(got, "\n") != 101 || !strings.Contains(got, "a warning") {
			t.Errorf("written: %s", got)
		}
		if out.writes > 3 {
			t.Errorf("%d writes for lines that came together", out.writes)
		}
		log.Info("the last line")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.text.String(), "the last line") {
			t.Error("what was left at the end is lost")
		}
		log.Info("too late")
		if !strings.Contains(out.text.String(), "too late") {
			t.Error("what comes after the end is lost")
		}
	})
}

// A log that is not read holds no more than its bound: whoever writes then waits.
func TestLateWriterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gated{open: make(chan struct{})}
		w := NewLateWriter(out)
		line := []byte(strings.Repeat("x", lateMost/4))
		var written int
		done := make(chan struct{})
		go func() {
			for range 20 {
				_, _ = w.Write(line)
				written++
			}
			close(done)
		}()
		synctest.Wait()
		if written < 4 || written > 9 {
			t.Errorf("%d lines of a quarter of the bound wait", written)
		}
		close(out.open)
		<-done
		_ = w.Close()
		if out.text.Len() != 20*len(line) {
			t.Errorf("%d bytes arrived", out.text.Len())
		}
	})
}
