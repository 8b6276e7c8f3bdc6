package wire

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// walk reads an object with a scanner, the quick way or by the decoder alone.
func walk(data string, slow bool) (members []string, quick bool, err error) {
	s := newScanner([]byte(data))
	defer s.release()
	s.open()
	if slow {
		if err := s.takeOver(); err != nil {
			return nil, false, err
		}
	}
	for {
		name, value, ok, err := s.next()
		if err != nil {
			return members, !s.slow, err
		}
		if !ok {
			if s.trailing() {
				members = append(members, "and more")
			}
			return members, !s.slow, nil
		}
		members = append(members, string(name)+" is "+string(value))
	}
}

// agree holds the quick way against the decoder: the same members, or the same refusal in the same words.
func agree(t *testing.T, data string) {
	t.Helper()
	if i := skipSpace([]byte(data), 0); i == len(data) || data[i] != '{' {
		return // what is not scanned at all
	}
	want, _, wantErr := walk(data, true)
	got, quick, err := walk(data, false)
	if wantErr == errUTF8 && !utf8.ValidString(data) {
		// The quick way may have read what stands before, but not the whole.
		if rest := strings.TrimPrefix(strings.Join(got, "\n"), "\n"); err == nil && !strings.HasSuffix(rest, "and more") {
			t.Fatalf("%q was accepted", data)
		}
		return
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%q has the members %q, the decoder says %q", data, got, want)
	}
	switch {
	case (err == nil) != (wantErr == nil), err == errDepth != (wantErr == errDepth), err != nil && syntaxError(err).Message != syntaxError(wantErr).Message:
		t.Fatalf("%q: %v, the decoder says %v", data, err, wantErr)
	case wantErr == nil && !quick:
		t.Fatalf("%q is an object, and was left to the decoder", data)
	}
}

var quickSeeds = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":[1,2,{"c":null}],"d":{"e":[]},"f":{}}`, "\t{\n\"a\"\r: \"b\" , \"c\":[ ] }\n",
	`{"a":"0123456\"","b":"01234567","c":"\\","d":"\u00e9\ud83d\/\b\f\n\r\t"}`, `{"a":"été 漢字 🙂 and then some more text"}`,
	`{"a":-0,"b":0.5,"c":1e9,"d":-12.25E-3,"e":10}`, `{"a":true,"b":false,"c":null}`, `{"a":[[[[1]]],[]],"b":[{"x":{}},{}]}`,
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":[1 2]}`, `{"a":{"b":1,}}`, `{"a":{"b"}}`, `{"a":{1:2}}`,
	`{"a":[}}`, `{"a":{]}`, `{"a":1]`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":-}`, `{"a":1e}`, `{"a":1e+}`, `{"a":0x1}`,
	`{"a":[1,{"b":n000}]00000}`, `{"a":tru}`, `{"a":nulls}`, `{"a":True}`, `{"a":'b'}`, `{'a':1}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u12`, `{"a":"b`, `{"a":"b\`, `{"a":"b\"`,
	"{\"a\":\"\x00\"}", "{\"a\":\"0123456\x1f\"}", "{\"a\":\"0123456789\n\"}", "{\"a\x7f\":\"\x7f\"}", `{"a":1}{`, `{"a":1} `, `{"a":1}x`, `{`, `{"`, `{"a":[`, `{"a" :`,
}

func TestQuickAgrees(t *testing.T) {
	for _, seed := range quickSeeds {
		agree(t, seed)
		for i := 1; i < len(seed); i++ {
			agree(t, seed[:i])
			agree(t, seed[:i]+seed[i+1:])
			for _, c := range "{}[]:,\"\\0-1.eEutfn \n\x00\x1f\x7fé" {
				agree(t, seed[:i]+string(c)+seed[i+1:])
				agree(t, seed[:i]+string(c)+seed[i:])
			}
		}
	}
	// A character at every place of the eight that are looked at together.
	for i := range 20 {
		for _, c := range []string{`"`, `\`, `\"`, "\x1f", "\x00", "é", "\x7f", "!", "#", "[", "]", "\x21"} {
			agree(t, `{"a":"`+strings.Repeat("x", i)+c+strings.Repeat("y", 9)+`","b":1}`)
		}
	}
}

// Bytes that are not UTF-8 are refused wherever they stand.
func TestQuickUTF8(t *testing.T) {
	for i := range 20 {
		for _, c := range []string{"\xff", "\xc3", "\xe9x", "\xed\xa0\x80", "\xf0\x9f\x99", "é", "🙂"} {
			text := `{"a":"` + strings.Repeat("x", i) + c + `yyyyyyyyy","b":{"` + strings.Repeat("z", i) + c + `":1}}`
			agree(t, text)
			_, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + text + `}`))
			if valid := utf8.ValidString(text); (err == nil) != valid {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

func TestPlain(t *testing.T) {
	for result, want := range map[string]bool{
		`{}`: true, `{"content":[]}`: true, `{"content":[{"isError":true}]}`: true, `{"isError":false}`: true, `{"a":1, "isError" : false , "b":{}}`: true,
		`{"isError":true}`: false, `{"content":[],"isError" : true}`: false, `{"isError":false,"isError":true}`: false, `{"is\u0045rror":true}`: false,
		`{"isErrorCode":true}`: true, `{"iserror":true}`: true, `{"isError":"true"}`: true, `[]`: false, `true`: false,
	} {
		m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`))
		if err != nil || m.Plain != want {
			t.Errorf("%s is plain: %t, %v", result, m.Plain, err)
		}
	}
	for _, text := range []string{`{"result":{"isError":true},"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{},"result":{"isError":true}}`} {
		if m, err := Parse([]byte(text)); err == nil || m.Plain {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
}

func TestClosed(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`: `{"a":1}}`, ` {"id":1,"jsonrpc":"2.0","result":[1]} `: `[1]}`, `{"jsonrpc":"2.0","id":1,"result":{} }`: "",
		`{"result":{"a":1},"jsonrpc":"2.0","id":1}`: "", `{"jsonrpc":"2.0","id":1,"x":{"result":{}},"result":7}`: `7}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`: "",
	} {
		m, err := Parse([]byte(text))
		if err != nil || string(m.Closed) != want {
			t.Errorf("%s: %s, %v", text, m.Closed, err)
		}
	}
}

func TestQuickDepth(t *testing.T) {
	for _, depth := range []int{1, 63, 64, 65, 127, 128, MaxDepth - 2, MaxDepth - 1, MaxDepth, MaxDepth + 1, 3 * MaxDepth} {
		agree(t, `{"a":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+`}`)
		agree(t, `{"a":`+strings.Repeat(`{"b":`, depth)+"1"+strings.Repeat("}", depth)+`}`)
		agree(t, `{"a":`+strings.Repeat(`[{"b":`, depth/2)+"1"+strings.Repeat("}]", depth/2)+`}`)
		agree(t, `{"a":`+strings.Repeat(`[{"b":`, depth/2)+"1"+strings.Repeat("]}", depth/2)+`}`)
	}
}

func FuzzQuick(f *testing.F) {
	for _, seed := range quickSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		agree(t, data)
	})
}
