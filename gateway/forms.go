package gateway

import (
	"net/url"
	"slices"
	"strings"
)

// This file knows in how many ways one resource can be written. A rule is about a resource and not about a
// spelling, and a server may well understand more spellings than it lists.

// maxForms bounds how deep aliases and percent-encodings are followed.
const maxForms = 4

// canonicalURI is the plainest spelling of a URI: scheme and host in lower case, nothing percent-encoded, no "."
// and ".." and no empty segments in its path. It is for rules alone; what is sent is what the client wrote.
func canonicalURI(uri string) string {
	uri = strings.TrimSpace(uri)
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || strings.ContainsAny(scheme, "/?#%") {
		return strings.Join(segments(decoded(uri)), "/")
	}
	rest = strings.ReplaceAll(decoded(rest), `\`, "/")
	authority, path := "", rest
	slashes := ""
	if after, has := strings.CutPrefix(rest, "//"); has {
		slashes = "//"
		authority, path, _ = strings.Cut(after, "/")
		authority = strings.ToLower(authority)
		path = "/" + path
	}
	if authority == "." || authority == ".." {
		// A server that takes authority and path as one would skip it.
		authority, path, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
		authority, path = strings.ToLower(authority), "/"+path
	}
	lead := ""
	if strings.HasPrefix(path, "/") && (slashes == "" || path != "/") {
		lead = "/"
	}
	return strings.ToLower(scheme) + ":" + slashes + authority + lead + strings.Join(segments(path), "/")
}

// segments are those of a path without what leads nowhere.
func segments(path string) (out []string) {
	for s := range strings.SplitSeq(path, "/") {
		switch s {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, s)
		}
	}
	return out
}

// climbs reports whether a URI has a segment "..", in whatever encoding. Where that leads is known to its server
// alone.
func climbs(uri string) bool {
	return slices.Contains(strings.Split(strings.ReplaceAll(decoded(uri), `\`, "/"), "/"), "..")
}

// decoded takes percent-encodings off, also those of percent-encodings.
func decoded(s string) string {
	for range maxForms {
		plain, err := url.PathUnescape(s)
		if err != nil || plain == s {
			break
		}
		s = plain
	}
	return s
}

// formsOf are other spellings of a URI that a server may take for the same resource, and of those inside of it
// if it is an alias: canonical, with authority and path as one or apart.
func formsOf(uri string) (forms []string) {
	given := uri
	add := func(s string) {
		if s != given && !slices.Contains(forms, s) {
			forms = append(forms, s)
		}
	}
	for range maxForms {
		c := canonicalURI(uri)
		add(uri)
		add(c)
		if scheme, rest, ok := strings.Cut(c, "://"); ok {
			joined := strings.Join(segments(rest), "/")
			add(scheme + "://" + joined)
			add(scheme + ":///" + joined)
			first, more, _ := strings.Cut(joined, "/")
			add(scheme + "://" + strings.ToLower(first) + "/" + more)
		}
		scheme, rest, _ := strings.Cut(uri, ":")
		_, inner, ok := readAlias(strings.ToLower(scheme) + ":" + rest)
		if !ok {
			break
		}
		uri = inner
		add(inner)
	}
	return forms
}
