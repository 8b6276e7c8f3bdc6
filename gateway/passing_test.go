package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// large serves a tool "big", which may run twice without harm, and answers each call of it by hand: id is that of the
// request, and args are the arguments.
func large(era string, answer func(w http.ResponseWriter, r *http.Request, id, args string)) *mcptest.Server {
	s := &mcptest.Server{Era: era, Tools: []mcptest.Tool{{Def: `{"name":"big","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`}}}
	s.OnHTTP = func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		m, err := wire.Parse(body)
		if err != nil || m.Method != "tools/call" && m.Method != "resources/read" {
			return false
		}
		params, _ := wire.ParseObject(m.Params)
		args, _ := params.Get("arguments")
		answer(w, r, string(m.ID), string(args))
		return true
	}
	return s
}

// forms are how a server over HTTP may send an answer.
var forms = []string{"announced", "chunked", "event"}

// respond answers in one of the forms.
func respond(w http.ResponseWriter, body, form string) {
	beginForm(w, len(body), form)
	switch form {
	case "event":
		_, _ = w.Write(wire.AppendEvent(nil, "", "", []byte(body)))
	default:
		_, _ = io.WriteString(w, body)
	}
	_ = http.NewResponseController(w).Flush()
}

// beginForm begins an answer in one of the forms.
func beginForm(w http.ResponseWriter, size int, form string) {
	w.Header().Set("Content-Type", "application/json")
	switch form {
	case "event":
		w.Header().Set("Content-Type", "text/event-stream")
	case "announced":
		w.Header().Set("Content-Length", strconv.Itoa(size))
	}
}

// filler is about n bytes of the text of a string.
func filler(n int) string { return strings.Repeat(`xyz \"é\" 漢字 \u00e9\n`, n/24+1) }

// TestLargeResultsPass: a large result is the same bytes, in pieces or whole, whatever its envelope looks like.
func TestLargeResultsPass(t *testing.T) {
	envelopes := map[string]string{
		"id first": `{"jsonrpc":"2.0","id":%[1]s,"result":%[2]s}`, "id last": `{"result":%[2]s,"jsonrpc":"2.0","id":%[1]s}`,
		"spaced": "\n { \"jsonrpc\" : \"2.0\" ,\"result\" :\t%[2]s , \"id\" : %[1]s } \r\n", "more": `{"x":{},"jsonrpc":"2.0","result":%[2]s,"id":%[1]s,"y":[` + strings.Repeat("1,", 3000) + `1]}`,
	}
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		var envelope, result, form string
		s := large(era, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
			respond(w, fmt.Sprintf(envelope, id, result), form)
		})
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
		session := g.open()
		for name, e := range envelopes {
			for _, size := range []int{10, 70 << 10, 600 << 10} {
				for _, more := range []string{"", `,"isError":true `, `,"resultType":"complete"`, `,"a":{"b":1},"n":12345678901234567890.10`} {
					for _, form = range forms {
						envelope, result = e, `{ "content":[{"type":"text","text":"`+filler(size)+`"}]`+more+`}`
						what := fmt.Sprintf("%s server, %s, %d bytes, %s, %s", era, name, size, form, more)
						modern := result
						if era == mcptest.Legacy && !strings.Contains(more, "resultType") {
							if modern = `{"resultType":"complete",` + result[1:]; size > 256<<10 && (form != "event" || name != "spaced") { // that one begins with a short line, and is seen whole
								modern = result[:len(result)-1] + `,"resultType":"complete"}`
							}
						}
						g.wantResult(what+", modern", g.callModern(`"an id"`, "x_big", `{}`), modern)
						g.wantResult(what+", legacy", g.callLegacy(session, `"an id"`, "x_big", `{}`), result)
					}
				}
			}
		}
	}
}

func (g *gate) wantResult(what string, r reply, want string) {
	g.t.Helper()
	m, err := wire.Parse([]byte(r.body))
	if err != nil || m.ID != `"an id"` || r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" {
		g.t.Errorf("%s: %d %v: %.200s", what, r.status, err, r.body)
	}
	if got := string(m.Result); got != want {
		g.t.Errorf("%s: %d bytes, want %d: %.80s … %s", what, len(got), len(want), got, got[max(0, len(got)-80):])
	}
	if n := r.header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(r.body)) {
		g.t.Errorf("%s: Content-Length %s of %d", what, n, len(r.body))
	}
}

