package configs

import (
	"maps"
	"slices"
	"strings"
)

// authSource is auth with the places of its entries.
type authSource struct {
	Auth
	keysAt, jwtAt []string
}

// teamSource is a team with its own servers and what was given for it.
type teamSource struct {
	*Team
	path    string // teams.NAME
	own     map[string]*upstreamSource
	rulesAt []string
	given   map[string]bool
}

func (l *loader) decodeAuth(at string, v any) {
	l.auth = &authSource{}
	m, ok := asMap(v)
	if !ok && v != nil {
		l.problem(at, "found %s, expected a map with api_keys or jwt", kindOf(v))
		return
	}
	d := decoder[Auth]{l: l, others: map[string]func(string, any){"api_keys": l.decodeKeys, "jwt": l.decodeJWT}}
	d.section(m, at, "", &l.auth.Auth)
}

func (l *loader) decodeKeys(at string, v any) {
	l.entries(at, v, func(at string, m map[string]any) {
		d := decoder[APIKey]{l: l, fields: apiKeyFields}
		k := APIKey{}
		d.section(m, at, "", &k)
		l.auth.APIKeys, l.auth.keysAt = append(l.auth.APIKeys, k), append(l.auth.keysAt, at)
	})
}

// decodeJWT takes one issuer without a list around it too.
func (l *loader) decodeJWT(at string, v any) {
	one := func(at string, m map[string]any) {
		d := decoder[JWT]{l: l, fields: jwtFields}
		j := defaultJWT()
		d.section(m, at, "", &j)
		l.auth.JWT, l.auth.jwtAt = append(l.auth.JWT, j), append(l.auth.jwtAt, at)
	}
	if m, ok := asMap(v); ok {
		one(at, m)
		return
	}
	if _, ok := asList(v); !ok {
		l.problem(at, "found %s, expected a map, or a list of maps", kindOf(v))
		return
	}
	l.entries(at, v, one)
}

func (l *loader) decodeTeams(at string, v any) {
	l.teamsGiven = true
	all, ok := asMap(v)
	if !ok {
		if v != nil {
			l.problem(at, "found %s, expected a map of teams by name", kindOf(v))
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l.decodeTeam(name, all[name])
	}
}

// decodeTeam reads what stands under teams.NAME, or in a team's own file.
func (l *loader) decodeTeam(name string, v any) *teamSource {
	path := join("teams", name)
	t := &teamSource{Team: &Team{Name: name}, path: path, given: map[string]bool{}}
	l.teams[name] = t
	m, ok := asMap(v)
	if !ok && v != nil {
		l.problem(path, "found %s, expected a map", kindOf(v))
		return t
	}
	d := decoder[Team]{l: l, fields: teamFields, given: t.given, others: map[string]func(string, any){
		"own_upstreams": func(at string, v any) { t.own = l.decodeUpstreams(at, v) },
		"rules":         func(at string, v any) { l.decodeRules(at, v, t) },
		"limits":        func(at string, v any) { l.decodeLimits(at, v, &t.Limits, true) },
	}}
	d.section(m, path, "", t.Team)
	return t
}

func (l *loader) decodeRules(at string, v any, t *teamSource) {
	l.entries(at, v, func(at string, m map[string]any) {
		given := map[string]bool{}
		d := decoder[Rule]{l: l, fields: ruleFields, given: given}
		r := Rule{}
		d.section(m, at, "", &r)
		// An expression that a variable left empty must not turn into "always".
		if given["when"] && strings.TrimSpace(r.When) == "" && !l.failed[at+".when"] {
			l.problem(at+".when", "must not be empty; leave the key out for a rule that always holds")
		}
		t.Rules, t.rulesAt = append(t.Rules, r), append(t.rulesAt, at)
	})
}

// decodeLimits reads limits; whole says that they may have per_caller and per_tool.
func (l *loader) decodeLimits(at string, v any, to *Limits, whole bool) {
	m, ok := asMap(v)
	if !ok && v != nil {
		l.problem(at, "found %s, expected a map", kindOf(v))
		return
	}
	d := decoder[Limits]{l: l, fields: limitFields}
	if whole {
		d.others = map[string]func(string, any){
			"per_caller": func(at string, v any) {
				to.PerCaller = &Limits{}
				l.decodeLimits(at, v, to.PerCaller, false)
			},
			"per_tool": func(at string, v any) { l.decodePerTool(at, v, to) },
		}
	}
	d.section(m, at, "", to)
}

func (l *loader) decodePerTool(at string, v any, to *Limits) {
	globs, ok := asMap(v)
	if !ok && v != nil {
		l.problem(at, "found %s, expected a map of limits by glob", kindOf(v))
		return
	}
	to.PerTool = make(map[string]Limits, len(globs))
	for _, glob := range slices.Sorted(maps.Keys(globs)) {
		var m Limits
		l.decodeLimits(join(at, glob), globs[glob], &m, false)
		to.PerTool[glob] = m
	}
}

// entries reads a list of maps and hands each over with its path.
func (l *loader) entries(path string, v any, each func(at string, m map[string]any)) {
	list, ok := asList(v)
	if !ok {
		l.problem(path, "found %s, expected a list of maps", kindOf(v))
		return
	}
	for i, e := range list {
		at := index(path, i)
		if m, ok := asMap(e); ok {
			each(at, m)
		} else {
			l.problem(at, "found %s, expected a map", kindOf(e))
		}
	}
}
