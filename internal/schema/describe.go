package schema

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// What of a value and of a schema a text repeats.
const (
	maxShown    = 40  // characters of a value
	maxListed   = 12  // alternatives
	maxPath     = 200 // bytes of a path
	maxPattern  = 100 // characters of a pattern
	maxGathered = 500 // problems that are worded at all
)

// describer words what the library found.
type describer struct {
	root  any
	graph *graph
	shape bool // nothing of the value is repeated
	count int  // problems found, those that are not worded included
	all   []Problem
	cycle bool
}

var errCycle = errors.New("the schema refers to itself without end")

func (d *describer) report(failed *jsonschema.ValidationError, most int) (Report, error) {
	d.walk(failed)
	if d.cycle {
		return Report{}, errCycle
	}
	slices.SortFunc(d.all, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Text, b.Text))
	})
	distinct := slices.Compact(d.all)
	d.count -= len(d.all) - len(distinct)
	shown := min(most, len(distinct))
	return Report{Problems: distinct[:shown:shown], More: d.count - shown}, nil
}

func byPath(a, b Problem) int {
	return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Text, b.Text))
}

func (d *describer) add(at []string, format string, args ...any) {
	if d.count++; len(d.all) < maxGathered {
		d.all = append(d.all, Problem{Path: d.path(at), Text: fmt.Sprintf(format, args...)})
	}
}

// walk words an error and those below it.
func (d *describer) walk(e *jsonschema.ValidationError) {
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		for _, c := range e.Causes {
			d.walk(c)
		}
	case *kind.AnyOf:
		d.alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			d.add(at, "fits more than one of the alternatives, expected exactly one")
			return
		}
		d.alternatives(e)
	case *kind.RefCycle, *kind.InvalidJsonValue:
		d.cycle = true
	case *kind.Required:
		d.missing(e, k.Missing, "")
	case *kind.Dependency:
		d.missing(e, k.Missing, k.Prop)
	case *kind.DependentRequired:
		d.missing(e, k.Missing, k.Prop)
	case *kind.AdditionalProperties:
		if d.shape {
			d.add(at, "has a member that is not known here%s", d.known(e.SchemaURL))
			return
		}
		for _, name := range k.Properties {
			d.add(append(slices.Clone(at), name), "is not a member that is known here%s", d.known(e.SchemaURL))
		}
	default:
		d.add(at, "%s", d.text(e))
	}
}

// missing words members that are required and not there.
func (d *describer) missing(e *jsonschema.ValidationError, names []string, because string) {
	s := d.graph.schemas[e.SchemaURL]
	for _, name := range names {
		text := "is missing"
		if because != "" {
			text += ", and required where " + quote(because) + " is given"
		}
		if s != nil && s.Properties[name] != nil {
			if want := wanted(s.Properties[name]); want != "" {
				text += "; expected " + want
			}
		}
		d.add(append(slices.Clone(e.InstanceLocation), name), "%s", text)
	}
}

// known lists the members that a schema names.
func (d *describer) known(location string) string {
	s := d.graph.schemas[location]
	if s == nil || len(s.Properties) == 0 {
		return ""
	}
	return "; known are " + list(slices.Sorted(maps.Keys(s.Properties)), quote)
}

// wanted says what a schema asks for at first sight.
func wanted(s *jsonschema.Schema) string {
	for range maxChain {
		if s.Ref == nil {
			break
		}
		s = s.Ref
	}
	switch {
	case s.Enum != nil:
		return "one of " + list(s.Enum.Values, brief)
	case s.Const != nil:
		return brief(*s.Const)
	case s.Types != nil && !s.Types.IsEmpty():
		return types(s.Types.ToStrings())
	}
	return ""
}

