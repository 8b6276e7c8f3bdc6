package wire

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// The marks around a Base64 value of MCP 2026-07-28, Streamable HTTP, "Value Encoding".
const (
	base64Prefix = "=?base64?"
	base64Suffix = "?="
)

// EncodeHeaderValue returns s as an HTTP header value by MCP 2026-07-28, Streamable HTTP, "Value Encoding": as it is
// where that is safe and unambiguous, else Base64 between marks. A tab may stand in a header, but not every hop leaves it
// alone.
func EncodeHeaderValue(s string) string {
	if isHeaderText(s) && !strings.Contains(s, "\t") && strings.Trim(s, " ") == s && !hasBase64Marks(s) {
		return s
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(s)) + base64Suffix
}

// DecodeHeaderValue is the reverse of EncodeHeaderValue. It refuses values with characters that do not belong into a
// header, and marked ones that are not canonical Base64 of UTF-8 text.
func DecodeHeaderValue(s string) (string, error) {
	if !isHeaderText(s) {
		return "", errors.New("header value has invalid characters")
	}
	if !hasBase64Marks(s) {
		return s, nil
	}
	if len(s) < len(base64Prefix)+len(base64Suffix) {
		return "", errors.New("header value has malformed Base64 marks")
	}
	text, err := base64.StdEncoding.Strict().DecodeString(s[len(base64Prefix) : len(s)-len(base64Suffix)])
	if err != nil {
		return "", errors.New("header value is not valid Base64")
	}
	if !utf8.Valid(text) {
		return "", errors.New("header value is not valid UTF-8")
	}
	return string(text), nil
}

// hasBase64Marks is true also for =?base64?=, where the two marks overlap.
func hasBase64Marks(s string) bool {
	return strings.HasPrefix(s, base64Prefix) && strings.HasSuffix(s, base64Suffix)
}

// isHeaderText reports whether s has only visible ASCII characters, spaces and tabs.
func isHeaderText(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\t') || c > '~' {
			return false
		}
	}
	return true
}
