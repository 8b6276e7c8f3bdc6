package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/wire"
)

// readOpen returns the data of every event of a stream. Those above over bytes are read piece by piece; take says, of
// each, how much: all of it, nothing (it is asked for whole), or only a little (the rest is passed over).
func readOpen(r *wire.EventReader, over int, take func(n int) string) (got []string, opened int) {
	for n := 0; ; n++ {
		e, err := r.NextOver(over)
		if err == io.EOF {
			return got, opened
		}
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		data := string(e.Data)
		if !e.Open {
			got = append(got, data)
			continue
		}
		opened++
		switch take(n) {
		case "whole":
			if e, err = r.Next(); err == io.EOF {
				return got, opened
			}
			data = fmt.Sprint(err)
			if err == nil {
				data = string(e.Data)
			}
		case "little":
			b := make([]byte, 3)
			_, _ = io.ReadAtLeast(r, b, 3)
			data = "little"
		default:
			rest, err := io.ReadAll(r)
			switch {
			case errors.Is(err, io.ErrUnexpectedEOF):
				return got, opened
			case err != nil && strings.Contains(err.Error(), "type"):
			case err != nil:
				data = err.Error()
			}
			data += string(rest)
		}
		got = append(got, data)
	}
}

func TestOpenEvents(t *testing.T) {
	big := strings.Repeat("0123456789", 600)
	for _, text := range []string{
		"data: " + big + "\n\ndata: small\n\n", "\ufeffdata:" + big + "\r\n\r\nevent: x\ndata: " + big + "\n\n", "data: " + big + "\rdata: " + big + "\r\rdata: x\r\r",
		"id: 1\ndata: {\ndata:   \"a\": \"" + big + "\"\ndata\ndata:\n: comment\nid: 2\ndata: }\n\ndata: x\n\n", strings.Repeat("data: 0123456789\n", 700) + "\ndata: x\n\n",
		"data: " + big + "\nevent: late\n\ndata: x\n\n", "data: " + big + "\n", "data: " + big, "data: " + big + "\nda", "data: x\n\ndata: " + big + "\ndata:", ": " + big + "\n\nfoo: " + big + "\ndata: a\n\n",
	} {
		for _, n := range []int{1, 2, 7, 1000, 1 << 20} {
			for _, over := range []int{10, 4500, 5999, 6000, 1 << 20} {
				reader := func() *wire.EventReader { return wire.NewEventReader(&chunks{text: []byte(text), n: n}, 1<<20) }
				want, _ := readOpen(reader(), 0, nil)
				for _, how := range []string{"all", "whole"} {
					got, opened := readOpen(reader(), over, func(int) string { return how })
					if !equalLines(got, want) {
						t.Fatalf("%.30q by %d, over %d, %s: got %s\nwant %s", text, n, over, how, short(got), short(want))
					}
					if over == 10 && opened == 0 && len(want) > 1 && len(want[0]) > 1000 {
						t.Errorf("%.30q by %d: nothing was open", text, n)
					}
				}
				got, _ := readOpen(reader(), over, func(int) string { return "little" })
				for i := range got {
					if got[i] != "little" && got[i] != want[i] {
						t.Fatalf("%.30q by %d, over %d: after an event that was passed over comes %s", text, n, over, short(got))
					}
				}
			}
		}
	}
	r := wire.NewEventReader(strings.NewReader("data: x\n\n"), 100)
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("nothing is open: %d %v", n, err)
	}
	r = wire.NewEventReader(strings.NewReader("data: 0123456789\n"+strings.Repeat("x", 1000)+"\n\n"), 100)
	if _, err := r.NextOver(5); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, wire.ErrEventTooLarge) && err != nil {
		t.Errorf("a long line of another field: %v", err)
	}
}

// TestOpenEventIsNotHeld: of an event that is read piece by piece no more than a buffer is held.
func TestOpenEventIsNotHeld(t *testing.T) {
	const size = 64 << 20
	r := wire.NewEventReader(io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeros{}, size), strings.NewReader("\n\n")), 1<<20)
	e, err := r.NextOver(100_000)
	if err != nil || !e.Open {
		t.Fatalf("%v %v", e, err)
	}
	n := len(e.Data)
	piece := make([]byte, 64<<10)
	allocated := testing.AllocsPerRun(1, func() {
		for {
			k, err := r.Read(piece)
			n += k
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != size || allocated > 20 {
		t.Errorf("%d bytes, %g allocations", n, allocated)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte("0"), len(p)))
	return len(p), nil
}

func FuzzOpenEvents(f *testing.F) {
	for _, seed := range []string{"data: 0123456789\n\ndata: x\n\n", "data: 01234\r\ndata: 56789\r\nid: 1\r\n\r\n", "event: x\ndata: 0123456789\nevent: y\n\n", "data:\ndata: 0123456\ndata\n\n"} {
		f.Add([]byte(seed), uint8(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, n, over uint8) {
		reader := func() *wire.EventReader { return wire.NewEventReader(&chunks{text: text, n: int(n)%16 + 1}, 1<<20) }
		want, _ := readOpen(reader(), 0, nil)
		for _, how := range []string{"all", "whole"} {
			if got, _ := readOpen(reader(), int(over)+1, func(int) string { return how }); !equalLines(got, want) {
				t.Fatalf("%q, over %d, %s: got %q, want %q", text, int(over)+1, how, got, want)
			}
		}
	})
}

// TestReadFillsUp: what has come of an event is read at once, however many lines it is in.
func TestReadFillsUp(t *testing.T) {
	const over = 256 << 10
	text := "data: " + strings.Repeat("x", 2*over) + strings.Repeat("\ndata: 1", 50_000) + "\n\n"
	r := wire.NewEventReader(strings.NewReader(text), 1<<20)
	e, err := r.NextOver(over)
	if err != nil || !e.Open {
		t.Fatalf("%+v, %v", e, err)
	}
	got, reads := len(e.Data), 0
	for p := make([]byte, 32<<10); err == nil; reads++ {
		var n int
		n, err = r.Read(p)
		got += n
	}
	if want := 2*over + 2*50_000; err != io.EOF || got != want || reads > 30 {
		t.Errorf("%d bytes in %d reads, %v, want %d", got, reads, err, want)
	}
}
