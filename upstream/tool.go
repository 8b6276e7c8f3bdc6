package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// Tool is one tool as its server defined it.
type Tool struct {
	Name       string         // the server's own name
	Definition jsontext.Value // the definition, with additive repairs only
	// ReadOnly, Destructive, Idempotent and OpenWorld are the annotations of these names, with the
	// defaults of the specification when absent (2026-07-28, schema, "ToolAnnotations").
	ReadOnly, Destructive, Idempotent, OpenWorld bool

	headers []headerBinding
	schemas *schemas // made on demand
}

// headerBinding mirrors one argument into an Mcp-Param-* header.
type headerBinding struct {
	path   []string // chain of property names
	header string   // whole header name
}

// toolError says why a definition cannot be served.
type toolError struct{ rule, text string }

func (e *toolError) Error() string { return e.rule + ": " + e.text }

// optionalMembers are the members of a tool whose wrong type makes strict clients refuse the whole
// list, with the first byte that a value of the right type may have.
var optionalMembers = []struct{ name, kinds, want string }{
	{"title", `"`, "a string"},
	{"description", `"`, "a string"},
	{"annotations", `{`, "an object"},
	{"outputSchema", `{`, "an object"},
	{"icons", `[`, "an array"},
	{"execution", `{`, "an object"},
	{"_meta", `{`, "an object"},
}

// inspectTool reads a tool definition as far as Headgate needs it, repairs what can be repaired by
// adding, and refuses with a *toolError what would harm the clients that list it. The returned Tool
// carries the name, where there is one, even when err is set.
func inspectTool(def jsontext.Value) (Tool, []Finding, error) {
	var t Tool
	var findings []Finding
	find := func(rule, text string) { findings = append(findings, Finding{Rule: rule, Text: text}) }

	obj, err := wire.ParseObject(def)
	if err != nil {
		return t, nil, &toolError{"definition", "the definition is not a JSON object with unique names"}
	}
	raw, _ := obj.Get("name")
	name, ok := wire.String(raw)
	if !ok || name == "" {
		return t, nil, &toolError{"name", "the definition has no name"}
	}
	t.Name = name

	var edits []wire.Edit
	for _, m := range optionalMembers {
		v, ok := obj.Get(m.name)
		switch {
		case !ok:
		case string(v) == "null":
			edits = append(edits, wire.Edit{Name: m.name})
			find("null_member", m.name+" is null, which strict clients refuse; it is left out")
		case !strings.Contains(m.kinds, string(v[:1])):
			return t, nil, &toolError{"definition", m.name + " is not " + m.want}
		}
	}
	t.readHints(obj)
	adviseText(obj, find)

	schema, ok := obj.Get("inputSchema")
	if !ok || string(schema) == "null" {
		edits = append(edits, wire.Edit{Name: "inputSchema", Value: jsontext.Value(`{"type":"object"}`)})
		find("input_schema_missing", "inputSchema is missing; an object with any properties is assumed")
	} else {
		fixed, err := inspectSchema(schema, &t, find)
		if err != nil {
			return t, findings, err
		}
		if fixed != nil {
			edits = append(edits, wire.Edit{Name: "inputSchema", Value: fixed})
			find("input_schema_type", `inputSchema has no type at its root; "type":"object" was added`)
		}
	}
	if out, ok := obj.Get("outputSchema"); ok && string(out) != "null" {
		var tree any
		if err := json.Unmarshal(out, &tree); err != nil {
			return t, findings, &toolError{"output_schema", "outputSchema cannot be read"}
		}
		if ref := danglingRef(tree); ref != "" {
			return t, findings, &toolError{"schema_ref", fmt.Sprintf("outputSchema refers to %q, which it does not define", clip(ref, 100))}
		}
	}
	t.schemas = new(schemas)
	t.Definition = slices.Clone(def)
	if edits != nil {
		t.Definition = obj.Append(nil, edits...)
	}
	return t, findings, nil
}

func (t *Tool) readHints(obj wire.Object) {
	t.Destructive, t.OpenWorld = true, true
	v, ok := obj.Get("annotations")
	if !ok {
		return
	}
	ann, err := wire.ParseObject(v)
	if err != nil {
		return
	}
	for name, to := range map[string]*bool{"readOnlyHint": &t.ReadOnly, "destructiveHint": &t.Destructive,
		"idempotentHint": &t.Idempotent, "openWorldHint": &t.OpenWorld} {
		if hint, ok := ann.Get(name); ok {
			*to = string(hint) == "true"
		}
	}
}

// inspectSchema checks an inputSchema and collects its header bindings into t. It returns the
// schema with "type":"object" added when the root had no type, else nil.
func inspectSchema(schema jsontext.Value, t *Tool, find func(rule, text string)) (jsontext.Value, error) {
	if schema.Kind() != '{' {
		return nil, &toolError{"input_schema", "inputSchema is not an object"}
	}
	obj, err := wire.ParseObject(schema)
	if err != nil {
		return nil, &toolError{"input_schema", "inputSchema has duplicate names"}
	}
	var tree map[string]any
	if err := json.Unmarshal(schema, &tree); err != nil {
		return nil, &toolError{"input_schema", "inputSchema cannot be read"}
	}
	if typ, ok := tree["type"]; ok && typ != "object" {
		return nil, &toolError{"input_schema", `the type of inputSchema is not "object"`}
	}
	if ref := danglingRef(tree); ref != "" {
		return nil, &toolError{"schema_ref", fmt.Sprintf("inputSchema refers to %q, which it does not define", clip(ref, 100))}
	}
	b := bindings{seen: make(map[string]bool)}
	b.walk(tree, nil, true)
	if b.err != nil {
		return nil, b.err
	}
	adviseSchema(tree, find)
	slices.SortFunc(b.out, func(a, c headerBinding) int { return strings.Compare(a.header, c.header) })
	t.headers = b.out
	if _, ok := tree["type"]; !ok {
		return obj.Append(nil, wire.Edit{Name: "type", Value: jsontext.Value(`"object"`)}), nil
	}
	return nil, nil
}

