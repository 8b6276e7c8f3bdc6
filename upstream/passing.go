package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

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
	// Write takes the next bytes of the result, but for the last: those are in the Reply, since it is known only with them
	// whether the message is one. After an error no more are offered, and the call fails.
	Write(p []byte) error
}

// ErrNotTaken is the error of a call whose Sink did not take the result.
var ErrNotTaken = errors.New("the result was not taken")

// pieceSize is the most bytes of a result that are held. A little less than the 64 KiB that fit into a packet of the
// loopback interface, since what does not fit makes a second one: with 64 KiB a call with a result of 1 MiB took a
// quarter more CPU than with 60 KiB, with 32 KiB a tenth.
const pieceSize = 60 << 10

var pieces sync.Pool

func newPiece() *buffer {
	if b, ok := pieces.Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, pieceSize), pool: &pieces}
}

// passable returns how much of an answer has to be read before it can be said whether it is to be passed on; 0 for
// one that is not.
func (s *streamable) passable(resp *http.Response, r *request) int64 {
	size := resp.ContentLength
	switch {
	case r.into == nil || s.streamOver == 0 || resp.StatusCode != http.StatusOK || mediaType(resp) != "application/json":
		return 0
	case size < 0 && s.streamOver < s.maxAnswer:
		return s.streamOver + 1
	case size < 0:
		return 0 // one that is as large as that is too large
	case size <= s.streamOver || size > s.maxAnswer:
		return 0
	}
	return min(size, pieceSize)
}

// readHead reads the first n bytes of an answer, or all of one that has fewer; into room, if that is large enough.
func readHead(body io.Reader, n int64, room []byte) ([]byte, error) {
	if n > pieceSize {
		return appendAll(room[:0], io.LimitReader(body, n))
	}
	k, err := io.ReadFull(body, room[:n])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return room[:k], err
}

// beginning begins to pass the result of an answer on to r's sink. head is the beginning of the message, and size the length
// of all of it, or -1. ok is false where the answer has to be held. Whoever goes on with pass need not keep head: what is
// left of it is in at.
func (s *streamable) beginning(r *request, head []byte, size int64) (p *wire.Passage, at passed, ok bool) {
	p, begin, ok := wire.NewPassage(head, r.wireID())
	if !ok {
		return nil, passed{}, false
	}
	n, done, err := p.Feed(head[begin+1:])
	if err != nil || done {
		// Nothing is with the client yet; and a result that is small is held, whatever follows it.
		return nil, passed{}, false
	}
	if size >= 0 {
		size -= int64(begin)
	}
	if !r.into.Begin(s.peer.Load().era, size) {
		return nil, passed{}, false
	}
	r.passed = true
	return p, passed{head[begin:], n + 1, false, int64(len(head))}, true
}

// pass passes the rest of a result on. body is what follows its beginning. The pieces lie in room; the last one stays there,
// and room is r's body then.
func (s *streamable) pass(r *request, p *wire.Passage, at passed, body io.Reader, room *buffer) (wire.Message, error) {
	m, err := s.passAll(body, r, p, at, room)
	if err == nil && m.ID != r.wireID() {
		err = s.failure(failure.BadUpstreamAnswer, failure.Unknown, errors.New("a message that is not the answer to the request"))
	}
	r.links = p.Links()
	return m, err
}

// wireID is the id of the request as an answer has it.
func (r *request) wireID() wire.ID { return wire.ID(strconv.FormatInt(r.id, 10)) }

// passEvent is beginning and pass for an event that is open.
func (s *streamable) passEvent(r *request, e *wire.Event, events *wire.EventReader) (m wire.Message, ok bool, err error) {
	if e.Type != "" || r.into == nil {
		return wire.Message{}, false, nil
	}
	p, at, ok := s.beginning(r, e.Data, -1)
	if !ok {
		return wire.Message{}, false, nil
	}
	room := newPiece()
	defer r.free(room)
	m, err = s.pass(r, p, at, events, room)
	return m, true, err
}

// free gives a buffer back, unless the answer lies in it.
func (r *request) free(b *buffer) {
	if r.body != b {
		b.release()
	}
}

// passed is a piece of an answer that has been looked at.
type passed struct {
	piece []byte
	n     int   // of its bytes belong to the result
	done  bool  // and it ends with them
	total int64 // bytes of the answer up to the end of the piece
}

// passAll is pass up to the end of the message.
func (s *streamable) passAll(body io.Reader, r *request, p *wire.Passage, at passed, lent *buffer) (wire.Message, error) {
	room := lent.b
	for {
		if at.done {
			r.last, r.body = at.piece[:at.n-1], lent
			return s.passEnd(body, p, at.piece[at.n:])
		}
		if r.give(at.piece[:at.n]) != nil {
			return wire.Message{}, ErrNotTaken
		}
		at.piece = room[:copy(room, at.piece[at.n:])] // less than room: Feed leaves little
		more, err := body.Read(room[len(at.piece):])
		at.piece, at.total = room[:len(at.piece)+more], at.total+int64(more)
		switch {
		case at.total > s.maxAnswer:
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, errTooLarge)
		case err == io.EOF && more == 0:
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, errors.New("the answer ends within the result"))
		case err != nil && err != io.EOF:
			return wire.Message{}, s.failure(failure.ConnectionLost, failure.Unknown, fmt.Errorf("reading the answer: %w", err))
		}
		if at.n, at.done, err = p.Feed(at.piece); err != nil {
			return wire.Message{}, s.failure(failure.BadUpstreamAnswer, failure.Unknown, err)
		}
	}
}

// give gives a piece of the result to r's sink. How long that takes is the client's affair, and the time for a step is
// counted anew from there.
func (r *request) give(piece []byte) error {
	r.clock.hold()
	began := time.Now()
	defer func() {
		r.clock.given += time.Since(began)
		r.clock.release()
	}()
	if len(piece) == 0 {
		return nil
	}
	return r.into.Write(piece)
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
