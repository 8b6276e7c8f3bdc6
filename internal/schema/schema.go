package schema

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The bounds of what is checked. What is beyond them is not wrong, it is not checked.
const (
	// MaxSchema is the largest schema, and MaxValue the largest value, in bytes.
	MaxSchema = 256 << 10
	MaxValue  = 1 << 20
	// MaxDepth is how deep both may nest.
	MaxDepth = 64
	// maxSchemas bounds the objects and booleans in a schema: compiling takes time that grows with the square of them.
	maxSchemas = 5000
	// maxChain is how many schemas may apply to one value by way of one another. It bounds the stack.
	maxChain = 100
	// maxSteps bounds the work for one value; a step is a schema that is applied to a value.
	maxSteps = 100_000
)

// Schema is a compiled schema. It may be used concurrently.
type Schema struct {
	compiled *jsonschema.Schema
	graph    *graph

	// mu is held for reading by checks that cannot cost much by the form of the schema and the size of the value,
	// and for writing by the others, which meter counts and breaks off.
	mu    sync.RWMutex
	meter *meter
}

// meter counts the steps of one check.
type meter struct {
	on   bool
	left int
}

// errWork breaks a check off that takes too long.
var errWork = errors.New("holding the value against the schema takes too long")

func (m *meter) spend(n int) {
	if !m.on {
		return
	}
	if m.left -= n; m.left < 0 {
		panic(errWork) // recovered in validate: the library has no other way out
	}
}

// dialects are the values of $schema that are understood, without a fragment.
var dialects = map[string]bool{
	"https://json-schema.org/draft/2020-12/schema": true,
	"http://json-schema.org/draft/2020-12/schema":  true,
	"http://json-schema.org/draft-07/schema":       true,
	"https://json-schema.org/draft-07/schema":      true,
}

// location is the name of a schema that gives itself none.
const location = "headgate:///schema"

// Compile reads a schema. Without $schema it is one of 2020-12. The error says why values are not checked against
// it, in words that may be shown to operators.
func Compile(text jsontext.Value) (*Schema, error) {
	if len(text) > MaxSchema {
		return nil, fmt.Errorf("the schema is larger than %d KiB", MaxSchema>>10)
	}
	doc, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("the schema %w", err)
	}
	if doc.schemas > maxSchemas {
		return nil, fmt.Errorf("the schema has more than %d objects and booleans", maxSchemas)
	}
	if obj, ok := doc.root.(map[string]any); ok {
		if dialect, ok := obj["$schema"]; ok {
			name, _ := dialect.(string)
			if !dialects[trimFragment(name)] {
				return nil, fmt.Errorf("the dialect %s is not supported; 2020-12 and draft-07 are", brief(dialect))
			}
		}
	}
	compiled, err := compile(doc.root)
	if err != nil {
		return nil, err
	}
	s := &Schema{compiled: compiled, meter: &meter{}}
	if s.graph, err = newGraph(compiled, s.meter); err != nil {
		return nil, err
	}
	return s, nil
}

func trimFragment(name string) string {
	if n := len(name); n > 0 && name[n-1] == '#' {
		return name[:n-1]
	}
	return name
}

// refuser loads nothing: a schema may refer to itself and to the standard's own schemas, which are built in.
type refuser struct{}

var _ jsonschema.URLLoader = refuser{}

var errElsewhere = errors.New("references into other documents are not followed")

func (refuser) Load(string) (any, error) { return nil, errElsewhere }

// compile has the library read a schema; a panic of it is an error like others, since the schema is foreign.
func compile(doc any) (s *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("the schema cannot be compiled")
		}
	}()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(refuser{})
	c.UseRegexpEngine((&patterns{made: make(map[string]*pattern)}).compile)
	if err := c.AddResource(location, doc); err != nil {
		return nil, fmt.Errorf("the schema cannot be compiled: %s", clip(err.Error(), 200))
	}
	s, err = c.Compile(location)
	switch {
	case errors.Is(err, errElsewhere), errors.As(err, new(*jsonschema.LoadURLError)):
		return nil, fmt.Errorf("the schema cannot be compiled: %w", errElsewhere)
	case err != nil:
		return nil, fmt.Errorf("the schema cannot be compiled: %s", clip(oneLine(err.Error()), 200))
	}
	return s, nil
}

// Report says what does not fit.
type Report struct {
	// Problems are the first of them, by path.
	Problems []Problem
	// More is how many there are besides.
	More int
}

// OK reports whether the value fits.
func (r Report) OK() bool { return len(r.Problems) == 0 }

// Problem is one thing that does not fit.
type Problem struct {
	// Path leads to the value, as in items[0].name; "" is the whole value.
	Path string
	// Text says what is there and what is expected, as in: is "red", expected one of "blue", "green".
	Text string
}

// Check holds a value against the schema and reports at most so many problems. An error says why the value could
// not be checked, in words that may be shown to operators, and nothing of the value.
func (s *Schema) Check(value jsontext.Value, most int) (Report, error) {
	return s.check(value, most, false)
}

// Shape is Check with problems that repeat nothing of the value: kinds of values in place of values, names only where
// the schema has them too, else *, and [] for the place in an array.
func (s *Schema) Shape(value jsontext.Value, most int) (Report, error) {
	return s.check(value, most, true)
}

func (s *Schema) check(value jsontext.Value, most int, shape bool) (Report, error) {
	if len(value) > MaxValue {
		return Report{}, fmt.Errorf("the value is larger than %d KiB", MaxValue>>10)
	}
	doc, err := decode(value)
	if err != nil {
		return Report{}, fmt.Errorf("the value %w", err)
	}
	failed, err := s.validate(doc)
	if err != nil || failed == nil {
		return Report{}, err
	}
	d := describer{root: doc.root, graph: s.graph, shape: shape}
	return d.report(failed, most)
}

// validate runs the library. What it can cost at most decides whether it has to be counted.
func (s *Schema) validate(doc *document) (failed *jsonschema.ValidationError, err error) {
	if s.graph.bound(doc) <= maxSteps {
		s.mu.RLock()
		defer s.mu.RUnlock()
	} else {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.meter.on, s.meter.left = true, maxSteps
		defer func() { s.meter.on = false }()
	}
	defer func() {
		if p := recover(); p != nil {
			failed, err = nil, errWork
			if p != any(errWork) {
				err = errors.New("the value cannot be held against the schema")
			}
		}
	}()
	err = s.compiled.Validate(doc.root)
	if errors.As(err, &failed) {
		return failed, nil
	}
	return nil, err
}
