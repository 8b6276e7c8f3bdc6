package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2.5e3,null]}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"a\u0062","result":{"a":1,"a":"\ud83d"}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-3.2e4,"message":"m","data":[]}}`,
		` {"jsonrpc" : "2.0", "i\u0064":-0, "result":null}` + "\r\n",
		`{"jsonrpc":"2.0","id":1,"Method":"a"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"m"}]`,
		`{"jsonrpc":"2.0","id":1,"result":[[[[[[{"a":{}}]]]]]]}`,
		`{"id":1}{`,
		"{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		m, err := wire.Parse(data)
		if !bytes.Equal(before, data) {
			t.Fatal("Parse changed its input")
		}
		if err != nil {
			checkRefusal(t, data, err)
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("accepted, but not valid JSON: %q", data)
		}
		checkEnvelope(t, data, m)
		rewritten := rewrite(t, m)
		again, err := wire.Parse(rewritten)
		if err != nil {
			t.Fatalf("message %s was accepted, but not as %s: %v", data, rewritten, err)
		}
		if again.Kind != m.Kind || again.Method != m.Method || !sameValue(again.Params, m.Params) ||
			!sameValue(again.Result, m.Result) || !sameValue(again.Error, m.Error) {
			t.Fatalf("%+v became %+v", m, again)
		}
		if m.Kind == wire.KindResponse && again.ID != m.ID {
			t.Fatalf("id %s became %s", m.ID, again.ID)
		}
	})
}

func checkRefusal(t *testing.T, data []byte, err error) {
	var refusal *wire.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("error %v is not a *wire.Error", err)
	}
	if refusal.Code == wire.CodeParse {
		if refusal.ID != "" {
			t.Fatalf("parse error with id %s", refusal.ID)
		}
		if json.Valid(data) && utf8.Valid(data) {
			t.Fatalf("valid JSON was refused as malformed: %q: %v", data, err)
		}
	}
	if len(refusal.Message) > 1000 || strings.ContainsFunc(refusal.Message, func(r rune) bool { return r < ' ' }) {
		t.Fatalf("message %q is not fit to be shown", refusal.Message)
	}
	if out := wire.AppendError(nil, refusal.ID, wire.ErrorObject(refusal.Code, refusal.Message, nil)); !json.Valid(out) {
		t.Fatalf("answer %s is not valid JSON", out)
	}
}

// checkEnvelope compares with what encoding/json makes of the same bytes: names are unique and not even alike without
// regard to case, so both must see the same members.
func checkEnvelope(t *testing.T, data []byte, m wire.Message) {
	var other struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &other); err != nil {
		t.Fatalf("encoding/json refuses %s: %v", data, err)
	}
	null := []byte("null")
	if other.JSONRPC != "2.0" || other.Method != m.Method ||
		!(string(other.ID) == string(m.ID) || m.ID == "" && bytes.Equal(other.ID, null)) ||
		m.Kind != wire.KindResponse && !(bytes.Equal(other.Params, m.Params) || m.Params == nil && bytes.Equal(other.Params, null)) ||
		!bytes.Equal(other.Result, m.Result) || !bytes.Equal(other.Error, m.Error) {
		t.Fatalf("encoding/json sees %+v, Parse %+v", other, m)
	}
}

func rewrite(t *testing.T, m wire.Message) []byte {
	switch {
	case m.Kind == wire.KindRequest:
		return wire.AppendRequest(nil, 1, m.Method, m.Params)
	case m.Kind == wire.KindNotification:
		return wire.AppendNotification(nil, m.Method, m.Params)
	case m.Result != nil:
		return wire.AppendResult(nil, m.ID, m.Result)
	case m.Error != nil:
		return wire.AppendError(nil, m.ID, m.Error)
	}
	t.Fatalf("message %+v is nothing", m)
	return nil
}

func FuzzObjectAppend(f *testing.F) {
	f.Add([]byte(`{"name":"a","arguments":{"x":1,"x":2}}`), "name", []byte(`"b"`))
	f.Add([]byte(` { "n\u0061me" : 1 , "":{}, "\ud83d": [ ] } `), "_meta", []byte(`{}`))
	f.Add([]byte(`{}`), "\xff\n", []byte(`null`))
	f.Add([]byte(`{"a":1,"b":2}`), "a", []byte(``))
	f.Fuzz(func(t *testing.T, text []byte, name string, value []byte) {
		o, err := wire.ParseObject(text)
		if err != nil {
			if _, ok := errors.AsType[*wire.Error](err); !ok {
				t.Fatalf("error %v is not a *wire.Error", err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("accepted, but not valid JSON: %q", text)
		}
		same, err := wire.ParseObject(o.Append(nil))
		if err != nil || !slices.EqualFunc(o, same, equalMember) {
			t.Fatalf("%s became %s, %v", text, o.Append(nil), err)
		}
		name = strings.ToValidUTF8(name, "\ufffd")
		if len(value) > 0 {
			// Only JSON that stands alone may be put into a message.
			if _, err := wire.ParseObject(slices.Concat([]byte(`{"":`), value, []byte(`}`))); err != nil || !json.Valid(value) {
				return
			}
		}
		edited := o.Append(nil, wire.Edit{Name: name, Value: value})
		again, err := wire.ParseObject(edited)
		if err != nil {
			t.Fatalf("edit gave %s: %v", edited, err)
		}
		got, present := again.Get(name)
		if present != (len(value) > 0) || !bytes.Equal(got, bytes.Trim(value, " \t\r\n")) {
			t.Fatalf("after the edit %q is %s, %t, want %s", name, got, present, value)
		}
		rest := func(o wire.Object) wire.Object {
			return slices.DeleteFunc(slices.Clone(o), func(m wire.Member) bool { return m.Name == name })
		}
		if !slices.EqualFunc(rest(o), rest(again), equalMember) {
			t.Fatalf("edit of %q in %s changed more: %s", name, text, edited)
		}
	})
}

func equalMember(a, b wire.Member) bool {
	return a.Name == b.Name && bytes.Equal(a.Raw, b.Raw) && bytes.Equal(a.Value, b.Value)
}

func FuzzEventReader(f *testing.F) {
	for _, seed := range []string{
		"data: a\n\ndata: b\r\n\r\ndata:c\r\r",
		"\ufeffid: 1\nretry: 10\ndata\n\n",
		": comment\nevent: x\ndata: 1\ndata: 2\nid\n\n",
		"data: 0123456789\ndata: 0123456789\n\ndata: x\n\n",
		"data: é世\r\n\n",
		"id: a\x00\nid: 2\n\ndata",
		"\ufeff\r\n\r\ndata: \ufeff\n\n",
	} {
		f.Add([]byte(seed), uint8(1), uint16(20))
		f.Add([]byte(seed), uint8(5), uint16(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, n uint8, limit uint16) {
		size := int(n)%16 + 1
		whole := readEvents(wire.NewEventReader(bytes.NewReader(text), int(limit)))
		parts := readEvents(wire.NewEventReader(&chunks{text: text, n: size}, int(limit)))
		if !equalLines(whole, parts) {
			t.Fatalf("%q, limit %d: at once %q, by %d bytes %q", text, limit, whole, size, parts)
		}
		got := readEvents(wire.NewEventReader(&chunks{text: text, n: size}, 1<<20))
		if want := plainEvents(text); !equalLines(got, want) {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
		for _, data := range got {
			if strings.HasPrefix(data, "too large") {
				t.Fatalf("%q: too large", text)
			}
		}
		event := wire.AppendEvent(nil, "", "", text)
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text))
		if got := readEvents(wire.NewEventReader(bytes.NewReader(event), 1<<20)); !equalLines(got, []string{fmt.Sprintf("%q", want)}) {
			t.Fatalf("%q was written as %q and read as %q", text, event, got)
		}
	})
}

// plainEvents reads a whole stream in the simplest way, in the format of readEvents.
func plainEvents(text []byte) []string {
	s := strings.TrimPrefix(string(text), "\ufeff")
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	lines := strings.Split(s, "\n")
	var got, data []string
	var typ, id string
	var hasID bool
	var retry string
	for _, line := range lines[:len(lines)-1] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				event := fmt.Sprintf("%q", strings.Join(data, "\n"))
				if typ != "" && typ != "message" {
					event += " type=" + typ
				}
				if id != "" || hasID {
					event += fmt.Sprintf(" id=%q/%t", id, hasID)
				}
				got = append(got, event+retry)
				hasID, retry = false, ""
			}
			data, typ = nil, ""
		case name == "data":
			data = append(data, value)
		case name == "event":
			typ = value
		case name == "id" && !strings.Contains(value, "\x00"):
			id, hasID = value, true
		case name == "retry" && value != "" && strings.Trim(value, "0123456789") == "":
			if n := strings.TrimLeft(value, "0"); n == "" {
				retry = ""
			} else if d, err := parseMilliseconds(n); err == nil {
				retry = " retry=" + d
			}
		}
	}
	return got
}

func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\nb\r\n\r\nlong line\nx"), uint8(1), uint16(5))
	f.Add([]byte("abc\rd\nabc\r"), uint8(3), uint16(3))
	f.Add([]byte(strings.Repeat("x", 5000)+"\r\n\n"), uint8(200), uint16(10))
	f.Add([]byte(strings.Repeat("x", 40000)+"\r\n\n"), uint8(200), uint16(40000))
	f.Fuzz(func(t *testing.T, text []byte, n uint8, limit uint16) {
		var want []string
		for line := range bytes.Lines(text) {
			if content, ok := bytes.CutSuffix(line, []byte("\n")); ok {
				line = bytes.TrimSuffix(content, []byte("\r"))
			}
			if len(line) > int(limit) {
				head, tail := line[:min(len(line), 4096)], line[max(0, len(line)-4096):]
				want = append(want, fmt.Sprintf("oversize %d %q %q", len(line), head, tail))
				continue
			}
			want = append(want, fmt.Sprintf("%q", line))
		}
		for _, size := range []int{int(n) + 1, 1 << 20} {
			got := readLines(wire.NewLineReader(&chunks{text: text, n: size}, int(limit)))
			if !equalLines(got, want) {
				t.Fatalf("%q, limit %d, by %d bytes: got %q, want %q", text, limit, size, got, want)
			}
		}
	})
}

func FuzzHeaderValue(f *testing.F) {
	for _, seed := range []string{"", "us-west1", "Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", "=?base64?=",
		"=?base64?SGVsbG8=?=", "a\tb", "\x00\x7f\xff", "=?BASE64?YQ==?="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		coded := wire.EncodeHeaderValue(s)
		for i := range len(coded) {
			if coded[i] < ' ' || coded[i] > '~' {
				t.Fatalf("%q was coded as %q", s, coded)
			}
		}
		if strings.TrimSpace(coded) != coded {
			t.Fatalf("%q was coded as %q", s, coded)
		}
		back, err := wire.DecodeHeaderValue(coded)
		if utf8.ValidString(s) && (err != nil || back != s) {
			t.Fatalf("%q was coded as %q and came back as %q, %v", s, coded, back, err)
		}
		if !utf8.ValidString(s) && err == nil {
			t.Fatalf("%q is not UTF-8, but its coding %q was accepted", s, coded)
		}
		if plain, err := wire.DecodeHeaderValue(s); err == nil {
			// What decodes has one canonical coding, which decodes to the same.
			if again, err := wire.DecodeHeaderValue(wire.EncodeHeaderValue(plain)); err != nil || again != plain {
				t.Fatalf("%q decodes to %q, which comes back as %q, %v", s, plain, again, err)
			}
		}
	})
}

// AppendString and String are each other's reverse.
func FuzzString(f *testing.F) {
	for _, seed := range []string{"", "abc", "é\n\"\\", "\xff", "\u2028😀\x00", "tools/call"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := wire.AppendString(nil, s)
		var other string
		if err := json.Unmarshal(quoted, &other); err != nil {
			t.Fatalf("%q was written as %s: %v", s, quoted, err)
		}
		got, ok := wire.String(jsontext.Value(quoted))
		if want := string([]rune(s)); !ok || got != want || other != want {
			t.Fatalf("%q was written as %s and read as %q, %t", s, quoted, got, ok)
		}
		if text, ok := wire.String(jsontext.Value(s)); ok {
			if err := json.Unmarshal([]byte(s), &other); err != nil || other != text {
				t.Fatalf("String(%q) = %q, encoding/json says %q, %v", s, text, other, err)
			}
		}
	})
}

func parseMilliseconds(digits string) (string, error) {
	d, err := time.ParseDuration(digits + "ms")
	return d.String(), err
}