// text words an error that has none below it that matter.
func (d *describer) text(e *jsonschema.ValidationError) string {
	is := "is " + d.show(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return is + ", expected " + types(k.Want)
	case *kind.Enum:
		return is + ", expected one of " + list(k.Want, brief)
	case *kind.Const:
		return is + ", expected " + brief(k.Want)
	case *kind.Minimum:
		return is + ", expected at least " + rational(k.Want)
	case *kind.Maximum:
		return is + ", expected at most " + rational(k.Want)
	case *kind.ExclusiveMinimum:
		return is + ", expected more than " + rational(k.Want)
	case *kind.ExclusiveMaximum:
		return is + ", expected less than " + rational(k.Want)
	case *kind.MultipleOf:
		return is + ", expected a multiple of " + rational(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("has %d characters, expected at least %d", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has %d characters, expected at most %d", k.Got, k.Want)
	case *kind.Pattern:
		return is + ", expected a text that matches the pattern " + clip(k.Want, maxPattern)
	case *kind.MinItems:
		return fmt.Sprintf("has %d items, expected at least %d", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has %d items, expected at most %d", k.Got, k.Want)
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d items too many", k.Count)
	case *kind.UniqueItems:
		return fmt.Sprintf("has the same item at %d and %d, expected no item twice", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "has no item of the form that one must have"
	case *kind.MinContains:
		return fmt.Sprintf("has %d items of the form that is asked for, expected at least %d", len(k.Got), k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("has %d items of the form that is asked for, expected at most %d", len(k.Got), k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("has %d members, expected at least %d", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has %d members, expected at most %d", k.Got, k.Want)
	case *kind.PropertyNames:
		if d.shape {
			return "has a member with a name that is not allowed"
		}
		return "has a member with a name that is not allowed: " + quote(k.Property)
	case *kind.Not:
		return is + ", which is of a form that is not allowed"
	case *kind.FalseSchema:
		return "is not allowed here"
	}
	return is + ", which does not fit"
}

// value is what stands at a path in the value that was checked.
func (d *describer) value(at []string) any {
	v := d.root
	for _, name := range at {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		}
	}
	return v
}

// show is brief for the value at a path, or its kind only.
func (d *describer) show(at []string) string {
	v := d.value(at)
	if !d.shape {
		return brief(v)
	}
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	}
	return "a number"
}

// path writes a path as in items[0].name.
func (d *describer) path(at []string) string {
	var b strings.Builder
	v := d.root
	for _, name := range at {
		if b.Len() > maxPath {
			b.WriteString("…")
			break
		}
		if in, ok := v.([]any); ok {
			if d.shape {
				b.WriteString("[]")
			} else {
				b.WriteString("[" + name + "]")
			}
			v = nil
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(in) {
				v = in[i]
			}
			continue
		}
		in, _ := v.(map[string]any)
		v = in[name]
		switch {
		case d.shape && !d.graph.names[name]:
			b.WriteString(".*")
		case !plain(name):
			b.WriteString("[" + quote(name) + "]")
		case b.Len() > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

func plain(name string) bool {
	if name == "" || len(name) > maxShown {
		return false
	}
	return strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '$'
	}) < 0
}

// brief shows a value: its text if that is short, else its beginning or what it is.
func brief(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case string:
		return quote(v)
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	}
	return clip(fmt.Sprint(v), maxShown)
}

func quote(s string) string { return strconv.Quote(clip(s, maxShown)) }

func clip(s string, most int) string {
	n := 0
	for i := range s {
		if n == most {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func types(names []string) string {
	for i, n := range names {
		switch n {
		case "null":
		case "integer", "array", "object":
			names[i] = "an " + n
		default:
			names[i] = "a " + n
		}
	}
	return strings.Join(names, " or ")
}

func list[T any](all []T, show func(T) string) string {
	var shown []string
	for i, e := range all {
		if i == maxListed {
			shown = append(shown, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		shown = append(shown, show(e))
	}
	return strings.Join(shown, ", ")
}

// rational writes a bound of a schema.
func rational(r *big.Rat) string {
	if r == nil {
		return "0"
	}
	if r.IsInt() {
		return clip(r.Num().String(), maxShown)
	}
	return clip(strings.TrimRight(r.FloatString(20), "0"), maxShown)
}
