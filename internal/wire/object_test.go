package wire_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

func mustObject(t *testing.T, text string) wire.Object {
	t.Helper()
	o, err := wire.ParseObject(jsontext.Value(text))
	if err != nil {
		t.Fatalf("ParseObject(%s): %v", text, err)
	}
	return o
}

func TestParseObject(t *testing.T) {
	o := mustObject(t, ` { "name" : "a\u0062" , "\u0061rguments":{"x":1,"x":2}, "_meta":{ } ,"n":1e2, "l":[ 1 ], "\ud83d":null} `)
	want := []struct{ name, raw, value string }{
		{"name", `"name"`, `"a\u0062"`},
		{"arguments", `"\u0061rguments"`, `{"x":1,"x":2}`},
		{"_meta", `"_meta"`, `{ }`},
		{"n", `"n"`, `1e2`},
		{"l", `"l"`, `[ 1 ]`},
		{"\ufffd", `"\ud83d"`, `null`},
	}
	if len(o) != len(want) {
		t.Fatalf("got %d members, want %d", len(o), len(want))
	}
	for i, w := range want {
		if o[i].Name != w.name || string(o[i].Raw) != w.raw || string(o[i].Value) != w.value {
			t.Errorf("member %d: got %q %s %s, want %q %s %s", i, o[i].Name, o[i].Raw, o[i].Value, w.name, w.raw, w.value)
		}
		if v, ok := o.Get(w.name); !ok || string(v) != w.value {
			t.Errorf("Get(%q) = %s, %t", w.name, v, ok)
		}
	}
	if v, ok := o.Get("Name"); ok || v != nil {
		t.Errorf("Get(\"Name\") = %s, %t, want nothing", v, ok)
	}
	if empty := mustObject(t, `{}`); empty == nil || len(empty) != 0 {
		t.Errorf("ParseObject({}) = %#v, want an empty object", empty)
	}
}

func TestParseObjectRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		code     int64
		message  string
	}{
		{"nil", ``, wire.CodeParse, "no JSON value"},
		{"array", `[]`, wire.CodeInvalidParams, "value is not an object"},
		{"null", `null`, wire.CodeInvalidParams, "value is not an object"},
		{"string", `"{}"`, wire.CodeInvalidParams, "value is not an object"},
		{"duplicate", `{"a":1,"b":2,"a":3}`, wire.CodeInvalidParams, `duplicate member "a"`},
		{"escaped duplicate", `{"a":1,"\u0061":3}`, wire.CodeInvalidParams, `duplicate member "a"`},
		{"surrogates that look alike once replaced", `{"\ud83d":1,"\ud83e":3}`, wire.CodeInvalidParams, `duplicate member "�"`},
		{"duplicate of many", `{` + manyMembers(30) + `,"m29":1}`, wire.CodeInvalidParams, `duplicate member "m29"`},
		{"duplicate of the first of many", `{` + manyMembers(30) + `,"m00":1}`, wire.CodeInvalidParams, `duplicate member "m00"`},
		{"duplicate empty name", `{"":1,"":2}`, wire.CodeInvalidParams, `duplicate member ""`},
		{"trailing data", `{} {}`, wire.CodeParse, "data after the object"},
		{"cut off", `{"a":`, wire.CodeParse, "invalid JSON at byte 5"},
		{"syntax error in a nested value", `{"a":{"b":[1,]}}`, wire.CodeParse, "invalid JSON at byte 12"},
		{"invalid UTF-8", "{\"a\":\"\xc0\xaf\"}", wire.CodeParse, "object is not valid UTF-8"},
		{"too deep", `{"a":` + nested(wire.MaxDepth) + `}`, wire.CodeInvalidParams, "object is nested deeper than 1000 levels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := wire.ParseObject(jsontext.Value(tt.in))
			var refusal *wire.Error
			if !errors.As(err, &refusal) || o != nil {
				t.Fatalf("ParseObject = %v, %v, want a *wire.Error", o, err)
			}
			if refusal.Code != tt.code || refusal.Message != tt.message {
				t.Errorf("got %d %s, want %d %s", refusal.Code, refusal.Message, tt.code, tt.message)
			}
		})
	}
}

func TestObjectManyMembers(t *testing.T) {
	o := mustObject(t, `{`+manyMembers(100)+`}`)
	if len(o) != 100 || o[99].Name != "m99" {
		t.Fatalf("got %d members", len(o))
	}
}

