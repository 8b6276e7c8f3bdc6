package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// alternatives words a value that fits none of several schemas: as what is wrong by the one that is meant, where
// that can be told, and by all of them in short otherwise.
func (d *describer) alternatives(e *jsonschema.ValidationError) {
	at := e.InstanceLocation
	var meant []*jsonschema.ValidationError
	var want []string
	onlyTypes := len(e.Causes) > 0
	for _, c := range e.Causes {
		head := top(c)
		if t, ok := head.ErrorKind.(*kind.Type); ok && len(head.InstanceLocation) == len(at) {
			want = append(want, t.Want...)
			continue
		}
		onlyTypes = false
		if !otherKind(c, len(at)) {
			meant = append(meant, c)
		}
	}
	switch {
	case onlyTypes:
		slices.Sort(want)
		d.add(at, "is %s, expected %s", d.show(at), types(slices.Compact(want)))
	case len(meant) == 1:
		d.walk(meant[0])
	default:
		d.add(at, "fits none of the %d alternatives: %s", len(e.Causes), d.summary(e.Causes, at))
	}
}

// top leaves out errors that only hold another.
func top(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) == 1 {
		switch e.ErrorKind.(type) {
		case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
			e = e.Causes[0]
			continue
		}
		break
	}
	return e
}

// otherKind reports that an alternative is meant for another kind of value: a member with a fixed value, such as
// "type" in a union, has another.
func otherKind(e *jsonschema.ValidationError, depth int) bool {
	switch e.ErrorKind.(type) {
	case *kind.Const, *kind.Enum:
		return len(e.InstanceLocation) == depth || len(e.InstanceLocation) == depth+1
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		return slices.ContainsFunc(e.Causes, func(c *jsonschema.ValidationError) bool { return otherKind(c, depth) })
	}
	return false
}

// maxSummed is how many alternatives are described.
const maxSummed = 3

func (d *describer) summary(causes []*jsonschema.ValidationError, at []string) string {
	var parts []string
	for i, c := range causes {
		if i == maxSummed {
			parts = append(parts, fmt.Sprintf("and %d more", len(causes)-i))
			break
		}
		one := describer{root: d.root, graph: d.graph, shape: d.shape}
		one.walk(c)
		d.cycle = d.cycle || one.cycle
		if len(one.all) == 0 {
			continue
		}
		p := slices.MinFunc(one.all, byPath)
		if below := strings.TrimPrefix(strings.TrimPrefix(p.Path, d.path(at)), "."); below != "" {
			p.Text = below + " " + p.Text
		}
		parts = append(parts, clip(p.Text, 150))
	}
	return strings.Join(parts, "; ")
}
