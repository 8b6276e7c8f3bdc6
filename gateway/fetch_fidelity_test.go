package gateway

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// readSamples are answers to reads beside those of the corpus, which no schema of tools describes.
var readSamples = []sample{
	{"blob", "result", `{"contents":[{"uri":"s://n","mimeType":"application/octet-stream","blob":"` + strings.Repeat("AAEC/+==", 5000) + `","x":1.0}],"y":9007199254740993}`},
	{"several", "result", `{ "contents" : [ {"uri":"s://a","text":"a\u0000\/"} , {"uri":"s://b","blob":""} ] , "_meta":{"z":1,"a":2} }`},
	{"messages", "result", `{"description":"d","messages":[{"role":"user","content":{"type":"hologram","v":1e400}}],"messages2":null}`},
	{"input required", "result", `{"resultType":"input_required","inputRequests":{"b":{"method":"elicitation/create","params":{"x":1.0}},"a":{"method":"unknown/method"}},"requestState":"s"}`},
	{"hints", "result", `{"cacheScope":"odd","ttlMs":1.50,"contents":[],"resultType":"novel"}`},
	{"completion", "result", `{"completion":{"values":["a",7,null],"total":1e2,"hasMore":false,"x":{}},"resultType":"complete","cacheScope":"public","ttlMs":1}`},
}

// fetchKinds are the methods besides tools/call whose answers pass, with how to ask for sample n of a
// server.
var fetchKinds = map[string]func(id string, n int) string{
	"prompts/get":    func(id string, n int) string { return fmt.Sprintf(`"name":"%s_sample","arguments":{"n":"%d"}`, id, n) },
	"resources/read": func(id string, n int) string { return fmt.Sprintf(`"uri":"%s://sample/%d"`, id, n) },
	"completion/complete": func(id string, n int) string {
		return fmt.Sprintf(`"ref":{"type":"ref/prompt","name":"%s_sample"},"argument":{"name":"n","value":"%d"}`, id, n)
	},
}

// number finds which sample a request asks for.
func number(c *mcptest.Call) int {
	var digits string
	switch c.Method {
	case "prompts/get":
		digits = string(mustMember(c.Member("arguments"), "n"))
	case "resources/read":
		uri := string(c.Member("uri"))
		digits = uri[strings.LastIndex(uri, "/")+1:]
	default:
		digits = string(mustMember(c.Member("argument"), "value"))
	}
	n, err := strconv.Atoi(strings.Trim(digits, `"`))
	if err != nil {
		panic(err)
	}
	return n
}

func mustMember(obj []byte, name string) []byte {
	o, err := wire.ParseObject(obj)
	if err != nil {
		panic(err)
	}
	v, _ := o.Get(name)
	return v
}

// TestFetchedAnswersPassVerbatim sends answers to gets, reads and completions through every kind of server
// to every kind of client, and compares the bytes.
func TestFetchedAnswersPassVerbatim(t *testing.T) {
	corpus := append(samples(t, "fidelity"), readSamples...)
	kinds := upstreamKinds()
	for _, k := range kinds {
		answer := func(c *mcptest.Call) {
			s := corpus[number(c)]
			raw := s.raw
			if k.lines {
				raw = oneLine(raw)
			}
			if s.kind == "error" {
				c.Error(raw)
			} else {
				c.Result(raw)
			}
		}
		library{prompts: []string{promptDef("sample")}, templates: []string{templateDef(k.id + "://sample/{n}")}, capabilities: `"completions":{}`,
			get: answer, read: answer, complete: answer}.shelve(&k.server)
	}
	g := launchKinds(t, kinds, func(*upstreamKind) []mcptest.Tool { return nil })
	session := g.open()
	modernPipe, legacyPipe := g.pipe(), g.pipe()
	legacyPipe.shakeHands()
	clients := []struct {
		clientKind
		ask func(id, method, params string) string
	}{
		{clientKind{name: "modern http", modern: true}, func(id, method, params string) string {
			header := modernHeaders(method)
			if member := namedBy[method]; member != "" {
				name, _ := wire.String([]byte(at(t, `{`+params+`}`, member)))
				header = append(header, "Mcp-Name: "+name)
			}
			return g.post(modernBody(id, method, params), header...).message()
		}},
		{clientKind{name: "legacy http"}, func(id, method, params string) string {
			return g.post(legacyBody(id, method, `{`+params+`}`), session).message()
		}},
		{clientKind{name: "modern stdio", modern: true, lines: true}, func(id, method, params string) string {
			return modernPipe.call(id, modernBody(id, method, params))
		}},
		{clientKind{name: "legacy stdio", lines: true}, func(id, method, params string) string {
			return legacyPipe.call(id, legacyBody(id, method, `{`+params+`}`))
		}},
	}
	var ids atomic.Int64
	var compared atomic.Int64
	t.Run("kinds", func(t *testing.T) {
		for _, k := range kinds {
			for _, c := range clients {
				t.Run(k.id+" to "+c.name, func(t *testing.T) {
					t.Parallel()
					var wg sync.WaitGroup
					for method, params := range fetchKinds {
						wg.Go(func() {
							for n, s := range corpus {
								if method == "completion/complete" && n%4 != 0 && n < len(corpus)-len(readSamples) {
									continue // the path is the one of prompts/get
								}
								if s.name == "input required" && strings.HasPrefix(k.id, "modern") && !c.modern {
									continue // that the server wants to know something is bridged, not passed
								}
								id := strconv.FormatInt(ids.Add(1), 10)
								got := c.ask(id, method, params(k.id, n))
								if want := wantFetched(t, id, method, s, k, c.clientKind); got != want {
									t.Errorf("%s: %s:\n got %s\nwant %s", method, s.name, clip(got), clip(want))
								}
								compared.Add(1)
							}
						})
					}
					wg.Wait()
				})
			}
		}
	})
	t.Logf("%d answers", compared.Load())
}

