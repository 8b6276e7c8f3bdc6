package gateway

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// TestPackedLists: a client that takes gzip gets the same list, compressed once for all; one that does not gets it plain.
func TestPackedLists(t *testing.T) {
	s := library{prompts: []string{promptDef("p" + strings.Repeat("q", 30))}, resources: []string{resourceDef("r://" + strings.Repeat("x", 2000))}}.shelve(&mcptest.Server{})
	for i := range 100 {
		s.Tools = append(s.Tools, mcptest.Tool{Def: fmt.Sprintf(`{"name":"tool_%d","description":"Does a thing. \u00e9 é","inputSchema":{"type":"object","properties":{"n":{"type":"number"}}}}`, i)})
	}
	g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
	session := g.open()
	for method, packs := range map[string]bool{"tools/list": true, "resources/list": true, "prompts/list": false, "resources/templates/list": false} {
		for era, ask := range map[string]func(id string, more ...string) reply{
			"modern": func(id string, more ...string) reply {
				return g.post(modernBody(id, method, ""), modernHeaders(method, more...)...)
			},
			"legacy": func(id string, more ...string) reply {
				return g.post(legacyBody(id, method, ""), append(more, session)...)
			},
		} {
			for accept, wants := range map[string]bool{"gzip": true, "br, GZIP;q=0.5": true, "gzip; q=1.0, deflate": true, "gzip;q=0": false, "gzip;\tq=0": false, "gzip;q=x": false, "deflate": false, "identity": false, "gzipped": false} {
				for _, id := range []string{"1", `"` + strings.Repeat("long", 9) + `"`, `"é"`} {
					plain := ask(id, "Accept-Encoding: identity")
					want, err := wire.Parse([]byte(plain.body))
					if err != nil {
						t.Fatalf("%s %s: %v", era, method, err)
					}
					got := ask(id, "Accept-Encoding: "+accept)
					packed := got.header.Get("Content-Encoding") == "gzip"
					if packed != (packs && wants) {
						t.Errorf("%s %s for %q: packed %t, want %t", era, method, accept, packed, packs && wants)
					}
					body := got.body
					if packed {
						z, err := gzip.NewReader(strings.NewReader(body))
						if err != nil {
							t.Fatal(err)
						}
						z.Multistream(false) // as some clients read
						text, err := io.ReadAll(z)
						if err != nil || got.header.Get("Content-Length") != fmt.Sprint(len(body)) || len(body) > len(plain.body)/3 {
							t.Errorf("%s %s: %v, %d bytes of %d, announced %s", era, method, err, len(body), len(plain.body), got.header.Get("Content-Length"))
						}
						body = string(text)
					}
					if m, err := wire.Parse([]byte(body)); err != nil || m.ID != wire.ID(id) || string(m.Result) != string(want.Result) {
						t.Errorf("%s %s for %q: %v, id %s, %.200s", era, method, accept, err, m.ID, body)
					}
				}
			}
		}
	}
	huge := `"` + strings.Repeat("x", 40_000) + `"`
	if r := g.post(modernBody(huge, "tools/list", ""), modernHeaders("tools/list", "Accept-Encoding: gzip")...); r.header.Get("Content-Encoding") != "" || !strings.Contains(r.body, huge) || r.status != http.StatusOK {
		t.Errorf("a long id: %d %q", r.status, r.header.Get("Content-Encoding"))
	}
	if r := g.post(modernBody("1", "tools/list", ""), modernHeaders("tools/list", "Accept-Encoding: gzip", "Accept: text/event-stream")...); r.header.Get("Content-Encoding") != "" || !strings.Contains(r.message(), "tool_99") {
		t.Errorf("on a stream: %q %.200s", r.header.Get("Content-Encoding"), r.body)
	}
}
