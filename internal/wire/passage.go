package wire

import (
	"bytes"
	"errors"
	"slices"
	"unicode/utf8"
)

// Passage reads a response whose result is too large to be held: piece by piece, each of which can be passed on before
// the next one is there. It accepts the messages that Parse accepts, and knows at their end only whether they are; up to
// there every piece is known to be what such a message can begin with.
//
// What is kept of the result is its outline: its members, those that are large with an empty value of their kind. Of
// the content, the URIs are kept that it refers to. Both are bounded.
type Passage struct {
	head    []byte // the message up to its result
	outline []byte // without the closing brace
	failed  bool   // isError: true is in it
	links   []string
	linked  int // bytes of links

	state   passing
	word    string                       // what is left of the one that is being read
	number  numberPart                   // of the one that is being read
	depth   int                          // containers that are open
	objects [(MaxDepth + 63) / 64]uint64 // by level, whether it is an object
	content [linkDepth + 1]bool          // by level, whether a URI there is a link
	last    nameKind                     // of the member that is being read, at whatever level

	name    []byte // of the member of the result that is being read
	value   []byte // of that member, as far as it has been read
	keeping bool   // its value has begun
	large   bool   // and is too large to be kept
}

// passing is what has to come next.
type passing uint8

const (
	wantValue   passing = iota
	wantElement         // a value, or the end of an array that has just begun
	wantMember          // a name, or the end of an object that has just begun
	wantName
	wantColon
	wantNext // a comma, or the end of a container
	inName   // the rest of a name that was not looked at whole
	inString // the same of a value
	inWord
	inNumber
	passed // nothing: the result is over
)

// nameKind tells apart the names that lead to links.
type nameKind uint8

const (
	otherName   nameKind = iota
	linkName             // of a URI
	contentName          // of what holds some
)

const (
	// wholeString is how long a string may be, in bytes, that waits until all of it is there. It is more than the
	// longest URI that is remembered.
	wholeString = 4<<10 + 512
	// maxKept bounds what is kept of one member's value, maxTask what is kept of a task, maxOutline what is kept of all,
	// and maxPassedLinks the URIs, all in bytes.
	maxKept        = 4 << 10
	maxTask        = 32 << 10
	maxOutline     = 64 << 10
	maxPassedLinks = 256 << 10
	// linkDepth is the level of the deepest link, messages[0].content[0].resource.uri.
	linkDepth = 6
)

var errPassage = errors.New("the result is not valid JSON")

// NewPassage begins a Passage with the beginning of a message. ok is false if that is not, as far as can be seen, the
// response to the request with an id, with a result that has begun and is an object; then the message has to be read
// whole. The result begins at head[begin], and Feed goes on behind that byte.
func NewPassage(head []byte, id ID) (p *Passage, begin int, ok bool) {
	if begin, ok = findResult(head); !ok {
		return nil, 0, false
	}
	p = &Passage{head: bytes.Clone(head[:begin]), outline: []byte("{"), depth: 1, state: wantMember}
	p.setObject(true)
	// Many servers write the id, and some the version, after the result.
	for _, rest := range []string{`}`, `,"id":` + string(id) + `}`, `,"jsonrpc":"2.0"}`, `,"jsonrpc":"2.0","id":` + string(id) + `}`} {
		if m, err := Parse(append(append(bytes.Clone(p.head), "{}"...), rest...)); err == nil {
			return p, begin, m.ID == id
		}
	}
	return nil, 0, false
}

// findResult finds the result of a message, if it is an object.
func findResult(d []byte) (begin int, ok bool) {
	i := skipSpace(d, 0)
	if i == len(d) || d[i] != '{' {
		return 0, false
	}
	for {
		i = skipSpace(d, i+1)
		value, ok := skipName(d, i)
		if !ok || value == len(d) {
			return 0, false
		}
		if bytes.HasPrefix(d[i:], []byte(`"result"`)) {
			return value, d[value] == '{'
		}
		end, ok := skipValue(d, value, 0)
		if i = skipSpace(d, end); !ok || i == len(d) || d[i] != ',' {
			return 0, false
		}
	}
}

