package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestTextIsNotPrinted(t *testing.T) {
	const hidden = "hunter2-hunter2"
	text := New(hidden)
	if text.Reveal() != hidden || text.IsZero() || !New("").IsZero() || New("").Reveal() != "" {
		t.Fatal("the text is not kept")
	}
	var said bytes.Buffer
	type inside struct {
		Shown  Text
		hidden Text
	}
	v := inside{text, text}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&said, verb+"\n", text)
		fmt.Fprintf(&said, verb+"\n", v)
		fmt.Fprintf(&said, verb+"\n", &v)
		fmt.Fprintf(&said, verb+"\n", []any{text, &text, map[string]any{"a": v}})
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&said, nil), slog.NewJSONHandler(&said, nil)} {
		slog.New(h).Info("x", "text", text, "inside", v, "pointer", &v)
	}
	for _, v := range []any{text, v, &v, map[string]any{"a": text}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(b)
	}
	for _, form := range []string{hidden, fmt.Sprintf("%x", hidden)} {
		if strings.Contains(said.String(), form) {
			t.Errorf("printed:\n%s", said.String())
		}
	}
	if !strings.Contains(said.String(), "***") {
		t.Error("nothing shows that there is a text")
	}
}
