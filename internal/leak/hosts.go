package leak

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

var (
	// credentials has the parts that are to be masked in groups: what follows Bearer or Basic, a signed token, and
	// user and password in a URL.
	credentials = regexp.MustCompile(`(?i:\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{12,}))|\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)|` +
		`[A-Za-z][A-Za-z0-9+.-]{0,30}://([^\s/@:"'<>]*:[^\s/@"'<>]+)@`)
	ipv4 = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?`)
	ipv6 = regexp.MustCompile(`\[?[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:%[A-Za-z0-9]+)?(?:\](?::[0-9]{1,5})?)?`)
	port = regexp.MustCompile(`^:[0-9]{1,5}`)
)

// innerSuffixes are the last labels of names that exist inside of networks only.
var innerSuffixes = []string{"internal", "local", "localdomain", "svc", "lan", "corp", "intranet"}

// findHosts looks for private addresses and names.
func (f *Filter) findHosts(text, lower string, add func(from, to int, kind Kind)) {
	if hasAny(text, "10.", "172.", "192.168.", "127.", "169.254.", "100.") {
		for _, m := range ipv4.FindAllStringIndex(text, -1) {
			addr, _, _ := strings.Cut(text[m[0]:m[1]], ":")
			if stands(text, m[0], m[1]) && private(addr) {
				add(m[0], m[1], Host)
			}
		}
	}
	if hasAny(lower, "::", "fe8", "fe9", "fea", "feb", "fc", "fd") {
		for _, m := range ipv6.FindAllStringIndex(text, -1) {
			addr := strings.TrimPrefix(text[m[0]:m[1]], "[")
			if inner, _, ok := strings.Cut(addr, "]"); ok {
				addr = inner
			}
			addr, _, _ = strings.Cut(addr, "%")
			if stands(text, m[0], m[1]) && private(addr) {
				add(m[0], m[1], Host)
			}
		}
	}
	findNames(text, add)
	for _, host := range f.hosts {
		for at := 0; ; {
			i := strings.Index(lower[at:], host)
			if i < 0 {
				break
			}
			from, to := at+i, at+i+len(host)
			if p := port.FindString(text[to:]); p != "" {
				to += len(p)
			}
			if stands(text, from, to) {
				add(from, to, Host)
			}
			at += i + len(host)
		}
	}
}

// findNames looks for names under inner suffixes.
func findNames(text string, add func(from, to int, kind Kind)) {
	for at := 0; at < len(text); {
		if !isLabel(text[at]) {
			at++
			continue
		}
		from := at
		for at < len(text) && (isLabel(text[at]) || text[at] == '.') {
			at++
		}
		name := strings.TrimRight(text[from:at], ".-_")
		to := from + len(name)
		i := strings.LastIndexByte(name, '.')
		last := name[i+1:]
		if !strings.EqualFold(name, "localhost") &&
			(i <= 0 || !slices.ContainsFunc(innerSuffixes, func(s string) bool { return strings.EqualFold(s, last) })) {
			continue
		}
		if p := port.FindString(text[to:]); p != "" {
			to += len(p)
		}
		if stands(text, from, to) && !strings.HasPrefix(text[to:], "(") {
			add(from, to, Host)
		}
	}
}

func isLabel(c byte) bool { return isWord(c) && c < 0x80 || c == '-' }

// private reports whether an address reaches something inside of a network only.
func private(addr string) bool {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return false
	}
	a = a.Unmap()
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || sharedSpace.Contains(a)
}

// sharedSpace is the address block between providers and their customers (RFC 6598), which clusters use too.
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// stands reports whether a match is a word of its own, and not a part of a longer name or number.
func stands(text string, from, to int) bool {
	if from > 0 {
		if c := text[from-1]; isWord(c) || c == '.' {
			return false
		}
	}
	if to < len(text) {
		next := text[to]
		if isWord(next) || next == '-' && text[to-1] != '.' {
			return false
		}
		if next == '.' && to+1 < len(text) && isWord(text[to+1]) {
			return false
		}
		if text[to-1] == '.' && isWord(next) {
			return false
		}
	}
	return true
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

// asciiLower lowers ASCII letters alone, so that places in the text stay the same.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
