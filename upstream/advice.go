package upstream

import (
	"bytes"
	"fmt"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// This file finds what is legal in a tool definition and still makes hosts or models stumble. Such tools
// are served as they are; the finding says which tool it is when a host's own error does not.

// adviseSchema looks at an inputSchema that has been parsed.
func adviseSchema(root map[string]any, find func(rule, text string)) {
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		if _, ok := root[keyword]; ok {
			find("schema_root_combinator", fmt.Sprintf("inputSchema has %s at its root; some model APIs refuse every request that lists such a tool", keyword))
			break
		}
	}
	if path := arrayWithoutItems(root, ""); path != "" {
		find("schema_array_items", fmt.Sprintf("inputSchema has an array without items at %s; some hosts refuse to chat while such a tool is listed", clip(path, 100)))
	}
}

// arrayWithoutItems returns the path of the first array that does not say what it holds, or "".
func arrayWithoutItems(s map[string]any, path string) string {
	_, items := s["items"]
	_, prefixItems := s["prefixItems"]
	if s["type"] == "array" && !items && !prefixItems {
		return path + "/"
	}
	found := ""
	subschemas(s, func(keyword, name string, sub map[string]any) {
		if found != "" {
			return
		}
		next := path + "/" + keyword
		if name != "" {
			next += "/" + name
		}
		found = arrayWithoutItems(sub, next)
	})
	return found
}

// adviseText looks for characters that a person who reads a definition does not see and a model does.
func adviseText(def wire.Object, find func(rule, text string)) {
	for _, member := range []string{"name", "title", "description", "inputSchema"} {
		raw, _ := def.Get(member)
		if r := hidden(raw); r != 0 {
			find("hidden_characters", fmt.Sprintf("%s holds characters that do not show, such as U+%04X; look at what they say before the tool is used", member, r))
			return
		}
	}
}

// hidden returns the first character of a JSON text's strings that does not show and has no use in a
// definition, or 0: controls other than white space, zero-width and directional marks, tag characters.
func hidden(raw jsontext.Value) rune {
	dec := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return 0
		}
		if tok.Kind() != '"' {
			continue
		}
		joined := false // after a character that a joiner may follow, as in emoji and many scripts
		for _, r := range tok.String() {
			switch {
			case r == '\n', r == '\r', r == '\t':
			case joined && (r == '\u200c' || r == '\u200d'), r == '\ufe0f':
			case unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r) && r != '\u00ad', r >= 0xe0000 && r <= 0xe007f:
				return r
			}
			joined = r >= 0x590 && r != '\u200c' && r != '\u200d'
		}
	}
}
