package configs

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decode fills the configuration and what the loader holds beside it from the merged maps.
func (l *loader) decode(raw map[string]any, cfg *Config) {
	l.given = map[string]bool{}
	d := decoder[Config]{l: l, fields: configFields, foreign: l.host, given: l.given, others: map[string]func(string, any){
		"upstreams": func(at string, v any) { l.upstreams = l.decodeUpstreams(at, v) },
		"auth":      l.decodeAuth,
		"teams":     l.decodeTeams,
	}}
	d.section(raw, "", "", cfg)
}

func (l *loader) decodeUpstreams(at string, entries any) map[string]*upstreamSource {
	out := map[string]*upstreamSource{}
	all, ok := asMap(entries)
	if !ok {
		if entries != nil {
			l.problem(at, "found %s, expected a map of servers by id", kindOf(entries))
		}
		return out
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		path := join(at, id)
		entry, ok := asMap(all[id])
		if !ok {
			l.problem(path, "found %s, expected a map", kindOf(all[id]))
			continue
		}
		u := &upstreamSource{Upstream: defaultUpstream(id), given: map[string]bool{}}
		d := decoder[Upstream]{l: l, fields: upstreamFields, foreign: l.host, given: u.given, others: map[string]func(string, any){
			"guidance": func(at string, v any) { l.decodeGuidance(at, v, u.Upstream) },
		}}
		d.section(entry, path, "", u.Upstream)
		out[id] = u
	}
	return out
}

// decoder reads a map into a T by a table of fields.
type decoder[T any] struct {
	l       *loader
	fields  []field[T]
	foreign bool                         // keys of other programs are ignored with a warning
	others  map[string]func(string, any) // keys whose values are no fields, with what reads path and value
	given   map[string]bool              // if not nil, gets the names of keys that are there
}

// section reads the keys of one level; rel is the level's place in the table, with a dot at its end.
func (d *decoder[T]) section(m map[string]any, path, rel string, target *T) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at, name, value := join(path, key), rel+key, m[key]
		if d.given != nil {
			d.given[name] = true
		}
		if read, ok := d.others[name]; ok {
			read(at, value)
			continue
		}
		if f := d.field(name); f != nil {
			d.l.value(at, value, f.at(target), f.secret)
			continue
		}
		if d.hasSection(name + ".") {
			sub, ok := asMap(value)
			if !ok && value != nil {
				d.l.problem(at, "found %s, expected a map", kindOf(value))
			}
			d.section(sub, at, name+".", target)
			continue
		}
		d.unknown(at, rel, key)
	}
}

func (d *decoder[T]) field(name string) *field[T] {
	for i := range d.fields {
		if d.fields[i].name == name {
			return &d.fields[i]
		}
	}
	return nil
}

func (d *decoder[T]) hasSection(prefix string) bool {
	return slices.ContainsFunc(d.fields, func(f field[T]) bool { return strings.HasPrefix(f.name, prefix) })
}

func (d *decoder[T]) unknown(at, rel, key string) {
	var candidates []string
	if rel == "" {
		candidates = slices.Collect(maps.Keys(d.others))
	}
	for _, f := range d.fields {
		if name, ok := strings.CutPrefix(f.name, rel); ok {
			first, _, _ := strings.Cut(name, ".")
			candidates = append(candidates, name, first)
		}
	}
	near := nearest(key, candidates)
	if d.foreign && rel == "" && hostEntryKeys[key] {
		near = ""
	}
	switch {
	case near != "":
		d.l.problem(at, "unknown key; did you mean %s?", near)
	case d.foreign && rel == "" && !d.l.overridden(at):
		d.l.warn(at, "ignored, since it means nothing to Headgate")
	default:
		d.l.problem(at, "unknown key")
	}
}

// overridden reports that the value at a path comes from a variable or a flag.
func (l *loader) overridden(path string) bool {
	_, ok := l.origin[path]
	return ok
}

// value sets what to points to, or reports why not.
func (l *loader) value(path string, v, to any, secret bool) {
	text := l.overridden(path) // variables and flags can only give text for numbers, booleans and lists
	switch to := to.(type) {
	case *[]string:
		if s, ok := v.(string); ok && text {
			v = splitList(s)
		}
		l.list(path, v, to)
		return
	case *map[string]string:
		l.stringMap(path, v, to)
		return
	}
	if s, ok := v.(string); ok {
		expanded, ok := l.expand(path, s)
		if !ok {
			return
		}
		v = expanded
		text = text || l.hidden[path]
	}
	if err := l.scalar(path, v, to, text); err != nil {
		if _, isString := v.(string); secret && isString {
			err = fmt.Errorf("found %s", kindOf(v))
		}
		l.problem(path, "%s", err)
	}
}

