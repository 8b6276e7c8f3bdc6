package authz

import (
	"fmt"
	"slices"
	"strings"
)

// pattern matches items. It is a glob over exposed names, in which * stands for any characters and ?
// for one; with "server:" before it, a glob over upstream ids; or "annotation:NAME" or
// "annotation:NAME=false" over one of the four boolean annotations of tools.
type pattern struct {
	text       string
	why        string // place and text of the pattern, for reasons
	kind       patternKind
	glob       string
	annotation func(Annotations) bool
	want       bool
}

type patternKind uint8

const (
	byName patternKind = iota
	byServer
	byAnnotation
)

func parsePattern(text string) (pattern, error) {
	p := pattern{text: text, glob: text}
	if text == "" {
		return p, fmt.Errorf("an empty pattern")
	}
	if id, ok := strings.CutPrefix(text, "server:"); ok {
		if id == "" {
			return p, fmt.Errorf("pattern %q: an empty server", text)
		}
		p.kind, p.glob = byServer, id
		return p, nil
	}
	name, ok := strings.CutPrefix(text, "annotation:")
	if !ok {
		return p, nil
	}
	p.kind, p.want = byAnnotation, true
	if n, value, has := strings.Cut(name, "="); has {
		if value != "true" && value != "false" {
			return p, fmt.Errorf("pattern %q: an annotation is true or false", text)
		}
		name, p.want = n, value == "true"
	}
	switch name {
	case "readOnlyHint":
		p.annotation = func(a Annotations) bool { return a.ReadOnly }
	case "destructiveHint":
		p.annotation = func(a Annotations) bool { return a.destructive() }
	case "idempotentHint":
		p.annotation = func(a Annotations) bool { return a.Idempotent }
	case "openWorldHint":
		p.annotation = func(a Annotations) bool { return a.OpenWorld }
	default:
		return p, fmt.Errorf("pattern %q: unknown annotation; there are readOnlyHint, destructiveHint, idempotentHint and openWorldHint", text)
	}
	return p, nil
}

func (p *pattern) match(i *Item) bool {
	switch p.kind {
	case byServer:
		return glob(p.glob, i.Server)
	case byAnnotation:
		return i.Kind == KindTool && p.annotation(i.Annotations) == p.want
	}
	return glob(p.glob, i.Name) || slices.ContainsFunc(i.Also, func(name string) bool { return glob(p.glob, name) })
}

// glob matches bytewise in time proportional to the two lengths' product at worst.
func glob(p, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
