package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// This file finds where JSON values end without making tokens of them, eight bytes at a time within strings. It
// accepts what the decoder accepts and nothing else, which the tests hold; what it does not accept is given to the
// decoder, whose verdict and whose words count. On a result of 1 MB it takes a tenth of the decoder's time.

// quick reads the next member; done says that it was the closing brace instead. ok is false for what the decoder
// has to judge.
func (s *scanner) quick() (name, value jsontext.Value, done, ok bool) {
	d := s.data
	i := skipSpace(d, s.at)
	if i < len(d) && d[i] == '}' {
		s.at = i + 1
		return nil, nil, true, true
	}
	if s.n > 0 {
		if i == len(d) || d[i] != ',' {
			return nil, nil, false, false
		}
		i = skipSpace(d, i+1)
	}
	afterName, ok := skipString(d, i)
	if !ok {
		return nil, nil, false, false
	}
	colon := skipSpace(d, afterName)
	if colon == len(d) || d[colon] != ':' {
		return nil, nil, false, false
	}
	start := skipSpace(d, colon+1)
	var end int
	if start < len(d) && d[start] == '{' && string(d[i:afterName]) == `"result"` {
		end, s.plain, ok = skipResult(d, start)
	} else {
		end, ok = skipValue(d, start, 0)
	}
	if !ok {
		return nil, nil, false, false
	}
	s.at = end
	s.n++
	return d[i:afterName:afterName], d[start:end:end], false, true
}

// skipResult is skipValue of an object at i in an object of the first level. plain says that it has no member
// isError with the value true: most results have none, and need not be searched for it again.
func skipResult(d []byte, i int) (end int, plain, ok bool) {
	plain = true
	i = skipSpace(d, i+1)
	if i < len(d) && d[i] == '}' {
		return i + 1, plain, true
	}
	for {
		value, ok := skipName(d, i)
		if !ok {
			return 0, false, false
		}
		end, ok := skipValue(d, value, 1)
		if !ok {
			return 0, false, false
		}
		name := d[i:value]
		if d[value] == 't' && bytes.HasPrefix(name, []byte(`"isError"`)) || bytes.IndexByte(name, '\\') >= 0 {
			plain = false // or it has, and its name is written in another way
		}
		if i = skipSpace(d, end); i == len(d) {
			return 0, false, false
		}
		switch d[i] {
		case ',':
			i = skipSpace(d, i+1)
		case '}':
			return i + 1, plain, true
		default:
			return 0, false, false
		}
	}
}

// skipValue returns the end of the value that begins at i, in a container that is levels below the first. It reports
// false for what is no value, or nested too deep.
func skipValue(d []byte, i, levels int) (end int, ok bool) {
	var (
		objects [(MaxDepth + 63) / 64]uint64 // by level, whether it is an object
		depth   = 0                          // within the value
	)
	inObject := func() bool { return objects[depth/64]&(1<<(depth%64)) != 0 }
	for {
		// A value begins at i.
		if i >= len(d) {
			return 0, false
		}
		ok = true
		switch c := d[i]; c {
		case '{', '[':
			if depth++; depth+levels >= MaxDepth {
				return 0, false
			}
			i = skipSpace(d, i+1)
			if c == '{' {
				objects[depth/64] |= 1 << (depth % 64)
				if i < len(d) && d[i] == '}' {
					break
				}
				if i, ok = skipName(d, i); !ok {
					return 0, false
				}
				continue
			}
			objects[depth/64] &^= 1 << (depth % 64)
			if i < len(d) && d[i] == ']' {
				break
			}
			continue
		case '"':
			i, ok = skipString(d, i)
		case 't':
			i, ok = skipWord(d, i, "true")
		case 'f':
			i, ok = skipWord(d, i, "false")
		case 'n':
			i, ok = skipWord(d, i, "null")
		default:
			i, ok = skipNumber(d, i)
		}
		if !ok {
			return 0, false
		}
		// After a value, or at the end of an empty container.
		for {
			if depth == 0 {
				return i, true
			}
			i = skipSpace(d, i)
			if i >= len(d) {
				return 0, false
			}
			c, object := d[i], inObject()
			i++
			if c == ',' {
				break
			}
			if object && c != '}' || !object && c != ']' {
				return 0, false
			}
			depth--
		}
		i = skipSpace(d, i)
		if inObject() {
			if i, ok = skipName(d, i); !ok {
				return 0, false
			}
		}
	}
}