func (l *loader) scalar(path string, v, to any, text bool) error {
	s, isString := v.(string)
	found := kindOf(v)
	if isString {
		found = l.show(path, s)
	}
	switch to := to.(type) {
	case *string:
		if !isString {
			return wrongType(v, "a string")
		}
		*to = s
	case *bool:
		b, ok := v.(bool)
		if isString && text {
			parsed, err := strconv.ParseBool(s)
			b, ok = parsed, err == nil
		}
		if !ok {
			return fmt.Errorf("found %s, expected true or false", found)
		}
		*to = b
	case *int:
		n, ok := integer(v)
		if isString && text {
			parsed, err := strconv.ParseInt(s, 10, 32)
			n, ok = parsed, err == nil
		}
		if !ok || n != int64(int32(n)) {
			return fmt.Errorf("found %s, expected a whole number", found)
		}
		*to = int(n)
	case *int64:
		n, ok := integer(v)
		if isString {
			n, ok = parseSize(s)
		}
		if !ok {
			return fmt.Errorf("found %s, expected a size such as 4MiB, 512KiB or a number of bytes", found)
		}
		*to = n
	case *time.Duration:
		if d, ok := v.(time.Duration); ok {
			*to = d
			return nil
		}
		if _, ok := integer(v); ok {
			return fmt.Errorf("found a number without a unit, expected a duration such as 60s")
		}
		d, err := time.ParseDuration(s)
		if !isString || err != nil {
			return fmt.Errorf("found %s, expected a duration such as 60s", found)
		}
		*to = d
	case *slog.Level:
		if level, ok := v.(slog.Level); ok {
			*to = level
			return nil
		}
		if !isString || to.UnmarshalText([]byte(s)) != nil {
			return fmt.Errorf("found %s, expected debug, info, warn or error", found)
		}
	default:
		return fmt.Errorf("has no decoding for %T", to)
	}
	return nil
}

func wrongType(v any, expected string) error {
	hint := ""
	switch v.(type) {
	case bool, int, int64, uint64, float64, time.Time:
		hint = "; put it in quotes"
	}
	return fmt.Errorf("found %s, expected %s%s", kindOf(v), expected, hint)
}

func (l *loader) list(path string, v any, to *[]string) {
	items, ok := asList(v)
	if !ok {
		l.problem(path, "found %s, expected a list of strings", kindOf(v))
		return
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		at := path + "[" + strconv.Itoa(i) + "]"
		s, ok := item.(string)
		if !ok {
			l.problem(at, "%s", wrongType(item, "a string"))
			continue
		}
		if s, ok = l.expand(at, s); ok {
			out = append(out, s)
		}
	}
	*to = out
}

func (l *loader) stringMap(path string, v any, to *map[string]string) {
	m, ok := asMap(v)
	if !ok && v != nil {
		l.problem(path, "found %s, expected a map of strings", kindOf(v))
		return
	}
	out := make(map[string]string, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := join(path, key)
		s, ok := m[key].(string)
		if !ok {
			l.problem(at, "%s", wrongType(m[key], "a string"))
			continue
		}
		if s, ok = l.expand(at, s); ok {
			out[key] = s
		}
	}
	*to = out
}

func splitList(s string) []any {
	var items []any
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			items = append(items, part)
		}
	}
	return items
}

func asMap(v any) (map[string]any, bool) {
	switch m := v.(type) {
	case map[string]any:
		return m, true
	case map[string]string:
		out := make(map[string]any, len(m))
		for k, s := range m {
			out[k] = s
		}
		return out, true
	}
	return nil, false
}

// asList takes an absent value, as "args:" with nothing behind it in YAML, for an empty list.
func asList(v any) ([]any, bool) {
	switch list := v.(type) {
	case nil:
		return nil, true
	case []any:
		return list, true
	case []string:
		return anys(list), true
	case []map[string]any:
		return anys(list), true
	}
	return nil, false
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case uint64:
		return int64(n), n <= math.MaxInt64
	case float64:
		return int64(n), n == math.Trunc(n) && math.Abs(n) < 1<<53
	}
	return 0, false
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int, int64, uint64, float64:
		return "a number"
	case map[string]any, map[any]any, map[string]string:
		return "a map"
	case []any, []string, []map[string]any:
		return "a list"
	}
	return "a date or time"
}

var sizeUnits = []struct {
	name   string
	factor int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// parseSize reads a number of bytes with or without a unit; 1 KiB is 1024 bytes, 1 KB is 1000.
func parseSize(s string) (int64, bool) {
	factor := int64(1)
	for _, u := range sizeUnits {
		if n := len(s) - len(u.name); n > 0 && strings.EqualFold(s[n:], u.name) {
			s, factor = strings.TrimSpace(s[:n]), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, false
	}
	return n * factor, true
}

// formatSize writes bytes in the largest binary unit that needs no fraction.
func formatSize(n int64) string {
	for _, u := range sizeUnits[:3] {
		if n != 0 && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
