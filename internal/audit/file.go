package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// rotatedAt is what stands behind the name of a rotated file. Names are unique, so that two processes that
// rotate one file at the same time overwrite nothing.
const rotatedAt = "20060102T150405.000000000Z"

var rotated = regexp.MustCompile(`^\.\d{8}T\d{6}\.\d{9}Z$`)

// file is the file that is written to. It is used by one goroutine at a time.
type file struct {
	o       Options
	f       *os.File // nil: not open
	info    os.FileInfo
	size    int64
	torn    bool // the file does not end with a line break
	regular bool // and can be rotated
}

// open opens the file if it is not. It is created with mode 0600. One that others than its owner can read or
// write is refused rather than corrected: who had access may still have it open, and may have been given it
// on purpose, so its owner has to decide.
func (w *file) open() error {
	if w.f != nil {
		return nil
	}
	if dir := filepath.Dir(w.o.File); !isDir(dir) {
		return fmt.Errorf("the directory %s does not exist; create it, with access for Headgate alone", dir)
	}
	info, err := os.Stat(w.o.File)
	if err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 {
		return fmt.Errorf("%s is not a regular file", w.o.File) // opening a named pipe may take forever
	}
	f, err := os.OpenFile(w.o.File, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if info, err = f.Stat(); err != nil {
		_ = f.Close()
		return err
	}
	w.regular = info.Mode().IsRegular()
	if w.regular && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		_ = f.Close()
		return fmt.Errorf("%s has mode %#o, so that others than its owner have access; run chmod 600 on it, or move it away", w.o.File, info.Mode().Perm())
	}
	w.f, w.info, w.size, w.torn = f, info, info.Size(), false
	if w.regular && w.size > 0 {
		last := []byte{'\n'}
		_, err := f.ReadAt(last, w.size-1)
		w.torn = err != nil || last[0] != '\n'
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (w *file) close() error {
	if w.f == nil {
		return nil
	}
	err := w.f.Close()
	w.f = nil
	return err
}

// write appends one line, with its line break. What an earlier write left unfinished is ended first, so that
// a full disk costs the lines that did not fit and no other.
func (w *file) write(line []byte) error {
	if w.moved() {
		_ = w.close()
	}
	if err := w.open(); err != nil {
		return err
	}
	if w.o.MaxSize > 0 && w.regular && w.size > 0 && w.size+int64(len(line)) > w.o.MaxSize {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := w.f.Write(line)
	w.size += int64(n)
	if n > 0 {
		w.torn = n < len(line)
	}
	return err
}

// moved reports that somebody has put another file in the place of ours, as tools that rotate logs do and
// other processes with the same file.
func (w *file) moved() bool {
	if w.f == nil {
		return false
	}
	info, err := os.Stat(w.o.File)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	if os.SameFile(info, w.info) {
		w.size = max(w.size, info.Size()) // another process may write to it too
		return false
	}
	return true
}

// rotate moves the file aside and begins a new one.
func (w *file) rotate() error {
	_ = w.close()
	if err := os.Rename(w.o.File, w.o.File+"."+time.Now().UTC().Format(rotatedAt)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		// One that is not there any more was moved by somebody else.
		return fmt.Errorf("rotating: %w", err)
	}
	if err := w.open(); err != nil {
		return err
	}
	_ = w.prune() // files that stay are no reason to lose a line
	return nil
}

// prune removes the oldest rotated files beyond Keep.
func (w *file) prune() error {
	if w.o.Keep <= 0 {
		return nil
	}
	dir, name := filepath.Split(w.o.File)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking for rotated files: %w", err)
	}
	var old []string
	for _, e := range entries {
		if suffix, ok := strings.CutPrefix(e.Name(), name); ok && rotated.MatchString(suffix) && e.Type().IsRegular() {
			old = append(old, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(old)
	for len(old) > w.o.Keep {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a rotated file: %w", err)
		}
		old = old[1:]
	}
	return nil
}