func TestObjectAlias(t *testing.T) {
	tests := []struct {
		name, in string
		names    []string
		want     string
	}{
		{"none", `{"name":1,"arguments":2}`, []string{"name", "arguments"}, ""},
		{"other case", `{"x":0,"Name":1}`, []string{"name"}, "Name"},
		{"beside the real one", `{"name":0,"NAME":1}`, []string{"name"}, "NAME"},
		{"long s", `{"paramſ":0}`, []string{"name", "params"}, "paramſ"},
		{"kelvin sign", `{"to\u212aen":0}`, []string{"token"}, "to\u212aen"},
		{"first member wins", `{"URI":0,"Name":0}`, []string{"name", "uri"}, "URI"},
		{"full folding does not count", `{"ß":0}`, []string{"ss"}, ""},
		{"prefix does not count", `{"Names":0}`, []string{"name"}, ""},
		{"exact for one, alias for another", `{"name":0}`, []string{"Name"}, "name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mustObject(t, tt.in).Alias(tt.names...); got != tt.want {
				t.Errorf("Alias = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestObjectAppend(t *testing.T) {
	v := func(s string) jsontext.Value { return jsontext.Value(s) }
	tests := []struct {
		name, in string
		edits    []wire.Edit
		want     string
	}{
		{"no edits", ` { "a" : 1 , "\u0062":{ "c" : 1.0 } } `, nil, `{"a":1,"\u0062":{ "c" : 1.0 }}`},
		{"empty", `{ }`, nil, `{}`},
		{"replace keeps place and name text", `{"a":1,"\u0062":2,"c":3}`, []wire.Edit{{"b", v(`"x"`)}}, `{"a":1,"\u0062":"x","c":3}`},
		{"remove first", `{"a":1,"b":2}`, []wire.Edit{{"a", nil}}, `{"b":2}`},
		{"remove last", `{"a":1,"b":2}`, []wire.Edit{{"b", nil}}, `{"a":1}`},
		{"remove all", `{"a":1,"b":2}`, []wire.Edit{{"b", nil}, {"a", nil}}, `{}`},
		{"remove absent", `{"a":1}`, []wire.Edit{{"z", nil}}, `{"a":1}`},
		{"add in order", `{"a":1}`, []wire.Edit{{"z", v(`1`)}, {"b\n", v(`2`)}}, `{"a":1,"z":1,"b\n":2}`},
		{"add to empty", `{}`, []wire.Edit{{"z", v(`null`)}}, `{"z":null}`},
		{"remove and add", `{"a":1}`, []wire.Edit{{"a", nil}, {"b", v(`2`)}}, `{"b":2}`},
		{"last edit of a name counts", `{"a":1}`, []wire.Edit{{"a", v(`2`)}, {"a", v(`3`)}, {"n", v(`4`)}, {"n", v(`5`)}, {"o", v(`6`)}, {"o", nil}}, `{"a":3,"n":5}`},
		{"empty value removes", `{"a":1,"b":2}`, []wire.Edit{{"a", v(``)}}, `{"b":2}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustObject(t, tt.in).Append([]byte("before"), tt.edits...)
			if string(got) != "before"+tt.want {
				t.Errorf("got %s, want before%s", got, tt.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	tests := []struct {
		name, in, want string
		ok             bool
	}{
		{"plain", `"abc"`, "abc", true},
		{"empty", `""`, "", true},
		{"known name", `"tools/call"`, "tools/call", true},
		{"non-ASCII", `"é世"`, "é世", true},
		{"escapes", `"a\u0062\n\"\\\/\ud83d\ude00"`, "ab\n\"\\/😀", true},
		{"lone surrogate", `"a\ud83d"`, "", false},
		{"swapped surrogates", `"\ude00\ud83d"`, "", false},
		{"invalid UTF-8", "\"\xff\"", "", false},
		{"raw control character", "\"a\nb\"", "", false},
		{"number", `1`, "", false},
		{"null", `null`, "", false},
		{"nothing", ``, "", false},
		{"one quote", `"`, "", false},
		{"cut off", `"abc`, "", false},
		{"end is escaped", `"abc\"`, "", false},
		{"two strings", `"a""b"`, "", false},
		{"white space around", ` "a" `, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := wire.String(jsontext.Value(tt.in)); got != tt.want || ok != tt.ok {
				t.Errorf("String(%s) = %q, %t, want %q, %t", tt.in, got, ok, tt.want, tt.ok)
			}
		})
	}
}

// Names that are interned must come out as they went in.
func TestStringKnownNames(t *testing.T) {
	names := `2.0 name arguments _meta uri cursor code message data content structuredContent isError resultType description
		inputSchema annotations title type text progressToken io.modelcontextprotocol/protocolVersion
		io.modelcontextprotocol/clientInfo io.modelcontextprotocol/clientCapabilities tools/call tools/list ping
		notifications/progress notifications/message`
	for _, name := range strings.Fields(names) {
		if got, ok := wire.String(jsontext.Value(`"` + name + `"`)); !ok || got != name {
			t.Errorf("String(%q) = %q, %t", name, got, ok)
		}
	}
}
