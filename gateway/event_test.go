package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/wire"
)

// An answer in a stream is one event, whether it has line breaks or not.
func TestLastEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		parts []string
		want  string
	}{
		"one line":         {[]string{`{"id":1,"result":`, `{"a":"b"}`, `}`}, `{"id":1,"result":{"a":"b"}}`},
		"many lines":       {[]string{`{"id":1,"result":`, "{\n\"a\":\n\"b\"}", `}`}, "{\"id\":1,\"result\":{\n\"a\":\n\"b\"}}"},
		"carriage returns": {[]string{`{"id":1,"result":`, "{\r\"a\":\r\n\"b\"}", `}`}, "{\"id\":1,\"result\":{\n\"a\":\n\"b\"}}"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := newResponder(w, nil, acceptable{stream: true})
			var parts [][]byte
			for _, p := range tt.parts {
				parts = append(parts, []byte(p))
			}
			r.finish(http.StatusOK, parts...)
			events := wire.NewEventReader(w.Body, 1<<20)
			e, err := events.Next()
			if err != nil || string(e.Data) != tt.want {
				t.Fatalf("event %q, %v", e.Data, err)
			}
			if e, err := events.Next(); err == nil {
				t.Errorf("one more event: %q", e.Data)
			}
		})
	}
}
