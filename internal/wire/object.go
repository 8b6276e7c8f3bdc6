package wire

import (
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Member is one member of an [Object].
type Member struct {
	// Name is the unescaped name. Lone surrogates in it are U+FFFD.
	Name string
	// Raw is the JSON text of the name, with its quotes.
	Raw jsontext.Value
	// Value is the JSON text of the value, without surrounding white space.
	Value jsontext.Value
}

// Object is a shallow view of one JSON object: its members in order, each name once. Raw and Value alias the text
// that was parsed.
type Object []Member

// ParseObject reads one JSON object. It refuses other values, a name that stands twice (however it is escaped) and
// trailing data; nested values are checked for syntax and for MaxDepth only. Every error is an [*Error], with
// CodeParse for text that is not JSON and CodeInvalidParams otherwise.
func ParseObject(v jsontext.Value) (Object, error) {
	s := newScanner(v)
	defer s.release()
	switch c := s.first(); {
	case c == '{':
	case !utf8.Valid(v):
		return nil, notUTF8("object")
	case c == '[':
		return nil, refuse(CodeInvalidParams, "value is not an object")
	default:
		return nil, notObject(s, CodeInvalidParams, "value is not an object")
	}
	s.open()
	o := make(Object, 0, 8)
	var names nameSet
	for {
		rawName, value, ok, err := s.next()
		if err == errUTF8 {
			return nil, notUTF8("object")
		}
		if err == errDepth {
			return nil, refuse(CodeInvalidParams, "object is nested deeper than %d levels", MaxDepth)
		}
		if err != nil {
			return nil, syntaxError(err)
		}
		if !ok {
			break
		}
		name := intern(nameText(rawName))
		if !names.add(name) {
			return nil, refuse(CodeInvalidParams, "duplicate member %s", quoteName(name))
		}
		o = append(o, Member{Name: name, Raw: rawName, Value: value})
	}
	if s.trailing() {
		return nil, refuse(CodeParse, "data after the object")
	}
	return o, nil
}

// Get returns the value of the member with exactly this name.
func (o Object) Get(name string) (jsontext.Value, bool) {
	for i := range o {
		if o[i].Name == name {
			return o[i].Value, true
		}
	}
	return nil, false
}

// Alias returns the first member name that equals one of names under Unicode simple case folding without being that
// name exactly ("Name", "paramſ"), or "". A parser that ignores case could take such a member for the real one.
func (o Object) Alias(names ...string) string {
	for i := range o {
		for _, name := range names {
			if foldsTo(o[i].Name, name) {
				return o[i].Name
			}
		}
	}
	return ""
}

// Edit is a change to one member of an [Object]. A nil or empty Value removes the member.
type Edit struct {
	Name  string
	Value jsontext.Value
}

// Append writes the object to dst and returns the extended slice. Edited members keep their place and their name
// text, edits of absent members come at the end in order, and every other member is written verbatim. Of several
// edits of one name the last counts.
func (o Object) Append(dst []byte, edits ...Edit) []byte {
	dst = append(dst, '{')
	empty := len(dst)
	for i := range o {
		value := o[i].Value
		if e := lastEdit(edits, o[i].Name); e >= 0 {
			value = edits[e].Value
		}
		if len(value) == 0 {
			continue
		}
		dst = append(separate(dst, empty), o[i].Raw...)
		dst = append(append(dst, ':'), value...)
	}
	for i, e := range edits {
		if _, present := o.Get(e.Name); present || len(e.Value) == 0 || lastEdit(edits, e.Name) != i {
			continue
		}
		dst = AppendString(separate(dst, empty), e.Name)
		dst = append(append(dst, ':'), e.Value...)
	}
	return append(dst, '}')
}

// separate puts a comma before every member but the first.
func separate(dst []byte, empty int) []byte {
	if len(dst) == empty {
		return dst
	}
	return append(dst, ',')
}

func lastEdit(edits []Edit, name string) int {
	for i := len(edits) - 1; i >= 0; i-- {
		if edits[i].Name == name {
			return i
		}
	}
	return -1
}
