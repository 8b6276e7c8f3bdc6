package upstream

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestScanID(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		id         int64
		ok         bool
	}{
		{"first", `{"jsonrpc":"2.0","id":7,"result":{"a":`, 7, true},
		{"last", `ut off here","b":{"id":9}},"jsonrpc":"2.0","id":7}`, 7, true},
		{"last but jsonrpc", `off"},"id":7,"jsonrpc":"2.0"}`, 7, true},
		{"negative", `{"id":-1,"result":{`, -1, true},
		{"only inside the result", `{"jsonrpc":"2.0","result":{"id":9,"x":`, 0, false},
		{"inside a cut result", `cut","id":9}],"x":1}}`, 0, false},
		{"string", `{"id":"7","result":`, 0, false},
		{"fraction", `{"id":7.0,"result":`, 0, false},
		{"array", `[{"id":7}]`, 0, false},
		{"empty", ``, 0, false},
		{"too long a number", `{"x":{"id":9999999999999999999999}`, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if id, ok := scanID([]byte(tt.text), []byte(tt.text)); id != tt.id || ok != tt.ok {
				t.Errorf("got %d %v, want %d %v", id, ok, tt.id, tt.ok)
			}
		})
	}
}

func FuzzScanID(f *testing.F) {
	f.Add(int64(7), `{"a":1}`, 20, false)
	f.Add(int64(-1), `{"id":3,"b":[{"id":4}]}`, 9, true)
	f.Fuzz(func(t *testing.T, id int64, result string, cut int, atEnd bool) {
		scanID([]byte(result), []byte(result)) // any bytes: it must not panic
		if !strings.HasPrefix(result, "{") || id > 1e17 || id < -1e17 {
			return
		}
		// With the id at the start it is found however the message is cut behind it.
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, result)
		head := text[:min(len(text), max(len(text)-len(result)-1, cut))]
		if got, ok := scanID([]byte(head), nil); !ok || got != id {
			t.Errorf("%q: got %d %v, want %d", head, got, ok, id)
		}
		if atEnd {
			if got, ok := scanID(nil, []byte(fmt.Sprintf(`{"result":%s,"jsonrpc":"2.0","id":%d}`, result, id))); !ok || got != id {
				t.Errorf("at the end: got %d %v, want %d", got, ok, id)
			}
		}
	})
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(2, time.Minute)
		for i, want := range []bool{true, true, false, false} {
			if got := l.allow(); got != want {
				t.Errorf("event %d of the window: %v", i, got)
			}
		}
		if n := l.takeDropped(); n != 2 {
			t.Errorf("%d dropped", n)
		}
		time.Sleep(time.Minute)
		if !l.allow() || l.takeDropped() != 0 {
			t.Error("the next window lets nothing through")
		}
	})
}
