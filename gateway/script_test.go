package gateway

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// stringsOf reads an object of strings, such as the arguments of a scripted tool.
func stringsOf(raw []byte) map[string]string {
	var m map[string]string
	_ = json.Unmarshal(raw, &m)
	return m
}

func quoteJSON(s string) []byte { return wire.AppendString(nil, s) }

// embed runs a scripted server in process.
func embed(id string, s *mcptest.Server) map[string]upstream.ServeFunc {
	return map[string]upstream.ServeFunc{id: serveLines(s)}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func unmarshal(t testing.TB, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}