// skipName skips the name of a member and its colon.
func skipName(d []byte, i int) (value int, ok bool) {
	if i, ok = skipString(d, i); !ok {
		return 0, false
	}
	if i = skipSpace(d, i); i == len(d) || d[i] != ':' {
		return 0, false
	}
	return skipSpace(d, i+1), true
}

func skipSpace(d []byte, i int) int {
	for i < len(d) && (d[i] == ' ' || d[i] == '\n' || d[i] == '\r' || d[i] == '\t') {
		i++
	}
	return i
}

const (
	low  = 0x0101010101010101
	high = 0x8080808080808080
)

// stops marks the bytes of x that end plain text. A bit flipped, the quote is the least character that is none of
// the control characters, so that one subtraction finds both.
func stops(x uint64) uint64 {
	quote, back := x^(2*low), x^('\\'*low)
	return ((quote - ('"'-1)*low) | (back - low)) &^ x
}

// skipText returns the end of the text at i that neither a quote, a backslash nor a control character interrupts, and
// whether all of it is ASCII.
func skipText(d []byte, i int) (end int, ascii bool) {
	all := uint64(0) // has a high bit if there is a byte beyond ASCII
	// Eight bytes at once: the high bit of each byte that is an interruption ends up set in stop, and so may those
	// above the lowest that is. What goes on for longer is long, and 32 bytes in one turn take half the time of four
	// times 8.
	for n := 1; i+8 <= len(d); n++ {
		x := binary.LittleEndian.Uint64(d[i:])
		all |= x
		if stop := stops(x) & high; stop != 0 {
			return i + bits.TrailingZeros64(stop)/8, all&high == 0
		}
		i += 8
		for ; n == 4 && i+32 <= len(d); i += 32 {
			x0, x1 := binary.LittleEndian.Uint64(d[i:]), binary.LittleEndian.Uint64(d[i+8:])
			x2, x3 := binary.LittleEndian.Uint64(d[i+16:]), binary.LittleEndian.Uint64(d[i+24:])
			if (stops(x0)|stops(x1)|stops(x2)|stops(x3))&high != 0 {
				break
			}
			all |= x0 | x1 | x2 | x3
		}
	}
	for ; i < len(d) && d[i] >= ' ' && d[i] != '"' && d[i] != '\\'; i++ {
		all |= uint64(d[i])
	}
	return i, all&high == 0
}

// skipString skips the string whose opening quote is at i.
func skipString(d []byte, i int) (end int, ok bool) {
	if i >= len(d) || d[i] != '"' {
		return 0, false
	}
	i++
	start, ascii := i, true
	for {
		end, plain := skipText(d, i)
		ascii = ascii && plain
		if end == len(d) {
			return 0, false
		}
		if d[end] == '"' {
			return end + 1, ascii || utf8.Valid(d[start:end])
		}
		if i, ok = skipEscape(d, end); !ok || i == end {
			return 0, false
		}
	}
}

// skipEscape skips the escape at i. end is i if there is not all of it, and ok is false if it is none.
func skipEscape(d []byte, i int) (end int, ok bool) {
	if d[i] != '\\' {
		return i, false // a control character
	}
	if i+1 == len(d) {
		return i, true
	}
	switch d[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, true
	case 'u':
	default:
		return i, false
	}
	for _, c := range d[i+2 : min(i+6, len(d))] {
		if !isHex(c) {
			return i, false
		}
	}
	if i+6 > len(d) {
		return i, true
	}
	return i + 6, true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func skipWord(d []byte, i int, word string) (end int, ok bool) {
	end = i + len(word)
	return end, end <= len(d) && string(d[i:end]) == word
}

func skipNumber(d []byte, i int) (end int, ok bool) {
	digits := func() bool {
		start := i
		for i < len(d) && '0' <= d[i] && d[i] <= '9' {
			i++
		}
		return i > start
	}
	if d[i] == '-' {
		i++
	}
	if i < len(d) && d[i] == '0' {
		i++
	} else if !digits() {
		return 0, false
	}
	if i < len(d) && d[i] == '.' {
		i++
		if !digits() {
			return 0, false
		}
	}
	if i < len(d) && d[i]|0x20 == 'e' {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		if !digits() {
			return 0, false
		}
	}
	return i, true
}