// TestLargeResultIsNotHeld: the client has the beginning of a result before its server has sent the end.
func TestLargeResultIsNotHeld(t *testing.T) {
	for _, form := range forms {
		goOn := make(chan struct{})
		s := large(mcptest.Modern, func(w http.ResponseWriter, r *http.Request, id, _ string) {
			body := `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + filler(1<<20) + `"}]}}`
			beginForm(w, len(body), form)
			if form == "event" {
				_, _ = io.WriteString(w, "data: ")
			}
			_, _ = io.WriteString(w, body[:600<<10])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-goOn:
				_, _ = io.WriteString(w, body[600<<10:])
				if form == "event" {
					_, _ = io.WriteString(w, "\n\n")
				}
			case <-r.Context().Done():
			}
		})
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
		resp, err := g.http.Do(g.request("POST", modernBody("1", "tools/call", callParams("x_big", "{}")), modernHeaders("tools/call", "Mcp-Name: x_big")...))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		begin := make([]byte, 500<<10)
		if _, err := io.ReadFull(resp.Body, begin); err != nil || !strings.HasPrefix(string(begin), `{"jsonrpc":"2.0","id":1,"result":{"content":[`) {
			t.Fatalf("%s: %v %.100s", form, err, begin)
		}
		close(goOn)
		rest, err := io.ReadAll(resp.Body)
		if m, perr := wire.Parse(append(begin, rest...)); err != nil || perr != nil || len(m.Result) < 1<<20 {
			t.Errorf("%s: the rest: %v %v", form, err, perr)
		}
	}
}

// TestLargeResultThatBreaksOff: what goes wrong behind the first piece ends the connection, in both eras; the call is not
// made again, and everything that tells of it says what happened.
func TestLargeResultThatBreaksOff(t *testing.T) {
	begin := `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"` + filler(1<<20)
	hijack := func(w http.ResponseWriter) net.Conn {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		return c
	}
	for name, tt := range map[string]struct {
		end     string // of the message; "" breaks the connection
		outcome string
		more    string // of the configuration
	}{
		"connection lost":    {"", "connection_lost", ""},
		"not JSON":           {`"]}]}}` + filler(100<<10), "bad_upstream_answer", ""},
		"ends early":         {`"}`, "bad_upstream_answer", ""},
		"not UTF-8":          {"\xff\"}]}}", "bad_upstream_answer", ""},
		"error as well":      {`"}]},"error":{"code":1,"message":"m"}}`, "bad_upstream_answer", ""},
		"another's":          {`"}]},"id":99}`, "bad_upstream_answer", ""},
		"much behind it":     {`"}]},"x":"` + filler(40<<10) + `"}`, "bad_upstream_answer", ""},
		"larger than it may": {filler(1<<20) + `"}]}}`, "bad_upstream_answer", `"max_answer":"2MiB"`},
		"stuck":              {"stuck", "timeout", `"call_timeout":"1s"`},
	} {
		for _, form := range forms {
			if form == "announced" && strings.HasPrefix(name, "larger") {
				continue // it is known at once, and answered from the failure table
			}
			t.Run(name+", "+form, func(t *testing.T) {
				calls := 0
				s := large(mcptest.Legacy, func(w http.ResponseWriter, r *http.Request, id, _ string) {
					calls++
					text := fmt.Sprintf(begin, id)
					if name == "another's" {
						text = strings.Replace(text, `"id":`+id+`,`, "", 1)
					}
					if tt.end != "" && tt.end != "stuck" {
						respond(w, text+tt.end, form)
						return
					}
					beginForm(w, 4<<20, form)
					if form == "event" {
						text = "id: 1\nretry: 1\ndata: " + text
					}
					_, _ = io.WriteString(w, text)
					_ = http.NewResponseController(w).Flush()
					if tt.end == "stuck" {
						<-r.Context().Done()
						return
					}
					hijack(w).Close()
				})
				more := []string{`"retries":2`}
				if tt.more != "" {
					more = append(more, tt.more)
				}
				g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), more...)}), Options{})
				session := g.open()
				for _, req := range []*http.Request{
					g.request("POST", modernBody("1", "tools/call", callParams("x_big", "{}")), modernHeaders("tools/call", "Mcp-Name: x_big")...),
					g.request("POST", legacyBody("1", "tools/call", `{`+callParams("x_big", "{}")+`}`), session),
				} {
					calls = 0
					resp, err := g.http.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if !errors.Is(err, io.ErrUnexpectedEOF) || len(got) < 200<<10 {
						t.Errorf("the client has %d bytes and %v", len(got), err)
					}
					if calls != 1 {
						t.Errorf("the call was made %d times", calls)
					}
				}
				if !strings.Contains(g.log.String(), `"outcome":"`+tt.outcome+`"`) {
					t.Errorf("the log has no outcome %s: %s", tt.outcome, g.log.String())
				}
				g.awaitMetric(2, "headgate_calls_total", "headgate_outcome", tt.outcome)
			})
		}
	}
}

