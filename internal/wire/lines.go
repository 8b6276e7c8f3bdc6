package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
)

const (
	lineChunk     = 32 << 10 // bytes; a shorter line is returned without a copy
	keptLine      = 64 << 10 // bytes; a larger buffer is given back after its line
	oversizeShown = 4096     // bytes
)

// OversizeError reports a line above the limit of a [LineReader].
type OversizeError struct {
	// Head and Tail are the first and the last bytes of the line, 4096 of each at most. They may overlap.
	Head, Tail []byte
	// Size is the length of the whole line in bytes, without its end.
	Size int64
}

// Error tells the size and nothing of the line.
func (e *OversizeError) Error() string {
	return fmt.Sprintf("line of %d bytes is too long", e.Size)
}

// LineReader reads the lines of a stream that end with LF or CRLF, which is the framing of MCP's stdio transport. It
// must not be used by two goroutines at once.
type LineReader struct {
	r    *bufio.Reader
	max  int
	long []byte // a line that was longer than the chunk
	open bool   // the last line had no end
}

// NewLineReader returns a reader of the lines in r. A line longer than maxLine bytes, its end not counted, is refused; not
// much more than maxLine is held in memory.
func NewLineReader(r io.Reader, maxLine int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, lineChunk), max: min(maxLine, math.MaxInt/2)}
}

// Next returns the next line without its end, valid until the next call. It returns an [*OversizeError] in place of a
// line above the limit, when all of it has been read, and the next call goes on after it. A last line without an end is
// returned before io.EOF; if the underlying reader fails otherwise, its error is returned and the unfinished line is lost.
func (r *LineReader) Next() ([]byte, error) {
	if cap(r.long) > keptLine {
		r.long = nil
	}
	r.long, r.open = r.long[:0], false
	chunk, err := r.r.ReadSlice('\n')
	if err == nil {
		if line := trimLineEnd(chunk); len(line) <= r.max {
			return line, nil
		}
	}
	var over *OversizeError
	for {
		if over == nil && len(r.long)+len(chunk) <= r.max+len("\r\n") {
			r.long = append(r.long, chunk...)
		} else {
			if over == nil {
				over = &OversizeError{}
				over.add(r.long)
			}
			over.add(chunk)
		}
		if err != bufio.ErrBufferFull {
			break
		}
		chunk, err = r.r.ReadSlice('\n')
	}
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case err == io.EOF && over == nil && len(r.long) == 0:
		return nil, io.EOF
	case over == nil:
		r.open = err == io.EOF
		line := trimLineEnd(r.long)
		if len(line) <= r.max {
			return line, nil
		}
		over = &OversizeError{}
		over.add(r.long)
	}
	over.finish()
	return nil, over
}

// Unfinished reports whether the line that Next returned last was the end of the stream and had no end of its own.
func (r *LineReader) Unfinished() bool { return r.open }

// trimLineEnd removes the end of a line, if it has one: a CR alone is not an end.
func trimLineEnd(line []byte) []byte {
	if text, ok := bytes.CutSuffix(line, []byte("\n")); ok {
		return bytes.TrimSuffix(text, []byte("\r"))
	}
	return line
}

// add takes the next part of the line.
func (e *OversizeError) add(part []byte) {
	const keep = oversizeShown + len("\r\n")
	e.Size += int64(len(part))
	e.Head = append(e.Head, part[:min(len(part), oversizeShown-len(e.Head))]...)
	e.Tail = append(e.Tail, part[max(0, len(part)-keep):]...)
	e.Tail = append(e.Tail[:0], e.Tail[max(0, len(e.Tail)-keep):]...)
}

// finish takes the line's end, which is known only when all parts are there, off again.
func (e *OversizeError) finish() {
	tail := trimLineEnd(e.Tail)
	e.Size -= int64(len(e.Tail) - len(tail))
	e.Head = e.Head[:min(int64(len(e.Head)), e.Size)]
	e.Tail = tail[max(0, len(tail)-oversizeShown):]
}
