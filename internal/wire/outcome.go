package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// ToolError reports whether the result of a tools/call says isError: true. Only results that may hold the word with
// the value are parsed. Where the name stands twice, one that says true is enough: most readers take the last, some the
// first, and what fails for some of them is no success.
func ToolError(result jsontext.Value) bool {
	// A letter of the name may be written as \u00 and two more digits.
	if !saysTrue(result) && !bytes.Contains(result, []byte(`\u00`)) {
		return false
	}
	if obj, err := ParseObject(result); err == nil {
		flag, _ := obj.Get("isError")
		return flag.Kind() == 't'
	}
	dec := jsontext.NewDecoder(bytes.NewReader(result), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return false
		}
		says := name.String() == "isError"
		value, err := dec.ReadValue()
		if err != nil {
			return false
		}
		if says && value.Kind() == 't' {
			return true
		}
	}
	return false
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
