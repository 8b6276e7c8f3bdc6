package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Event is one event of a Server-Sent Events stream.
type Event struct {
	// Type is the event's type; "" means message, also where the stream said so.
	Type string
	// ID is the last event id of the stream as of this event.
	ID string
	// HasID reports that an id field stood in this event, or since the event before it.
	HasID bool
	// Data is valid until Next is called again.
	Data []byte
	// Retry is the reconnection time given in this event, or since the event before it; 0 means none.
	Retry time.Duration
	// Open says that Data is only the beginning of the event's data: see NextOver.
	Open bool
}

// ErrEventTooLarge reports an event above the limit of an [EventReader].
var ErrEventTooLarge = errors.New("event is too large")

const (
	minEventBuffer  = 4 << 10  // bytes; what an idle stream holds
	keptEventBuffer = 64 << 10 // bytes; a larger buffer is given back after its event
	minRead         = 512      // bytes of free space worth a read
	maxEmptyReads   = 100
)

// EventReader reads a stream of Server-Sent Events by the HTML standard, section "Interpreting an event stream". It
// must not be used by two goroutines at once.
//
// All bytes live in one buffer. The data of the event at hand grows at buf[start:end], where the value of every data
// line is moved down to the one before it; buf[line:] is the unfinished line and what was read after it.
type EventReader struct {
	r   io.Reader
	max int
	err error // of r, to be returned once everything before it was used

	buf        []byte
	start, end int
	line       int
	scan       int // buf[line:scan] has no line end
	lf         int // buf[scan:lf] has no LF
	lineEnd    int // of the complete line at hand

	begun   bool // the first line, which may start with a byte order mark, is over
	afterCR bool // an LF that comes next belongs to the line before
	skip    bool // the rest of the event at hand is thrown away
	midLine bool // while skipping: the start of the line at hand is gone, so it is not blank

	over int  // the size of an event above which it is returned open; 0 for never
	held bool // the event at hand was, and is to be returned whole
	tail tail // of the event at hand

	hasData bool
	typ     string
	hasID   bool
	id      string        // the standard's "last event ID buffer"
	lastID  string        // the standard's "last event ID string"
	retry   time.Duration // since the last event
	retries time.Duration // the standard's "reconnection time"
}

// NewEventReader returns a reader of the events in r. An event whose data, together with the line being read, is longer
// than maxEvent bytes is refused. About twice that is held in memory at most.
func NewEventReader(r io.Reader, maxEvent int) *EventReader {
	return &EventReader{r: r, max: min(maxEvent, math.MaxInt/4)}
}

// LastEventID returns the id with which a client would resume the stream: that of the last complete event with one, also
// if the event had no data and was therefore not returned.
func (r *EventReader) LastEventID() string { return r.lastID }

// Retry returns the last reconnection time the stream gave, or 0. It counts even if no event followed.
func (r *EventReader) Retry() time.Duration { return r.retries }

// Next returns the next event with data. At the end of the stream it returns io.EOF and discards an unfinished event;
// another error of the underlying reader is returned as it is. For an event above the limit it returns
// ErrEventTooLarge once, and the next call goes on with the event after it.
func (r *EventReader) Next() (*Event, error) { return r.NextOver(0) }

// NextOver is Next, but an event with more than over bytes of data is returned open: with the data that has been read so
// far. What follows of it is then to be read with Read, up to io.EOF. If Next or NextOver is called instead, the event is
// returned again, whole. An over of 0 is no limit.
func (r *EventReader) NextOver(over int) (*Event, error) {
	r.over = over
	if r.tail.reading {
		r.skip, r.midLine = true, r.tail.inLine // what was not read of it
	}
	r.tail = tail{}
	r.drop()
	for {
		line, complete := r.nextLine()
		switch {
		case r.skip:
			r.skipLine(line, complete)
		case r.end-r.start+len(line) > r.max:
			r.skip, r.midLine = true, !complete
			r.forget()
			return nil, ErrEventTooLarge
		case complete && len(line) > 0:
			r.field(line)
			if r.hasData && r.opens(r.end-r.start) {
				return r.opened(r.buf[r.start:r.end:r.end]), nil
			}
		case complete:
			if event := r.dispatch(); event != nil {
				return event, nil
			}
		}
		if complete {
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok && !r.skip && !r.hasData && r.opens(len(value)-1) {
			r.tail.inLine = true
			return r.opened(bytes.TrimPrefix(value, []byte(" "))), nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// nextLine returns the next line without its end. If it is not complete it reports false and returns what there is.
func (r *EventReader) nextLine() (line []byte, complete bool) {
	if r.afterCR && r.scan < len(r.buf) {
		if r.buf[r.scan] == '\n' {
			r.line++
			r.scan++
		}
		r.afterCR = false
	}
	// The place of the next LF is kept, so that a text with CR ends is not searched for LF again on every line.
	r.lf = max(r.lf, r.scan)
	if r.lf < len(r.buf) && r.buf[r.lf] != '\n' {
		if i := bytes.IndexByte(r.buf[r.lf:], '\n'); i >= 0 {
			r.lf += i
		} else {
			r.lf = len(r.buf)
		}
	}
	r.lineEnd = r.lf
	if i := bytes.IndexByte(r.buf[r.scan:r.lf], '\r'); i >= 0 {
		r.lineEnd = r.scan + i
	}
	line = r.buf[r.line:r.lineEnd]
	r.scan = r.lineEnd
	complete = r.lineEnd < len(r.buf)
	if !r.begun {
		line = trimMark(line, complete)
		r.begun = complete
	}
	if complete {
		r.afterCR = r.buf[r.lineEnd] == '\r'
		r.scan++
		r.line = r.scan
	}
	return line, complete
}

// trimMark removes a byte order mark, or what has arrived of one.
func trimMark(line []byte, complete bool) []byte {
	const mark = "\ufeff"
	if !complete && strings.HasPrefix(mark, string(line[:min(len(line), len(mark))])) {
		return line[min(len(line), len(mark)):]
	}
	return bytes.TrimPrefix(line, []byte(mark))
}

// field takes a line that is not blank.
func (r *EventReader) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":")) // a comment has an empty name
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		r.data(value)
	case "event":
		if r.typ = ""; string(value) != "message" {
			r.typ = string(value)
		}
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id, r.hasID = string(value), true
		}
	case "retry":
		if d, ok := milliseconds(value); ok {
			r.retry, r.retries = d, d
		}
	}
}