// TestLittleResultThatBreaksOff: of an answer that is cut off the client has something, however little there was of it. There
// are clients that make a request again which ends without.
func TestLittleResultThatBreaksOff(t *testing.T) {
	for _, form := range forms {
		s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
			text := `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + filler(2<<10) + `"},`
			beginForm(w, 1<<20, form)
			if form == "event" {
				text = "data: " + text + "\n\n"
			}
			_, _ = io.WriteString(w, text)
			panic(http.ErrAbortHandler)
		})
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"stream_over":"1KiB"`)}), Options{})
		resp, err := g.http.Do(g.request("POST", modernBody("1", "tools/call", callParams("x_big", "{}")), modernHeaders("tools/call", "Mcp-Name: x_big")...))
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		resp.Body.Close()
	}
}

// TestLargeResultsThatAreHeld: where something has to be known of a result before it passes, it is held.
func TestLargeResultsThatAreHeld(t *testing.T) {
	for name, more := range map[string]string{
		"leak filter": `"leak_filter":true`, "guidance": `"guidance":[{"match":"x","append":"y"}]`, "results are checked": `"check_results":"reject"`, "by configuration": `"stream_over":0`,
	} {
		t.Run(name, func(t *testing.T) {
			s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
				respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"`+filler(1<<20)+`"}],"isError":true},"error":1}`, "announced")
			})
			g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), more)}), Options{})
			if got := at(t, g.callModern("1", "x_big", "{}").body, "error", "data", "headgate", "reason"); got != `"bad_upstream_answer"` {
				t.Errorf("the reason is %s", got)
			}
		})
	}
}

// TestSmallResultOfLargeAnswer: a result that is over before anything is passed on is held, and what follows it does not
// cost the client its answer.
func TestSmallResultOfLargeAnswer(t *testing.T) {
	for _, form := range forms {
		s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
			respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[]},"x":"`+filler(400<<10)+`"}`, form)
		})
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
		g.wantResult(form, g.callModern(`"an id"`, "x_big", `{}`), `{"content":[]}`)
	}
}

// TestLittleMayBeLarge: an answer above max_answer is told of from the failure table where that is less than stream_over.
func TestLittleMayBeLarge(t *testing.T) {
	for _, form := range forms {
		s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
			respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"`+filler(400<<10)+`"}]}}`, form)
		})
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"max_answer":"128KiB"`)}), Options{})
		if got := at(t, g.callModern("1", "x_big", "{}").body, "error", "data", "headgate", "reason"); got != `"bad_upstream_answer"` {
			t.Errorf("%s: the reason is %s", form, got)
		}
	}
}

// TestLargeErrorsAreToolErrors: that a result was not held does not make it look healthy.
func TestLargeErrorsAreToolErrors(t *testing.T) {
	for _, flag := range []string{`"isError":true,"content":[%s]`, `"content":[%s],"isError" : true`, `"content":[%s],"isErro\u0072":true`} {
		s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
			respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{`+fmt.Sprintf(flag, `{"type":"text","text":"`+filler(1<<20)+`"}`)+`}}`, "announced")
		})
		g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
		g.callModern("1", "x_big", "{}")
		g.awaitMetric(1, "headgate_calls_total", "headgate_outcome", "tool_error")
		if got := g.outcomesOf("x_big"); got["tool_error"] != 1 {
			t.Errorf("the ledger has %v", got)
		}
		if line := g.accessLine("1"); line["outcome"] != "tool_error" || line["answer_bytes"].(float64) < 1<<20 {
			t.Errorf("the log says %v", line)
		}
	}
}

