package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/mcptest"
)

// offering is a script that lists raw definitions.
func offering(era string, lists map[string][]string) *mcptest.Server {
	s := &mcptest.Server{Era: era, Capabilities: `{"tools":null,"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}`, Methods: map[string]func(c *mcptest.Call){}}
	for method, member := range map[string]string{"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		s.Methods[method] = func(c *mcptest.Call) { c.Result(`{"` + member + `":[` + strings.Join(lists[method], ",") + `]}`) }
	}
	return s
}

// TestInspectListed: a definition is repaired by adding or withheld alone, and the finding names it.
func TestInspectListed(t *testing.T) {
	long := strings.Repeat("x", maxKey+1)
	for _, tt := range []struct{ kind, def, rule, want string }{
		{"prompt", `{"name":"p","x":1.0}`, "", `{"name":"p","x":1.0}`},
		{"prompt", `{"name":"p","title":null,"arguments":null}`, "null_member", `{"name":"p"}`},
		{"prompt", `{"name":"p","arguments":{}}`, "definition", ""},
		{"prompt", `{"name":"p","arguments":[{"name":"a"},{"description":"no name"}]}`, "definition", ""},
		{"prompt", `{"name":"p","arguments":["a"]}`, "definition", ""},
		{"prompt", `{"name":"","description":"d"}`, "name", ""},
		{"prompt", `{"description":"d"}`, "name", ""},
		{"prompt", `{"name":"p","name":"q"}`, "definition", ""},
		{"prompt", `"p"`, "definition", ""},
		{"prompt", `{"name":"p\u200b"}`, "hidden_characters", `{"name":"p\u200b"}`},
		{"resource", `{"uri":"r://x"}`, "name_missing", `{"uri":"r://x","name":"r://x"}`},
		{"resource", `{"uri":"r://x","name":null}`, "name_missing", `{"uri":"r://x","name":"r://x"}`},
		{"resource", `{"uri":"r://x","name":7}`, "definition", ""},
		{"resource", `{"uri":"r://x","name":"n","size":1.5e3}`, "", `{"uri":"r://x","name":"n","size":1.5e3}`},
		{"resource", `{"uri":"r://x","name":"n","size":"big"}`, "definition", ""},
		{"resource", `{"uri":"r://x","name":"n","annotations":[]}`, "definition", ""},
		{"resource", `{"uri":["r"],"name":"n"}`, "name", ""},
		{"resource", `{"uri":"` + long + `","name":"n"}`, "too_long", ""},
		{"resource template", `{"uriTemplate":"r://{x}","name":"n"}`, "", `{"uriTemplate":"r://{x}","name":"n"}`},
		{"resource template", `{"uriTemplate":"r://{x","name":"n"}`, "uri_template", `{"uriTemplate":"r://{x","name":"n"}`},
		{"resource template", `{"uriTemplate":"r://{` + strings.Repeat("a,", 1001) + `a}","name":"n"}`, "uri_template", "-"},
	} {
		i := slices.IndexFunc(listKinds, func(k listKind) bool { return k.noun == tt.kind })
		var list List
		r := readingItems(&listKinds[i], "srv", &list)
		r.take([]byte(tt.def))
		switch {
		case tt.want == "" && len(list.Items) != 0, tt.want != "" && len(list.Items) != 1:
			t.Errorf("%s: %d are served", clip(tt.def, 200), len(list.Items))
		case len(tt.want) > 1 && string(list.Items[0].Definition) != tt.want:
			t.Errorf("%s: served as %s", tt.def, list.Items[0].Definition)
		}
		if tt.rule == "" && len(r.findings) != 0 || tt.rule != "" && !slices.ContainsFunc(r.findings, func(f Finding) bool { return f.Rule == tt.rule && f.Kind == tt.kind && f.Server == "srv" }) {
			t.Errorf("%s: findings %+v, want %q", clip(tt.def, 200), r.findings, tt.rule)
		}
	}
}

