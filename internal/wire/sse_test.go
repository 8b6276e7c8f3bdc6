package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// chunks reads text in pieces of n bytes.
type chunks struct {
	text []byte
	n    int
	err  error // at the end; nil means io.EOF
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		return 0, io.EOF
	}
	n := copy(p, c.text[:min(c.n, len(c.text))])
	c.text = c.text[n:]
	return n, nil
}

// readEvents returns one line for each event or error, up to the end of the stream.
func readEvents(r *wire.EventReader) []string {
	var got []string
	for {
		event, err := r.Next()
		switch {
		case err == io.EOF:
			return got
		case errors.Is(err, wire.ErrEventTooLarge):
			got = append(got, "too large")
		case err != nil:
			return append(got, err.Error())
		default:
			line := fmt.Sprintf("%q", event.Data)
			if event.Type != "" {
				line += " type=" + event.Type
			}
			if event.ID != "" || event.HasID {
				line += fmt.Sprintf(" id=%q/%t", event.ID, event.HasID)
			}
			if event.Retry != 0 {
				line += " retry=" + event.Retry.String()
			}
			got = append(got, line)
		}
	}
}

func TestEventReader(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 10_000)
	tests := []struct {
		name string
		in   string
		want []string
	}{
		{"LF", "data: a\n\ndata: b\n\n", []string{`"a"`, `"b"`}},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{`"a"`, `"b"`}},
		{"CR", "data: a\r\rdata: b\r\r", []string{`"a"`, `"b"`}},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\r", []string{`"a"`, `"b"`, `"c"`, `"d"`}},
		{"CR, then LF of a blank line", "data: a\r\n\r\n\r\ndata: b\n\n", []string{`"a"`, `"b"`}},
		{"byte order mark", "\ufeffdata: a\n\n", []string{`"a"`}},
		{"second byte order mark", "\ufeff\ufeffdata: a\n\ndata: b\n\n", []string{`"b"`}},
		{"byte order mark later", "data: a\n\n\ufeffdata: b\n\n", []string{`"a"`}},
		{"byte order mark and blank line", "\ufeff\n\ndata: b\n\n", []string{`"b"`}},
		{"many lines", "data: {\ndata:   \"a\": 1\ndata: }\n\n", []string{`"{\n  \"a\": 1\n}"`}},
		{"many lines with other fields between", "data: a\nid: 1\n: comment comment comment\ndata: b\nevent: x\ndata\ndata: c\n\n",
			[]string{`"a\nb\n\nc" type=x id="1"/true`}},
		{"no space after the colon", "data:a\n\n", []string{`"a"`}},
		{"only one space is removed", "data:  a \n\n", []string{`" a "`}},
		{"tab is not removed", "data:\ta\n\n", []string{`"\ta"`}},
		{"colon in the value", "data: a:b: c\n\n", []string{`"a:b: c"`}},
		{"comments", ": hello\n\n:\n:data: x\ndata: a\n: b\n\n", []string{`"a"`}},
		{"field without colon", "data\n\ndata\ndata\n\n", []string{`""`, `"\n"`}},
		{"unknown fields", "dat: a\nDATA: b\n data: c\ndata : d\ndata: e\n\n", []string{`"e"`}},
		{"no data, no event", "event: x\n\ndata: a\n\n", []string{`"a"`}},
		{"type lasts for one event", "event: x\ndata: a\n\ndata: b\n\n", []string{`"a" type=x`, `"b"`}},
		{"last type counts", "event: x\nevent: y\ndata: a\n\nevent: x\nevent\ndata: b\n\n", []string{`"a" type=y`, `"b"`}},
		{"message is the default type", "event: message\ndata: a\n\n", []string{`"a"`}},
		{"id lasts", "id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\n", []string{`"a" id="1"/true`, `"b" id="1"/false`, `"c" id="2"/true`}},
		{"id is reset", "id: 1\ndata: a\n\nid\ndata: b\n\ndata: c\n\n", []string{`"a" id="1"/true`, `"b" id=""/true`, `"c"`}},
		{"id with NUL is ignored", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", []string{`"a" id="1"/true`, `"b" id="1"/false`}},
		{"id without data counts", "id: 5\n\ndata: a\n\n", []string{`"a" id="5"/true`}},
		{"primer with empty data", "id: 5\ndata:\n\nid: 6\ndata: \n\n", []string{`"" id="5"/true`, `"" id="6"/true`}},
		{"retry", "retry: 1500\ndata: a\n\ndata: b\n\n", []string{`"a" retry=1.5s`, `"b"`}},
		{"retry without data counts", "retry: 7\n\ndata: a\n\n", []string{`"a" retry=7ms`}},
		{"retry nonsense", "retry: -1\nretry: 1.5\nretry: +5\nretry:\nretry: 5s\nretry:  5\nretry: 99999999999999999999\nretry: 9223372036855\ndata: a\n\n", []string{`"a"`}},
		{"unfinished event is discarded", "data: a\n\ndata: b\n", []string{`"a"`}},
		{"unfinished line is discarded", "data: a\n\ndata: b", []string{`"a"`}},
		{"empty stream", "", nil},
		{"blank lines", "\n\r\n\r\r\n\n", nil},
		{"split characters", "data: é世😀\n\n", []string{`"é世😀"`}},
		{"large", "data: " + big + "\n\ndata: x\n\n", []string{`"` + big + `"`, `"x"`}},
		{"large over many lines", strings.Repeat("data: 0123456789abcdef\n", 5000) + "\ndata: x\n\n",
			[]string{`"` + strings.Repeat(`0123456789abcdef\n`, 4999) + `0123456789abcdef"`, `"x"`}},
		{"many empty data lines", strings.Repeat("data\n", 3000) + "\n", []string{`"` + strings.Repeat(`\n`, 2999) + `"`}},
		{"many comments inside an event", "data: a\n" + strings.Repeat(": padding\n", 5000) + "data: b\n\n", []string{`"a\nb"`}},
	}
	for _, tt := range tests {
		for _, n := range []int{1, 2, 3, 7, 1000, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, n), func(t *testing.T) {
				got := readEvents(wire.NewEventReader(&chunks{text: []byte(tt.in), n: n}, 1<<20))
				if !equalLines(got, tt.want) {
					t.Errorf("got  %s\nwant %s", short(got), short(tt.want))
				}
			})
		}
	}
}