// TestLinksInLargeResults lead back to their server, as those in others do.
func TestLinksInLargeResults(t *testing.T) {
	s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, args string) {
		if args == "" {
			respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"contents":[{"uri":"z://1","text":"found"}],"ttlMs":0,"cacheScope":"private","resultType":"complete"}}`, "announced")
			return
		}
		respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"resultType":"complete","content":[{"type":"text","text":"`+filler(1<<20)+`"},{"type":"resource_link","name":"n","uri":"z://1"}]}}`, "announced")
	})
	s.Capabilities = `{"tools":{},"resources":{}}`
	other := library{resources: []string{resourceDef("y://1")}, read: func(*mcptest.Call) { t.Error("the other server was asked") }}.shelve(&mcptest.Server{})
	g := launch(t, parseConfig(t, map[string]string{"a": entry(other.StartHTTP(t)), "x": entry(s.StartHTTP(t))}), Options{})
	g.callModern("1", "x_big", "{}")
	if got := readText(t, g.modern("2", "resources/read", `"uri":"z://1"`, "Mcp-Name: z://1").body); got != "found" {
		t.Errorf("the link reads %q", got)
	}
}

// TestLargeReads: what is read passes in pieces too, with the hints that a legacy server leaves out.
func TestLargeReads(t *testing.T) {
	content := `{"contents":[{"uri":"r://1","text":"` + filler(1<<20) + `"}]`
	for era, want := range map[string]string{mcptest.Legacy: content + `,"ttlMs":0,"cacheScope":"private","resultType":"complete"}`, mcptest.Modern: content + `}`} {
		s := library{resources: []string{resourceDef("r://1")}}.shelve(large(era, func(w http.ResponseWriter, _ *http.Request, id, _ string) {
			respond(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`+content+`}}`, "announced")
		}))
		g := launch(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t))}), Options{})
		g.wantResult(era, g.modern(`"an id"`, "resources/read", `"uri":"r://1"`, "Mcp-Name: r://1"), want)
	}
}

// TestClientLeavesLargeResult: a client that goes away in the midst of a result ends the call at its server.
func TestClientLeavesLargeResult(t *testing.T) {
	left := make(chan struct{})
	s := large(mcptest.Modern, func(w http.ResponseWriter, r *http.Request, id, _ string) {
		defer close(left)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"`)
		for {
			if _, err := io.WriteString(w, filler(64<<10)); err != nil {
				return
			}
		}
	})
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"max_answer":"100GB"`)}), Options{})
	resp, err := g.http.Do(g.request("POST", modernBody("1", "tools/call", callParams("x_big", "{}")), modernHeaders("tools/call", "Mcp-Name: x_big")...))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(resp.Body, make([]byte, 1<<20))
	resp.Body.Close()
	<-left
	g.awaitMetric(1, "headgate_calls_total", "headgate_outcome", "cancelled")
}

// TestSlowClientOfLargeResult: the time that a client takes for a result is not its server's. It does not end the call,
// and a server that gives up on it is not one that has failed.
func TestSlowClientOfLargeResult(t *testing.T) {
	gaveUp := make(chan struct{}, 1)
	s := large(mcptest.Modern, func(w http.ResponseWriter, _ *http.Request, id, args string) {
		rc := http.NewResponseController(w)
		if args != "{}" {
			_ = rc.SetWriteDeadline(time.Now().Add(2 * slowness))
			defer func() { gaveUp <- struct{}{} }()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"`)
		for range 40 {
			if _, err := io.WriteString(w, filler(1<<20)); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, `"}]}}`)
	})
	g := launchTold(t, parseConfig(t, map[string]string{"x": entry(s.StartHTTP(t), `"call_timeout":"500ms"`, `"max_answer":"100MiB"`, `"breaker":{"failures":2}`)}), Options{})
	read := func(args string, slow func()) error {
		resp, err := g.http.Do(g.request("POST", modernBody("1", "tools/call", callParams("x_big", args)), modernHeaders("tools/call", "Mcp-Name: x_big")...))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		slow()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	for range 3 {
		if err := read(`{"give":"up"}`, func() { <-gaveUp }); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("from a server that gave up: %v", err)
		}
	}
	g.awaitMetric(3, "headgate_calls_total", "headgate_outcome", "connection_lost")
	if err := read(`{}`, func() { time.Sleep(slowness) }); err != nil {
		t.Errorf("from a server that waits: %v", err)
	}
	g.awaitMetric(1, "headgate_calls_total", "headgate_outcome", "ok")
	if line := g.accessLine("1"); line["took_ms"].(float64)-line["upstream_ms"].(float64) < slowness.Seconds()*1000/2 {
		t.Errorf("the client's time is told as the server's: %v", line)
	}
}

// slowness is how long a slow client reads nothing.
const slowness = time.Second