// TestTemplateMatch: templates match what they can be expanded to.
func TestTemplateMatch(t *testing.T) {
	for _, tt := range []struct {
		template string
		literal  int
		yes, no  []string
	}{
		{"f:///{path}", 5, []string{"f:///a", "f:///a.b", "f:///"}, []string{"f:///a/b", "g:///a", "xf:///a", "f:///a\n"}},
		{"f:///{+path}", 5, []string{"f:///a/b", "f:///a?b#c"}, []string{"f://a"}},
		{"s://x{?a,b}", 5, []string{"s://x", "s://x?a=1", "s://x?a=1&b=2"}, []string{"s://y?a=1"}},
		{"s://{a}/x/{b}", 7, []string{"s://1/x/2"}, []string{"s://1/y/2", "s://1/x"}},
		{"s://plain.x", 11, []string{"s://plain.x"}, []string{"s://plainyx", "s://plain.x/"}},
	} {
		m := newTemplate(tt.template)
		if m == nil || m.Literal() != tt.literal {
			t.Fatalf("%s: %+v", tt.template, m)
		}
		for _, uri := range tt.yes {
			if !m.Match(uri) {
				t.Errorf("%s does not match %s", tt.template, uri)
			}
		}
		for _, uri := range tt.no {
			if m.Match(uri) {
				t.Errorf("%s matches %q", tt.template, uri)
			}
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"f:///{path}", "{+a*}{?b,c:3}", "{", "}{", "x{;a}{#b}{.c}{/d}{&e}"} {
		f.Add(s, "f:///a")
	}
	f.Fuzz(func(t *testing.T, text, uri string) {
		if len(text) > maxKey {
			return
		}
		if m := newTemplate(text); m != nil {
			m.Match(uri)
		}
	})
}

// TestListsAreBounded: pages that do not end, cursors that repeat, items without number.
func TestListsAreBounded(t *testing.T) {
	endless := func(next func(page int) string) func(c *mcptest.Call) {
		page := 0
		return func(c *mcptest.Call) {
			page++
			c.Result(fmt.Sprintf(`{"resources":[{"uri":"r://%d","name":"n"}],"nextCursor":%s}`, page, next(page)))
		}
	}
	var many []string
	for i := range maxTemplates + 5 {
		many = append(many, fmt.Sprintf(`{"uriTemplate":"r%d://{x}","name":"n"}`, i))
	}
	for name, tt := range map[string]struct {
		list func(c *mcptest.Call)
		rule string
		want int
	}{
		"no end":       {endless(func(page int) string { return fmt.Sprintf(`"p%d"`, page) }), "pages", maxPages},
		"one cursor":   {endless(func(int) string { return `"same"` }), "cursor", 2},
		"not a cursor": {endless(func(int) string { return `7` }), "cursor", 1},
		"null":         {endless(func(int) string { return `null` }), "", 1},
		"twice": {func(c *mcptest.Call) {
			c.Result(`{"resources":[{"uri":"r://1","name":"a"},{"uri":"r://1","name":"b"}]}`)
		}, "duplicate_name", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := offering(mcptest.Modern, map[string][]string{"resources/templates/list": many})
			s.Methods["resources/list"] = tt.list
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			c := r.Catalogue()
			if n := len(c.Resources.Items); n != tt.want {
				t.Errorf("%d resources, want %d", n, tt.want)
			}
			if tt.rule != "" && !slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Rule == tt.rule && f.Kind == "resource" }) {
				t.Errorf("findings: %+v", c.Findings)
			}
			if len(c.Templates.Items) != maxTemplates || !slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Rule == "items" && f.Kind == "resource template" }) {
				t.Errorf("%d templates, findings %+v", len(c.Templates.Items), c.Findings)
			}
		})
	}
}

