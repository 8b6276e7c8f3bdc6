package authz

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"

	"github.com/headgate/headgate/configs"
)

// Kinds of item that a policy decides about.
const (
	KindTool     = "tool"
	KindPrompt   = "prompt"
	KindResource = "resource"
)

// Annotations are the behaviour hints of a tool, with the defaults of the specification for those
// that it leaves out (2026-07-28, schema, "ToolAnnotations").
type Annotations struct{ ReadOnly, Destructive, Idempotent, OpenWorld bool }

// DefaultAnnotations are those of a tool that gives none.
func DefaultAnnotations() Annotations { return Annotations{Destructive: true, OpenWorld: true} }

// Item is one thing that a caller may or may not use.
type Item struct {
	Kind     string // KindTool, KindPrompt or KindResource
	Name     string // exposed name, or URI
	Server   string // id of the owner
	Original string // the owner's own name
	// Team is the one team that the owner belongs to; "" for a server that teams share.
	Team        string
	Annotations Annotations
}

// Decision is what a policy says of a caller and an item.
type Decision struct {
	// Allowed says that the caller sees the item.
	Allowed bool
	// Scopes are what the caller has to be granted before using the item, all of them at once; nil when
	// nothing is missing.
	Scopes []string
	// Why names the rule that decided, for operators; it never reaches a caller.
	Why string
}

// Policy decides who may use what. It is immutable.
type Policy struct {
	teams map[string]*team
	uses  uses
}

type team struct {
	name      string
	upstreams []string // sorted
	rules     []rule
}

type rule struct {
	where   string // place in the configuration
	allow   []pattern
	deny    []pattern
	when    *condition // nil: always
	require []string
}

// NewPolicy compiles the rules of teams. The error holds every fault, each with its place.
func NewPolicy(teams map[string]*configs.Team) (*Policy, error) {
	p := &Policy{teams: make(map[string]*team, len(teams))}
	env, err := conditionEnv()
	if err != nil {
		return nil, err
	}
	var errs []error
	for name, t := range teams {
		out := &team{name: name, upstreams: set(t.Upstreams)}
		for i := range t.Rules {
			r, err := newRule(env, fmt.Sprintf("teams.%s.rules[%d]", name, i), t.Rules[i])
			errs = append(errs, err)
			if r.when != nil {
				p.uses.add(r.when.uses)
			}
			out.rules = append(out.rules, r)
		}
		p.teams[name] = out
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func newRule(env *cel.Env, where string, c configs.Rule) (rule, error) {
	r := rule{where: where, require: set(c.RequireScope)}
	var errs []error
	patterns := func(list []string, key string) (out []pattern) {
		for i, text := range list {
			p, err := parsePattern(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s.%s[%d]: %w", where, key, i, err))
			}
			out = append(out, p)
		}
		return out
	}
	r.allow, r.deny = patterns(c.Allow, "allow"), patterns(c.Deny, "deny")
	if c.When != "" {
		when, err := compile(env, c.When)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.when: %w", where, err))
		}
		r.when = when
	}
	return r, errors.Join(errs...)
}

// Teams returns the teams of a caller that exist, in order.
func (p *Policy) Teams(c Caller) []string {
	var out []string
	for _, name := range c.Teams {
		if p.teams[name] != nil {
			out = append(out, name)
		}
	}
	return out
}

// Decide says whether a caller may use an item with the rights of some of its teams: what any of them
// allows. Within a team a rule that denies wins over all that allow, a rule that cannot be evaluated
// denies, and what no rule allows is denied.
func (p *Policy) Decide(c Caller, teams []string, i *Item) Decision {
	return p.decide(c, newCallerView(c), teams, i)
}

func (p *Policy) decide(c Caller, view *callerView, teams []string, i *Item) Decision {
	result := Decision{Why: "the caller is in no team that sees server " + i.Server}
	for n, name := range teams {
		t := p.teams[name]
		if t == nil || !c.InTeam(name) {
			continue
		}
		d := t.decide(c, view, i)
		if d.Allowed && d.Scopes == nil {
			return d
		}
		// A team that allows after a step-up is better than one that does not allow.
		if n == 0 || d.Allowed && !result.Allowed || !result.Allowed && !strings.HasPrefix(d.Why, "team") {
			result = d
		}
	}
	return result
}

func (t *team) decide(c Caller, view *callerView, i *Item) Decision {
	if i.Team != "" && i.Team != t.name || i.Team == "" && !t.sees(i.Server) {
		return Decision{Why: "team " + t.name + " does not see server " + i.Server}
	}
	tool := &toolView{Kind: i.Kind, Name: i.Name, Server: i.Server, Original: i.Original, Annotations: annotationsView{
		ReadOnlyHint: i.Annotations.ReadOnly, DestructiveHint: i.Annotations.Destructive,
		IdempotentHint: i.Annotations.Idempotent, OpenWorldHint: i.Annotations.OpenWorld,
	}}
	var allowed *Decision
	for n := range t.rules {
		r := &t.rules[n]
		denies, denyText := matches(r.deny, i)
		allows, allowText := matches(r.allow, i)
		if !denies && !allows {
			continue
		}
		if r.when != nil {
			ok, err := r.when.eval(view, tool)
			if err != nil {
				return Decision{Why: fmt.Sprintf("%s cannot be evaluated: %v", r.where, err)}
			}
			if !ok {
				continue
			}
		}
		if denies {
			return Decision{Why: fmt.Sprintf("%s denies %q", r.where, denyText)}
		}
		d := &Decision{Allowed: true, Why: fmt.Sprintf("%s allows %q", r.where, allowText)}
		if slices.ContainsFunc(r.require, func(s string) bool { return !c.HasScope(s) }) {
			d.Scopes = r.require
			d.Why += fmt.Sprintf(" with scopes %v", r.require)
		}
		if allowed == nil || allowed.Scopes != nil && d.Scopes == nil {
			allowed = d
		}
	}
	if allowed != nil {
		return *allowed
	}
	return Decision{Why: "no rule of team " + t.name + " allows it"}
}

func (t *team) sees(server string) bool {
	_, ok := slices.BinarySearch(t.upstreams, server)
	return ok
}

func matches(list []pattern, i *Item) (bool, string) {
	for n := range list {
		if list[n].match(i) {
			return true, list[n].text
		}
	}
	return false, ""
}

// Rights is a text that two callers share exactly if the policy cannot tell them apart.
func (p *Policy) Rights(c Caller, teams []string) string {
	parts := []any{teams, c.Scopes}
	if p.uses.subject {
		parts = append(parts, c.Issuer, c.Subject)
	}
	if p.uses.allClaims {
		parts = append(parts, c.Claims)
	} else {
		for _, name := range p.uses.names() {
			parts = append(parts, c.Claims[name])
		}
	}
	b, err := json.Marshal(parts)
	if err != nil {
		// Claims come from JSON, so this cannot be; a caller of its own is the safe answer.
		return c.Key()
	}
	return string(b)
}
