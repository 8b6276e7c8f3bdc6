package wire_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

func TestErrorObject(t *testing.T) {
	tests := []struct {
		name    string
		message string
		data    jsontext.Value
		want    string
	}{
		{"plain", "no", nil, `{"code":-32603,"message":"no"}`},
		{"with data", "no", jsontext.Value(`{"a": 1}`), `{"code":-32603,"message":"no","data":{"a": 1}}`},
		{"with null data", "no", jsontext.Value(`null`), `{"code":-32603,"message":"no","data":null}`},
		{"escapes", "a\"b\\\n<é>\xff", nil, `{"code":-32603,"message":"a\"b\\\n<é>�"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wire.ErrorObject(wire.CodeInternal, tt.message, tt.data); string(got) != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestErrorCode(t *testing.T) {
	tests := []struct {
		code string
		want int64
		ok   bool
	}{
		{"-32601", -32601, true},
		{"0", 0, true},
		{"-0", 0, true},
		{"1.0", 1, true},
		{"-1.00", -1, true},
		{"0.0", 0, true},
		{"0e5", 0, true},
		{"0.000e-7", 0, true},
		{"1e3", 1000, true},
		{"1E+3", 1000, true},
		{"320.00e2", 32000, true},
		{"-32000.0", -32000, true},
		{"1200e-2", 12, true},
		{"0.5e1", 5, true},
		{"100", 100, true},
		{"100.0", 100, true},
		{"9223372036854775807", 9223372036854775807, true},
		{"9223372036854775807.0", 9223372036854775807, true},
		{"-9223372036854775808.0", -9223372036854775808, true},
		{"9223372036854775808", 0, false},
		{"9223372036854775808.0", 0, false},
		{"9007199254740993.0", 9007199254740993, true},
		{"1" + strings.Repeat("0", 400) + "e-400", 1, true},
		{"1.5", 0, false},
		{"1.00000000000000000000000001", 0, false},
		{"1200e-3", 0, false},
		{"1e19", 0, false},
		{"1e400", 0, false},
		{"1e-400", 0, false},
		{"1e99999999999999999999", 0, false},
		{"1e9223372036854775807", 0, false},
		{"1.5e-9223372036854775808", 0, false},
		{`"1"`, 0, false},
		{"null", 0, false},
		{"true", 0, false},
		{"[1]", 0, false},
	}
	for _, tt := range tests {
		name := tt.code
		if len(name) > 30 {
			name = name[:30]
		}
		t.Run(name, func(t *testing.T) {
			obj := jsontext.Value(`{"code":` + tt.code + `,"message":"m"}`)
			code, message, ok := wire.ErrorCode(obj)
			if code != tt.want || ok != tt.ok || (ok && message != "m") {
				t.Errorf("ErrorCode = %d, %q, %t, want %d, \"m\", %t", code, message, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestErrorCodeMessage(t *testing.T) {
	tests := []struct {
		name, obj, want string
		ok              bool
	}{
		{"escapes", `{"code":1,"message":"a\u0062\"\ud83d"}`, `ab"` + "\ufffd", true},
		{"from ErrorObject", string(wire.ErrorObject(1, "x\ny", nil)), "x\ny", true},
		{"absent", `{"code":1}`, "", false},
		{"null", `{"code":1,"message":null}`, "", false},
		{"other case", `{"code":1,"Message":"a"}`, "", false},
		{"not an object", `[]`, "", false},
		{"not JSON", `{"code":1,"message":"a"`, "", false},
		{"nothing", ``, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, message, ok := wire.ErrorCode(jsontext.Value(tt.obj)); message != tt.want || ok != tt.ok {
				t.Errorf("ErrorCode = %q, %t, want %q, %t", message, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestBare(t *testing.T) {
	_, err := wire.ParseObject([]byte(`{"secret":1,"secret":2}`))
	wrapped := fmt.Errorf("reading: %w", err)
	if !strings.Contains(wrapped.Error(), "secret") || wire.Bare(wrapped) != "reading: duplicate member" {
		t.Errorf("%q is %q", wrapped, wire.Bare(wrapped))
	}
	if other := errors.New(`a "quoted" word`); wire.Bare(other) != other.Error() {
		t.Errorf("%q", wire.Bare(other))
	}
}

func TestToolError(t *testing.T) {
	for text, want := range map[string]bool{
		`{"isError":true}`:                                       true,
		"{\"isError\" :\n\t true }":                              true,
		`{"isError":false}`:                                      false,
		`{"isError":"true"}`:                                     false,
		`{"content":[{"isError":true}]}`:                         false,
		`{"content":[{"isError":true}],"isError":false}`:         false,
		`{"a":{"isError":false},"isError":true}`:                 true,
		`{"isError":true,"isError":true}`:                        true,
		`{"isError":false,"isError":true}`:                       true,
		`{"isError":true,"a":1,"isError":false}`:                 true,
		`{"isError":false,"a":{"isError":true},"isError":false}`: false,
		`{"text":"\"isError\":true"}`:                            false,
		`{"isError"`:                                             false,
		``:                                                       false,
		`{"isErro\u0072":true}`:                                  true, `{"\u0069sError":true,"isError":false}`: true, `{"isErro\u0072":false}`: false, `{"x":"isErro\u0072 true"}`: false,
	} {
		if got := wire.ToolError([]byte(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
