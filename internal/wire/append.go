package wire

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendRequest writes a request to dst. A nil params is left out.
func AppendRequest(dst []byte, id int64, method string, params jsontext.Value) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendInt(dst, id, 10)
	return appendCall(dst, method, params)
}

// AppendOwnRequest writes a request with an id of any form to dst. A nil params is left out.
func AppendOwnRequest(dst []byte, id ID, method string, params jsontext.Value) []byte {
	return appendCall(appendID(dst, id), method, params)
}

// AppendNotification writes a notification to dst. A nil params is left out.
func AppendNotification(dst []byte, method string, params jsontext.Value) []byte {
	return appendCall(append(dst, `{"jsonrpc":"2.0"`...), method, params)
}

func appendCall(dst []byte, method string, params jsontext.Value) []byte {
	dst = append(dst, `,"method":`...)
	dst = AppendString(dst, method)
	if len(params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// AppendResult writes a result response to dst, with id and result verbatim. An empty result is written as {}.
func AppendResult(dst []byte, id ID, result jsontext.Value) []byte {
	dst = append(appendID(dst, id), `,"result":`...)
	if len(result) == 0 {
		return append(dst, "{}}"...)
	}
	return append(append(dst, result...), '}')
}

// ResultParts is AppendResult in three parts that follow one another, the middle one being result itself: a large
// result need not be copied to be sent. An empty result is {}.
func ResultParts(id ID, result jsontext.Value) [3][]byte {
	if len(result) == 0 {
		result = jsontext.Value("{}")
	}
	return [3][]byte{append(appendID(make([]byte, 0, len(id)+40), id), `,"result":`...), result, []byte("}")}
}

// AppendError writes an error response to dst, with id and error object verbatim. With an id of ""
// there is no id member: the error is of a message whose id could not be read (2026-07-28, basic, "Error Responses").
func AppendError(dst []byte, id ID, errObj jsontext.Value) []byte {
	dst = append(appendID(dst, id), `,"error":`...)
	return append(append(dst, errObj...), '}')
}

func appendID(dst []byte, id ID) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id == "" {
		return dst
	}
	return append(append(dst, `,"id":`...), id...)
}

// AppendString writes s to dst as a JSON string. Bytes that are not UTF-8 become U+FFFD; nothing is escaped that
// JSON does not require.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error is about the replaced bytes
	return dst
}

// OneLine returns b with CR and LF replaced by spaces, which changes nothing but white space if b is JSON. It returns
// b itself if there is neither, else a copy.
func OneLine(b []byte) []byte {
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 {
		return b
	}
	line := bytes.Clone(b)
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	return line
}
