package wire

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestArray(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{in: ` [ 1 , "a", {"b":1,"b":2} , [] ]`, want: `1|"a"|{"b":1,"b":2}|[]`},
		{in: "[\"\xff\"]", want: "\"\xff\""},
		{in: `[]`},
		{in: `{}`, err: "not an array"},
		{in: ``, err: "not an array"},
		{in: `[1,2`, err: "EOF"},
		{in: `[1,}`, err: "invalid"},
	} {
		all, err := Array(jsontext.Value(c.in))
		var texts []string
		for _, e := range all {
			texts = append(texts, string(e))
		}
		if got := strings.Join(texts, "|"); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.in, err, c.err)
		}
	}
}

func TestElements(t *testing.T) {
	v := jsontext.Value(`[1,2,3]`)
	for e, err := range Elements(v) {
		if err != nil || string(e) != "1" {
			t.Errorf("%s, %v", e, err)
		}
		break
	}
	n := 0
	for e, err := range Elements(jsontext.Value(`[1,2,x]`)) {
		if n++; n == 3 && (e != nil || err == nil) || n > 3 {
			t.Errorf("%d: %s, %v", n, e, err)
		}
	}
	if n != 3 || string(v) != `[1,2,3]` {
		t.Errorf("%d of %s", n, v)
	}
}
