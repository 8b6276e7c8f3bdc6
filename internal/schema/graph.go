package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// graph is what is known of a compiled schema as a whole.
type graph struct {
	schemas map[string]*jsonschema.Schema // by location
	weights map[*jsonschema.Schema]int    // what applying a schema costs, in steps
	weight  int                           // the same with all that it applies in turn; maxSteps for more than that, and for schemas that refer to themselves
	names   map[string]bool               // of members that it knows
	program int                           // instructions of its patterns
	chains  map[*jsonschema.Schema]int    // how long a chain begins at a schema; 0 while that is being found out
}

// newGraph walks a compiled schema once. It makes formats annotations, as 2020-12 has them and most servers take
// them, and puts the meter into every schema and pattern.
func newGraph(root *jsonschema.Schema, m *meter) (*graph, error) {
	g := &graph{schemas: make(map[string]*jsonschema.Schema), names: make(map[string]bool), chains: make(map[*jsonschema.Schema]int), weights: make(map[*jsonschema.Schema]int)}
	queue := []*jsonschema.Schema{root}
	seen := map[*jsonschema.Schema]bool{root: true}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		g.schemas[s.Location] = s
		for name := range s.Properties {
			g.names[name] = true
		}
		for _, name := range s.Required {
			g.names[name] = true
		}
		weight := 1 + (len(s.Required)+len(s.PatternProperties)+len(s.Dependencies)+len(s.DependentRequired)+len(s.DependentSchemas))/8
		if s.Enum != nil {
			weight += size(s.Enum.Values) / 8
		}
		if s.Const != nil {
			weight += size(*s.Const) / 8
		}
		if s.RecursiveRef != nil || s.DynamicRef != nil {
			weight = maxSteps // where they lead is known only when they are followed
		}
		g.weights[s] = weight
		s.Format = nil
		if p, ok := s.Pattern.(*pattern); ok {
			g.program += p.program
			s.Pattern = &pattern{Regexp: p.Regexp, program: p.program, meter: m}
		}
		if len(s.PatternProperties) > 0 {
			metered := make(map[jsonschema.Regexp]*jsonschema.Schema, len(s.PatternProperties))
			for re, sub := range s.PatternProperties {
				if p, ok := re.(*pattern); ok {
					g.program += p.program
					re = &pattern{Regexp: p.Regexp, program: p.program, meter: m}
				}
				metered[re] = sub
			}
			s.PatternProperties = metered
		}
		s.Extensions = append(s.Extensions, toll{m, weight})
		for _, sub := range append(sameValue(s), innerValues(s)...) {
			if sub != nil && !seen[sub] { // nil is a keyword that is not there
				seen[sub] = true
				queue = append(queue, sub)
			}
		}
	}
	for _, s := range g.schemas {
		if n, ok := g.chain(s); !ok || n > maxChain {
			return nil, fmt.Errorf("the schema applies more than %d schemas to one value by way of one another, or refers to itself without end", maxChain)
		}
	}
	g.weight = g.total(root, make(map[*jsonschema.Schema]int))
	g.chains, g.weights = nil, nil
	return g, nil
}

// chain returns how many schemas are applied to one value by way of one another, beginning with s; false where
// there is no end.
func (g *graph) chain(s *jsonschema.Schema) (int, bool) {
	if n, known := g.chains[s]; known {
		return n, n > 0
	}
	g.chains[s] = 0
	longest := 0
	for _, sub := range sameValue(s) {
		if sub == nil {
			continue
		}
		n, ok := g.chain(sub)
		if !ok {
			return 0, false
		}
		longest = max(longest, n)
	}
	g.chains[s] = longest + 1
	return longest + 1, true
}

// total is the cost of a schema with all that it applies in turn, as often as it does; at most maxSteps.
func (g *graph) total(s *jsonschema.Schema, known map[*jsonschema.Schema]int) int {
	if n, ok := known[s]; ok {
		return n
	}
	known[s] = maxSteps // what comes back to itself has no bound of its own
	n := g.weights[s]
	for _, sub := range append(sameValue(s), innerValues(s)...) {
		if sub != nil && n < maxSteps {
			n += g.total(sub, known)
		}
	}
	known[s] = min(n, maxSteps)
	return known[s]
}

// bound is what holding a value against the schema can cost at most, in steps.
func (g *graph) bound(doc *document) int {
	if g.weight >= maxSteps {
		return maxSteps + 1
	}
	return g.weight*(doc.nodes+1) + g.weight*matchCost(g.program, doc.bytes)
}

// sameValue are the schemas that s applies to the value it is applied to itself.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		out = append(out, s.DynamicRef.Ref)
	}
	out = append(append(append(out, s.AllOf...), s.AnyOf...), s.OneOf...)
	for _, sub := range s.DependentSchemas {
		out = append(out, sub)
	}
	for _, dep := range s.Dependencies {
		if sub, ok := dep.(*jsonschema.Schema); ok {
			out = append(out, sub)
		}
	}
	return out
}

// innerValues are the schemas that s applies to what is inside of the value.
func innerValues(s *jsonschema.Schema) []*jsonschema.Schema {
	out := []*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	for _, sub := range s.Properties {
		out = append(out, sub)
	}
	for _, sub := range s.PatternProperties {
		out = append(out, sub)
	}
	for _, v := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			out = append(out, v)
		case []*jsonschema.Schema:
			out = append(out, v...)
		}
	}
	return append(out, s.PrefixItems...)
}

// toll is the keyword that every schema gets, so that applying it is counted.
type toll struct {
	meter  *meter
	weight int
}

var _ jsonschema.SchemaExt = toll{}

// Validate implements jsonschema.SchemaExt.
func (t toll) Validate(_ *jsonschema.ValidatorContext, v any) {
	n := t.weight
	switch v := v.(type) {
	case map[string]any:
		n += len(v) / 8
	case []any:
		n += len(v) / 8
	}
	t.meter.spend(n)
}

// size is the number of values in a value.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += size(e)
		}
	case []any:
		for _, e := range v {
			n += size(e)
		}
	}
	return n
}

// pattern is a regular expression that is counted by what matching can cost.
type pattern struct {
	*regexp.Regexp
	program int
	meter   *meter
}

// maxProgram bounds the compiled form of one pattern, in instructions: time is that times the length of the text.
// maxPrograms bounds that of all patterns of a schema, and maxPatternText the text of one, in bytes.
const (
	maxProgram     = 2000
	maxPrograms    = 50_000
	maxPatternText = 10_000
)

var errPattern = errors.New("a pattern is too large")

// patterns are those of one schema, by their text.
type patterns struct {
	made  map[string]*pattern
	total int // instructions
}

func (ps *patterns) compile(text string) (jsonschema.Regexp, error) {
	if p := ps.made[text]; p != nil {
		return p, nil
	}
	if len(text) > maxPatternText || ps.total > maxPrograms {
		return nil, errPattern
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if ps.total += len(prog.Inst); len(prog.Inst) > maxProgram || ps.total > maxPrograms {
		return nil, errPattern
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p := &pattern{Regexp: re, program: len(prog.Inst)}
	ps.made[text] = p
	return p, nil
}

// matchCost is the cost of matching in steps.
func matchCost(program, bytes int) int { return program * bytes / 256 }

// MatchString implements jsonschema.Regexp.
func (p *pattern) MatchString(s string) bool {
	if p.meter != nil {
		p.meter.spend(1 + matchCost(p.program, len(s)))
	}
	return p.Regexp.MatchString(s)
}
