package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// pass reads a message with a Passage in pieces of a size; ok is false where it does not take the message.
func pass(text string, size int) (result string, m Message, links []string, ok bool, err error) {
	head := []byte(text[:min(len(text), max(size, 64))])
	p, begin, ok := NewPassage(head, "7")
	if !ok {
		return "", Message{}, nil, false, nil
	}
	out := []byte{'{'}
	piece, rest := bytes.Clone(head[begin+1:]), text[len(head):]
	for {
		n, done, err := p.Feed(piece)
		if err != nil {
			return string(out), Message{}, nil, true, err
		}
		out = append(out, piece[:n]...)
		piece = piece[n:]
		if done {
			m, err = p.End(append(piece, rest...))
			return string(out), m, p.Links(), true, err
		}
		if rest == "" {
			_, err = p.End(piece)
			return string(out), Message{}, nil, true, err
		}
		next := min(len(rest), max(size, 1))
		piece = append(bytes.Clone(piece), rest[:next]...)
		rest = rest[next:]
	}
}

// agreePassage holds a Passage against Parse: what it takes is the same message, and what Parse refuses it does not
// come to the end of.
func agreePassage(t *testing.T, text string, size int) {
	t.Helper()
	want, wantErr := Parse([]byte(text))
	result, m, _, ok, err := pass(text, size)
	switch {
	case !ok:
		return
	case (err == nil) != (wantErr == nil):
		t.Fatalf("in pieces of %d: %q: %v, Parse says %v", size, text, err, wantErr)
	case err != nil:
		// What was passed on was at least not wrong so far.
		if i := strings.Index(text, result); i < 0 {
			t.Fatalf("in pieces of %d: %q: passed on %q", size, text, result)
		}
		return
	case m.ID != want.ID || result != string(want.Result):
		t.Fatalf("in pieces of %d: %q: id %s, result %q", size, text, m.ID, result)
	}
	if got, want := ToolError(m.Result), ToolError(want.Result); got != want {
		t.Fatalf("%q is an error: %t, by its outline %s %t", text, want, m.Result, got)
	}
}

var passageSeeds = []string{
	`{"jsonrpc":"2.0","id":7,"result":{}}`,
	`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a \"b\" \\ \u00e9 é 漢字 🙂 and some more text than before"}],"isError":true}}`,
	`{"result":{"a":-0.5e+10,"b":[1,2,[],{},{"c":null}],"d":{"e":true,"f":false}, "g" : "" },"jsonrpc":"2.0","id":7}`,
	` { "jsonrpc" : "2.0" , "id" : 7 , "result" : { "a" : 0 , "b" : [ 1 ] } } ` + "\n",
	`{"jsonrpc":"2.0","result":{"isError":false,"_meta":{"x":[1,2]}},"id":7}`,
	`{"jsonrpc":"2.0","id":7,"result":{"a":1},"result":{"b":2}}`, `{"jsonrpc":"2.0","id":7,"result":{"a":1},"error":{"code":1,"message":"x"}}`,
	`{"jsonrpc":"2.0","id":8,"result":{"a":1}}`, `{"result":{"a":1},"jsonrpc":"2.0","id":8}`, `{"jsonrpc":"2.0","id":7,"result":{"a":01}}`,
	`{"jsonrpc":"2.0","id":7,"result":{"a":1.}}`, `{"jsonrpc":"2.0","id":7,"result":{"a":[1,]}}`, `{"jsonrpc":"2.0","id":7,"result":{"a":tru}}`,
	`{"jsonrpc":"2.0","id":7,"result":{"a":"\x"}}`, `{"jsonrpc":"2.0","id":7,"result":{"a":"\ud83d"}}`, `{"jsonrpc":"2.0","id":7,"result":{"a":[}}`,
	`{"jsonrpc":"2.0","id":7,"result":{"a":{]}}}`, `{"jsonrpc":"2.0","id":7,"result":{"a"}}`, `{"jsonrpc":"2.0","id":7,"result":{1:2}}`,
	`{"jsonrpc":"2.0","id":7,"result":{"a":1}`, `{"jsonrpc":"2.0","id":7,"result":{"a":1}}{`, `{"jsonrpc":"2.0","id":7,"method":"m","result":{"a":1}}`,
	"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"\xff\"}}", "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"\xc3\"}}", "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"x\ny\"}}",
}

