package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func TestParseAccepts(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want wire.Message
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			wire.Message{Kind: wire.KindRequest, ID: "1", Method: "ping"}},
		{"request with params", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{ "name": "x" }}`,
			wire.Message{Kind: wire.KindRequest, ID: `"a"`, Method: "tools/call", Params: jsontext.Value(`{ "name": "x" }`)}},
		{"members in any order, white space everywhere", " \r\n{ \"params\" :\t{} , \"method\" : \"m\" , \"id\" : 7 , \"jsonrpc\" : \"2.0\" } \n",
			wire.Message{Kind: wire.KindRequest, ID: "7", Method: "m", Params: jsontext.Value(`{}`)}},
		{"null params are absent", `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`,
			wire.Message{Kind: wire.KindRequest, ID: "1", Method: "m"}},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			wire.Message{Kind: wire.KindNotification, Method: "notifications/initialized"}},
		{"unknown members are ignored", `{"jsonrpc":"2.0","x":{"id":5},"id":1,"method":"m","y":null}`,
			wire.Message{Kind: wire.KindRequest, ID: "1", Method: "m"}},
		{"id keeps its spelling", `{"jsonrpc":"2.0","id":1.50e+1,"method":"m"}`,
			wire.Message{Kind: wire.KindRequest, ID: "1.50e+1", Method: "m"}},
		{"id beyond 2^53", `{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}`,
			wire.Message{Kind: wire.KindRequest, ID: "9007199254740993", Method: "m"}},
		{"id with escapes keeps them", `{"jsonrpc":"2.0","id":"\u0061\ud83d","method":"m"}`,
			wire.Message{Kind: wire.KindRequest, ID: `"\u0061\ud83d"`, Method: "m"}},
		{"empty string id", `{"jsonrpc":"2.0","id":"","method":"m"}`,
			wire.Message{Kind: wire.KindRequest, ID: `""`, Method: "m"}},
		{"escaped names, version and method", `{"\u006asonrpc":"\u0032.0","i\u0064":1,"m\u0065thod":"tools\/c\u0061ll"}`,
			wire.Message{Kind: wire.KindRequest, ID: "1", Method: "tools/call"}},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{"a":[1,{"b":2}]}}`,
			wire.Message{Kind: wire.KindResponse, ID: "1", Result: jsontext.Value(`{"a":[1,{"b":2}]}`)}},
		{"null result", `{"jsonrpc":"2.0","id":1,"result":null}`,
			wire.Message{Kind: wire.KindResponse, ID: "1", Result: jsontext.Value(`null`)}},
		{"scalar result", `{"jsonrpc":"2.0","id":1,"result":-0.10}`,
			wire.Message{Kind: wire.KindResponse, ID: "1", Result: jsontext.Value(`-0.10`)}},
		{"result with duplicate names and lone surrogates inside", `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":"\ud83d","\udead":{}}}`,
			wire.Message{Kind: wire.KindResponse, ID: "1", Result: jsontext.Value(`{"a":1,"a":"\ud83d","\udead":{}}`)}},
		{"params with duplicate names inside", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":{"b":1,"b":2},"a":1}}`,
			wire.Message{Kind: wire.KindRequest, ID: "1", Method: "m", Params: jsontext.Value(`{"a":{"b":1,"b":2},"a":1}`)}},
		{"params of a response are ignored", `{"jsonrpc":"2.0","id":1,"result":{},"params":[]}`,
			wire.Message{Kind: wire.KindResponse, ID: "1", Result: jsontext.Value(`{}`)}},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no","data":{"a":1,"a":"\ud83d"},"x":1}}`,
			wire.Message{Kind: wire.KindResponse, ID: "1", Error: jsontext.Value(`{"code":-32601,"message":"no","data":{"a":1,"a":"\ud83d"},"x":1}`)}},
		{"error with null id", `{"jsonrpc":"2.0","id":null,"error":{"code":1.0,"message":""}}`,
			wire.Message{Kind: wire.KindResponse, Error: jsontext.Value(`{"code":1.0,"message":""}`)}},
		{"error without id", `{"jsonrpc":"2.0","error":{"message":"\ud83d","code":-1}}`,
			wire.Message{Kind: wire.KindResponse, Error: jsontext.Value(`{"message":"\ud83d","code":-1}`)}},
		{"deepest params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + nested(wire.MaxDepth-2) + `}}`,
			wire.Message{Kind: wire.KindRequest, ID: "1", Method: "m", Params: jsontext.Value(`{"a":` + nested(wire.MaxDepth-2) + `}`)}},
		{"unknown name that is far from a known one", `{"jsonrpc":"2.0","method":"m","ids":1,"":2,"` + strings.Repeat("i", 200) + `":3}`,
			wire.Message{Kind: wire.KindNotification, Method: "m"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := []byte(tt.in)
			got, err := wire.Parse(in)
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			if got.Kind != tt.want.Kind || got.ID != tt.want.ID || got.Method != tt.want.Method ||
				!sameValue(got.Params, tt.want.Params) || !sameValue(got.Result, tt.want.Result) || !sameValue(got.Error, tt.want.Error) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if string(in) != tt.in {
				t.Errorf("input was changed to %q", in)
			}
		})
	}
}

