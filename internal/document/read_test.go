package document

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("secret") }

func TestRead(t *testing.T) {
	padded := func(size int) string { return `{"a":"b"` + strings.Repeat(" ", size-len(`{"a":"b"}`)) + `}` }
	for name, tt := range map[string]struct {
		status int
		body   io.Reader
		want   string // of the error
	}{
		"a document":        {200, strings.NewReader(`{"a":"b"}`), ""},
		"as large as it is": {200, strings.NewReader(padded(MaxSize)), ""},
		"too large":         {200, strings.NewReader(padded(MaxSize + 1)), "the answer has more than 1048576 bytes"},
		"not there":         {404, strings.NewReader(`{"a":"secret"}`), "HTTP 404"},
		"no JSON":           {200, strings.NewReader("<p>secret"), "the answer is not the JSON that was expected"},
		"another type":      {200, strings.NewReader(`{"a":"secret","b":{}}`), "the answer is not the JSON that was expected"},
		"half of it":        {200, io.MultiReader(strings.NewReader(`{"a":`), broken{}), "the answer broke off"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &body{Reader: tt.body}
			var doc struct {
				A string
				B int
			}
			err := Read(&http.Response{StatusCode: tt.status, Body: b}, &doc)
			if tt.want == "" && (err != nil || doc.A != "b") || tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("%v, %+v", err, doc)
			}
			if !b.closed {
				t.Error("the body is open")
			}
		})
	}
}
