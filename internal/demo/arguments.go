package demo

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxText bounds a text argument, in characters.
const maxText = 200

// arguments reads a call's raw arguments and gathers everything that is wrong
// with them, so that the model learns it all at once.
type arguments struct {
	members map[string]json.RawMessage
	broken  bool // the arguments are no object, so none of them is missing
	known   []string
	faults  []string
}

// parseArguments takes absent and null arguments for an empty object.
func parseArguments(raw json.RawMessage) *arguments {
	a := &arguments{}
	if len(raw) == 0 {
		return a
	}
	if err := json.Unmarshal(raw, &a.members); err != nil {
		a.broken = true
		a.faults = append(a.faults, fmt.Sprintf("The arguments must be one JSON object with a member for each argument, not %s.", kind(raw)))
	}
	return a
}

// text reads a string argument that may not be blank. want completes "It must
// be …".
func (a *arguments) text(name, want string) string {
	v, given := a.optionalText(name, want)
	if !given {
		a.missing(name, want)
	}
	return v
}

// optionalText is text for an argument that may be left out.
func (a *arguments) optionalText(name, want string) (v string, given bool) {
	raw, given := a.take(name)
	if !given {
		return "", false
	}
	switch {
	case json.Unmarshal(raw, &v) != nil:
		a.wrong(name, "is "+kind(raw), want)
	case strings.TrimSpace(v) == "":
		a.wrong(name, "is empty", want)
	case utf8.RuneCountInString(v) > maxText:
		a.wrong(name, fmt.Sprintf("has more than %d characters", maxText), want)
	}
	return strings.TrimSpace(v), true
}

// number reads a number from low to high, both included.
func (a *arguments) number(name, want string, low, high float64) float64 {
	raw, given := a.take(name)
	var v float64
	switch {
	case !given:
		a.missing(name, want)
	case kind(raw) != "a number" || json.Unmarshal(raw, &v) != nil:
		a.wrong(name, "is "+kind(raw), want)
	case v < low || v > high:
		a.wrong(name, "is "+string(raw), want)
	}
	return v
}

// whole is number for whole numbers.
func (a *arguments) whole(name, want string, low, high int) int {
	before := len(a.faults)
	v := a.number(name, want, float64(low), float64(high))
	if len(a.faults) == before && v != float64(int(v)) {
		a.wrong(name, "is "+string(a.members[name]), want)
	}
	return int(v)
}

// take returns a raw argument; null counts as left out.
func (a *arguments) take(name string) (json.RawMessage, bool) {
	a.known = append(a.known, name)
	raw, ok := a.members[name]
	return raw, ok && string(raw) != "null"
}

func (a *arguments) missing(name, want string) {
	if a.broken {
		return
	}
	a.faults = append(a.faults, fmt.Sprintf("The argument %s is missing. It must be %s.", name, want))
}

func (a *arguments) wrong(name, is, want string) {
	a.faults = append(a.faults, fmt.Sprintf("The argument %s %s. It must be %s.", name, is, want))
}

// complain returns the text for the model when anything is wrong, else "".
// Call it when every argument has been read.
func (a *arguments) complain(tool string) string {
	for _, name := range slices.Sorted(maps.Keys(a.members)) {
		if !slices.Contains(a.known, name) {
			a.faults = append(a.faults, fmt.Sprintf("%s has no argument %s.", tool, shorten(name)))
		}
	}
	if len(a.faults) == 0 {
		return ""
	}
	takes := "It takes no arguments."
	if len(a.known) > 0 {
		takes = "Its arguments are: " + strings.Join(a.known, ", ") + "."
	}
	return sentences(tool+" did nothing, because its arguments are not valid.", strings.Join(a.faults, " "), takes, "Correct them and call again.")
}

// shorten quotes a text of the caller's, cut to a size that fits a sentence.
func shorten(s string) string {
	r := []rune(s)
	if len(r) > 40 {
		s = string(r[:40]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// kind names the type of a JSON value.
func kind(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
