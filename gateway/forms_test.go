package gateway

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

func TestCanonicalURI(t *testing.T) {
	for uri, want := range map[string]string{
		"docs://pub/a":               "docs://pub/a",
		"file:///srv/private/x":      "file:///srv/private/x",
		"https://Host.example/a/b?q": "https://host.example/a/b?q",
		"config://app":               "config://app",
		"mem:x":                      "mem:x",
		"docs://pub/../secret/s":     "docs://pub/secret/s",
		"docs://pub/a/../../x":       "docs://pub/x",
		"docs://./secret/s":          "docs://secret/s",
		"docs://%73ecret/s":          "docs://secret/s",
		"docs://secret%2Fs":          "docs://secret/s",
		"docs://secret%252Fs":        "docs://secret/s",
		"DOCS://Secret//s":           "docs://secret/s",
		`docs://secret\s`:            "docs://secret/s",
		"a b":                        "a b",
		"%zz":                        "%zz",
		"":                           "",
	} {
		if got := canonicalURI(uri); got != want {
			t.Errorf("%q is %q, want %q", uri, got, want)
		}
		if got := canonicalURI(canonicalURI(uri)); got != canonicalURI(uri) {
			t.Errorf("%q is not canonical: %q", canonicalURI(uri), got)
		}
	}
}

// FuzzForms: no URI makes many forms, or a panic.
func FuzzForms(f *testing.F) {
	for _, s := range []string{"docs://pub/../x", "headgate://a/headgate://a/headgate://a/b://c", "%25252525", "://", "a:", "a://b/../../.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if n := len(formsOf(uri)); n > 8*maxForms {
			t.Errorf("%d forms", n)
		}
	})
}

// TestSpellingsOfResources: a rule is about a resource, however its URI is written.
func TestSpellingsOfResources(t *testing.T) {
	s := &mcptest.Server{Capabilities: `{"resources":{}}`, Methods: map[string]func(*mcptest.Call){
		"resources/list":           func(c *mcptest.Call) { c.Result(`{"resultType":"complete","resources":[]}`) },
		"resources/templates/list": func(c *mcptest.Call) { c.Result(`{"resultType":"complete","resourceTemplates":[]}`) },
		"resources/read": func(c *mcptest.Call) {
			c.Result(`{"resultType":"complete","contents":[{"uri":"x","text":"content"}]}`)
		},
	}}
	g := launch(t, parseConfig(t, map[string]string{"beta": entry(s.StartHTTP(t))}, keys(keyEntry("alice", "denied"), keyEntry("bob", "allowed")),
		`"teams":{"denied":{"upstreams":["beta"],"rules":[{"allow":["server:*"]},{"deny":["docs://secret/*"]}]},
			"allowed":{"upstreams":["beta"],"rules":[{"allow":["docs://pub/*"]}]}}`), Options{})
	read := func(who, uri string) bool {
		r := g.modern("1", "resources/read", `"uri":"`+strings.ReplaceAll(uri, `\`, `\\`)+`"`, "Mcp-Name: "+uri, bearer(who))
		return strings.Contains(r.body, `"content"`)
	}
	for _, uri := range []string{
		"docs://secret/s", "docs://pub/../../secret/s", "docs://./secret/s", "docs:///secret/s", "docs://%73ecret/s", "docs://secret%2Fs",
		"docs://secret%252fs", "DOCS://secret/s", "Docs://SECRET/s", "docs://secret//s", `docs://secret\s`, "headgate://beta/docs://secret/s",
		"headgate://beta/DOCS://secret/s", "headgate://beta/headgate://beta/docs://secret/s", "HEADGATE://beta/docs://secret/s", "headgate://other/docs://secret/s",
	} {
		if read("alice", uri) {
			t.Errorf("a deny is dodged by %s", uri)
		}
		if read("bob", uri) {
			t.Errorf("what no rule allows is read by %s", uri)
		}
	}
	for _, uri := range []string{"docs://pub/%2e%2e/%2e%2e/secret/s", "docs://pub%2f..%2f..%2fsecret/s", "docs://secret/../pub/../x"} {
		if read("bob", uri) {
			t.Errorf("an allow reaches %s", uri)
		}
	}
	for _, uri := range []string{"docs://pub/a", "docs://pub/a%20b", "docs://pub/a/./b"} {
		if !read("bob", uri) || !read("alice", uri) {
			t.Errorf("%s cannot be read", uri)
		}
	}
}
