package configs

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
)

const envPrefix = "HEADGATE_"

// serviceVariable matches what Kubernetes puts into every container for a service called headgate or
// headgate-something. They are not settings, and refusing them would keep Headgate from starting there.
var serviceVariable = regexp.MustCompile(`^HEADGATE_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// overlay puts HEADGATE_* variables and overrides on top of the file.
func (l *loader) overlay(k *koanf.Koanf) error {
	ids, _ := asMap(k.Raw()["upstreams"])
	names := variableNames(slices.Collect(maps.Keys(ids)))
	err := k.Load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return l.options.Environ },
		TransformFunc: func(name, value string) (string, any) {
			return l.fromVariable(names, name), value
		},
	}), nil)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(l.options.Overrides)) {
		parts := strings.Split(key, ".")
		// Keys of headers and env may themselves have dots.
		if len(parts) > 4 && parts[0] == "upstreams" && (parts[2] == "headers" || parts[2] == "env") {
			parts = append(parts[:3:3], strings.Join(parts[3:], "."))
		}
		nested := l.options.Overrides[key]
		for _, part := range slices.Backward(parts) {
			nested = map[string]any{part: nested}
		}
		l.origin[joinAll(parts)] = ""
		if err := k.Load(confmap.Provider(nested.(map[string]any), ""), nil); err != nil {
			return err
		}
	}
	return nil
}

func joinAll(parts []string) string {
	path := ""
	for _, p := range parts {
		path = join(path, p)
	}
	return path
}

// fromVariable is the key path that a variable sets, or "" if it sets none.
func (l *loader) fromVariable(names map[string][]string, name string) string {
	paths := names[name]
	switch {
	case len(paths) == 1:
		l.origin[paths[0]] = name
		return paths[0]
	case len(paths) > 1:
		l.problem(name, "names more than one setting: %s", strings.Join(paths, ", "))
	case serviceVariable.MatchString(name):
	default:
		text := "names no setting"
		if near := nearest(strings.TrimPrefix(name, envPrefix), suffixes(names)); near != "" {
			text += "; did you mean " + envPrefix + near + "?"
		}
		l.problem(name, "%s", text)
	}
	return ""
}

func suffixes(names map[string][]string) []string {
	var all []string
	for n := range maps.Keys(names) {
		all = append(all, strings.TrimPrefix(n, envPrefix))
	}
	return all
}

// variableNames gives, for every setting that one value can hold, its variable. Upstreams take part with the
// ids that the file has.
func variableNames(ids []string) map[string][]string {
	names := map[string][]string{}
	add := func(path string) {
		n := envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
		names[n] = append(names[n], path)
	}
	for _, f := range configFields {
		if _, isMap := f.at(&Config{}).(*map[string]string); !isMap {
			add(f.name)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if !idPattern.MatchString(id) {
			continue
		}
		for _, f := range upstreamFields {
			if _, isMap := f.at(&Upstream{}).(*map[string]string); !isMap {
				add("upstreams." + id + "." + f.name)
			}
		}
	}
	return names
}