func TestPassage(t *testing.T) {
	const filler = `"pad":"0123456789 été",`
	for _, seed := range passageSeeds {
		for _, size := range []int{1, 2, 3, 7, 64, 1000} {
			agreePassage(t, seed, size)
			// Where names and strings cross the end of the longest that is looked at whole.
			agreePassage(t, strings.Replace(seed, `"result":{`, `"result":{`+strings.Repeat(filler, 500), 1), size*100)
		}
		for i := 1; i < len(seed); i++ {
			agreePassage(t, seed[:i], 5)
			agreePassage(t, seed[:i]+seed[i+1:], 5)
			for _, c := range "{}[]:,\"\\0-1.eEutfn \n\x00é" {
				agreePassage(t, seed[:i]+string(c)+seed[i+1:], 3)
				agreePassage(t, seed[:i]+string(c)+seed[i:], 4)
			}
		}
	}
	for _, n := range []int{wholeString - 9, wholeString - 1, wholeString, wholeString + 1, 3 * wholeString} {
		for _, c := range []string{"x", "é", "🙂", `\n`, `\u00e9`, "\xff", "\x01", `\q`} {
			for _, size := range []int{100, 4096, 5000, 64 << 10} {
				long := strings.Repeat("y", n) + strings.Repeat(c, 10) + strings.Repeat("z", 5000)
				agreePassage(t, `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"`+long+`"}],"isError":true}}`, size)
				agreePassage(t, `{"jsonrpc":"2.0","id":7,"result":{"`+long+`":1,"isError":true}}`, size)
				agreePassage(t, `{"jsonrpc":"2.0","id":7,"result":{"a":{"`+long+`":[1]}}}`, size)
			}
		}
	}
	for _, depth := range []int{1, 63, 64, 65, MaxDepth - 3, MaxDepth - 2, MaxDepth - 1, MaxDepth, 2 * MaxDepth} {
		for _, pair := range []string{"[]", "{}"} {
			opening, closing := pair[:1], pair[1:]
			if pair == "{}" {
				opening += `"a":`
			}
			agreePassage(t, `{"jsonrpc":"2.0","id":7,"result":{"a":`+strings.Repeat(opening, depth)+"1"+strings.Repeat(closing, depth)+`}}`, 100)
		}
	}
}

func TestPassageTakes(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":7,"result":{`: true, `{"result":{`: true, `{"result":{"a":1},"jsonrpc":"2.0","id":8}`: true, `{"id":7,"result":{`: true, `{"x":1,"id":7,"result":{`: true,
		`{"jsonrpc":"2.0","id":8,"result":{`: false, `{"jsonrpc":"2.0","id":"7","result":{`: false, `{"jsonrpc":"2.0","id":7,"error":{`: false, `{"jsonrpc":"2.0","method":"x","result":{`: false,
		`{"jsonrpc":"2.0","id":7,"result":[`: false, `[{"result":{`: false, `{"jsonrpc":"1.0","id":7,"result":{`: false, `{"jsonrpc":"2.0","id":7,"resul`: false, ``: false, `{`: false,
		`{"jsonrpc":"2.0","id":7,"id":7,"result":{`: false, `{"jsonrpc":"2.0","ID":7,"result":{`: false,
	} {
		if _, _, ok := NewPassage([]byte(text), "7"); ok != want {
			t.Errorf("%s: %t", text, ok)
		}
	}
}

