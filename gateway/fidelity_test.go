package gateway

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// sample is one file of the corpus: what it is about, and one raw value.
type sample struct{ name, kind, raw string }

func samples(t testing.TB, folder string) []sample {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []sample
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		obj := object(t, string(data))
		if len(obj) != 2 || obj[0].Name != "about" {
			t.Fatalf("%s: want about and one value", f)
		}
		out = append(out, sample{strings.TrimSuffix(filepath.Base(f), ".json"), obj[1].Name, string(obj[1].Value)})
	}
	return out
}

// upstreamKind is one way in which a server can speak.
type upstreamKind struct {
	id     string
	server mcptest.Server
	sse    bool // HTTP+SSE
	lines  bool // pipes: a message is one line
}

func upstreamKinds() []*upstreamKind {
	return []*upstreamKind{
		{id: "modern-json", server: mcptest.Server{Era: mcptest.Modern}},
		{id: "modern-sse", server: mcptest.Server{Era: mcptest.Modern, ForceSSE: true}},
		{id: "modern-pipe", server: mcptest.Server{Era: mcptest.Modern}, lines: true},
		{id: "legacy-json", server: mcptest.Server{Era: mcptest.Legacy}},
		{id: "legacy-stream", server: mcptest.Server{Era: mcptest.Legacy, ForceSSE: true}},
		{id: "legacy-httpsse", server: mcptest.Server{Era: mcptest.Legacy}, sse: true},
		{id: "legacy-pipe", server: mcptest.Server{Era: mcptest.Legacy}, lines: true},
	}
}

// launchKinds runs one gateway in front of servers of every kind that all have the same tools.
func launchKinds(t *testing.T, kinds []*upstreamKind, tools func(*upstreamKind) []mcptest.Tool) *gate {
	cfg, o := kindsConfig(t, kinds, tools)
	return launch(t, cfg, o)
}

// kindsConfig starts the servers, and is the configuration of a gateway in front of them.
func kindsConfig(t *testing.T, kinds []*upstreamKind, tools func(*upstreamKind) []mcptest.Tool) (*configs.Config, Options) {
	entries := map[string]string{}
	o := Options{Embedded: map[string]upstream.ServeFunc{}}
	for _, k := range kinds {
		k.server.Tools = tools(k)
		switch {
		case k.lines:
			o.Embedded[k.id] = serveLines(&k.server)
			entries[k.id] = embeddedEntry
		case k.sse:
			entries[k.id] = entry(k.server.StartSSE(t), `"type":"sse"`)
		default:
			entries[k.id] = entry(k.server.StartHTTP(t))
		}
	}
	return parseConfig(t, entries, `"naming":{"max_name_length":128}`), o
}

// oneLine is what line framing makes of a value.
func oneLine(s string) string { return string(wire.OneLine([]byte(s))) }

// clientKind is one way in which a client can speak.
type clientKind struct {
	name   string
	modern bool
	lines  bool
	// call returns the whole answer to a call of the tool with the id.
	call func(id, tool, arguments string) string
}

func clientKinds(g *gate) []clientKind {
	session := g.open()
	modernPipe, legacyPipe := g.pipe(), g.pipe()
	legacyPipe.shakeHands()
	return []clientKind{
		{"modern http", true, false, func(id, tool, args string) string { return g.callModern(id, tool, args).message() }},
		{"legacy http", false, false, func(id, tool, args string) string { return g.callLegacy(session, id, tool, args).message() }},
		{"modern stdio", true, true, func(id, tool, args string) string {
			return modernPipe.call(id, modernBody(id, "tools/call", callParams(tool, args)))
		}},
		{"legacy stdio", false, true, func(id, tool, args string) string {
			return legacyPipe.call(id, legacyBody(id, "tools/call", `{`+callParams(tool, args)+`}`))
		}},
	}
}

