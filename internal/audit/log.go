package audit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Bounds of what waits to be written. A single line may be larger if it is the only one.
const (
	maxLines = 1024
	maxBytes = 16 << 20
)

var (
	// ErrFull says that a line was dropped because too many wait to be written.
	ErrFull = errors.New("too many records wait to be written")
	// ErrClosed says that nothing is written any more.
	ErrClosed = errors.New("the audit log is closed")
)

// Options say where lines go.
type Options struct {
	// File is the path. Its directory has to exist.
	File string
	// MaxSize is the size in bytes at which the file is rotated; 0 never does.
	MaxSize int64
	// Keep is how many rotated files are kept; 0 keeps all.
	Keep int
	// Lost is told of each line that Offer has taken and that could not be written. It is called from Run.
	Lost func(error)
}

// Log writes lines. Run does the writing; Write and Offer may be used concurrently.
type Log struct {
	file    file
	lost    func(error)
	queue   chan line
	waiting atomic.Int64 // bytes in queue
	ended   chan struct{}
}

type line struct {
	text []byte
	done chan<- error // nil: nobody waits
}

// New makes a Log. It does no I/O.
func New(o Options) *Log {
	l := &Log{file: file{o: o}, lost: o.Lost, queue: make(chan line, maxLines), ended: make(chan struct{})}
	if l.lost == nil {
		l.lost = func(error) {}
	}
	return l
}

// Open opens the file, to see whether that can be done. Without it the first line does. It must not be called
// once Run has been.
func (l *Log) Open() error {
	if err := l.file.open(); err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	return nil
}

// Close closes a Log whose Run is never called.
func (l *Log) Close() error { return l.file.close() }

// Run writes lines until ctx ends, then those that wait, and closes the file.
func (l *Log) Run(ctx context.Context) {
	defer close(l.ended)
	for {
		select {
		case e := <-l.queue:
			l.put(e)
		case <-ctx.Done():
			for {
				select {
				case e := <-l.queue:
					l.put(e)
				default:
					_ = l.file.close()
					return
				}
			}
		}
	}
}

func (l *Log) put(e line) {
	l.waiting.Add(-int64(len(e.text)))
	err := l.file.write(e.text)
	if err != nil {
		err = fmt.Errorf("writing the audit log: %w", err)
	}
	switch {
	case e.done != nil:
		e.done <- err
	case err != nil:
		l.lost(err)
	}
}

// Write writes one line, which ends with its line break, and returns when the operating system has it. It
// waits within ctx; after an error the line may still be written, unless the error is the file's own.
func (l *Log) Write(ctx context.Context, text []byte) error {
	done := make(chan error, 1)
	l.waiting.Add(int64(len(text)))
	select {
	case l.queue <- line{text, done}:
	case <-l.ended:
		return ErrClosed
	case <-ctx.Done():
		l.waiting.Add(-int64(len(text)))
		return fmt.Errorf("waiting for the audit log: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the audit log: %w", ctx.Err())
	case <-l.ended:
		select {
		case err := <-done:
			return err
		default:
			return ErrClosed
		}
	}
}

// Offer hands one line over to be written, and does not wait. It returns ErrFull or ErrClosed for one that is
// dropped.
func (l *Log) Offer(text []byte) error {
	select {
	case <-l.ended:
		return ErrClosed
	default:
	}
	size := int64(len(text))
	if waiting := l.waiting.Add(size); waiting > maxBytes && waiting > size {
		l.waiting.Add(-size)
		return ErrFull
	}
	select {
	case l.queue <- line{text, nil}:
		return nil
	default:
		l.waiting.Add(-size)
		return ErrFull
	}
}
