package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// mask stands wherever a Text would be printed.
const mask = "***"

// Text is a text that no usual way of printing shows: neither fmt, slog nor JSON. The zero value is the
// empty text. It holds a pointer, so that a struct in whose unexported field it lies does not show it
// either: there fmt cannot call methods, and prints the address.
type Text struct{ s *string }

// New makes a Text.
func New(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{&s}
}

// Reveal returns the text itself.
func (t Text) Reveal() string {
	if t.s == nil {
		return ""
	}
	return *t.s
}

// IsZero reports whether the text is empty.
func (t Text) IsZero() bool { return t.s == nil }

// String returns "***", or "" for the empty text.
func (t Text) String() string {
	if t.s == nil {
		return ""
	}
	return mask
}

// Format prints String whatever the verb.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue logs String.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText writes String.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
