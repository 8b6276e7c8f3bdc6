package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// This file passes large results on while they are still coming in. Everything else is held until it is whole, because
// only then is it known whether it is an answer; here a fault behind the first piece is found when that piece is gone.

// Sink takes a large result in place of a Reply that holds it.
type Sink interface {
	// Begin is called once, when the answer of a server of an era turns out to be a large result. size is the most bytes
	// that the result will have, or -1 if that is not known. With false the result is held after all.
	Begin(from Era, size int64) bool
	// Write takes the next bytes of the result. Its closing brace is not among them. After an error no more are
	// offered, and the call fails.
	Write(p []byte) error
}

// ErrNotTaken is the error of a call whose Sink did not take the result.
var ErrNotTaken = errors.New("the result was not taken")

// pieceSize is the most bytes of a result that are held. With half of it a call with a result of 1 MiB took a tenth
// more CPU; with twice as much, the same.
const pieceSize = 64 << 10

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// passable returns how much of an answer has to be read before it can be said whether it is to be passed on; 0 for
// one that is not.
func (s *streamable) passable(resp *http.Response, r *request) int64 {
	size := resp.ContentLength
	switch {
	case r.into == nil || s.streamOver == 0 || resp.StatusCode != http.StatusOK || mediaType(resp) != "application/json":
		return 0
	case size < 0:
		return min(s.streamOver+1, s.maxAnswer)
	case size <= s.streamOver || size > s.maxAnswer:
		return 0
	}
	return min(size, pieceSize)
}

// readHead reads the first n bytes of an answer, or all of one that has fewer; into room, if that is large enough.
func readHead(body io.Reader, n int64, room *[pieceSize]byte) ([]byte, error) {
	if n > pieceSize {
		return appendAll(room[:0], io.LimitReader(body, n))
	}
	k, err := io.ReadFull(body, room[:n])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return room[:k], err
}

// pass passes the result of an answer on to r's sink. head is the beginning of the answer, and room holds the rest of it
// piece by piece. ok is false where it has to be held.
func (s *streamable) pass(resp *http.Response, r *request, head []byte, room *[pieceSize]byte) (m wire.Message, ok bool, err error) {
	id := wire.ID(strconv.FormatInt(r.id, 10))
	p, begin, ok := wire.NewPassage(head, id)
	if !ok {
		return wire.Message{}, false, nil
	}
	size := int64(-1)
	if resp.ContentLength >= 0 {
		size = resp.ContentLength - int64(begin)
	}
	if !r.into.Begin(s.peer.Load().era, size) {
		return wire.Message{}, false, nil
	}
	r.passed = true
	m, err = s.passAll(resp.Body, r, p, head, begin, room)
	if err == nil && m.ID != id {
		err = s.failure(failure.BadUpstreamAnswer, failure.Unknown, errors.New("a message that is not the answer to the request"))
	}
	r.links = p.Links()
	return m, true, err
}

// passAll is pass from the first byte of the result on.
func (s *streamable) passAll(body io.Reader, r *request, p *wire.Passage, head []byte, begin int, room *[pieceSize]byte) (wire.Message, error) {
	total := int64(len(head))
	piece, from := head[begin:], 1 // the opening brace has been looked at
	for {
		n, done, err := p.Feed(piece[from:])
		n += from
		if err != nil {
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, err)
		}
		out := piece[:n]
		if done {
			out = out[:n-1]
		}
		if len(out) > 0 && r.into.Write(out) != nil {
			return wire.Message{}, ErrNotTaken
		}
		if r.onPiece != nil {
			r.onPiece()
		}
		piece, from = room[:copy(room[:], piece[n:])], 0
		if done {
			return s.passEnd(body, p, piece)
		}
		more, err := body.Read(room[len(piece):])
		piece, total = room[:len(piece)+more], total+int64(more)
		switch {
		case total > s.maxAnswer:
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, errTooLarge)
		case err == io.EOF && more == 0:
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, errors.New("the answer ends within the result"))
		case err != nil && err != io.EOF:
			return wire.Message{}, s.failure(failure.ConnectionLost, failure.Unknown, fmt.Errorf("reading the answer: %w", err))
		}
	}
}

// maxTail bounds what may follow the result in an answer, in bytes.
const maxTail = 32 << 10

// passEnd reads what follows the result.
func (s *streamable) passEnd(body io.Reader, p *wire.Passage, tail []byte) (wire.Message, error) {
	tail, err := appendAll(bytes.Clone(tail), io.LimitReader(body, maxTail+1))
	switch {
	case err != nil:
		return wire.Message{}, s.failure(failure.ConnectionLost, failure.Unknown, fmt.Errorf("reading the answer: %w", err))
	case len(tail) > maxTail:
		return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, errors.New("much follows the result"))
	}
	m, err := p.End(tail)
	if err != nil {
		return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, fmt.Errorf("HTTP 200 with a body that is not a message (%w)", err))
	}
	return m, nil
}