func equalLines(a, b []string) bool {
	return strings.Join(a, "|") == strings.Join(b, "|") && len(a) == len(b)
}

func short(lines []string) string {
	s := strings.Join(lines, " | ")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

func TestEventReaderLimit(t *testing.T) {
	tests := []struct {
		name string
		max  int
		in   string
		want []string
	}{
		{"at the limit", 10, "data: 1234\n\n", []string{`"1234"`}},
		{"mark is not counted", 10, "\ufeffdata: 1234\n\n", []string{`"1234"`}},
		{"line above", 10, "data: 12345\n\ndata: b\n\n", []string{"too large", `"b"`}},
		{"CRLF", 10, "data: 12345\r\n\r\ndata: b\r\n\r\n", []string{"too large", `"b"`}},
		{"CR", 10, "data: 12345\r\rdata: b\r\r", []string{"too large", `"b"`}},
		{"lines together", 10, "data:123\ndata:456\ndata:7\n\ndata: b\n\n", []string{"too large", `"b"`}},
		{"rest of a large event is skipped", 10, "data: 12345\ndata: x\nevent: y\n\ndata: b\n\n", []string{"too large", `"b"`}},
		{"type and data of a large event go", 10, "event: y\ndata: x\ndata: 12345\n\ndata: b\n\n", []string{"too large", `"b"`}},
		{"two large events", 10, "data: 12345\n\ndata: 1234567890\ndata: 1234567890\n\ndata: b\n\n", []string{"too large", "too large", `"b"`}},
		{"id before the excess counts", 10, "id: 1\ndata: 12345\nid: 2\n\ndata: b\n\n", []string{"too large", `"b" id="1"/true`}},
		{"long comment", 10, ": 12345678901\n\ndata: b\n\n", []string{"too large", `"b"`}},
		{"many short comments", 10, strings.Repeat(": 12345\n", 1000) + "data: b\n\n", []string{`"b"`}},
		{"large event at the end", 10, "data: 12345\n", []string{"too large"}},
		{"large line at the end", 10, "data: 1234567890", []string{"too large"}},
		{"nothing is allowed", 0, "data: 1\n\ndata: 2\n\n", []string{"too large", "too large"}},
		{"mark where nothing is allowed", 0, "\ufeff\n\n\n", nil},
		{"very large event", 100, "data: " + strings.Repeat("x", 300_000) + "\n\ndata: b\n\n", []string{"too large", `"b"`}},
	}
	for _, tt := range tests {
		for _, n := range []int{1, 2, 3, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, n), func(t *testing.T) {
				got := readEvents(wire.NewEventReader(&chunks{text: []byte(tt.in), n: n}, tt.max))
				if !equalLines(got, tt.want) {
					t.Errorf("got  %s\nwant %s", short(got), short(tt.want))
				}
			})
		}
	}
}

