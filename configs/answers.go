package configs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Values of Upstream.CheckResults.
const (
	CheckOff    = "off"
	CheckWarn   = "warn"
	CheckReject = "reject"
)

// Guidance is advice of the operator for results with isError: true.
type Guidance struct {
	// Tools are globs over the upstream's own tool names; none stands for all its tools.
	Tools []string
	// Match is a regular expression (RE2) that one of the result's texts has to match.
	Match string
	// Append is the text that is added to the result.
	Append string
}

// guidanceFields are the keys of one entry of guidance.
var guidanceFields = []field[Guidance]{
	{name: "tools", at: func(g *Guidance) any { return &g.Tools }},
	{name: "match", at: func(g *Guidance) any { return &g.Match }},
	{name: "append", at: func(g *Guidance) any { return &g.Append }},
}

// maxText bounds what an operator may have a model read at a time, in characters.
const maxText = 2000

// textNames are the keys of texts: the reasons of a failure that is told of a tool call, and the cases of
// those whose text depends on what is known of the outcome.
var textNames = []string{
	"unavailable", "breaker_open", "overloaded", "credentials_refused", "credentials_refused_caller",
	"timeout", "timeout_not_started", "timeout_repeatable", "timeout_unknown",
	"connection_lost", "connection_lost_repeatable", "connection_lost_unknown",
	"bad_upstream_answer", "rate_limited", "concurrency_limited", "guarded", "invalid_arguments", "invalid_result",
	"input_refused",
}

// placeholders are what a template may have filled in.
var placeholders = []string{"{server}", "{tool}", "{seconds}", "{limit}"}

// inBraces matches what could be meant as a placeholder. JSON in a template is not.
var inBraces = regexp.MustCompile(`\{\s*[A-Za-z0-9_.-]+\s*\}`)

func (l *loader) decodeGuidance(at string, v any, u *Upstream) {
	l.entries(at, v, func(at string, m map[string]any) {
		var g Guidance
		d := decoder[Guidance]{l: l, fields: guidanceFields}
		d.section(m, at, "", &g)
		l.guidanceAt[u] = append(l.guidanceAt[u], at)
		u.Guidance = append(u.Guidance, g)
	})
}

// answers checks the keys that say what callers are told and what is withheld from them.
func (l *loader) answers(path string, u *Upstream) {
	for _, name := range slices.Sorted(maps.Keys(u.Texts)) {
		l.template(join(path+".texts", name), name, u.Texts[name])
	}
	for i, g := range u.Guidance {
		at := l.guidanceAt[u][i]
		l.globs(at+".tools", g.Tools)
		if g.Match == "" {
			l.problem(at+".match", `must not be empty; "." matches every text`)
		} else if _, err := regexp.Compile(g.Match); err != nil {
			l.problem(at+".match", "is no regular expression that RE2 can run: %s", l.regexpFault(at+".match", err))
		}
		l.text(at+".append", g.Append)
	}
	l.oneOf(path+".check_results", u.CheckResults, CheckOff, CheckWarn, CheckReject)
	l.globs(path+".guard.tools", u.GuardTools)
	l.positive(path+".guard.window", u.GuardWindow)
}

// regexpFault is what is wrong with a regular expression, without the expression where it is hidden.
func (l *loader) regexpFault(at string, err error) string {
	if l.hidden[at] {
		return "(not shown)"
	}
	text := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return strings.Join(strings.Fields(text), " ")
}

func (l *loader) template(at, name, text string) {
	if !slices.Contains(textNames, name) {
		hint := ""
		if near := nearest(name, textNames); near != "" {
			hint = "; did you mean " + near + "?"
		}
		l.problem(at, "no text has this name, expected one of %s%s", strings.Join(textNames, " "), hint)
		return
	}
	l.text(at, text)
	for _, found := range inBraces.FindAllString(text, -1) {
		switch {
		case !slices.Contains(placeholders, found):
			l.problem(at, "has the placeholder %s, expected one of %s", l.show(at, found), strings.Join(placeholders, " "))
		case found == "{limit}" && name != "rate_limited" && name != "concurrency_limited":
			l.problem(at, "has {limit}, which is known for rate_limited and concurrency_limited only")
		}
	}
}

func (l *loader) text(at, text string) {
	switch n := utf8.RuneCountInString(text); {
	case strings.TrimSpace(text) == "":
		l.problem(at, "must not be empty")
	case n > maxText:
		l.problem(at, "has %d characters, and %d are the most", n, maxText)
	}
}

func (l *loader) globs(path string, globs []string) {
	for i, glob := range globs {
		if _, err := matchGlob(glob, ""); err != nil || glob == "" {
			at := index(path, i)
			l.problem(at, "found %s, expected a glob such as get_*", l.show(at, glob))
		}
	}
}

func equalGuidance(a, b []Guidance) bool {
	return slices.EqualFunc(a, b, func(a, b Guidance) bool {
		return a.Match == b.Match && a.Append == b.Append && slices.Equal(a.Tools, b.Tools)
	})
}

// MatchTool reports whether one of the globs matches a tool's own name, as RepeatableTool does.
func MatchTool(globs []string, name string) bool {
	for _, glob := range globs {
		if ok, err := matchGlob(glob, name); ok && err == nil {
			return true
		}
	}
	return false
}
