package wire_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headgate/headgate/internal/wire"
)

// readLines returns one line for each line or error, up to the end of the stream.
func readLines(r *wire.LineReader) []string {
	var got []string
	for {
		line, err := r.Next()
		var over *wire.OversizeError
		switch {
		case err == io.EOF:
			return got
		case errors.As(err, &over):
			got = append(got, fmt.Sprintf("oversize %d %q %q", over.Size, over.Head, over.Tail))
		case err != nil:
			return append(got, err.Error())
		default:
			got = append(got, fmt.Sprintf("%q", line))
		}
	}
}

func TestLineReader(t *testing.T) {
	// Longer than the reader's chunk.
	long := strings.Repeat("0123456789abcdef", 10_000)
	head, tail := long[:4096], long[len(long)-4096:]
	mid := strings.Repeat("x", 4096) + "y"
	tests := []struct {
		name string
		max  int
		in   string
		want []string
	}{
		{"LF", 10, "a\nb\n", []string{`"a"`, `"b"`}},
		{"CRLF", 10, "a\r\nb\r\n", []string{`"a"`, `"b"`}},
		{"CR is no end", 10, "a\rb\r\r\nc\n", []string{`"a\rb\r"`, `"c"`}},
		{"blank lines", 10, "\n\r\na\n\n", []string{`""`, `""`, `"a"`, `""`}},
		{"last line without end", 10, "a\nb", []string{`"a"`, `"b"`}},
		{"last line ends with CR", 10, "a\nb\r", []string{`"a"`, `"b\r"`}},
		{"empty", 10, "", nil},
		{"at the limit", 3, "abc\nabc\r\nabc", []string{`"abc"`, `"abc"`, `"abc"`}},
		{"above the limit", 3, "abcd\nx\nabcd\r\ny\nabcd", []string{
			`oversize 4 "abcd" "abcd"`, `"x"`, `oversize 4 "abcd" "abcd"`, `"y"`, `oversize 4 "abcd" "abcd"`}},
		{"far above the limit", 3, "abcdefgh\r\nx\n", []string{`oversize 8 "abcdefgh" "abcdefgh"`, `"x"`}},
		{"CR at the limit", 3, "abc\rd\nabc\r", []string{`oversize 5 "abc\rd" "abc\rd"`, `oversize 4 "abc\r" "abc\r"`}},
		{"nothing is allowed", 0, "\na\n\r\n", []string{`""`, `oversize 1 "a" "a"`, `""`}},
		{"long line", 1 << 20, long + "\nx\n" + long + "\r\n", []string{`"` + long + `"`, `"x"`, `"` + long + `"`}},
		{"long last line", 1 << 20, "x\n" + long, []string{`"x"`, `"` + long + `"`}},
		{"long line at the limit", len(long), long + "\r\nx\n" + long + "\n", []string{`"` + long + `"`, `"x"`, `"` + long + `"`}},
		{"long line above the limit", len(long) - 1, long + "\r\nx\n" + long, []string{
			fmt.Sprintf("oversize %d %q %q", len(long), head, tail), `"x"`, fmt.Sprintf("oversize %d %q %q", len(long), head, tail)}},
		{"long line above a small limit", 10, long + "\nx\n", []string{fmt.Sprintf("oversize %d %q %q", len(long), head, tail), `"x"`}},
		{"head and tail overlap", 10, mid + "\r\nx\n", []string{fmt.Sprintf("oversize 4097 %q %q", mid[:4096], mid[1:]), `"x"`}},
		{"head does not hold the end", 10, mid[1:4096] + "\r\nx\n", []string{fmt.Sprintf("oversize 4095 %q %q", mid[1:4096], mid[1:4096]), `"x"`}},
	}
	for _, tt := range tests {
		for _, n := range []int{1, 2, 3, 4095, 4096, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, n), func(t *testing.T) {
				got := readLines(wire.NewLineReader(&chunks{text: []byte(tt.in), n: n}, tt.max))
				if !equalLines(got, tt.want) {
					t.Errorf("got  %s\nwant %s", short(got), short(tt.want))
				}
			})
		}
	}
}

func TestLineReaderErrors(t *testing.T) {
	broken := errors.New("pipe is broken")
	t.Run("unfinished line is lost", func(t *testing.T) {
		r := wire.NewLineReader(&chunks{text: []byte("a\nb"), n: 10, err: broken}, 10)
		if got := readLines(r); !equalLines(got, []string{`"a"`, broken.Error()}) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("in a line above the limit", func(t *testing.T) {
		r := wire.NewLineReader(&chunks{text: []byte("a\nbcdefgh"), n: 10, err: broken}, 2)
		if got := readLines(r); !equalLines(got, []string{`"a"`, broken.Error()}) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("together with data", func(t *testing.T) {
		r := wire.NewLineReader(iotest.DataErrReader(strings.NewReader("a\nb")), 10)
		if got := readLines(r); !equalLines(got, []string{`"a"`, `"b"`}) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("io.EOF again and again", func(t *testing.T) {
		r := wire.NewLineReader(strings.NewReader("a"), 10)
		readLines(r)
		for range 3 {
			if line, err := r.Next(); err != io.EOF || line != nil {
				t.Fatalf("Next = %q, %v, want io.EOF", line, err)
			}
		}
	})
	t.Run("text", func(t *testing.T) {
		_, err := wire.NewLineReader(strings.NewReader("secret\n"), 2).Next()
		if err == nil || err.Error() != "line of 6 bytes is too long" {
			t.Errorf("got %v", err)
		}
	})
}

// A line above the limit must not be collected.
func TestLineReaderMemory(t *testing.T) {
	const limit, size = 100_000, 20 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := wire.NewLineReader(io.LimitReader(endless{}, size), limit).Next()
	runtime.ReadMemStats(&after)
	var over *wire.OversizeError
	if !errors.As(err, &over) || over.Size != size || len(over.Head) != 4096 || len(over.Tail) != 4096 {
		t.Fatalf("Next: %v", err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 10*limit {
		t.Errorf("%d bytes were allocated for a limit of %d", allocated, limit)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