// The keywords of JSON Schema 2020-12 whose values hold schemas, by shape. Everything else is data,
// in which a name like "$ref" or "x-mcp-header" means nothing.
var (
	schemaKeywords = []string{"items", "additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems",
		"contains", "propertyNames", "not", "if", "then", "else", "contentSchema", "oneOf", "anyOf", "allOf", "prefixItems"}
	schemaMaps = []string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies"}
)

// subschemas calls f for every schema directly inside s with the keyword it stands under and, for
// maps, its name.
func subschemas(s map[string]any, f func(keyword, name string, sub map[string]any)) {
	for _, k := range schemaKeywords {
		switch v := s[k].(type) {
		case map[string]any:
			f(k, "", v)
		case []any:
			for _, e := range v {
				if sub, ok := e.(map[string]any); ok {
					f(k, "", sub)
				}
			}
		}
	}
	for _, k := range schemaMaps {
		m, _ := s[k].(map[string]any)
		// In order, so that of several faults the same one is always reported.
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if sub, ok := m[name].(map[string]any); ok {
				f(k, name, sub)
			}
		}
	}
}

// bindings collects x-mcp-header annotations (2026-07-28, basic/transports/streamable-http, "Schema
// Extension"): allowed only on properties that are reached from the root through nothing but
// "properties".
type bindings struct {
	seen map[string]bool // lower-case header names
	out  []headerBinding
	err  error
}

func (b *bindings) walk(s map[string]any, path []string, reachable bool) {
	if b.err != nil {
		return
	}
	if v, ok := s["x-mcp-header"]; ok {
		b.add(s, v, path, reachable)
	}
	subschemas(s, func(keyword, name string, sub map[string]any) {
		if keyword == "properties" {
			b.walk(sub, append(slices.Clone(path), name), reachable)
			return
		}
		b.walk(sub, nil, false)
	})
}

func (b *bindings) add(s map[string]any, v any, path []string, reachable bool) {
	fail := func(text string) { b.err = &toolError{"x_mcp_header", text} }
	name, ok := v.(string)
	switch {
	case !ok || !isToken(name):
		fail("an x-mcp-header is not a header name")
	case !reachable || len(path) == 0:
		fail(fmt.Sprintf("x-mcp-header %q stands where no single argument can be found", clip(name, 100)))
	case b.seen[strings.ToLower(name)]:
		fail(fmt.Sprintf("x-mcp-header %q is used twice", clip(name, 100)))
	case !primitive(s["type"]):
		fail(fmt.Sprintf("x-mcp-header %q is on a parameter that is not a string, integer or boolean", clip(name, 100)))
	default:
		b.seen[strings.ToLower(name)] = true
		b.out = append(b.out, headerBinding{path: path, header: "Mcp-Param-" + name})
	}
}

func primitive(t any) bool {
	switch t := t.(type) {
	case string:
		return t == "string" || t == "integer" || t == "boolean"
	case []any:
		// A nullable parameter: the header is left out when the value is null.
		var n int
		for _, e := range t {
			if e == "null" {
				continue
			}
			if !primitive(e) {
				return false
			}
			n++
		}
		return n == 1
	}
	return false
}

func isToken(s string) bool {
	if s == "" || len(s) > 200 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return true
}

// danglingRef returns the first local $ref of the schema that leads nowhere, or "". References into
// other documents are the client's to judge, and schemas with embedded $id resources are let pass.
func danglingRef(root any) string {
	top, ok := root.(map[string]any)
	if !ok {
		return ""
	}
	anchors := make(map[string]bool)
	var refs []string
	embedded := false
	var walk func(s map[string]any, isRoot bool)
	walk = func(s map[string]any, isRoot bool) {
		for _, k := range []string{"$anchor", "$dynamicAnchor"} {
			if a, ok := s[k].(string); ok {
				anchors[a] = true
			}
		}
		for _, k := range []string{"$ref", "$dynamicRef"} {
			if r, ok := s[k].(string); ok && strings.HasPrefix(r, "#") {
				refs = append(refs, r)
			}
		}
		if _, ok := s["$id"]; ok && !isRoot {
			embedded = true
		}
		subschemas(s, func(_, _ string, sub map[string]any) { walk(sub, false) })
	}
	walk(top, true)
	if embedded {
		return ""
	}
	slices.Sort(refs)
	for _, r := range refs {
		frag := r[1:]
		if frag == "" || anchors[frag] {
			continue
		}
		if !strings.HasPrefix(frag, "/") || !resolves(root, frag) {
			return r
		}
	}
	return ""
}

// resolves reports whether a JSON pointer (RFC 6901, with percent-encoding as in a URI fragment)
// names a value inside root.
func resolves(root any, pointer string) bool {
	cur := root
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = unescapePointer(part)
		switch v := cur.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return false
			}
			cur = next
		case []any:
			var i int
			if _, err := fmt.Sscanf(part, "%d", &i); err != nil || i < 0 || i >= len(v) {
				return false
			}
			cur = v[i]
		default:
			return false
		}
	}
	return true
}
