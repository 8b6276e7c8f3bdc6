//go:build unix

// The modes of files, named pipes and /dev/full are those of Unix.

package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// running runs a log until the test ends, or stop is called.
func running(t *testing.T, o Options) (l *Log, stop func()) {
	t.Helper()
	l = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return l, stop
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// aside are the rotated files, oldest first.
func aside(t *testing.T, file string) []string {
	t.Helper()
	all, err := filepath.Glob(file + ".*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestWrite(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	file := filepath.Join(t.TempDir(), "audit")
	l, stop := running(t, Options{File: file})
	if err := l.Write(t.Context(), []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file); got != "one\n" {
		t.Errorf("the file has %q when Write returns", got)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for range 100 {
		if err := l.Offer([]byte("more\n")); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if got := read(t, file); got != "one\n"+strings.Repeat("more\n", 100) {
		t.Errorf("the file has %q after the end", got)
	}
	if err := l.Write(t.Context(), []byte("late\n")); !errors.Is(err, ErrClosed) {
		t.Errorf("Write after the end: %v", err)
	}
	if err := l.Offer([]byte("late\n")); !errors.Is(err, ErrClosed) {
		t.Errorf("Offer after the end: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, mode := range map[string]os.FileMode{"world": 0o644, "group": 0o640, "writable": 0o602} {
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(path("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want string }{
		{"world", "has mode 0644"}, {"group", "has mode 0640"}, {"writable", "has mode 0602"},
		{"pipe", "is not a regular file"}, {".", "is not a regular file"}, {"none/audit", "none does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New(Options{File: path(c.name)})
			if err := l.Open(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v, want %q", err, c.want)
			}
		})
	}
	if _, err := os.Stat(path("none")); err == nil {
		t.Error("a directory was created")
	}
}

// TestFull: a disk without space is an error of Write, and is told for lines that were offered.
func TestFull(t *testing.T) {
	var lost atomic.Int64
	l, stop := running(t, Options{File: "/dev/full", Lost: func(err error) {
		if errors.Is(err, syscall.ENOSPC) {
			lost.Add(1)
		}
	}})
	if err := l.Write(t.Context(), []byte("x\n")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Write: %v", err)
	}
	for range 3 {
		if err := l.Offer([]byte("x\n")); err != nil {
			t.Error(err)
		}
	}
	stop()
	if n := lost.Load(); n != 3 {
		t.Errorf("%d lines were reported lost, want 3", n)
	}
}

// TestTornLine: what a crash or a full disk left unfinished does not run into the next line.
func TestTornLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(file, []byte("whole\nha"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ := running(t, Options{File: file})
	for range 2 {
		if err := l.Write(t.Context(), []byte("next\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, file); got != "whole\nha\nnext\nnext\n" {
		t.Errorf("the file has %q", got)
	}
}

func TestRotation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	l, _ := running(t, Options{File: file, MaxSize: 20, Keep: 3})
	for n := range 10 {
		if err := l.Write(t.Context(), fmt.Appendf(nil, "line %04d\n", n)); err != nil {
			t.Fatal(err)
		}
	}
	old := aside(t, file)
	var all []string
	for _, f := range append(slices.Clone(old), file) {
		all = append(all, read(t, f))
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	want := []string{"line 0002\nline 0003\n", "line 0004\nline 0005\n", "line 0006\nline 0007\n", "line 0008\nline 0009\n"}
	if !slices.Equal(all, want) {
		t.Errorf("the files have %q, want %q", all, want)
	}
	// One line that is larger than a file may be has a file of its own.
	if err := l.Write(t.Context(), []byte(strings.Repeat("x", 100)+"\n")); err != nil || len(read(t, file)) != 101 {
		t.Errorf("a large line: %v, %q", err, read(t, file))
	}
}

// TestMovedAway: tools that rotate logs rename the file; lines go to a new one from then on.
func TestMovedAway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	l, _ := running(t, Options{File: file})
	write := func(text string) {
		t.Helper()
		if err := l.Write(t.Context(), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	write("two\n")
	if old, now := read(t, file+".1"), read(t, file); old != "one\n" || now != "two\n" {
		t.Errorf("the old file has %q, the new one %q", old, now)
	}
}

// TestTwoOnOneFile: two logs write to one file, as serve and call do, and no line is lost or mixed.
func TestTwoOnOneFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	var wg sync.WaitGroup
	const each = 200
	for w := range 2 {
		l, _ := running(t, Options{File: file, MaxSize: 2000})
		for range 2 {
			wg.Go(func() {
				for range each {
					if err := l.Write(t.Context(), fmt.Appendf(nil, "line of %d\n", w)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	count := map[string]int{}
	for _, f := range append(aside(t, file), file) {
		for line := range strings.Lines(read(t, f)) {
			count[line]++
		}
	}
	if len(count) != 2 || count["line of 0\n"] != 2*each || count["line of 1\n"] != 2*each {
		t.Errorf("lines: %v", count)
	}
}

// TestQueueIsBounded: what cannot be written in time is dropped, and who waits for it is told.
func TestQueueIsBounded(t *testing.T) {
	l := New(Options{File: filepath.Join(t.TempDir(), "audit")}) // nobody writes
	n := 0
	for l.Offer([]byte("x\n")) == nil {
		n++
	}
	if n != maxLines {
		t.Errorf("%d lines wait", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Write(ctx, []byte("x\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v", err)
	}
	big := New(Options{File: filepath.Join(t.TempDir(), "audit")})
	if err := big.Offer(make([]byte, maxBytes+1)); err != nil {
		t.Errorf("one large line alone: %v", err)
	}
	if err := big.Offer([]byte("x\n")); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
}

// BenchmarkWrite is what a record costs a call that waits for it.
func BenchmarkWrite(b *testing.B) {
	l := New(Options{File: filepath.Join(b.TempDir(), "audit"), MaxSize: 100 << 20})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	record := []byte(strings.Repeat("x", 400) + "\n")
	for b.Loop() {
		if err := l.Write(ctx, record); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-done
}
