package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

var _ sink = (*lineSink)(nil)

// lineSink writes messages to a pipe, each with one Write.
type lineSink struct {
	mu  sync.Mutex // one message at a time
	out io.Writer
}

func (s *lineSink) reply(_ int, msg []byte) { s.send(msg) }

func (s *lineSink) send(msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A reader that has gone shows at the next read.
	_, _ = s.out.Write(append(bytes.Clone(msg), '\n'))
}

// ServeLines serves one client by the stdio framing: one message a line. It
// returns nil at the end of in, or when ctx ends; then it closes in, if that is
// an io.Closer. Calls in flight are cancelled and waited for. Each message is
// written with one Write.
func (s *Server) ServeLines(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	if c, ok := in.(io.Closer); ok {
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	}
	l := &lines{srv: s, peer: &peer{}, sink: &lineSink{out: out}}
	defer func() { l.leave() }()
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.line(ctx, &calls, line)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || ctx.Err() != nil:
			return nil
		default:
			return fmt.Errorf("reading a message: %w", err)
		}
	}
}

// lines is one client on a pipe.
type lines struct {
	srv   *Server
	peer  *peer
	sink  *lineSink
	close func() // takes the notification stream away
}

func (l *lines) line(ctx context.Context, calls *sync.WaitGroup, line []byte) {
	m := parse(line)
	l.srv.record(Recorded{Method: m.method, Body: line})
	switch {
	case m.invalid != 0:
		l.sink.send(errorResponse(m.id, rpcError(m.invalid, "not a JSON-RPC message", "")))
	case m.isResponse():
		l.peer.answered(m)
	case m.isRequest():
		c := &Call{Method: m.method, ID: m.id, Params: m.params, srv: l.srv, peer: l.peer, out: l.sink, modern: l.srv.modern()}
		end := l.peer.begin(ctx, c)
		calls.Go(func() {
			defer end()
			if l.srv.OnRequest != nil && l.srv.OnRequest(c) {
				return
			}
			l.srv.serve(c)
		})
	default:
		l.srv.notified(l.peer, m)
		if m.method == "notifications/initialized" && l.close == nil && !l.srv.modern() {
			l.close = l.srv.open(&stream{peer: l.peer, send: l.sink.send})
		}
	}
}

func (l *lines) leave() {
	if l.close != nil {
		l.close()
	}
}
