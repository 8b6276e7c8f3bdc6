package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// DefaultSeparator stands between prefix and name when Rules.Separator is empty.
	DefaultSeparator = "_"
	// DefaultMaxLength is the budget, in bytes, when Rules.MaxLength is 0. Hosts put a prefix of their own in
	// front and stop at 60 or 64 characters.
	DefaultMaxLength = 48
	// LimitMaxLength is the longest budget there is: the protocol asks for names of at most 128 characters.
	LimitMaxLength = 128

	digestLength = 8
)

// Rules are the naming settings. The zero value is usable: separator "_", at most 48 bytes. Rules are a plain
// value and safe for concurrent use.
type Rules struct {
	// Separator stands between prefix and name: "_", "__" or "."; empty means "_".
	Separator string
	// MaxLength is the most bytes an exposed name may have, 1 to 128; 0 means 48. Values outside are taken to
	// the nearer end.
	MaxLength int
}

func (r Rules) separator() string {
	if r.Separator == "" {
		return DefaultSeparator
	}
	return r.Separator
}

func (r Rules) maxLength() int {
	switch {
	case r.MaxLength == 0:
		return DefaultMaxLength
	case r.MaxLength < 1:
		return 1
	case r.MaxLength > LimitMaxLength:
		return LimitMaxLength
	}
	return r.MaxLength
}

// Exposed returns the name under which a server's tool or prompt is offered to clients: prefix, separator and
// name, or the bare name when prefix is empty. The result has 1 to MaxLength bytes out of [A-Za-z0-9_-], and
// the separator's "." between prefix and name when that is the separator.
//
// When the plain concatenation is not such a name (a character that is not allowed, too long, an empty name, a
// leading "-", which command lines take for a flag), every bad character becomes "_", the result is cut and
// ends in "_" and 8 hex digits of SHA-256 over the server id, a NUL and the original name. Two names that look
// the same once sanitised therefore stay apart. changed reports that this happened.
//
// A budget of fewer than 9 bytes leaves room for digits of the digest only.
func (r Rules) Exposed(server, prefix, name string) (exposed string, changed bool) {
	lead := ""
	if prefix != "" {
		lead = sanitise(prefix) + r.cleanSeparator()
	}
	clean := lead + sanitise(name)
	if strings.HasPrefix(clean, "-") {
		clean = "_" + clean[1:]
	}

	plain := name
	if prefix != "" {
		plain = prefix + r.separator() + name
	}
	limit := r.maxLength()
	if clean == plain && name != "" && len(plain) <= limit {
		return plain, false
	}

	digest := digestOf(server, name)
	if limit <= digestLength {
		return digest[:limit], true
	}
	return clean[:min(len(clean), limit-digestLength-1)] + "_" + digest, true
}

// cleanSeparator keeps the promise on characters even for a separator that configuration would have refused.
func (r Rules) cleanSeparator() string {
	if s := r.separator(); s != "." {
		return sanitise(s)
	}
	return "."
}

func digestOf(server, name string) string {
	sum := sha256.Sum256([]byte(server + "\x00" + name))
	return hex.EncodeToString(sum[:digestLength/2])
}

// sanitise replaces every character outside [A-Za-z0-9_-] by one "_"; the result is ASCII.
func sanitise(s string) string {
	for i := range len(s) {
		if !allowed(rune(s[i])) {
			return strings.Map(func(c rune) rune {
				if allowed(c) {
					return c
				}
				return '_'
			}, s)
		}
	}
	return s
}

func allowed(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