// TestListAnnouncements: an announcement of any list has the catalogue read again, a burst of all of them
// once or twice; a ttlMs of any list does too.
func TestListAnnouncements(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		lists := map[string][]string{"prompts/list": {`{"name":"a"}`}}
		s := offering(era, lists)
		after := make(chan struct{})
		s.Methods["prompts/list"] = func(c *mcptest.Call) {
			select {
			case <-after:
				c.Result(`{"prompts":[{"name":"a"},{"name":"b"}],"ttlMs":31000}`)
			default:
				c.Result(`{"prompts":[{"name":"a"}]}`)
			}
		}
		r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
		awaitAt(t, s, "the stream", func() bool { return s.Streams() == 1 })
		close(after)
		began := time.Now()
		for range 20 {
			s.Broadcast("notifications/resources/list_changed", "")
			s.Broadcast("notifications/prompts/list_changed", "")
		}
		r.await("the second prompt", func() bool { return r.Catalogue().Prompts.Find("b") != nil })
		if n := s.Count("prompts/list"); n > 4+int(time.Since(began)/r.opts.RereadGap) {
			t.Errorf("%d lists were read", n)
		}
		if d := r.refreshAfter(); d < 31*time.Second || d > 35*time.Second {
			t.Errorf("read again after %v", d)
		}
	})
}

// TestWatchRefused: a server that does not let a resource be watched ends the watch, with its own error.
func TestWatchRefused(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		s := offering(era, nil)
		refuse := func(c *mcptest.Call) bool {
			if (c.Method == "resources/subscribe" || c.Method == "subscriptions/listen") && strings.Contains(string(c.Params), "r://no") {
				c.Error(`{"code":-32099,"message":"not this one"}`)
				return true
			}
			return false
		}
		s.OnRequest = refuse
		r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
		told := make(chan string, 16)
		w := r.Watch("r://no", func(params jsontext.Value) { told <- string(params) })
		var refused *Refusal
		if err := w.Wait(t.Context()); !errors.As(err, &refused) || !strings.Contains(string(refused.Raw), "-32099") {
			t.Errorf("refused with %v", err)
		}
		if got := <-told; got != "" {
			t.Errorf("told of %s", got)
		}
		w.Close()
		// Whoever comes next asks anew.
		again := r.Watch("r://no", func(jsontext.Value) {})
		if err := again.Wait(t.Context()); !errors.As(err, &refused) {
			t.Errorf("again: %v", err)
		}
		again.Close()
		r.stop()
		dead := r.Watch("r://x", func(jsontext.Value) {})
		if err := dead.Wait(t.Context()); err == nil || errors.As(err, &refused) {
			t.Errorf("after the end: %v", err)
		}
		dead.Close()
	})
}

// TestWatchIsTakenBack: with its last listener the subscription ends at the server, over HTTP and over
// pipes, and the next listener's is another one.
func TestWatchIsTakenBack(t *testing.T) {
	bothEras(t, func(t *testing.T, era string) {
		for _, over := range []string{"http", "pipe"} {
			t.Run(over, func(t *testing.T) {
				s := offering(era, nil)
				s.Methods["resources/subscribe"] = func(c *mcptest.Call) { c.Result(`{}`) }
				s.Methods["resources/unsubscribe"] = func(c *mcptest.Call) { c.Result(`{}`) }
				var r *rig
				if over == "pipe" {
					r = up(t, settings(), piped(s))
				} else {
					r = up(t, httpAt(s.StartHTTP(t).URL), Options{})
				}
				awaitAt(t, s, "the stream", func() bool { return s.Streams() >= 1 })
				before := s.Streams()
				for round := range 2 {
					told := make(chan string, 16)
					first := r.Watch("r://x", func(params jsontext.Value) { told <- string(params) })
					second := r.Watch("r://x", func(jsontext.Value) {})
					for _, w := range []*Watch{first, second} {
						if err := w.Wait(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					s.Broadcast("notifications/resources/updated", `{"uri":"r://x","n":1.0}`)
					if got := <-told; !strings.Contains(got, `"n":1.0`) {
						t.Errorf("told %s", got)
					}
					second.Close()
					if era == mcptest.Modern && s.Streams() != before+1 {
						t.Errorf("%d streams while somebody listens, %d before", s.Streams(), before)
					}
					first.Close()
					awaitAt(t, s, "the end of the subscription", func() bool {
						if era == mcptest.Legacy {
							return s.Count("resources/unsubscribe") == round+1
						}
						return s.Streams() == before && (over == "http" || len(s.Cancelled()) == round+1)
					})
				}
				if n := s.Count("resources/subscribe"); era == mcptest.Legacy && n != 2 {
					t.Errorf("%d subscriptions", n)
				}
			})
		}
	})
}
