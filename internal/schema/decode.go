package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// document is a decoded JSON value.
type document struct {
	root    any
	nodes   int // values in it
	schemas int // those of them that can be schemas: objects and booleans
	bytes   int
}

// maxNumber bounds the text of a number and its exponent: the library computes with exact fractions, and 1e1000000
// is one of a million digits.
const (
	maxNumber   = 400
	maxExponent = 400
)

// decode reads a value into maps, slices, strings and json.Numbers. Its errors complete a sentence that begins with
// what the value is.
func decode(v jsontext.Value) (*document, error) {
	d := &document{bytes: len(v)}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	var err error
	if d.root, err = d.value(dec, 0); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *document) value(dec *jsontext.Decoder, depth int) (any, error) {
	d.nodes++
	if depth > MaxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", MaxDepth)
	}
	switch dec.PeekKind() {
	case '{':
		return d.object(dec, depth)
	case '[':
		return d.array(dec, depth)
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, unreadable(err)
	}
	switch tok.Kind() {
	case '"':
		return tok.String(), nil
	case '0':
		return number(tok.String())
	case 't':
		d.schemas++
		return true, nil
	case 'f':
		d.schemas++
		return false, nil
	}
	return nil, nil
}

func (d *document) object(dec *jsontext.Decoder, depth int) (any, error) {
	if _, err := dec.ReadToken(); err != nil {
		return nil, unreadable(err)
	}
	d.schemas++
	out := make(map[string]any)
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, unreadable(err)
		}
		key := name.String()
		v, err := d.value(dec, depth+1)
		if err != nil {
			return nil, err
		}
		out[key] = v
	}
	_, err := dec.ReadToken()
	return out, unreadable(err)
}

func (d *document) array(dec *jsontext.Decoder, depth int) (any, error) {
	if _, err := dec.ReadToken(); err != nil {
		return nil, unreadable(err)
	}
	out := []any{}
	for dec.PeekKind() != ']' {
		v, err := d.value(dec, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := dec.ReadToken()
	return out, unreadable(err)
}

func number(text string) (any, error) {
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if _, err := fmt.Sscanf(text[i+1:], "%d", &exponent); err != nil {
			exponent = maxExponent + 1
		}
	}
	if len(text) > maxNumber || exponent > maxExponent || exponent < -maxExponent {
		return nil, errors.New("has a number with too many digits")
	}
	return json.Number(text), nil
}

// ErrTwice says that a name stands twice in an object. Readers differ in which of the two they take, so that no check of
// one of them holds for the others.
var ErrTwice = errors.New("has a name that stands twice")

// unreadable words an error of the decoder without anything of the value.
func unreadable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return ErrTwice
	}
	return errors.New("is not JSON that can be read")
}