// sameValue also tells nil from empty.
func sameValue(a, b jsontext.Value) bool {
	return bytes.Equal(a, b) && (a == nil) == (b == nil)
}

func TestParseRefuses(t *testing.T) {
	const (
		parse   = wire.CodeParse
		request = wire.CodeInvalidRequest
		params  = wire.CodeInvalidParams
	)
	deep := nested(wire.MaxDepth - 1)
	tests := []struct {
		name    string
		in      string
		code    int64
		id      wire.ID
		message string
	}{
		{"empty", "", parse, "", "no JSON value"},
		{"white space only", " \n\t", parse, "", "no JSON value"},
		{"byte order mark", "\ufeff{}", parse, "", "invalid JSON at byte 0"},
		{"cut off", `{"jsonrpc":"2.0","id":1,"method":"m"`, parse, "", "invalid JSON at byte 36"},
		{"cut off in a nested value", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[`, parse, "", "invalid JSON at byte 52"},
		{"trailing comma", `{"jsonrpc":"2.0","id":1,"method":"m",}`, parse, "", "invalid JSON at byte 36"},
		{"single quotes", `{'jsonrpc':"2.0"}`, parse, "", "invalid JSON at byte 1"},
		{"name is a number", `{1:2}`, parse, "", "invalid JSON at byte 1"},
		{"name is an object", `{{}:2}`, parse, "", "invalid JSON at byte 1"},
		{"no colon", `{"id" 1}`, parse, "", "invalid JSON at byte 6"},
		{"mismatched brackets", `{"id":1,"x":[}}`, parse, "", "invalid JSON at byte 13"},
		{"NaN", `{"jsonrpc":"2.0","id":NaN,"method":"m"}`, parse, "", "invalid JSON at byte 22"},
		{"leading zero", `{"jsonrpc":"2.0","id":01,"method":"m"}`, parse, "", "invalid JSON at byte 23"},
		{"raw control character", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}", parse, "", "invalid JSON at byte 35"},
		{"bad escape", `{"jsonrpc":"2.0","id":1,"method":"\x41"}`, parse, "", "invalid JSON at byte 34"},
		{"raw invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", parse, "", "message is not valid UTF-8"},
		{"raw surrogate", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xed\xa0\x80\"}", parse, "", "message is not valid UTF-8"},
		{"two values", `{"jsonrpc":"2.0","id":1,"method":"m"}{}`, parse, "", "data after the message"},
		{"trailing brace", `{"jsonrpc":"2.0","id":1,"method":"m"} }`, parse, "", "data after the message"},
		{"syntax error after a fault", `{"Id":1,"id":2,x}`, parse, "", "invalid JSON at byte 15"},
		{"scalar, then more", `1 2`, parse, "", "invalid JSON at byte 1"},
		{"bad literal", `nul`, parse, "", "invalid JSON at byte 3"},

		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"m"}]`, request, "", "batches are not supported"},
		{"empty batch", `[]`, request, "", "batches are not supported"},
		{"string", `"hello"`, request, "", "message is not an object"},
		{"number", ` 12 `, request, "", "message is not an object"},
		{"null", `null`, request, "", "message is not an object"},
		{"empty object", `{}`, request, "", `jsonrpc must be "2.0"`},
		{"no version", `{"id":1,"method":"m"}`, request, "1", `jsonrpc must be "2.0"`},
		{"wrong version", `{"jsonrpc":"1.0","id":1,"method":"m"}`, request, "1", `jsonrpc must be "2.0"`},
		{"version is a number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, request, "1", `jsonrpc must be "2.0"`},
		{"null id of a request", `{"jsonrpc":"2.0","id":null,"method":"m"}`, request, "", "id of a request must not be null"},
		{"boolean id", `{"jsonrpc":"2.0","id":true,"method":"m"}`, request, "", "id must be a string or a number"},
		{"object id", `{"jsonrpc":"2.0","id":{},"method":"m"}`, request, "", "id must be a string or a number"},
		{"array id of an error", `{"jsonrpc":"2.0","id":[1],"error":{"code":1,"message":""}}`, request, "", "id must be a string or a number"},
		{"method is not a string", `{"jsonrpc":"2.0","id":"x","method":5}`, request, `"x"`, "method must be a string"},
		{"method is null", `{"jsonrpc":"2.0","id":1,"method":null}`, request, "1", "method must be a string"},
		{"method with a lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"\ud83d"}`, request, "1", "method must be a string"},
		{"array params", `{"jsonrpc":"2.0","params":[],"id":1,"method":"m"}`, params, "1", "params must be an object"},
		{"string params of a notification", `{"jsonrpc":"2.0","params":"a","method":"m"}`, params, "", "params must be an object"},
		{"false params", `{"jsonrpc":"2.0","params":false,"id":1,"method":"m"}`, params, "1", "params must be an object"},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"m","result":1}`, request, "1", "message has a method and also a result or an error"},
		{"method and error", `{"jsonrpc":"2.0","id":1,"method":"m","error":null}`, request, "1", "message has a method and also a result or an error"},
		{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, request, "1", "message has both a result and an error"},
		{"nothing", `{"jsonrpc":"2.0","id":1}`, request, "1", "message has no method, result or error"},
		{"result without id", `{"jsonrpc":"2.0","result":{}}`, request, "", "result has no id"},
		{"result with null id", `{"jsonrpc":"2.0","id":null,"result":{}}`, request, "", "result has no id"},
		{"error is null", `{"jsonrpc":"2.0","id":1,"error":null}`, request, "1", "error must be an object with an integer code and a string message"},
		{"error is a string", `{"jsonrpc":"2.0","id":1,"error":"x"}`, request, "1", "error must be an object with an integer code and a string message"},
		{"error without code", `{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}`, request, "1", "error must be an object with an integer code and a string message"},
		{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, request, "1", "error must be an object with an integer code and a string message"},
		{"error with a fractional code", `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}`, request, "1", "error must be an object with an integer code and a string message"},
		{"error with two codes", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"c\u006fde":2,"message":"x"}}`, request, "1", "error must be an object with an integer code and a string message"},

		{"duplicate method", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, request, "1", `duplicate member "method"`},
		{"escaped duplicate", `{"jsonrpc":"2.0","method":"a","m\u0065thod":"b","id":1}`, request, "1", `duplicate member "method"`},
		{"duplicate id", `{"jsonrpc":"2.0","id":1,"id":2,"method":"b"}`, request, "", `duplicate member "id"`},
		{"triple id", `{"jsonrpc":"2.0","id":1,"id":2,"id":3,"method":"b"}`, request, "", `duplicate member "id"`},
		{"duplicate unknown", `{"jsonrpc":"2.0","x":1,"id":1,"method":"b","\u0078":2}`, request, "1", `duplicate member "x"`},
		{"duplicate unknown of many", `{"jsonrpc":"2.0","id":1,"method":"m",` + manyMembers(40) + `,"m39":1}`, request, "1", `duplicate member "m39"`},
		{"other case", `{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, request, "1", `unknown member "Method"`},
		{"other case alone", `{"jsonrpc":"2.0","ID":1,"method":"a"}`, request, "", `unknown member "ID"`},
		{"long s", `{"jsonrpc":"2.0","id":1,"method":"a","paramſ":{}}`, request, "1", `unknown member "paramſ"`},
		{"escaped long s", `{"jsonrpc":"2.0","id":1,"re\u017fult":{}}`, request, "1", `unknown member "reſult"`},
		{"JSONRPC", `{"JSONRPC":"2.0","id":1,"method":"a"}`, request, "1", `unknown member "JSONRPC"`},
		{"Error", `{"jsonrpc":"2.0","id":1,"Error":{}}`, request, "1", `unknown member "Error"`},
		{"the first fault is named", `{"X":1,"X":2,"Id":3,"id":4}`, request, "4", `duplicate member "X"`},
		{"quoted name is cut", `{"` + strings.Repeat("é", 100) + `":1,"` + strings.Repeat("é", 100) + `":2}`, request, "",
			`duplicate member "` + strings.Repeat("é", 64) + `"`},
		{"quoted name is escaped", `{"\n\u0000":1,"\u000a\u0000":2}`, request, "", `duplicate member "\n\x00"`},

		{"too deep with id", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":` + deep + `}}`, request, "1", "message is nested deeper than 1000 levels"},
		{"too deep before the id", `{"x":` + nested(1000) + `,"id":1}`, request, "", "message is nested deeper than 1000 levels"},
		{"too deep and never closed", `{"id":1,"result":` + strings.Repeat("[", 1<<20), request, "1", "message is nested deeper than 1000 levels"},
		{"too deep with objects", `{"id":1,"result":` + strings.Repeat(`{"":`, 1<<18), request, "1", "message is nested deeper than 1000 levels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := wire.Parse([]byte(tt.in))
			var refusal *wire.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("Parse: got error %v, want a *wire.Error", err)
			}
			if refusal.Code != tt.code || refusal.ID != tt.id || refusal.Message != tt.message {
				t.Errorf("got  %d %q %s\nwant %d %q %s", refusal.Code, refusal.ID, refusal.Message, tt.code, tt.id, tt.message)
			}
			if err.Error() != tt.message {
				t.Errorf("Error() = %q, want the message", err.Error())
			}
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"m` + string(rune('0'+i/10)) + string(rune('0'+i%10)) + `":0`)
	}
	return b.String()
}

func TestParseManyUnknownMembers(t *testing.T) {
	in := `{"jsonrpc":"2.0","id":1,"method":"m",` + manyMembers(100) + `}`
	if _, err := wire.Parse([]byte(in)); err != nil {
		t.Fatalf("Parse: %v", err)
	}
}

func TestParseAliasesInput(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","id":"abc","method":"mm","params":{"a":"b"}}`)
	m, err := wire.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	in[bytes.IndexByte(in, 'b')] = 'z' // in the id, which is a copy
	in[bytes.LastIndexByte(in, 'b')] = 'c'
	if string(m.Params) != `{"a":"c"}` {
		t.Errorf("params = %s, want them to follow the input", m.Params)
	}
	if m.ID != `"abc"` || m.Method != "mm" {
		t.Errorf("id = %s, method = %s, want copies", m.ID, m.Method)
	}
	if cap(m.Params) != len(m.Params) {
		t.Errorf("params have capacity %d for %d bytes: an append would write into the message", cap(m.Params), len(m.Params))
	}
}

