package wire_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

func joined(parts [3][]byte) []byte { return bytes.Join(parts[:], nil) }

func TestAppendMessages(t *testing.T) {
	params := jsontext.Value(`{ "b":1, "a":1.0 }`)
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"request", wire.AppendRequest(nil, 7, "tools/call", params), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{ "b":1, "a":1.0 }}`},
		{"request without params", wire.AppendRequest(nil, -1, "a\"b", nil), `{"jsonrpc":"2.0","id":-1,"method":"a\"b"}`},
		{"notification", wire.AppendNotification(nil, "n", params), `{"jsonrpc":"2.0","method":"n","params":{ "b":1, "a":1.0 }}`},
		{"notification without params", wire.AppendNotification(nil, "n", nil), `{"jsonrpc":"2.0","method":"n"}`},
		{"result", wire.AppendResult(nil, `"x\u0061"`, params), `{"jsonrpc":"2.0","id":"x\u0061","result":{ "b":1, "a":1.0 }}`},
		{"empty result", wire.AppendResult(nil, "1.0", nil), `{"jsonrpc":"2.0","id":1.0,"result":{}}`},
		{"result in parts", joined(wire.ResultParts(`"x"`, params)), `{"jsonrpc":"2.0","id":"x","result":{ "b":1, "a":1.0 }}`},
		{"empty result in parts", joined(wire.ResultParts("7", nil)), `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{"error", wire.AppendError(nil, "1", jsontext.Value(`{"code":1,"message":""}`)), `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`},
		{"error without id", wire.AppendError(nil, "", jsontext.Value(`{"code":1,"message":""}`)), `{"jsonrpc":"2.0","error":{"code":1,"message":""}}`},
		{"behind other bytes", wire.AppendNotification([]byte("x"), "n", nil), `x{"jsonrpc":"2.0","method":"n"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if string(tt.got) != tt.want {
				t.Errorf("got %s, want %s", tt.got, tt.want)
			}
		})
	}
}

func TestAppendString(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", `""`},
		{"plain", "abc", `"abc"`},
		{"quotes and backslashes", `a"b\c/`, `"a\"b\\c/"`},
		{"controls", "\x00\b\t\n\f\r\x1f\x7f", `"\u0000\b\t\n\f\r\u001f` + "\x7f\""},
		{"no HTML escapes", "<a&b>\u2028", "\"<a&b>\u2028\""},
		{"invalid UTF-8", "a\xffb\xed\xa0\x80", "\"a\ufffdb\ufffd\ufffd\ufffd\""},
		{"beyond the BMP", "😀", `"😀"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wire.AppendString([]byte("-"), tt.in); string(got) != "-"+tt.want {
				t.Errorf("got %s, want -%s", got, tt.want)
			}
		})
	}
}

func TestOneLine(t *testing.T) {
	tests := []struct {
		name, in, want string
		same           bool
	}{
		{"one line", `{"a":"\n"}`, `{"a":"\n"}`, true},
		{"lines", "{\r\n\"a\":\n1\r}\n", "{  \"a\": 1 } ", false},
		{"only CR", "[\r]", "[ ]", false},
		{"empty", "", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := []byte(tt.in)
			got := wire.OneLine(in)
			if string(got) != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if string(in) != tt.in {
				t.Errorf("input became %q", in)
			}
			if same := len(in) > 0 && &got[0] == &in[0]; len(in) > 0 && same != tt.same {
				t.Errorf("shares memory with its input: %t, want %t", same, tt.same)
			}
		})
	}
}