// TestAnswersPassVerbatim sends every answer of the corpus through every kind of server to every kind
// of client, and compares the bytes.
func TestAnswersPassVerbatim(t *testing.T) {
	corpus := samples(t, "fidelity")
	if len(corpus) < 65 {
		t.Fatalf("only %d cases", len(corpus))
	}
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(k *upstreamKind) []mcptest.Tool {
		return []mcptest.Tool{{Def: `{"name":"sample","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			n, _ := c.Arguments()["n"].(float64)
			raw := corpus[int(n)].raw
			if k.lines {
				raw = oneLine(raw)
			}
			if corpus[int(n)].kind == "error" {
				c.Error(raw)
			} else {
				c.Result(raw)
			}
		}}}
	})
	clients := clientKinds(g)
	var ids atomic.Int64
	t.Run("kinds", func(t *testing.T) {
		for _, k := range kinds {
			for _, c := range clients {
				t.Run(k.id+" to "+c.name, func(t *testing.T) {
					t.Parallel()
					var wg sync.WaitGroup
					for worker := range 4 {
						wg.Go(func() {
							for n := worker; n < len(corpus); n += 4 {
								id := strconv.FormatInt(ids.Add(1), 10)
								got := c.call(id, k.id+"_sample", fmt.Sprintf(`{"n":%d}`, n))
								if want := wantAnswer(t, id, corpus[n], k, c); got != want {
									t.Errorf("%s:\n got %s\nwant %s", corpus[n].name, clip(got), clip(want))
								}
							}
						})
					}
					wg.Wait()
				})
			}
		}
	})
}

func clip(s string) string { return s[:min(len(s), 600)] }

// wantAnswer is the answer of the corpus as a client must see it: the same bytes, with resultType
// where a legacy server left it out for a modern client.
func wantAnswer(t *testing.T, id string, s sample, k *upstreamKind, c clientKind) string {
	raw := s.raw
	if k.lines || c.lines {
		raw = oneLine(raw)
	}
	if s.kind == "result" && c.modern && k.server.Era == mcptest.Legacy {
		obj := object(t, raw)
		if _, has := obj.Get("resultType"); !has {
			added := `{"resultType":"complete"`
			if len(obj) > 0 {
				added += ","
			}
			raw = added + raw[1:]
		}
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"` + s.kind + `":` + raw + `}`
}

// TestDuplicateNamesInResult: a result that names a member twice passes as it is; nothing can be added
// to it without judging which of the two counts.
func TestDuplicateNamesInResult(t *testing.T) {
	const raw = `{"content":[],"content":[{"type":"text","text":"twice"}]}`
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool {
		return []mcptest.Tool{{Def: `{"name":"twice","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) { c.Result(raw) }}}
	})
	for _, c := range clientKinds(g) {
		for _, k := range kinds {
			if got, want := c.call("5", k.id+"_twice", ""), `{"jsonrpc":"2.0","id":5,"result":`+raw+`}`; got != want {
				t.Errorf("%s to %s: got %s", k.id, c.name, got)
			}
		}
	}
}

// TestToolsPassVerbatim lists every definition of the corpus from every kind of server.
func TestToolsPassVerbatim(t *testing.T) {
	corpus := samples(t, "tools")
	if len(corpus) < 22 {
		t.Fatalf("only %d definitions", len(corpus))
	}
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(k *upstreamKind) []mcptest.Tool {
		var tools []mcptest.Tool
		for _, s := range corpus {
			if k.lines {
				s.raw = oneLine(s.raw)
			}
			tools = append(tools, mcptest.Tool{Def: s.raw})
		}
		return tools
	})
	lists := map[string]string{
		"modern": g.modern("1", "tools/list", "").message(),
		"legacy": g.post(legacyBody("1", "tools/list", ""), g.open()).message(),
		"stdio":  g.pipe().call("1", modernBody("1", "tools/list", "")),
	}
	for _, k := range kinds {
		for _, s := range corpus {
			want := s.raw
			if k.lines {
				want = oneLine(want)
			}
			want = exposedAs(t, want, k.id)
			for client, list := range lists {
				want := want
				switch {
				case client == "stdio":
					want = oneLine(want)
				case client == "legacy" && s.name == "output-any":
					// The one thing left out, since those clients would refuse the whole list for it.
					want = strings.Replace(want, `,"outputSchema":{"anyOf": [{"type": "string"}, {"type": "null"}]}`, "", 1)
				}
				if !strings.Contains(list, want) {
					t.Errorf("%s of %s for %s: not listed as %s", s.name, k.id, client, want)
				}
			}
		}
	}
	if n := len(g.snapshot.Load().shown().tools); n != len(corpus)*len(kinds) {
		t.Errorf("%d tools are listed, want %d; status: %+v", n, len(corpus)*len(kinds), g.Status())
	}
}

// exposedAs is a definition under its exposed name: every member as it was, in the same order. Only
// the white space between the members of the definition itself may differ.
func exposedAs(t *testing.T, def, id string) string {
	var members []string
	for _, m := range object(t, def) {
		value := string(m.Value)
		if m.Name == "name" {
			value = `"` + id + "_" + value[1:]
		}
		members = append(members, string(m.Raw)+":"+value)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// TestRequestsPassVerbatim: what a client sends besides the name and the fields of the hop reaches the
// server as the same bytes, in the same order.
func TestRequestsPassVerbatim(t *testing.T) {
	tests := []struct{ name, members, want string }{
		{"no arguments", `"name":"%s"`, `"name":"echo"`},
		{"null arguments", `"name":"%s","arguments":null`, `"name":"echo","arguments":null`},
		{"empty arguments", `"name":"%s","arguments":{ }`, `"name":"echo","arguments":{ }`},
		{"numbers", `"name":"%s","arguments":{"z":9007199254740993,"a":1.0,"m":1e400}`, `"name":"echo","arguments":{"z":9007199254740993,"a":1.0,"m":1e400}`},
		{"escapes", `"name":"%s","arguments":{"a":"\ud800 \/ \u0000","\u0061b":"😀"}`, `"name":"echo","arguments":{"a":"\ud800 \/ \u0000","\u0061b":"😀"}`},
		{"duplicates inside arguments", `"name":"%s","arguments":{"a":1,"a":2}`, `"name":"echo","arguments":{"a":1,"a":2}`},
		{"order and unknown members", `"x":[1.0],"arguments":{},"name":"%s","task":{"ttl":1}`, `"x":[1.0],"arguments":{},"name":"echo","task":{"ttl":1}`},
		{"_meta of vendors", `"name":"%s","_meta":{"com.example/x":1.0,"traceparent":"00-1-2-03"}`, `"com.example/x":1.0,"traceparent":"00-1-2-03"`},
	}
	kinds := upstreamKinds()
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool { return mcptest.Builtin("echo") })
	session := g.open()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, k := range kinds {
				params := fmt.Sprintf(tt.members, k.id+"_echo")
				legacy := g.post(legacyBody("1", "tools/call", `{`+params+`}`), session)
				if k.server.Era == mcptest.Modern && legacy.status != 200 {
					t.Errorf("%s: %d %s", k.id, legacy.status, legacy.body)
				}
				requests := k.server.Requests()
				body := requests[len(requests)-1].Body
				if !bytes.Contains(body, []byte(tt.want)) {
					t.Errorf("%s: the server got %s, want %s in it", k.id, body, tt.want)
				}
				if bytes.Contains(body, []byte("progressToken")) {
					t.Errorf("%s: progress nobody asked for: %s", k.id, body)
				}
			}
		})
	}
}