// An event must come out as soon as its blank line is there, without a look at what follows.
func TestEventReaderDoesNotWait(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		t.Run(fmt.Sprintf("%q", end), func(t *testing.T) {
			first := true
			r := wire.NewEventReader(readerFunc(func(p []byte) (int, error) {
				if !first {
					t.Error("a second read before the event was returned")
					return 0, io.EOF
				}
				first = false
				return copy(p, "data: a"+end+end), nil
			}), 100)
			event, err := r.Next()
			if err != nil || string(event.Data) != "a" {
				t.Fatalf("Next = %v, %v", event, err)
			}
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestEventReaderErrors(t *testing.T) {
	broken := errors.New("connection reset")
	t.Run("after complete events", func(t *testing.T) {
		r := wire.NewEventReader(&chunks{text: []byte("data: a\n\ndata: b\n"), n: 4, err: broken}, 100)
		if got := readEvents(r); !equalLines(got, []string{`"a"`, broken.Error()}) {
			t.Errorf("got %s", got)
		}
		if _, err := r.Next(); err != broken {
			t.Errorf("Next once more: %v, want the same error", err)
		}
	})
	t.Run("together with data", func(t *testing.T) {
		r := wire.NewEventReader(iotest.DataErrReader(strings.NewReader("data: a\n\n")), 100)
		if got := readEvents(r); !equalLines(got, []string{`"a"`}) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("io.EOF again and again", func(t *testing.T) {
		r := wire.NewEventReader(strings.NewReader("data: a"), 100)
		for range 3 {
			if event, err := r.Next(); err != io.EOF {
				t.Fatalf("Next = %v, %v, want io.EOF", event, err)
			}
		}
	})
	t.Run("reader without progress", func(t *testing.T) {
		r := wire.NewEventReader(readerFunc(func([]byte) (int, error) { return 0, nil }), 100)
		if _, err := r.Next(); err != io.ErrNoProgress {
			t.Errorf("Next: %v, want io.ErrNoProgress", err)
		}
	})
}

func TestEventReaderResumption(t *testing.T) {
	tests := []struct {
		name, in string
		id       string
		retry    time.Duration
	}{
		{"nothing", "data: a\n\n", "", 0},
		{"with data", "id: 1\nretry: 5\ndata: a\n\n", "1", 5 * time.Millisecond},
		{"without data", "id: 1\nretry: 5\n\n", "1", 5 * time.Millisecond},
		{"unfinished event", "id: 1\ndata: a\n\nid: 2\nretry: 6\ndata: b\n", "1", 6 * time.Millisecond},
		{"large event", "id: 1\ndata: a\n\nid: 2\ndata: " + strings.Repeat("x", 200) + "\n\n", "2", 0},
		{"unfinished large event", "id: 1\ndata: a\n\nid: 2\ndata: " + strings.Repeat("x", 200) + "\n", "1", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := wire.NewEventReader(strings.NewReader(tt.in), 100)
			readEvents(r)
			if r.LastEventID() != tt.id || r.Retry() != tt.retry {
				t.Errorf("got id %q, retry %s, want %q, %s", r.LastEventID(), r.Retry(), tt.id, tt.retry)
			}
		})
	}
}

// The buffer must stay in proportion to the limit, whatever the stream holds.
func TestEventReaderMemory(t *testing.T) {
	const limit = 10_000
	largest := 0
	filler := []byte("data: a\n: comment\ndata\ndata: " + strings.Repeat("x", 3000) + "\n")
	left := 20_000_000
	r := wire.NewEventReader(readerFunc(func(p []byte) (int, error) {
		largest = max(largest, len(p))
		if left <= 0 {
			return 0, io.EOF
		}
		n := 0
		for n < len(p) {
			n += copy(p[n:], filler)
		}
		left -= n
		return n, nil
	}), limit)
	readEvents(r)
	if largest > 3*limit {
		t.Errorf("read into %d bytes at once with a limit of %d", largest, limit)
	}
}

func TestAppendEvent(t *testing.T) {
	tests := []struct {
		name, eventType, id, data, want string
	}{
		{"data", "", "", `{"a":1}`, "data: {\"a\":1}\n\n"},
		{"all", "message", "7", "x", "event: message\nid: 7\ndata: x\n\n"},
		{"primer", "", "7", "", "id: 7\ndata: \n\n"},
		{"lines", "", "", "a\nb\r\nc\rd\n\ne\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \ndata: e\ndata: \n\n"},
		{"LF only", "", "", "a\nb\n", "data: a\ndata: b\ndata: \n\n"},
		{"leading space", "", "", " a", "data:  a\n\n"},
		{"no way out of the fields", "x\ndata: evil", "1\r\n\n\x002", "d", "event: xdata: evil\nid: 12\ndata: d\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wire.AppendEvent([]byte("-"), tt.eventType, tt.id, []byte(tt.data)); string(got) != "-"+tt.want {
				t.Errorf("got %q, want %q", got, "-"+tt.want)
			}
		})
	}
}

func TestAppendComment(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"word", "ping", ": ping\n\n"},
		{"empty", "", ": \n\n"},
		{"lines stay comments", "a\ndata: b\r\rc", ": a\n: data: b\n: \n: c\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := wire.AppendComment([]byte("-"), tt.text)
			if string(got) != "-"+tt.want {
				t.Errorf("got %q, want %q", got, "-"+tt.want)
			}
			if events := readEvents(wire.NewEventReader(bytes.NewReader(got[1:]), 100)); events != nil {
				t.Errorf("read back as events %q", events)
			}
		})
	}
}
