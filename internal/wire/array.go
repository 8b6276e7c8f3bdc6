package wire

import (
	"bytes"
	"errors"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
)

// Elements are the elements of a JSON array, read one by one. They alias v. A value that is no array, or text that
// is not JSON, gives an error as the last pair; names in objects may stand twice, and strings need not be UTF-8.
func Elements(v jsontext.Value) iter.Seq2[jsontext.Value, error] {
	return func(yield func(jsontext.Value, error) bool) {
		if v.Kind() != '[' {
			yield(nil, errors.New("not an array"))
			return
		}
		dec := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if _, err := dec.ReadToken(); err != nil {
			yield(nil, err)
			return
		}
		for dec.PeekKind() != ']' {
			e, err := dec.ReadValue()
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Array returns copies of the elements of a JSON array, or the error that [Elements] ends with and nothing else.
func Array(v jsontext.Value) ([]jsontext.Value, error) {
	var all []jsontext.Value
	for e, err := range Elements(v) {
		if err != nil {
			return nil, err
		}
		all = append(all, e.Clone())
	}
	return all, nil
}