// Feed looks at the next bytes of the message. The first n of them belong to the result, and done says that it ends with
// them; what is behind them has to be given again with more. If it is not done, that is less than 5 KiB.
func (p *Passage) Feed(d []byte) (n int, done bool, err error) {
	kept := 0 // up to where the value of a member of the result has been kept
	defer func() { p.keep(d[kept:max(kept, n)]) }()
	for i := 0; ; {
		switch p.state {
		case passed:
			return i, true, nil
		case inName, inString:
			end, over, ok := skipPart(d, i)
			if !ok {
				return i, false, errPassage
			}
			if !over {
				return end, false, nil
			}
			i = end
			if p.state == inName {
				p.state = wantColon
			} else {
				p.valueOver(d, &kept, i)
			}
			continue
		case inWord:
			n := min(len(p.word), len(d)-i)
			if string(d[i:i+n]) != p.word[:n] {
				return i, false, errPassage
			}
			i, p.word = i+n, p.word[n:]
			if p.word != "" {
				return i, false, nil
			}
			p.valueOver(d, &kept, i)
			continue
		case inNumber:
			over := false
			for i < len(d) && !over {
				if over = !p.number.next(d[i]); !over {
					i++
				}
			}
			if !over {
				return i, false, nil
			}
			if !p.number.whole() {
				return i, false, errPassage
			}
			p.valueOver(d, &kept, i)
			continue
		}
		if i = skipSpace(d, i); i == len(d) {
			return i, false, nil
		}
		c := d[i]
		switch {
		case c == '}' && (p.state == wantMember || p.state == wantNext && p.inObject()),
			c == ']' && (p.state == wantElement || p.state == wantNext && !p.inObject()):
			i++
			if p.depth--; p.depth == 0 {
				p.state = passed
			} else {
				p.valueOver(d, &kept, i)
			}
		case c == ',' && p.state == wantNext:
			i++
			if p.state = wantValue; p.inObject() {
				p.state = wantName
			}
		case c == ':' && p.state == wantColon:
			i++
			p.state = wantValue
		case c == '"' && (p.state == wantName || p.state == wantMember):
			end, ok := skipString(d, i)
			switch {
			case ok:
				p.named(d[i:end])
				i, p.state = end, wantColon
			case len(d)-i <= wholeString:
				return i, false, nil
			default:
				p.named(longName)
				i, p.state = i+1, inName
			}
		case p.state == wantValue || p.state == wantElement:
			end, ok := skipString(d, i)
			if !ok && c == '"' && len(d)-i <= wholeString {
				return i, false, nil
			}
			if p.depth == 1 {
				p.keeping, p.large, p.value, kept = true, false, p.value[:0], i
			}
			i++
			switch {
			case ok:
				p.link(d[i-1 : end])
				i = end
				p.valueOver(d, &kept, i)
			case c == '"':
				p.state = inString
			case c == '{' || c == '[':
				if !p.open(c == '{') {
					return i, false, errPassage
				}
			case c == 't':
				p.state, p.word = inWord, "rue"
			case c == 'f':
				p.state, p.word = inWord, "alse"
			case c == 'n':
				p.state, p.word = inWord, "ull"
			case p.number.begin(c):
				p.state = inNumber
			default:
				return i, false, errPassage
			}
		default:
			return i, false, errPassage
		}
	}
}

// skipPart skips text within a string. over says that its closing quote was reached; if it was not, what is behind end
// has to be looked at again with more.
func skipPart(d []byte, i int) (end int, over, ok bool) {
	for {
		end, ascii := skipText(d, i)
		if !ascii {
			text := d[i:end]
			if end == len(d) {
				text = text[:len(text)-cutRune(text)]
			}
			if !utf8.Valid(text) {
				return i, false, false
			}
			end = i + len(text)
		}
		switch {
		case end == len(d) || d[end] >= utf8.RuneSelf: // the beginning of a rune
			return end, false, true
		case d[end] == '"':
			return end + 1, true, true
		}
		next, ok := skipEscape(d, end)
		if !ok || next == end {
			return end, false, ok
		}
		i = next
	}
}

