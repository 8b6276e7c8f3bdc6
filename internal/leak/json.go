package leak

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON masks what is found in the strings of a JSON value at any depth, names of members excepted, and adds the
// findings to found. Everything else stays byte by byte; a value in which nothing is found is returned itself. The
// values of members called data and blob are not looked at when skipBinary is set: they hold images and sound.
func (f *Filter) JSON(v jsontext.Value, skipBinary bool, found Counts) jsontext.Value {
	dec := jsontext.NewDecoder(bytes.NewReader(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out []byte
	copied := 0 // of v, into out
	left := MaxText
	binary := false // the value that comes next is one
	for {
		kind := dec.PeekKind()
		if kind != '"' {
			binary = false
			if _, err := dec.ReadToken(); err != nil {
				break // the end: v is one valid value
			}
			continue
		}
		in, n := dec.StackIndex(dec.StackDepth())
		isName := in == '{' && n%2 == 0
		raw, err := dec.ReadValue()
		if err != nil {
			break
		}
		if isName {
			binary = skipBinary && (string(raw) == `"data"` || string(raw) == `"blob"`)
			continue
		}
		if binary {
			binary = false
			continue
		}
		b, _ := jsontext.AppendUnquote(nil, raw) // the error is about half pairs, which become U+FFFD
		text := string(b)
		masked := f.bounded(text, left, found)
		left -= min(left, len(text))
		if masked == text {
			continue
		}
		end := int(dec.InputOffset())
		out = append(out, v[copied:end-len(raw)]...)
		out, _ = jsontext.AppendQuote(out, masked) // the error is about bytes that are not UTF-8
		copied = end
	}
	if copied == 0 {
		return v
	}
	return append(out, v[copied:]...)
}
