package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// ToolError reports whether the result of a tools/call says isError: true. Only results that hold the word with the
// value are parsed. A result in which a name stands twice says nothing that anybody could rely on.
func ToolError(result jsontext.Value) bool {
	if !saysTrue(result) {
		return false
	}
	obj, err := ParseObject(result)
	if err != nil {
		return false
	}
	flag, _ := obj.Get("isError")
	return flag.Kind() == 't'
}

// saysTrue reports whether the text "isError": true stands anywhere.
func saysTrue(b []byte) bool {
	const space = " \t\r\n"
	for {
		_, after, found := bytes.Cut(b, []byte(`"isError"`))
		if !found {
			return false
		}
		b = after
		value, colon := bytes.CutPrefix(bytes.TrimLeft(b, space), []byte(":"))
		if colon && bytes.HasPrefix(bytes.TrimLeft(value, space), []byte("true")) {
			return true
		}
	}
}
