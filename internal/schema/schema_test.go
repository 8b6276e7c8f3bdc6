package schema_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/schema"
)

func compile(t testing.TB, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(jsontext.Value(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// lines is a report in one text.
func lines(r schema.Report) string {
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.Path, p.Text)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "+%d\n", r.More)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestCheck(t *testing.T) {
	const order = `{"type":"object","properties":{
		"id":{"type":"integer","minimum":1,"maximum":9007199254740993},
		"state":{"enum":["new","paid",7,null]},
		"note":{"type":["string","null"],"maxLength":5,"pattern":"^[a-z]+$"},
		"lines":{"type":"array","minItems":1,"uniqueItems":true,"items":{"$ref":"#/$defs/line"}},
		"odd name":{"const":true}},
		"required":["id","state"],"additionalProperties":false,
		"$defs":{"line":{"type":"object","properties":{"sum":{"type":"number","exclusiveMinimum":0,"multipleOf":0.5}},"required":["sum"]}}}`
	tests := []struct{ name, schema, value, want string }{
		{"fits", order, `{"id":9007199254740993,"state":null,"note":null,"lines":[{"sum":1.5},{"sum":2e0}]}`, ""},
		{"empty", order, `{}`, "id: is missing; expected an integer\nstate: is missing; expected one of \"new\", \"paid\", 7, null"},
		{"exact numbers", order, `{"id":9007199254740994,"state":7.0}`, "id: is 9007199254740994, expected at most 9007199254740993"},
		{"type", order, `{"id":"ten","state":"new"}`, `id: is "ten", expected an integer`},
		{"types", order, `{"id":1,"state":"new","note":[1]}`, `note: is an array, expected null or a string`},
		{"enum", order, `{"id":1,"state":"old"}`, `state: is "old", expected one of "new", "paid", 7, null`},
		{"unknown member", order, `{"id":1,"state":"new","ID":2}`, `ID: is not a member that is known here; known are "id", "lines", "note", "odd name", "state"`},
		{"several", order, `{"id":0,"state":"new","note":"ABCDEFG","lines":[{"sum":1},{"sum":0.3},{},{"sum":"x"}]}`,
			"id: is 0, expected at least 1\nlines[1].sum: is 0.3, expected a multiple of 0.5\nlines[2].sum: is missing; expected a number\nlines[3].sum: is \"x\", expected a number\n" +
				"note: has 7 characters, expected at most 5\n+1"},
		{"long value", order, `{"id":1,"state":"` + strings.Repeat("ß", 50) + `"}`, `state: is "` + strings.Repeat("ß", 40) + `…", expected one of "new", "paid", 7, null`},
		{"odd path", order, `{"id":1,"state":"new","odd name":1,"a\"b":1}`,
			`["a\"b"]: is not a member that is known here; known are "id", "lines", "note", "odd name", "state"` + "\n" + `["odd name"]: is 1, expected true`},
		{"unique and few", order, `{"id":1,"state":"new","lines":[{"sum":1},{"sum":1.0}]}`, "lines: has the same item at 0 and 1, expected no item twice"},
		{"root", order, `[]`, ": is an array, expected an object"},
		{"nullable", `{"anyOf":[{"type":"string","minLength":2},{"type":"null"}]}`, `"a"`, ": has 1 characters, expected at least 2"},
		{"types of alternatives", `{"properties":{"a":{"oneOf":[{"type":"string"},{"type":"integer"}]}}}`, `{"a":true}`, "a: is true, expected an integer or a string"},
		{"union", `{"oneOf":[{"properties":{"kind":{"const":"card"},"no":{"type":"string"}},"required":["kind","no"]},{"properties":{"kind":{"const":"cash"}},"required":["kind"]}]}`,
			`{"kind":"card","no":7}`, `no: is 7, expected a string`},
		{"no alternative", `{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `{}`, ": fits none of the 2 alternatives: a is missing; b is missing"},
		{"both alternatives", `{"oneOf":[{"type":"number"},{"type":"integer"}]}`, `1`, ": fits more than one of the alternatives, expected exactly one"},
		{"not", `{"not":{"type":"string"}}`, `"a"`, `: is "a", which is of a form that is not allowed`},
		{"false", `{"properties":{"a":false}}`, `{"a":1}`, "a: is not allowed here"},
		{"dependent", `{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `b: is missing, and required where "a" is given`},
		{"if", `{"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]}}`, `{"a":1}`, "b: is missing"},
		{"prefix items", `{"prefixItems":[{"type":"string"}],"items":false}`, `["a",1]`, "[1]: is not allowed here"},
		{"unevaluated", `{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"a":1,"b":2}`, "b: is not allowed here"},
		{"formats are no rules", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"date"},"b":{"format":"regex"}}}`, `{"a":"x","b":"(?=a)"}`, ""},
		{"draft-07 items", `{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`, `["a",1]`, ": has 1 items too many"},
		{"draft-07 dependencies", `{"$schema":"http://json-schema.org/draft-07/schema","dependencies":{"a":["b"]}}`, `{"a":1}`, `b: is missing, and required where "a" is given`},
		{"draft-07 id", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{"$id":"#x","type":"string"}},"properties":{"a":{"$ref":"#x"}}}`, `{"a":1}`, "a: is 1, expected a string"},
		{"recursive", `{"$defs":{"n":{"properties":{"v":{"type":"integer"},"kids":{"items":{"$ref":"#/$defs/n"}}}}},"$ref":"#/$defs/n"}`,
			`{"kids":[{"kids":[{"v":"x"}]}]}`, `kids[0].kids[0].v: is "x", expected an integer`},
		{"the standard's own schema", `{"properties":{"s":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`, `{"s":{"type":"strin"}}`,
			`s.type: fits none of the 2 alternatives: is "strin", expected one of "array", "boolean", "integer", "null", "number", "object", "string"; is "strin", expected an array`},
		{"true", `true`, `[1]`, ""},
		{"nothing is asked", `{}`, `"x"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := compile(t, tt.schema).Check(jsontext.Value(tt.value), 5)
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(r); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestShape: what is reported of a result's form holds nothing of the result.
func TestShape(t *testing.T) {
	const s = `{"properties":{"rows":{"items":{"properties":{"id":{"type":"integer"},"state":{"enum":["new"]},"t":{"pattern":"^a"}},"required":["id"],"additionalProperties":false}},
		"byName":{"additionalProperties":{"anyOf":[{"type":"integer"},{"type":"null"}]}}},"propertyNames":{"maxLength":6}}`
	const v = `{"rows":[{"id":"hunter2"},{"id":"hunter3","state":"hunter2","t":"hunter2","hunter2":1},{}],"byName":{"hunter2":"hunter2","hunter4":true},"hunter2":1}`
	r, err := compile(t, s).Shape(jsontext.Value(v), 20)
	want := ": has a member with a name that is not allowed\nbyName.*: is a boolean, expected an integer or null\nbyName.*: is a string, expected an integer or null\n" +
		`rows[]: has a member that is not known here; known are "id", "state", "t"` + "\nrows[].id: is a string, expected an integer\nrows[].id: is missing; expected an integer\n" +
		`rows[].state: is a string, expected one of "new"` + "\nrows[].t: is a string, expected a text that matches the pattern ^a"
	if got := lines(r); err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

func TestSchemasThatAreNotChecked(t *testing.T) {
	deep := strings.Repeat(`{"items":`, schema.MaxDepth+1) + `{}` + strings.Repeat(`}`, schema.MaxDepth+1)
	var manyPatterns strings.Builder
	for i := range 100 {
		fmt.Fprintf(&manyPatterns, `{"pattern":"%d(a{0,999})"},`, i)
	}
	chain := `{"$defs":{`
	for i := range 200 {
		chain += fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	chain += `"d200":{}},"$ref":"#/$defs/d0"}`
	for name, tt := range map[string]struct{ text, says string }{
		"draft-04":          {`{"$schema":"http://json-schema.org/draft-04/schema#"}`, "dialect"},
		"2019-09":           {`{"$schema":"https://json-schema.org/draft/2019-09/schema"}`, "dialect"},
		"unknown dialect":   {`{"$schema":"https://example.com/my"}`, "dialect"},
		"dialect a number":  {`{"$schema":7}`, "dialect"},
		"network":           {`{"$ref":"https://example.com/x.json"}`, "other documents"},
		"file":              {`{"$ref":"file:///etc/passwd"}`, "other documents"},
		"relative":          {`{"$ref":"other.json"}`, "other documents"},
		"by id":             {`{"$id":"https://example.com/a","properties":{"a":{"$ref":"b"}}}`, "other documents"},
		"embedded dialect":  {`{"properties":{"a":{"$id":"b","$schema":"https://example.com/x"}}}`, "other documents"},
		"dangling":          {`{"$ref":"#/$defs/none"}`, "cannot be compiled"},
		"wrong type":        {`{"type":"strin"}`, "cannot be compiled"},
		"properties a list": {`{"properties":[]}`, "cannot be compiled"},
		"lookahead":         {`{"pattern":"(?=a)"}`, "cannot be compiled"},
		"huge pattern":      {`{"pattern":"(?:a{0,500}){2}b{0,999}c{0,999}"}`, "cannot be compiled"},
		"a number":          {`7`, "cannot be compiled"},
		"no JSON":           {`{`, "not JSON"},
		"twice":             {`{"type":"object","type":"array"}`, "twice"},
		"digits":            {`{"minimum":1e1000000}`, "digits"},
		"deep":              {deep, "deeper"},
		"large":             {`{"description":"` + strings.Repeat("x", schema.MaxSchema) + `"}`, "larger"},
		"objects":           {`{"allOf":[` + strings.TrimSuffix(strings.Repeat(`{},`, 5001), ",") + `]}`, "more than 5000 objects"},
		"booleans":          {`{"allOf":[` + strings.TrimSuffix(strings.Repeat(`true,`, 5001), ",") + `]}`, "more than 5000 objects"},
		"many patterns":     {`{"allOf":[` + strings.TrimSuffix(manyPatterns.String(), ",") + `]}`, "cannot be compiled"},
		"long pattern":      {`{"pattern":"` + strings.Repeat("a", 20_000) + `"}`, "cannot be compiled"},
		"circle":            {`{"$ref":"#"}`, "without end"},
		"wide circle":       {`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}`, "without end"},
		"chain":             {chain, "more than 100"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := schema.Compile(jsontext.Value(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 500 || strings.Contains(err.Error(), "\n") {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// TestBounds has schemas and values whose cost grows beyond all bounds: they are given up, and the schema serves
// the next value.
func TestBounds(t *testing.T) {
	double := `{"$defs":{`
	for i := range 40 {
		double += fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	double += `"d40":{"type":"integer"}},"properties":{"x":{"$ref":"#/$defs/d0"}}}`
	fork := `{"$defs":{"n":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}`
	nested := strings.Repeat(`{"a":`, 60) + `{}` + strings.Repeat(`}`, 60)
	for name, tt := range map[string]struct{ schema, value, fits string }{
		"doubling":      {double, `{"x":1}`, `{}`},
		"forks":         {fork, nested, `{"a":{}}`},
		"many patterns": {`{"patternProperties":{"^(a|b|ab)*c":{"pattern":"((x|y|xy){50})*z"}}}`, `{"c":"` + strings.Repeat("xy", 500_000) + `"}`, `{"c":"` + strings.Repeat("x", 50) + `z"}`},
		"long names":    {`{"propertyNames":{"pattern":"(x|y|xy){50}z"}}`, `{"` + strings.Repeat("xy", 500_000) + `":1}`, `{}`},
		"wide enum":     {`{"items":{"enum":[` + strings.TrimSuffix(strings.Repeat("7,", 20_000), ",") + `]}}`, `[` + strings.TrimSuffix(strings.Repeat("7,", 5000), ",") + `]`, `[7]`},
		"too large":     {`{}`, `"` + strings.Repeat("x", schema.MaxValue) + `"`, `1`},
		"too deep":      {`{}`, strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100), `1`},
		"digits":        {`{"type":"integer"}`, `1e1000000`, `1`},
		"a name twice":  {`{}`, `{"a":1,"a":2}`, `{}`},
		"half a pair":   {`{}`, `"\ud800"`, `{}`},
		"no JSON":       {`{}`, `{`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, tt.schema)
			if r, err := s.Check(jsontext.Value(tt.value), 5); err == nil {
				t.Errorf("checked: %s", lines(r))
			}
			if r, err := s.Check(jsontext.Value(tt.fits), 5); err != nil || !r.OK() {
				t.Errorf("the next: %v %s", err, lines(r))
			}
		})
	}
}

func TestManyProblems(t *testing.T) {
	s := compile(t, `{"items":{"type":"string"}}`)
	r, err := s.Check(jsontext.Value(`[`+strings.TrimSuffix(strings.Repeat("1,", 20_000), ",")+`]`), 5)
	if err != nil || len(r.Problems) != 5 || r.More != 19_995 {
		t.Errorf("%v: %s", err, lines(r))
	}
}

// TestConcurrentChecks mixes checks that are counted with those that are not.
func TestConcurrentChecks(t *testing.T) {
	s := compile(t, `{"items":{"type":"string","pattern":"^a"}}`)
	large := jsontext.Value(`[` + strings.TrimSuffix(strings.Repeat(`"aaaaaaaa",`, 40_000), ",") + `]`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20 {
				if r, err := s.Check(jsontext.Value(`["a",1]`), 5); err != nil || lines(r) != "[1]: is 1, expected a string" {
					t.Errorf("small: %v %s", err, lines(r))
				}
			}
			if r, err := s.Check(large, 5); err != nil || !r.OK() {
				t.Errorf("large: %v %s", err, lines(r))
			}
		})
	}
	all.Wait()
}

func FuzzCheck(f *testing.F) {
	f.Add(`{"type":"object","required":["a"],"properties":{"a":{"enum":[1,"x"]}}}`, `{"a":2}`)
	f.Add(`{"$defs":{"n":{"items":{"$ref":"#/$defs/n"}}},"$ref":"#/$defs/n"}`, `[[[1]]]`)
	f.Add(`{"$schema":"http://json-schema.org/draft-07/schema#","anyOf":[{"type":"string"},{"const":1.0}],"format":"date"}`, `1e0`)
	f.Add(`{"$dynamicAnchor":"a","items":{"$dynamicRef":"#a"},"unevaluatedItems":false}`, `[1,[2]]`)
	f.Add(`{"patternProperties":{"^a":false},"propertyNames":{"maxLength":3},"dependentSchemas":{"a":{"minProperties":2}}}`, `{"abcd":1,"a":{}}`)
	f.Add(`{"if":{"multipleOf":0.1},"then":{"maximum":1e300},"else":{"not":{}}}`, `1e308`)
	f.Fuzz(func(t *testing.T, text, value string) {
		s, err := schema.Compile(jsontext.Value(text))
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("a long error: %v", err)
			}
			return
		}
		r, err := s.Check(jsontext.Value(value), 5)
		if err != nil {
			return
		}
		again, err := s.Check(jsontext.Value(value), 5)
		if err != nil || lines(again) != lines(r) {
			t.Errorf("%s\n%s\nthen %s, %v", text, lines(r), lines(again), err)
		}
		if len(r.Problems) > 5 || r.More < 0 || r.OK() && r.More > 0 {
			t.Errorf("%d problems and %d more", len(r.Problems), r.More)
		}
		for _, p := range r.Problems {
			if len(p.Path) > 2000 || len(p.Text) > 4000 {
				t.Errorf("a long problem: %v", p)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s := compile(b, `{"type":"object","properties":{"id":{"type":"integer"},"q":{"type":"string","maxLength":100}},"required":["id"],"additionalProperties":false}`)
	v := jsontext.Value(`{"id":7,"q":"something to look for"}`)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := s.Check(v, 5); err != nil || !r.OK() {
			b.Fatal(err)
		}
	}
}
