package configs

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// hopHeaders are set by Headgate or by HTTP itself on every hop; taking them from elsewhere would break it.
var hopHeaders = map[string]bool{
	"Mcp-Session-Id": true, "Mcp-Protocol-Version": true, "Mcp-Method": true, "Mcp-Name": true, "Last-Event-Id": true,
	"Host": true, "Accept": true, "Accept-Encoding": true, "Connection": true, "Transfer-Encoding": true,
	"Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Upgrade": true, "Expect": true,
}

// callerHeaders carry who the caller is, and stay between the caller and Headgate. So does Authorization, unless the
// upstream is trusted with it.
var callerHeaders = map[string]bool{"Proxy-Authorization": true, "Cookie": true}

func hopOwned(canonical string) bool {
	return hopHeaders[canonical] || strings.HasPrefix(canonical, "Mcp-Param-") || strings.HasPrefix(canonical, "Content-")
}

func isToken(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return true
}

// headers checks both kinds of headers that go to an upstream. No text repeats a value.
func (l *loader) headers(path string, u *Upstream) {
	configured := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(u.Headers)) {
		at := join(path+".headers", name)
		canonical := http.CanonicalHeaderKey(name)
		if l.headerName(at, "", name) {
			if other, twice := configured[canonical]; twice {
				l.problem(at, "is the same header as %s", other)
			}
			configured[canonical] = name
		}
		if strings.ContainsFunc(u.Headers[name], func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			l.problem(at, "the value has a control character, such as a line break")
		}
	}
	seen := map[string]bool{}
	for i, name := range u.ForwardHeaders {
		at := index(path+".forward_headers", i)
		canonical := http.CanonicalHeaderKey(name)
		u.ForwardHeaders[i] = canonical
		shown := l.show(at, name) + " "
		switch {
		case !l.headerName(at, shown, name):
		case canonical == "Authorization":
			l.forwardedToken(path, at, shown, u, seen)
		case callerHeaders[canonical]:
			l.problem(at, "%sis between the caller and Headgate and is never forwarded", shown)
		case configured[canonical] != "":
			l.problem(at, "%sis also set in headers; keep one of them", shown)
		case seen[canonical]:
			l.problem(at, "%sis there twice", shown)
		}
		seen[canonical] = true
	}
}

// headerName checks a name; shown stands before the problem where the path does not end in the name.
func (l *loader) headerName(at, shown, name string) bool {
	if !isToken(name) {
		l.problem(at, "%sis not a name that a header can have", shown)
		return false
	}
	if hopOwned(http.CanonicalHeaderKey(name)) {
		l.problem(at, "%sis set by Headgate itself on every hop", shown)
		return false
	}
	return true
}
