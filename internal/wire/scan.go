package wire

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays may nest anywhere in a message; the message itself is the first level.
const MaxDepth = 1000

var (
	errDepth = errors.New("nested too deep")
	errUTF8  = errors.New("not valid UTF-8")
)

// scanner walks the members of one object and slices their texts out of the input.
//
// The decoder reads with duplicate names and invalid UTF-8 allowed, because both are legal in values that only pass:
// the names of the object itself are checked by the callers, and raw bytes that are not UTF-8 are refused
// before it reads, which leaves lone surrogate escapes as the only thing the second option lets through.
//
// Members are found the quick way until something stands in it; then the decoder takes over.
type scanner struct {
	data []byte
	at   int  // behind what was read; not kept once the decoder has taken over
	n    int  // members read
	slow bool // the decoder has taken over
	// plain says that there was a member "result", an object that has no isError: true.
	plain bool
	src   bytes.Buffer
	dec   jsontext.Decoder
	opts  []jsontext.Options
}

var scanners = sync.Pool{New: func() any {
	return &scanner{opts: []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}}
}}

func newScanner(data []byte) *scanner {
	s := scanners.Get().(*scanner)
	s.reset(data)
	return s
}

func (s *scanner) reset(data []byte) {
	s.data, s.at, s.n, s.slow, s.plain = data, 0, 0, false, false
}

// release returns s to the pool without a hold on the caller's bytes.
func (s *scanner) release() {
	if s.slow {
		s.decode(nil)
	}
	s.reset(nil)
	scanners.Put(s)
}

// decode sets the decoder on a text.
func (s *scanner) decode(data []byte) {
	s.src = *bytes.NewBuffer(data) // the decoder works on a buffer's own bytes, without a copy
	s.dec.Reset(&s.src, s.opts...)
	s.slow = true
}

// takeOver has the decoder read what was read already.
func (s *scanner) takeOver() error {
	if !utf8.Valid(s.data) {
		return errUTF8
	}
	s.plain = false
	s.decode(s.data)
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for range s.n {
		if _, _, _, err := s.decoded(); err != nil {
			return err
		}
	}
	return nil
}

// first returns the first byte that is not white space, or 0 for none.
func (s *scanner) first() byte {
	if i := skipSpace(s.data, 0); i < len(s.data) {
		return s.data[i]
	}
	return 0
}

// open reads the object's opening brace, which is the first byte.
func (s *scanner) open() { s.at = skipSpace(s.data, 0) + 1 }

// next reads one member. It reports false after the closing brace. Both slices alias the input.
func (s *scanner) next() (name, value jsontext.Value, ok bool, err error) {
	if !s.slow {
		if name, value, done, ok := s.quick(); ok {
			return name, value, !done, nil
		}
		if err := s.takeOver(); err != nil {
			return nil, nil, false, err
		}
	}
	return s.decoded()
}

// decoded is next as the decoder reads.
func (s *scanner) decoded() (name, value jsontext.Value, ok bool, err error) {
	switch s.dec.PeekKind() {
	case '"':
	default: // the closing brace or an error
		_, err = s.dec.ReadToken()
		return nil, nil, false, err
	}
	if name, err = s.dec.ReadValue(); err != nil {
		return nil, nil, false, err
	}
	value, err = s.value()
	return name, value, err == nil, err
}

// value reads the value that follows a member name.
func (s *scanner) value() (jsontext.Value, error) {
	afterName := int(s.dec.InputOffset())
	switch s.dec.PeekKind() {
	case '{', '[':
	default:
		return s.dec.ReadValue()
	}
	// Token by token, as ReadValue recurses for every level.
	outer := s.dec.StackDepth()
	for {
		if _, err := s.dec.ReadToken(); err != nil {
			return nil, err
		}
		depth := s.dec.StackDepth()
		if depth > MaxDepth {
			return nil, errDepth
		}
		if depth == outer {
			break
		}
	}
	start := afterName + bytes.IndexAny(s.data[afterName:], "{[") // only white space and the colon lie between
	end := int(s.dec.InputOffset())
	return jsontext.Value(s.data[start:end:end]), nil
}

