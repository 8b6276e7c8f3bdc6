package wire

import (
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind says what a message is.
type Kind uint8

// The kinds of a JSON-RPC 2.0 message.
const (
	KindRequest Kind = iota + 1
	KindNotification
	KindResponse
)

// ID is the JSON text of a JSON-RPC id exactly as it stood on the wire: a string with its quotes, or a number.
// It is "" when absent.
type ID string

// Int64 returns the value of an id in plain decimal notation, as AppendRequest writes it. It reports false for
// every other spelling, also for one of the same number.
func (id ID) Int64() (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil || id[0] == '+' || (id[0] == '0' && len(id) > 1) || (id[0] == '-' && id[1] == '0') {
		return 0, false
	}
	return n, true
}

// Message is one JSON-RPC 2.0 message. Params, Result and Error alias the bytes it was parsed from.
type Message struct {
	Kind Kind
	// ID is "" for notifications, and for an error response whose id was null or absent.
	ID     ID
	Method string
	// Params is the text of a JSON object, or nil when absent or null. It is nil for responses.
	Params jsontext.Value
	// Result is any JSON value of a response, or nil.
	Result jsontext.Value
	// Closed is Result and the closing brace of the message, where nothing stands between them; else nil. An answer with
	// the same result can be written from it in one piece.
	Closed []byte
	// Error is the text of an object with an integer code and a string message, or nil.
	Error jsontext.Value
	// Plain says that Result is known to have no member isError with the value true. Where it is not set, that is
	// not known.
	Plain bool
}

// envelope holds the members of a message that JSON-RPC gives a meaning, as they stood; nil when absent.
type envelope struct {
	jsonrpc, id, method, params, result, err jsontext.Value

	plain  bool   // Message.Plain
	closed []byte // Message.Closed
}

// field returns the place of the named member, or nil for a member that is not part of the envelope.
func (e *envelope) field(name []byte) *jsontext.Value {
	switch string(name) {
	case "jsonrpc":
		return &e.jsonrpc
	case "id":
		return &e.id
	case "method":
		return &e.method
	case "params":
		return &e.params
	case "result":
		return &e.result
	case "error":
		return &e.err
	}
	return nil
}

// Parse reads one JSON-RPC 2.0 message from data, which must hold nothing else but white space. Every error is an
// [*Error]. The message aliases data.
func Parse(data []byte) (Message, error) {
	var env envelope
	fault := env.read(data)
	if fault == nil {
		var m Message
		if m, fault = env.message(); fault == nil {
			return m, nil
		}
	}
	if fault.Code != CodeParse {
		fault.ID, _ = env.readID()
	}
	return Message{}, fault
}

// read fills e from data. A fault of the envelope is reported only after the whole text has been read, so that
// malformed JSON is always called that and the id is known wherever it stands.
func (e *envelope) read(data []byte) *Error {
	s := newScanner(data)
	defer s.release()
	switch c := s.first(); {
	case c == '{':
	case !utf8.Valid(data):
		return notUTF8("message")
	case c == '[':
		return refuse(CodeInvalidRequest, "batches are not supported")
	default:
		return notObject(s, CodeInvalidRequest, "message is not an object")
	}
	s.open()
	var fault *Error
	var others nameSet
	for {
		rawName, value, ok, err := s.next()
		if err == errUTF8 {
			return notUTF8("message")
		}
		if err == errDepth {
			return refuse(CodeInvalidRequest, "message is nested deeper than %d levels", MaxDepth)
		}
		if err != nil {
			return syntaxError(err)
		}
		if !ok {
			break
		}
		name := nameText(rawName)
		field := e.field(name)
		switch {
		case field == nil && isEnvelopeAlias(name):
			fault = memberFault(fault, "unknown member", name)
		case field == nil && !others.add(string(name)):
			fault = memberFault(fault, "duplicate member", name)
		case field != nil && *field != nil:
			fault = memberFault(fault, "duplicate member", name)
			if field == &e.id {
				e.id = jsontext.Value("null") // which of the two is meant cannot be known
			}
		case field != nil:
			*field = value
			if field == &e.result {
				e.closed = s.closed(value)
			}
		}
	}
	if s.trailing() {
		return refuse(CodeParse, "data after the message")
	}
	e.plain = s.plain
	return fault
}

func notUTF8(what string) *Error { return refuse(CodeParse, "%s is not valid UTF-8", what) }

// notObject is the refusal of a text that does not start an object: by what it is, if it is JSON at all.
func notObject(s *scanner, code int64, message string) *Error {
	if skipSpace(s.data, 0) == len(s.data) {
		return refuse(CodeParse, "no JSON value")
	}
	s.decode(s.data)
	if _, err := s.dec.ReadValue(); err != nil {
		return syntaxError(err)
	}
	if s.trailing() {
		return refuse(CodeParse, "invalid JSON at byte %d", s.dec.InputOffset())
	}
	return refuse(code, "%s", message)
}

// memberFault keeps the first fault: a message may have many, and words for one are enough.
func memberFault(have *Error, what string, name []byte) *Error {
	if have != nil {
		return have
	}
	return refuse(CodeInvalidRequest, "%s %s", what, quoteName(string(name)))
}

// isEnvelopeAlias reports whether a parser that ignores case would take name for a member of the envelope.
func isEnvelopeAlias(name []byte) bool {
	const longest = 32 // no folding of a known name is longer
	if len(name) > longest {
		return false
	}
	for _, known := range [...]string{"jsonrpc", "id", "method", "params", "result", "error"} {
		if foldsTo(string(name), known) {
			return true
		}
	}
	return false
}

// readID returns the id, or false if it is neither a string nor a number.
func (e *envelope) readID() (ID, bool) {
	switch e.id.Kind() {
	case '"', '0':
		return ID(e.id), true
	}
	return "", false
}

// message judges a complete envelope.
func (e *envelope) message() (Message, *Error) {
	if version, ok := String(e.jsonrpc); !ok || version != "2.0" {
		return Message{}, refuse(CodeInvalidRequest, `jsonrpc must be "2.0"`)
	}
	id, ok := e.readID()
	if !ok && e.id != nil && e.id.Kind() != 'n' {
		return Message{}, refuse(CodeInvalidRequest, "id must be a string or a number")
	}
	if e.method != nil {
		return e.call(id)
	}
	return e.response(id)
}

// call judges a request or a notification.
func (e *envelope) call(id ID) (Message, *Error) {
	if e.result != nil || e.err != nil {
		return Message{}, refuse(CodeInvalidRequest, "message has a method and also a result or an error")
	}
	m := Message{Kind: KindNotification, ID: id}
	if e.id != nil {
		if id == "" {
			return Message{}, refuse(CodeInvalidRequest, "id of a request must not be null")
		}
		m.Kind = KindRequest
	}
	var ok bool
	if m.Method, ok = String(e.method); !ok {
		return Message{}, refuse(CodeInvalidRequest, "method must be a string")
	}
	switch e.params.Kind() {
	case '{':
		m.Params = e.params
	case 'n', jsontext.KindInvalid: // null or absent
	default:
		return Message{}, refuse(CodeInvalidParams, "params must be an object")
	}
	return m, nil
}

// response judges a result or an error.
func (e *envelope) response(id ID) (Message, *Error) {
	switch {
	case e.result != nil && e.err != nil:
		return Message{}, refuse(CodeInvalidRequest, "message has both a result and an error")
	case e.result != nil && id == "":
		return Message{}, refuse(CodeInvalidRequest, "result has no id")
	case e.result != nil:
		return Message{Kind: KindResponse, ID: id, Result: e.result, Closed: e.closed, Plain: e.plain}, nil
	case e.err == nil:
		return Message{}, refuse(CodeInvalidRequest, "message has no method, result or error")
	}
	if _, _, ok := ErrorCode(e.err); !ok {
		return Message{}, refuse(CodeInvalidRequest, "error must be an object with an integer code and a string message")
	}
	return Message{Kind: KindResponse, ID: id, Error: e.err}, nil
}
