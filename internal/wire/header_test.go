package wire_test

import (
	"testing"

	"github.com/headgate/headgate/internal/wire"
)

func TestHeaderValue(t *testing.T) {
	tests := []struct{ name, plain, coded string }{
		{"plain", "us-west1", "us-west1"},
		{"empty", "", ""},
		{"inner space", "Seattle, WA", "Seattle, WA"},
		{"all visible ASCII", "!\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~", "!\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~"},
		{"uri", "file:///projects/a%20b?x=1#y", "file:///projects/a%20b?x=1#y"},
		{"non-ASCII", "Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{"padded", " padded ", "=?base64?IHBhZGRlZCA=?="},
		{"newline", "line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"sentinel", "=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		{"overlapping sentinel", "=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="},
		{"half a sentinel", "=?base64?abc", "=?base64?abc"},
		{"sentinel in other case", "=?BASE64?YQ==?=", "=?BASE64?YQ==?="},
		{"tab", "a\tb", "=?base64?YQli?="},
		{"NUL", "\x00", "=?base64?AA==?="},
		{"DEL", "\x7f", "=?base64?fw==?="},
		{"one space", " ", "=?base64?IA==?="},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wire.EncodeHeaderValue(tt.plain); got != tt.coded {
				t.Errorf("EncodeHeaderValue(%q) = %q, want %q", tt.plain, got, tt.coded)
			}
			if got, err := wire.DecodeHeaderValue(tt.coded); err != nil || got != tt.plain {
				t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q", tt.coded, got, err, tt.plain)
			}
		})
	}
}

func TestDecodeHeaderValue(t *testing.T) {
	tests := []struct {
		name, in, want string
		ok             bool
	}{
		{"needless encoding", "=?base64?YQ==?=", "a", true},
		{"encoded empty", "=?base64??=", "", true},
		{"tab", "a\tb", "a\tb", true},
		{"no padding", "=?base64?YQ?=", "", false},
		{"URL alphabet", "=?base64?_-8=?=", "", false},
		{"stray bits", "=?base64?YR==?=", "", false},
		{"not Base64", "=?base64?literal!?=", "", false},
		{"space inside", "=?base64?YQ =?=", "", false},
		{"marks overlap", "=?base64?=", "", false},
		{"not UTF-8", "=?base64?/w==?=", "", false},
		{"raw non-ASCII", "é", "", false},
		{"newline", "a\nb", "", false},
		{"newline in Base64", "=?base64?YW\nJj?=", "", false},
		{"carriage return", "a\r", "", false},
		{"NUL", "\x00", "", false},
		{"DEL", "\x7f", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := wire.DecodeHeaderValue(tt.in)
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q, ok %t", tt.in, got, err, tt.want, tt.ok)
			}
		})
	}
}
