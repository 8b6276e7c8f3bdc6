package gateway

import (
	"encoding/json"

	"github.com/headgate/headgate/internal/wire"
)

// stringsOf reads an object of strings, such as the arguments of a scripted tool.
func stringsOf(raw []byte) map[string]string {
	var m map[string]string
	_ = json.Unmarshal(raw, &m)
	return m
}

func quoteJSON(s string) []byte { return wire.AppendString(nil, s) }