// cutRune returns how many bytes at the end of text are the beginning of a rune, and not all of it.
func cutRune(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

func (p *Passage) inObject() bool { return p.objects[p.depth/64]&(1<<(p.depth%64)) != 0 }

func (p *Passage) setObject(is bool) {
	if p.objects[p.depth/64] &^= 1 << (p.depth % 64); is {
		p.objects[p.depth/64] |= 1 << (p.depth % 64)
	}
}

// open opens a container; false if there are too many.
func (p *Passage) open(object bool) bool {
	content := p.depth <= linkDepth && p.content[p.depth] && (!p.inObject() || p.last == contentName)
	if p.depth == 1 {
		content = slices.Contains([]string{`"content"`, `"contents"`, `"messages"`}, string(p.name))
	}
	if p.depth++; p.depth >= MaxDepth {
		return false
	}
	if p.depth <= linkDepth {
		p.content[p.depth] = content
	}
	p.setObject(object)
	if p.state = wantElement; object {
		p.state = wantMember
	}
	return true
}

// longName stands for names that are too long to mean anything.
var longName = []byte(`"…"`)

// named takes the name of a member, with its quotes.
func (p *Passage) named(name []byte) {
	switch string(name) {
	case `"uri"`:
		p.last = linkName
	case `"resource"`, `"content"`:
		p.last = contentName
	default:
		p.last = otherName
	}
	if p.depth == 1 {
		switch {
		case len(name) > wholeString:
			name = longName
		case bytes.IndexByte(name, '\\') >= 0:
			name = AppendString(nil, string(nameText(name))) // what it says decides, not how it is written
		}
		p.name = append(p.name[:0], name...)
	}
}

// link takes a string that is a value.
func (p *Passage) link(v []byte) {
	if p.last != linkName || !p.inObject() || p.depth > linkDepth || !p.content[p.depth] || len(v) > wholeString || p.linked+len(v) > maxPassedLinks {
		return
	}
	if uri, ok := String(v); ok {
		p.links = append(p.links, uri)
		p.linked += len(v)
	}
}

// keep takes more of the value of a member of the result.
func (p *Passage) keep(b []byte) {
	if !p.keeping || p.large {
		return
	}
	most := maxKept
	if string(p.name) == `"task"` {
		most = maxTask
	}
	if len(p.value)+len(b) > most {
		p.large = true
		b = b[:min(1, most-len(p.value))] // what kind of value it is
	}
	p.value = append(p.value, b...)
}

// valueOver takes note that a value has ended before d[i].
func (p *Passage) valueOver(d []byte, kept *int, i int) {
	p.state = wantNext
	if p.depth > 1 {
		return
	}
	p.keep(d[*kept:i])
	*kept, p.keeping = i, false
	fails := string(p.name) == `"isError"` && string(p.value) == "true"
	full := len(p.outline)+len(p.name)+len(p.value) > maxOutline && !slices.Contains(judged, string(p.name)) || len(p.outline) > 2*maxOutline
	if full && (!fails || p.failed) || string(p.name) == string(longName) && bytes.Contains(p.outline, longName) {
		return // of names that are too long, one stands for all
	}
	p.failed = p.failed || fails
	if len(p.outline) > 1 {
		p.outline = append(p.outline, ',')
	}
	p.outline = append(append(p.outline, p.name...), ':')
	switch kind := p.value[0]; {
	case !p.large:
		p.outline = append(p.outline, p.value...)
	case kind == '{':
		p.outline = append(p.outline, "{}"...)
	case kind == '[':
		p.outline = append(p.outline, "[]"...)
	case kind == '"':
		p.outline = append(p.outline, `""`...)
	default:
		p.outline = append(p.outline, '0')
	}
}

// judged are the members that decide what becomes of a result. They are in the outline however long the others make it,
// and isError: true is whatever stands before it.
var judged = []string{`"isError"`, `"resultType"`, `"ttlMs"`, `"cacheScope"`, `"task"`, `"taskId"`}

// End reads what follows the result, which has to be all that is left of the message. It returns the message with the
// outline in place of the result.
func (p *Passage) End(tail []byte) (Message, error) {
	if p.state != passed {
		return Message{}, errPassage
	}
	text := append(append([]byte(nil), p.head...), p.outline...)
	return Parse(append(append(text, '}'), tail...))
}

// Links returns the URIs of links and embedded resources in what was read of the content of the result.
func (p *Passage) Links() []string { return p.links }
