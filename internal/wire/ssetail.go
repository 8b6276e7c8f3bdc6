package wire

import (
	"bytes"
	"errors"
	"io"
)

// This file reads what follows of an event whose beginning has been returned, without holding it.

// tail is the state of an event of which the beginning has been returned.
type tail struct {
	open    bool // it was returned last
	reading bool // and what follows is being read
	inLine  bool // the data line at hand is not over
	newline bool // a line break is to be given first
	typ     string
	give    []byte // is to be given next; part of the buffer
	err     error  // ends the event, once what was before it has been read
}

var errLateType = errors.New("the type of an event stands behind its data")

// opens reports whether the event at hand, of which there are n bytes of data, is to be returned open.
func (r *EventReader) opens(n int) bool { return r.over > 0 && n > r.over && !r.held }

func (r *EventReader) opened(data []byte) *Event {
	r.tail.open, r.held, r.tail.typ = true, true, r.typ
	return &Event{Type: r.typ, ID: r.id, HasID: r.hasID, Data: data, Retry: r.retry, Open: true}
}

// Read reads what follows of an event that was returned open, lines joined by LF. It returns io.EOF at the end of the
// event and io.ErrUnexpectedEOF if the stream ends before that.
func (r *EventReader) Read(p []byte) (int, error) {
	t := &r.tail
	switch {
	case t.reading || t.err != nil:
	case !t.open:
		return 0, io.EOF
	default:
		t.open, t.reading, r.begun = false, true, true
		r.forget() // what was returned
	}
	n := 0
	for n < len(p) {
		if t.newline {
			p[n], t.newline = '\n', false
			n++
			continue
		}
		if len(t.give) > 0 {
			k := copy(p[n:], t.give)
			t.give = t.give[k:]
			n += k
			continue
		}
		if t.err != nil {
			break
		}
		complete, err := r.tailLine()
		if t.err = err; err != nil || complete || len(t.give) > 0 || t.newline {
			continue
		}
		if n > 0 {
			return n, nil // more would have to be waited for
		}
		r.start, r.end = r.line, r.line
		r.shrink(keptEventBuffer)
		if err := r.fill(); err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		} else if err != nil {
			return 0, err
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, t.err
	}
	return n, nil
}

// tailLine takes the next line, or what there is of it.
func (r *EventReader) tailLine() (complete bool, err error) {
	t := &r.tail
	line, complete := r.nextLine()
	if t.inLine {
		t.give, t.inLine = line, !complete
		if !complete {
			r.line = r.scan
		}
		return complete, nil
	}
	name, value, colon := bytes.Cut(line, []byte(":"))
	data := string(name) == "data"
	switch {
	case !complete && data && colon && len(value) > 0:
		t.give, t.newline, t.inLine = bytes.TrimPrefix(value, []byte(" ")), true, true
		r.line = r.scan
	case !complete && len(line) > r.max:
		return false, ErrEventTooLarge
	case !complete:
	case len(line) == 0:
		late := r.typ != t.typ
		*t = tail{}
		r.hasID, r.retry = false, 0
		r.conclude()
		if late {
			return true, errLateType
		}
		return true, io.EOF
	case data:
		t.give, t.newline = bytes.TrimPrefix(value, []byte(" ")), true
	default:
		r.field(line)
	}
	return complete, nil
}
