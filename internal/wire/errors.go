package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The JSON-RPC 2.0 error codes (section 5.1) and the codes of MCP 2026-07-28, "Error Codes". CodeResourceNotFound
// is the code that revisions up to 2025-11-25 give for an unknown resource.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603

	CodeHeaderMismatch          = -32020
	CodeMissingClientCapability = -32021
	CodeUnsupportedVersion      = -32022
	CodeResourceNotFound        = -32002
)

// Error is a refusal of bytes that are not a legal message or object.
type Error struct {
	// Code is CodeParse, CodeInvalidRequest or CodeInvalidParams.
	Code int64
	// Message is safe to show to the peer: of its input it repeats at most one quoted member name.
	Message string
	// ID is the id of the refused message where it could be read. It is "" whenever Code is CodeParse,
	// because JSON-RPC answers those with a null id.
	ID ID
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Bare words an error for a log: without the member name that an [Error] in its chain repeats, which is the peer's.
func Bare(err error) string {
	text := err.Error()
	var e *Error
	if errors.As(err, &e) {
		plain, _, _ := strings.Cut(e.Message, ` "`)
		text = strings.ReplaceAll(text, e.Message, plain)
	}
	return text
}

// maxQuotedName is how many characters of a member name an error message repeats.
const maxQuotedName = 64

func quoteName(name string) string {
	runes := 0
	for i := range name {
		if runes == maxQuotedName {
			name = name[:i]
			break
		}
		runes++
	}
	return strconv.Quote(name)
}

func refuse(code int64, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrorObject returns the JSON text of a JSON-RPC error object. A nil data is left out.
func ErrorObject(code int64, message string, data jsontext.Value) jsontext.Value {
	b := make([]byte, 0, len(`{"code":,"message":"","data":}`)+20+len(message)+len(data))
	b = append(b, `{"code":`...)
	b = strconv.AppendInt(b, code, 10)
	b = append(b, `,"message":`...)
	b = AppendString(b, message)
	if len(data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, data...)
	}
	return append(b, '}')
}

// ErrorCode reads the code and the message of a JSON-RPC error object. It reports false unless errObj is an
// object with an integral number code that fits an int64 and a string message. Lone surrogates in the message
// come out as U+FFFD.
func ErrorCode(errObj jsontext.Value) (code int64, message string, ok bool) {
	o, err := ParseObject(errObj)
	if err != nil {
		return 0, "", false
	}
	c, _ := o.Get("code")
	m, _ := o.Get("message")
	if code, ok = integer(c); !ok || m.Kind() != '"' {
		return 0, "", false
	}
	return code, string(unquoteLossy(m)), true
}

// integer returns the value of a JSON number without a fractional part, however it is spelt: 7, 7.0 and 70e-1
// are the same integer. It works on the digits, because a float64 would round.
func integer(num jsontext.Value) (int64, bool) {
	if num.Kind() != '0' {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(num), 10, 64); err == nil {
		return n, true
	}
	mantissa, negative := bytes.CutPrefix(num, []byte("-"))
	exp := 0
	if i := bytes.IndexAny(mantissa, "eE"); i >= 0 {
		n, err := strconv.Atoi(string(mantissa[i+1:]))
		if err != nil {
			return 0, false
		}
		mantissa, exp = mantissa[:i], n
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(bytes.Clone(whole), fraction...)
	digits, zeros := bytes.TrimRight(digits, "0"), len(digits)
	zeros -= len(digits)
	digits = bytes.TrimLeft(digits, "0")
	if len(digits) == 0 {
		return 0, true
	}
	// The value is digits × 10^scale, and its last digit is not zero.
	scale := zeros - len(fraction) + exp
	const maxDigits = 19 // of an int64
	if scale < 0 || scale > maxDigits || len(digits)+scale > maxDigits {
		return 0, false
	}
	digits = append(digits, bytes.Repeat([]byte("0"), scale)...)
	if negative {
		digits = append([]byte("-"), digits...)
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}
