package configs

import (
	"maps"
	"slices"
	"strings"
)

// checkTeams checks the teams of all files.
func (l *loader) checkTeams(cfg *Config) {
	if l.auth == nil && (l.teamsGiven || len(cfg.Include) > 0) {
		at := "teams"
		if !l.teamsGiven {
			at = "include"
		}
		l.problem(at, "needs the key auth: without it every caller is anonymous and in no team, so nothing would be allowed")
	}
	for _, name := range slices.Sorted(maps.Keys(l.teams)) {
		l.team(l.teams[name])
	}
}

func (l *loader) team(t *teamSource) {
	if !idPattern.MatchString(t.Name) || len(t.Name) > maxIDLength {
		l.problem(t.path, "the team's name must be lower-case letters and digits with single dashes between, at most %d characters", maxIDLength)
	}
	seen := map[string]bool{}
	for i, id := range t.Upstreams {
		at := index(t.path+".upstreams", i)
		switch {
		case seen[id]:
			l.problem(at, "%s is there twice", l.show(at, id))
		case l.upstreams[id] == nil && !l.failed[join("upstreams", id)]:
			text := "there is no upstream " + l.show(at, id)
			if near := nearest(id, slices.Collect(maps.Keys(l.upstreams))); near != "" {
				text += "; did you mean " + near + "?"
			} else if t.own[id] != nil {
				text += " that teams share; own_upstreams are the team's without being listed here"
			}
			l.problem(at, "%s", text)
		}
		seen[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(t.own)) {
		at := join(t.path+".own_upstreams", id)
		if seen[id] && l.upstreams[id] != nil {
			l.problem(at, "has the id of a shared upstream that the team sees; rename it")
		}
		l.upstream(at, t.own[id])
	}
	for i := range t.Rules {
		l.rule(t.rulesAt[i], &t.Rules[i])
	}
	l.limits(t.path+".limits", t.Limits)
	if t.given["naming.separator"] {
		l.oneOf(t.path+".naming.separator", t.Naming.Separator, separators...)
	}
	if t.given["naming.max_name_length"] {
		l.nameLength(t.path+".naming.max_name_length", t.Naming.MaxNameLength)
	}
}

func (l *loader) rule(at string, r *Rule) {
	if len(r.Allow) == 0 && len(r.Deny) == 0 && !l.failed[at+".allow"] && !l.failed[at+".deny"] {
		l.problem(at, "needs allow or deny, with at least one pattern")
	}
	for key, patterns := range map[string][]string{"allow": r.Allow, "deny": r.Deny} {
		for i, p := range patterns {
			if strings.TrimSpace(p) == "" {
				l.problem(index(at+"."+key, i), "must not be empty")
			}
		}
	}
	if len(r.RequireScope) > 0 && len(r.Allow) == 0 && !l.failed[at+".allow"] {
		l.problem(at+".require_scope", "means nothing on a rule that allows nothing")
	}
	l.scopes(at+".require_scope", r.RequireScope)
}

func (l *loader) limits(at string, m Limits) {
	if m.CallsPerMinute < 0 {
		l.problem(at+".calls_per_minute", "must not be negative")
	}
	if m.Concurrent < 0 {
		l.problem(at+".concurrent", "must not be negative")
	}
	if m.PerCaller != nil {
		l.limits(at+".per_caller", *m.PerCaller)
	}
	for _, glob := range slices.Sorted(maps.Keys(m.PerTool)) {
		place := join(at+".per_tool", glob)
		if strings.TrimSpace(glob) == "" {
			l.problem(place, "the glob must not be empty")
		}
		l.limits(place, m.PerTool[glob])
	}
}