// TestPassageOutline: what is small is kept as it stands, what is large by its kind, and no more than a bound of all.
func TestPassageOutline(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	for result, want := range map[string]string{
		`{}`: `{}`,
		`{"content":[{"text":"` + large + `"}], "isError" : true , "_meta":{"a":[1, 2]},"n":-1.5e3}`:            `{"content":[],"isError":true,"_meta":{"a":[1, 2]},"n":-1.5e3}`,
		`{"a":{"b":"` + large + `"},"c":"` + large + `","d":1` + strings.Repeat("0", 9000) + `,"isError":true}`: `{"a":{},"c":"","d":0,"isError":true}`,
		`{"task":{"statusMessage":"` + large[:20_000] + `","taskId":"t"},"a":"` + large[:20_000] + `"}`:         `{"task":{"statusMessage":"` + large[:20_000] + `","taskId":"t"},"a":""}`,
		`{"` + large + `":1,"` + large + `2":2,"a":3}`:                                                          `{"…":1,"a":3}`,
		`{"` + large + `":1,"resultType":"complete"}`:                                                           `{"…":1,"resultType":"complete"}`,
	} {
		for _, size := range []int{10, 5000, 64 << 10, 1 << 20} {
			_, m, _, ok, err := pass(`{"jsonrpc":"2.0","id":7,"result":`+result+`}`, size)
			if !ok || err != nil || string(m.Result) != want {
				t.Errorf("in pieces of %d: %t %v %.200s, want %s", size, ok, err, m.Result, want)
			}
		}
	}
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, `"m%d":%d,`, i, i)
	}
	_, m, _, _, err := pass(`{"jsonrpc":"2.0","id":7,"result":{`+many.String()+`"isError":true}}`, 64<<10)
	if err != nil || len(m.Result) > 3*maxOutline || !ToolError(m.Result) {
		t.Errorf("an outline of %d bytes, %v", len(m.Result), err)
	}
	for _, flood := range []string{`"isError":false,`, `"isError":true,`, `"ttlMs":"` + strings.Repeat("x", 4000) + `",`} {
		_, m, _, _, err := pass(`{"jsonrpc":"2.0","id":7,"result":{`+strings.Repeat(flood, 20_000)+`"isError":true}}`, 64<<10)
		if err != nil || len(m.Result) > 3*maxOutline || !ToolError(m.Result) {
			t.Errorf("after many of %.20s: an outline of %d bytes, %v", flood, len(m.Result), err)
		}
	}
}

func TestPassageLinks(t *testing.T) {
	for result, want := range map[string][]string{
		`{"content":[{"type":"resource_link","uri":"a:1","name":"x"},{"type":"resource","resource":{"uri":"b:\/2","text":""}}]}`:                     {"a:1", "b:/2"},
		`{"contents":[{"uri":"c:3","text":"{\"uri\":\"no\"}"}]}`:                                                                                     {"c:3"},
		`{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"d:4"}}},{"content":[{"type":"resource_link","uri":"e:5"}]}]}`:   {"d:4", "e:5"},
		`{"structuredContent":{"uri":"no"},"uri":"no","_meta":{"resource":{"uri":"no"}},"content":[{"_meta":{"uri":"no"},"text":"uri"}]}`:            nil,
		`{"content":[{"type":"resource_link","uri":"` + strings.Repeat("y", 2*wholeString) + `"},["uri","no"],{"uri":["no"]},{"uri":{"uri":"no"}}]}`: nil,
	} {
		for _, size := range []int{1, 5, 100, 1 << 20} {
			if _, _, links, ok, err := pass(`{"jsonrpc":"2.0","id":7,"result":`+result+`}`, size); !ok || err != nil || !slices.Equal(links, want) {
				t.Errorf("in pieces of %d: %.100s: %q %t %v", size, result, links, ok, err)
			}
		}
	}
	many := strings.Repeat(`{"type":"resource_link","uri":"`+strings.Repeat("z", 4000)+`"},`, 1000)
	if _, _, links, _, _ := pass(`{"jsonrpc":"2.0","id":7,"result":{"content":[`+many+`{}]}}`, 64<<10); len(links) == 0 || len(links)*4000 > maxPassedLinks {
		t.Errorf("%d links are kept", len(links))
	}
}

func FuzzPassage(f *testing.F) {
	for i, seed := range passageSeeds {
		f.Add(seed, i+1)
	}
	f.Fuzz(func(t *testing.T, text string, size int) {
		if len(text) < 20_000 { // in pieces of one byte, more takes long
			agreePassage(t, text, min(max(size, 1), 1<<16))
		}
	})
}