// wantFetched is wantAnswer with what reads alone may change: the code of a resource that is not there, and
// the hints for a modern client that a legacy server cannot give.
func wantFetched(t *testing.T, id, method string, s sample, k *upstreamKind, c clientKind) string {
	if method != "resources/read" {
		return wantAnswer(t, id, s, k, c)
	}
	if s.kind == "error" {
		from, to := "-32602", "-32002"
		if c.modern {
			from, to = to, from
		}
		if code := at(t, s.raw, "code"); code == from {
			var members []string
			for _, m := range object(t, s.raw) {
				value := string(m.Value)
				if m.Name == "code" {
					value = to
				}
				members = append(members, string(m.Raw)+":"+value)
			}
			s.raw = "{" + strings.Join(members, ",") + "}"
		}
		return wantAnswer(t, id, s, k, c)
	}
	answer := wantAnswer(t, id, s, k, c)
	if !c.modern || k.server.Era != mcptest.Legacy {
		return answer
	}
	head := `{"jsonrpc":"2.0","id":` + id + `,"result":`
	result := strings.TrimPrefix(answer, head)
	obj := object(t, s.raw)
	added := ""
	if _, has := obj.Get("ttlMs"); !has {
		added += `"ttlMs":0,`
	}
	if _, has := obj.Get("cacheScope"); !has {
		added += `"cacheScope":"private",`
	}
	return head + "{" + added + result[1:]
}

// TestDefinitionsPassVerbatim: what a server says of a prompt, a resource or a template reaches clients as
// it stood, under its exposed name.
func TestDefinitionsPassVerbatim(t *testing.T) {
	const extra = `"title":"T \ud83d\ude00","_meta":{"ui":{"z":1.0,"a":9007199254740993}},"icons":[{"src":"data:,","x":null}],"unknown":[1e400],"description":"\/ \u0000"`
	defs := map[string]string{
		"prompts/list":             `{"arguments":[{"name":"b","required":true,"x":1.0},{"name":"a"}],` + extra + `,"name":"p"}`,
		"resources/list":           `{` + extra + `,"uri":"ui:\/\/panel\/main","name":"n","size":9007199254740993,"mimeType":"text/html;profile=mcp-app","annotations":{"priority":0.10}}`,
		"resources/templates/list": `{"uriTemplate":"u://{+path}","name":"n",` + extra + `}`,
	}
	kinds := upstreamKinds()
	for _, k := range kinds {
		library{prompts: []string{defs["prompts/list"]}, resources: []string{strings.Replace(defs["resources/list"], "main", k.id, 1)},
			templates: []string{strings.Replace(defs["resources/templates/list"], "u://", k.id+"://", 1)}}.shelve(&k.server)
	}
	g := launchKinds(t, kinds, func(k *upstreamKind) []mcptest.Tool {
		return []mcptest.Tool{{Def: `{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://panel/` + k.id + `"}}}`}}
	})
	g.eras(func(era, session string) {
		tools := g.ask(session, "tools/list", "")
		for method := range defs {
			list := g.ask(session, method, "")
			for _, k := range kinds {
				want := strings.Replace(strings.Replace(defs[method], "main", k.id, 1), "u://", k.id+"://", 1)
				want = strings.Replace(want, `"name":"p"`, `"name":"`+k.id+`_p"`, 1)
				if !strings.Contains(list, want) {
					t.Errorf("%s: %s: %s is not in %s", era, method, want, clip(list))
				}
				// The panel of a tool is read by the URI that the tool's definition names.
				if !strings.Contains(tools, `"_meta":{"ui":{"resourceUri":"ui://panel/`+k.id+`"}}`) {
					t.Errorf("%s: the tool of %s", era, k.id)
				}
				if got := g.ask(session, "resources/read", `"uri":"ui://panel/`+k.id+`"`); at(t, got, "result", "contents") == "" {
					t.Errorf("%s: the panel of %s: %s", era, k.id, got)
				}
			}
		}
	})
}
