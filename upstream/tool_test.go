package upstream

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestInspectTool(t *testing.T) {
	schema := func(s string) string { return `{"name":"x","inputSchema":` + s + `}` }
	for _, tt := range []struct {
		name, def string
		want      string // definition; empty when it is withheld, "=" when it passes unchanged
		rules     string // of the findings, and of the refusal
	}{
		{"plain", schema(`{"type":"object"}`), "=", ""},
		{"order and numbers are kept", `{"z":1.0,"inputSchema":{"properties":{"z":{},"a":{"default":9007199254740993},"m":{}},"type":"object"},"name":"x","a":null}`, "=", ""},
		{"no inputSchema", `{"name":"x"}`, `{"name":"x","inputSchema":{"type":"object"}}`, "input_schema_missing"},
		{"null inputSchema", `{"name":"x","inputSchema":null,"z":1}`, `{"name":"x","inputSchema":{"type":"object"},"z":1}`, "input_schema_missing"},
		{"no type", schema(`{}`), schema(`{"type":"object"}`), "input_schema_type"},
		{"only $schema", schema(`{"$schema":"http://json-schema.org/draft-07/schema#"}`),
			schema(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`), "input_schema_type"},
		{"anyOf at the root", schema(`{"type":"object","anyOf":[{"required":["a"]}]}`), "=", "schema_root_combinator"},
		{"array without items", schema(`{"type":"object","properties":{"a":{"type":"array"}}}`), "=", "schema_array_items"},
		{"array without items, deep", schema(`{"type":"object","$defs":{"d":{"anyOf":[{"type":"array","items":{"type":"array"}}]}}}`), "=", "schema_array_items"},
		{"array with items", schema(`{"type":"object","properties":{"a":{"type":"array","items":{}},"b":{"type":"array","prefixItems":[{}]}}}`), "=", ""},
		{"zero-width space", `{"name":"x","description":"a\u200bb","inputSchema":{"type":"object"}}`, "=", "hidden_characters"},
		{"escape sequence", `{"name":"x","description":"a\u001b[31mb","inputSchema":{"type":"object"}}`, "=", "hidden_characters"},
		{"tag characters", `{"name":"x","description":"a\udb40\udc41b","inputSchema":{"type":"object"}}`, "=", "hidden_characters"},
		{"hidden in a schema", schema(`{"type":"object","properties":{"a":{"description":"\u202eb"}}}`), "=", "hidden_characters"},
		{"joiners in scripts and emoji", `{"name":"x","title":"\u0646\u06cc\u200c\u0647","description":"\ud83d\udc69\u200d\ud83d\udcbb\n\t","inputSchema":{"type":"object"}}`, "=", ""},
		{"string schema", schema(`"object"`), "", "input_schema"},
		{"boolean schema", schema(`true`), "", "input_schema"},
		{"array schema", schema(`[]`), "", "input_schema"},
		{"type array", schema(`{"type":"array"}`), "", "input_schema"},
		{"list of types", schema(`{"type":["object","null"]}`), "", "input_schema"},
		{"null type", schema(`{"type":null}`), "", "input_schema"},
		{"schema with a name twice", schema(`{"type":"object","type":"object"}`), "", "input_schema"},
		{"null members", `{"name":"x","title":null,"description":null,"annotations":null,"outputSchema":null,"icons":null,"inputSchema":{"type":"object"}}`,
			schema(`{"type":"object"}`), "null_member null_member null_member null_member null_member"},
		{"description not a string", `{"name":"x","description":7,"inputSchema":{"type":"object"}}`, "", "definition"},
		{"annotations not an object", `{"name":"x","annotations":[],"inputSchema":{"type":"object"}}`, "", "definition"},
		{"outputSchema not an object", `{"name":"x","outputSchema":true,"inputSchema":{"type":"object"}}`, "", "definition"},
		{"no name", `{"inputSchema":{"type":"object"}}`, "", "name"},
		{"empty name", `{"name":"","inputSchema":{"type":"object"}}`, "", "name"},
		{"name not a string", `{"name":7,"inputSchema":{"type":"object"}}`, "", "name"},
		{"name twice", `{"name":"x","name":"y","inputSchema":{"type":"object"}}`, "", "definition"},
		{"not an object", `7`, "", "definition"},
		{"null", `null`, "", "definition"},

		{"$defs and recursion", schema(`{"type":"object","$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}},"properties":{"a":{"$ref":"#/$defs/n"},"b":{"$ref":"#"}}}`), "=", ""},
		{"dangling $ref", schema(`{"type":"object","properties":{"a":{"$ref":"#/$defs/Missing"}}}`), "", "schema_ref"},
		{"dangling $ref in an array", schema(`{"type":"object","anyOf":[{"$ref":"#/anyOf/7"}]}`), "", "schema_ref"},
		{"dangling anchor", schema(`{"type":"object","properties":{"a":{"$ref":"#nowhere"}}}`), "", "schema_ref"},
		{"anchor", schema(`{"type":"object","$defs":{"d":{"$anchor":"here"}},"properties":{"a":{"$ref":"#here"}}}`), "=", ""},
		{"escaped pointer", schema(`{"type":"object","$defs":{"a/b~c d":{}},"properties":{"a":{"$ref":"#/$defs/a~1b~0c%20d"}}}`), "=", ""},
		{"reference to another document", schema(`{"type":"object","properties":{"a":{"$ref":"https://example.com/s.json#/x"}}}`), "=", ""},
		{"$ref as data", schema(`{"type":"object","properties":{"a":{"const":{"$ref":"#/gone"},"default":{"$ref":"#/gone"},"enum":[{"$ref":"#/gone"}]},"$ref":{"type":"string"}}}`), "=", ""},
		{"dangling $ref in outputSchema", `{"name":"x","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"a":{"$ref":"#/x"}}}}`, "", "schema_ref"},

		{"header", schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"Region"}}}`), "=", ""},
		{"header on a nested property", schema(`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}}`), "=", ""},
		{"header on a nullable", schema(`{"type":"object","properties":{"a":{"type":["string","null"],"x-mcp-header":"Region"}}}`), "=", ""},
		{"header twice", schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"R"},"b":{"type":"string","x-mcp-header":"r"}}}`), "", "x_mcp_header"},
		{"header on a number", schema(`{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"R"}}}`), "", "x_mcp_header"},
		{"header on an object", schema(`{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"R"}}}`), "", "x_mcp_header"},
		{"header without a type", schema(`{"type":"object","properties":{"a":{"x-mcp-header":"R"}}}`), "", "x_mcp_header"},
		{"header under items", schema(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"R"}}}}`), "", "x_mcp_header"},
		{"header under anyOf", schema(`{"type":"object","anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"R"}}}]}`), "", "x_mcp_header"},
		{"header under additionalProperties", schema(`{"type":"object","additionalProperties":{"type":"string","x-mcp-header":"R"}}`), "", "x_mcp_header"},
		{"header under patternProperties", schema(`{"type":"object","patternProperties":{"^a":{"type":"string","x-mcp-header":"R"}}}`), "", "x_mcp_header"},
		{"header behind a $ref", schema(`{"type":"object","$defs":{"d":{"type":"string","x-mcp-header":"R"}},"properties":{"a":{"$ref":"#/$defs/d"}}}`), "", "x_mcp_header"},
		{"header on the root", schema(`{"type":"object","x-mcp-header":"R"}`), "", "x_mcp_header"},
		{"header not a string", schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":7}}}`), "", "x_mcp_header"},
		{"header empty", schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":""}}}`), "", "x_mcp_header"},
		{"header with a line break", schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"a\r\nb"}}}`), "", "x_mcp_header"},
		{"property named like the keyword", schema(`{"type":"object","properties":{"x-mcp-header":{"type":"number"}}}`), "=", ""},
		{"keyword as data", schema(`{"type":"object","properties":{"a":{"type":"string","default":{"x-mcp-header":"R"},"examples":[{"x-mcp-header":""}]}}}`), "=", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, findings, err := inspectTool(jsontext.Value(tt.def))
			var rules []string
			for _, f := range findings {
				rules = append(rules, f.Rule)
			}
			var bad *toolError
			if errors.As(err, &bad) {
				rules = append(rules, bad.rule)
			} else if err != nil {
				t.Fatalf("error %v is no *toolError", err)
			}
			want := tt.want
			if want == "=" {
				want = tt.def
			}
			if (err != nil) != (want == "") || err == nil && string(got.Definition) != want {
				t.Errorf("got %s, %v\nwant %s", got.Definition, err, want)
			}
			if strings.Join(rules, " ") != tt.rules {
				t.Errorf("rules %q, want %q", rules, tt.rules)
			}
		})
	}
}

// Of several faults the same one is reported at every reading; otherwise the catalogue would seem to
// change.
func TestInspectToolIsDeterministic(t *testing.T) {
	def := jsontext.Value(`{"name":"x","inputSchema":{"type":"object","properties":{` +
		`"a":{"type":"number","x-mcp-header":"A"},"b":{"type":"object","x-mcp-header":"B"},"c":{"x-mcp-header":""},"d":{"type":"string","x-mcp-header":"A"}}}}`)
	_, _, first := inspectTool(def)
	for range 50 {
		if _, _, err := inspectTool(def); err.Error() != first.Error() {
			t.Fatalf("%v, and then %v", first, err)
		}
	}
}

func TestHintsOfTool(t *testing.T) {
	for def, want := range map[string][2]bool{
		`{"name":"x","annotations":{"readOnlyHint":true}}`:                         {true, false},
		`{"name":"x","annotations":{"idempotentHint":true,"readOnlyHint":"true"}}`: {false, true},
		`{"name":"x","annotations":{"readOnlyHint":false}}`:                        {false, false},
		`{"name":"x"}`: {false, false},
	} {
		tool, _, err := inspectTool(jsontext.Value(def))
		if err != nil || tool.ReadOnly != want[0] || tool.Idempotent != want[1] {
			t.Errorf("%s: %v %v, %v", def, tool.ReadOnly, tool.Idempotent, err)
		}
	}
}

func TestHostileDefinitions(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","properties":{"p":`, 64) + `{}` + strings.Repeat(`}}`, 64)
	tool, _, err := inspectTool(jsontext.Value(`{"name":"deep","inputSchema":` + deep + `}`))
	if err != nil || !strings.Contains(string(tool.Definition), deep) {
		t.Errorf("64 levels: %v", err)
	}
	for name, def := range map[string]string{
		"far too deep":      `{"name":"x","inputSchema":` + strings.Repeat(`{"properties":{"p":`, 20_000) + `{}` + strings.Repeat(`}}`, 20_000) + `}`,
		"unfinished":        `{"name":"x","inputSchema":{`,
		"deep and unclosed": `{"name":"x","inputSchema":` + strings.Repeat(`[`, 100_000),
	} {
		if _, _, err := inspectTool(jsontext.Value(def)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	long := strings.Repeat("n", 1<<20)
	tool, _, err = inspectTool(jsontext.Value(`{"name":"` + long + `","description":"` + long + `","inputSchema":{"type":"object"}}`))
	if err != nil || tool.Name != long {
		t.Errorf("long strings: %v", err)
	}
	_, _, err = inspectTool(jsontext.Value(`{"name":"x","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/` + long + `"}}}}`))
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("long reference: an error of %d bytes", len(err.Error()))
	}
}

func FuzzInspectTool(f *testing.F) {
	for _, s := range []string{`{"name":"x"}`, `{"name":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}`,
		`{"name":"x","inputSchema":{"anyOf":[{"$ref":"#/a/b"}]},"outputSchema":null}`, `null`, `{"name":"x","inputSchema":{"items":[{}],"$defs":{"":{}}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, def []byte) {
		tool, findings, err := inspectTool(jsontext.Value(slices.Clone(def)))
		if err != nil {
			var bad *toolError
			if !errors.As(err, &bad) {
				t.Fatalf("error %v is no *toolError", err)
			}
			return
		}
		if !jsontext.Value(tool.Definition).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("definition %q is not JSON", tool.Definition)
		}
		if len(findings) == 0 && string(tool.Definition) != string(def) {
			t.Fatalf("%q became %q without a finding", def, tool.Definition)
		}
		// What was repaired needs no second repair.
		again, findings, err := inspectTool(tool.Definition)
		if err != nil || len(findings) != 0 || string(again.Definition) != string(tool.Definition) {
			t.Fatalf("%q, when read again: %q, %v, %v", tool.Definition, again.Definition, findings, err)
		}
	})
}