// closed is a value that has just been read, with the brace behind it that closes the object; nil if that is not there.
func (s *scanner) closed(value jsontext.Value) []byte {
	if s.slow || s.at == len(s.data) || s.data[s.at] != '}' {
		return nil
	}
	return s.data[s.at-len(value) : s.at+1 : s.at+1]
}

// trailing reports whether anything but white space follows what was read.
func (s *scanner) trailing() bool {
	at := s.at
	if s.slow {
		at = int(s.dec.InputOffset())
	}
	return skipSpace(s.data, at) < len(s.data)
}

// syntaxError turns an error of the decoder into a refusal that says where and not what.
func syntaxError(err error) *Error {
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return refuse(CodeParse, "invalid JSON at byte %d", syntactic.ByteOffset)
	}
	return refuse(CodeParse, "invalid JSON")
}

// nameText returns the unescaped text of a member name, aliasing raw where nothing is escaped. Lone surrogates
// become U+FFFD, so that names which differ only in those count as duplicates.
func nameText(raw jsontext.Value) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	return unquoteLossy(raw)
}

func unquoteLossy(v jsontext.Value) []byte {
	b, _ := jsontext.AppendUnquote(nil, v) // the error is about the replaced surrogates
	return b
}

// String returns the text of a JSON string. It reports false if v is not one, or if it holds a lone surrogate,
// which has no UTF-8 form: a replacement could make two different names equal.
func String(v jsontext.Value) (string, bool) {
	if len(v) < 2 || v[0] != '"' {
		return "", false
	}
	if text := v[1 : len(v)-1]; v[len(v)-1] == '"' && isPlain(text) {
		return intern(text), true
	}
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return "", false
	}
	return string(b), true
}

// isPlain reports whether the text between the quotes of a JSON string stands for itself.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(text)
}

// nameSet finds duplicate names. A few are compared one by one, which is cheaper than a map.
type nameSet struct {
	few  [16]string
	n    int
	many map[string]struct{}
}

// add reports whether name was not in the set before.
func (s *nameSet) add(name string) bool {
	if s.many == nil {
		for _, have := range s.few[:s.n] {
			if have == name {
				return false
			}
		}
		if s.n < len(s.few) {
			s.few[s.n] = name
			s.n++
			return true
		}
		s.many = make(map[string]struct{}, 4*len(s.few))
		for _, have := range s.few {
			s.many[have] = struct{}{}
		}
	}
	size := len(s.many)
	s.many[name] = struct{}{}
	return len(s.many) > size
}

// foldsTo reports whether name equals known under Unicode simple case folding without being it.
func foldsTo(name, known string) bool {
	return name != known && strings.EqualFold(name, known)
}

// intern returns b as a string, without an allocation for the texts that most messages carry.
func intern(b []byte) string {
	switch string(b) {
	case "2.0":
		return "2.0"
	case "name":
		return "name"
	case "arguments":
		return "arguments"
	case "_meta":
		return "_meta"
	case "uri":
		return "uri"
	case "cursor":
		return "cursor"
	case "code":
		return "code"
	case "message":
		return "message"
	case "data":
		return "data"
	case "content":
		return "content"
	case "structuredContent":
		return "structuredContent"
	case "isError":
		return "isError"
	case "resultType":
		return "resultType"
	case "description":
		return "description"
	case "inputSchema":
		return "inputSchema"
	case "annotations":
		return "annotations"
	case "title":
		return "title"
	case "type":
		return "type"
	case "text":
		return "text"
	case "progressToken":
		return "progressToken"
	case "io.modelcontextprotocol/protocolVersion":
		return "io.modelcontextprotocol/protocolVersion"
	case "io.modelcontextprotocol/clientInfo":
		return "io.modelcontextprotocol/clientInfo"
	case "io.modelcontextprotocol/clientCapabilities":
		return "io.modelcontextprotocol/clientCapabilities"
	case "2026-07-28":
		return "2026-07-28"
	case "tools/call":
		return "tools/call"
	case "tools/list":
		return "tools/list"
	case "ping":
		return "ping"
	case "notifications/progress":
		return "notifications/progress"
	case "notifications/message":
		return "notifications/message"
	}
	return string(b)
}
