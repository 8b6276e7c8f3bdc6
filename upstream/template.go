package upstream

import (
	"regexp"
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

// Template is a URI template (RFC 6570) that URIs are matched with. Its methods may be called concurrently.
type Template struct {
	prefix  string // the literal text it begins with
	literal int
	re      *regexp.Regexp
}

// maxVariables bounds the variables of a template; the regular expression of one with very many could not
// be compiled.
const maxVariables = 100

// newTemplate returns nil for a text that is no template, or too much of one.
func newTemplate(text string) *Template {
	if strings.Count(text, ",")+strings.Count(text, "{") > maxVariables {
		return nil
	}
	parsed, err := uritemplate.New(text)
	if err != nil {
		return nil
	}
	t := &Template{re: parsed.Regexp()}
	t.prefix, _, _ = strings.Cut(text, "{")
	depth := 0
	for _, r := range text {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		default:
			if depth == 0 {
				t.literal++
			}
		}
	}
	return t
}

// Literal is the number of characters that stand outside of the template's expressions: the more, the
// closer it describes the URIs that it matches.
func (t *Template) Literal() int { return t.literal }

// Match reports whether the template can be expanded to the URI.
func (t *Template) Match(uri string) bool {
	return strings.HasPrefix(uri, t.prefix) && t.re.MatchString(uri)
}