// data adds the value at the end of the line at hand to the data of the event.
func (r *EventReader) data(value []byte) {
	if !r.hasData {
		r.hasData = true
		r.start, r.end = r.lineEnd-len(value), r.lineEnd // the first value stays where it is
		return
	}
	r.buf[r.end] = '\n' // overwrites the end of the line before, or the name of this field
	r.end += 1 + copy(r.buf[r.end+1:], value)
}

// milliseconds reads a retry field. Digits beyond what a Duration holds are ignored like other nonsense.
func milliseconds(digits []byte) (time.Duration, bool) {
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || n > int64(math.MaxInt64/time.Millisecond) {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

// dispatch ends the event at hand. It returns nil if the event has no data.
func (r *EventReader) dispatch() *Event {
	var event *Event
	if r.hasData {
		event = &Event{Type: r.typ, ID: r.id, HasID: r.hasID, Data: r.buf[r.start:r.end:r.end], Retry: r.retry}
		r.hasID, r.retry = false, 0
	}
	r.conclude()
	return event
}

// conclude leaves an event at its blank line.
func (r *EventReader) conclude() {
	r.lastID = r.id
	r.typ = ""
	r.hasData, r.held = false, false
}

func (r *EventReader) skipLine(line []byte, complete bool) {
	blank := complete && len(line) == 0 && !r.midLine
	r.midLine = !complete && (r.midLine || len(line) > 0)
	r.forget()
	if blank {
		r.skip = false
		r.conclude()
	}
}

// forget throws away the data of the event at hand and all that was scanned.
func (r *EventReader) forget() {
	r.hasData = false
	r.line = r.scan
	r.start, r.end = r.line, r.line
}

// drop releases the data of the event that was returned last, and a buffer that has grown large for it.
func (r *EventReader) drop() {
	if r.hasData {
		return
	}
	r.start, r.end = r.line, r.line
	r.shrink(2 * minEventBuffer)
}

// shrink gives a buffer that has grown large back for one of a size in bytes, if hardly anything in it is needed.
func (r *EventReader) shrink(size int) {
	if cap(r.buf) > keptEventBuffer && len(r.buf)-r.line <= minEventBuffer {
		r.move(make([]byte, 0, size))
	}
}

// fill reads more of the stream behind the unfinished line. It is called when all complete lines are used.
func (r *EventReader) fill() error {
	if r.err != nil {
		return r.err
	}
	if cap(r.buf)-len(r.buf) < minRead {
		// Room is left for as much again as is held, so that the moves stay in proportion to the bytes read.
		if held := r.end - r.start + len(r.buf) - r.line; held+minRead > cap(r.buf)/2 {
			r.move(make([]byte, 0, max(minEventBuffer, min(2*cap(r.buf), 2*r.max+minEventBuffer))))
		} else {
			r.move(r.buf[:0])
		}
	}
	for range maxEmptyReads {
		n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+n]
		r.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	r.err = io.ErrNoProgress
	return r.err
}

// move copies what is still needed to dst, which may be the start of buf.
func (r *EventReader) move(dst []byte) {
	dst = append(dst, r.buf[r.start:r.end]...)
	r.start, r.end = 0, len(dst)
	shift := r.line - len(dst)
	r.buf = append(dst, r.buf[r.line:]...)
	r.line -= shift
	r.scan -= shift
	r.lf -= shift
}

// AppendEvent writes one event to dst. Type and id are left out when empty, and lose characters that would end their
// line. The data is split over lines at CR, LF and CRLF, which a reader joins with LF.
func AppendEvent(dst []byte, eventType, id string, data []byte) []byte {
	dst = appendField(dst, "event: ", eventType)
	dst = appendField(dst, "id: ", id)
	dst = appendLines(dst, "data: ", data)
	return append(dst, '\n')
}

// AppendComment writes a comment, which readers ignore, to dst.
func AppendComment(dst []byte, text string) []byte {
	return append(appendLines(dst, ": ", []byte(text)), '\n')
}

func appendField(dst []byte, prefix, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, prefix...)
	for i := range len(value) {
		if c := value[i]; c != '\r' && c != '\n' && c != 0 {
			dst = append(dst, c)
		}
	}
	return append(dst, '\n')
}

func appendLines(dst []byte, prefix string, text []byte) []byte {
	hasCR := bytes.IndexByte(text, '\r') >= 0 // searching for one byte is much the faster
	for {
		var i int
		if hasCR {
			i = bytes.IndexAny(text, "\r\n")
		} else {
			i = bytes.IndexByte(text, '\n')
		}
		dst = append(dst, prefix...)
		if i < 0 {
			return append(append(dst, text...), '\n')
		}
		dst = append(append(dst, text[:i]...), '\n')
		if bytes.HasPrefix(text[i:], []byte("\r\n")) {
			i++
		}
		text = text[i+1:]
	}
}