// Values of one message stay as they are while the pooled scanner reads others.
func TestParseKeepsNothing(t *testing.T) {
	first, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"first":[1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":2,"result":{"other":"xxxxxxxxx"}}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":2,"result":{"cut":[`)); err == nil {
			t.Fatal("no error for a message that is cut off")
		}
	}
	if string(first.Result) != `{"first":[1]}` {
		t.Errorf("result became %s", first.Result)
	}
}

func TestIDInt64(t *testing.T) {
	tests := []struct {
		id   wire.ID
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"42", 42, true},
		{"-7", -7, true},
		{"9223372036854775807", 9223372036854775807, true},
		{"9223372036854775808", 0, false},
		{"", 0, false},
		{"-", 0, false},
		{"-0", 0, false},
		{"00", 0, false},
		{"007", 0, false},
		{"-07", 0, false},
		{"+7", 0, false},
		{"7.0", 0, false},
		{"7e0", 0, false},
		{`"7"`, 0, false},
		{"null", 0, false},
		{"1_000", 0, false},
	}
	for _, tt := range tests {
		t.Run(string(tt.id), func(t *testing.T) {
			if got, ok := tt.id.Int64(); got != tt.want || ok != tt.ok {
				t.Errorf("Int64() = %d, %t, want %d, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}
