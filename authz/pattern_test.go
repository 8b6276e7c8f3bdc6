package authz

import (
	"regexp"
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	tool := Item{Kind: KindTool, Name: "github_get_user", Server: "github", Annotations: Annotations{ReadOnly: true, Destructive: true, OpenWorld: true}}
	writer := Item{Kind: KindTool, Name: "github_put", Server: "github", Annotations: Annotations{Destructive: true, Idempotent: true}}
	resource := Item{Kind: KindResource, Name: "repo://a/b?c", Also: []string{"headgate://github/repo://a/b?c", "repo://{+path}"}, Server: "github"}
	tests := []struct {
		pattern                string
		tool, writer, resource bool
	}{
		{"*", true, true, true},
		{"**", true, true, true},
		{"github_*", true, true, false},
		{"github_get_user", true, false, false},
		{"github_get_use", false, false, false},
		{"GitHub_*", false, false, false},
		{"*get*", true, false, false},
		{"*_???", false, true, false},
		{"github_pu?", false, true, false},
		{"github_put?", false, false, false},
		{"repo://*", false, false, true},
		{"repo:*/b*", false, false, true},
		{"headgate://github/repo:*", false, false, true},
		{"headgate://files/*", false, false, false},
		{"repo://{+path}", false, false, true},
		{"[a-z]*", false, false, false},
		{"server:github", true, true, true},
		{"server:git*", true, true, true},
		{"server:*", true, true, true},
		{"server:files", false, false, false},
		{"server:GitHub", false, false, false},
		{"annotation:readOnlyHint", true, false, false},
		{"annotation:readOnlyHint=true", true, false, false},
		{"annotation:readOnlyHint=false", false, true, false},
		{"annotation:destructiveHint", false, true, false}, // it means nothing for a tool that only reads
		{"annotation:destructiveHint=false", true, false, false},
		{"annotation:idempotentHint", false, true, false},
		{"annotation:openWorldHint", true, false, false},
		{"annotation:openWorldHint=false", false, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			p, err := parsePattern(tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			if a, b, c := p.match(&tool), p.match(&writer), p.match(&resource); a != tt.tool || b != tt.writer || c != tt.resource {
				t.Errorf("matches %t, %t, %t", a, b, c)
			}
		})
	}
	for bad, want := range map[string]string{
		"": "empty pattern", "server:": "empty server", "annotation:": "unknown annotation", "annotation:title": "unknown annotation",
		"annotation:readonlyhint": "unknown annotation", "annotation:readOnlyHint=": "true or false", "annotation:readOnlyHint=yes": "true or false",
	} {
		if _, err := parsePattern(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

// FuzzGlob compares with a regular expression that says the same.
func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{
		{"", ""}, {"*", ""}, {"a*b", "ab"}, {"a*b*c", "a-b-bc"}, {"?", "\xff"}, {"*a?", "aab"}, {"**?", "x"}, {"a*a*a*a*b", "aaaaaaaaaaaaa"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 200 || len(s) > 1000 {
			return
		}
		// Bytes become letters of their own, since both sides match bytewise.
		wide := func(s string) string {
			out := make([]rune, len(s))
			for i := range len(s) {
				out[i] = rune(s[i])
			}
			return string(out)
		}
		expression := regexp.QuoteMeta(wide(p))
		expression = strings.ReplaceAll(strings.ReplaceAll(expression, `\*`, `.*`), `\?`, `.`)
		if got, want := glob(p, s), regexp.MustCompile(`(?s)^`+expression+`$`).MatchString(wide(s)); got != want {
			t.Errorf("glob(%q, %q) = %t", p, s, got)
		}
	})
}
