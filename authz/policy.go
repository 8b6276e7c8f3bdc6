package authz

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

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
// that it leaves out (2026-07-28, schema, "ToolAnnotations"). Destructive means something only for tools that are
// not ReadOnly: for those it counts as false.
type Annotations struct{ ReadOnly, Destructive, Idempotent, OpenWorld bool }

// DefaultAnnotations are those of a tool that gives none.
func DefaultAnnotations() Annotations { return Annotations{Destructive: true, OpenWorld: true} }

// Item is one thing that a caller may or may not use.
type Item struct {
	Kind string // KindTool, KindPrompt or KindResource
	Name string // exposed name, or URI
	// Also are other names of the item that patterns are matched with: of a resource, the URI that tells it
	// from another server's, and the templates that it is an instance of.
	Also     []string
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
	teams    map[string]*team
	uses     uses
	requires map[string]bool // every scope that some rule requires
}

type team struct {
	name      string
	upstreams []string // sorted
	rules     []rule
	unruled   string // the reason where no rule allows
}

type rule struct {
	where   string // place in the configuration
	allow   []pattern
	deny    []pattern
	when    *condition // nil: always
	require []string
	stepUp  string // what the reason says of require
}

// CheckRules compiles the rules of teams and gives what is wrong with them, each with its place below teams.NAME.
// It fits configs.Options.
func CheckRules(teams map[string]*configs.Team) []configs.Problem {
	_, problems := compilePolicy(teams)
	return problems
}

// NewPolicy compiles the rules of teams. The error is a *configs.Errors with every fault and its place.
func NewPolicy(teams map[string]*configs.Team) (*Policy, error) {
	p, problems := compilePolicy(teams)
	if len(problems) > 0 {
		return nil, &configs.Errors{List: problems}
	}
	return p, nil
}

func compilePolicy(teams map[string]*configs.Team) (*Policy, []configs.Problem) {
	p := &Policy{teams: make(map[string]*team, len(teams)), requires: map[string]bool{}}
	env, err := conditionEnv()
	if err != nil {
		return nil, []configs.Problem{{Path: "teams", Text: "no rule can be compiled: " + err.Error()}}
	}
	var problems []configs.Problem
	for _, name := range slices.Sorted(maps.Keys(teams)) {
		t := teams[name]
		out := &team{name: name, upstreams: set(t.Upstreams), unruled: "no rule of team " + name + " allows it"}
		for i := range t.Rules {
			r, faults := newRule(env, fmt.Sprintf("teams.%s.rules[%d]", name, i), t.Rules[i])
			problems = append(problems, faults...)
			if r.when != nil {
				p.uses.add(r.when.uses)
			}
			for _, s := range r.require {
				p.requires[s] = true
			}
			out.rules = append(out.rules, r)
		}
		p.teams[name] = out
	}
	return p, problems
}

func newRule(env *cel.Env, where string, c configs.Rule) (rule, []configs.Problem) {
	r := rule{where: where, require: set(c.RequireScope)}
	if len(r.require) > 0 {
		r.stepUp = fmt.Sprintf(" with scopes %v", r.require)
	}
	var problems []configs.Problem
	patterns := func(list []string, key, verb string) (out []pattern) {
		for i, text := range list {
			p, err := parsePattern(text)
			if err != nil {
				problems = append(problems, configs.Problem{Path: fmt.Sprintf("%s.%s[%d]", where, key, i), Text: err.Error()})
				continue
			}
			p.why = fmt.Sprintf("%s %s %q", where, verb, text)
			out = append(out, p)
		}
		return out
	}
	r.allow, r.deny = patterns(c.Allow, "allow", "allows"), patterns(c.Deny, "deny", "denies")
	if c.When != "" {
		when, err := compile(env, c.When)
		if err != nil {
			problems = append(problems, configs.Problem{Path: where + ".when", Text: err.Error()})
		}
		r.when = when
	}
	return r, problems
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
	return p.Share(c, teams).Decide(i)
}

// Share is what a caller may use with the rights of some of its teams. It is immutable, and cheaper than
// Policy.Decide where many items are to be decided.
type Share struct {
	caller Caller
	teams  []*team
	view   *callerView // nil if no rule has a condition
}

// Share gives the rights of a caller in some teams; those that do not exist or are not the caller's count for nothing.
func (p *Policy) Share(c Caller, teams []string) *Share {
	s := &Share{caller: c}
	for _, name := range teams {
		if t := p.teams[name]; t != nil && c.InTeam(name) {
			s.teams = append(s.teams, t)
		}
	}
	if p.uses.conditions && len(s.teams) > 0 {
		s.view = newCallerView(c)
	}
	return s
}

// Decide is Policy.Decide for this caller and these teams.
func (s *Share) Decide(i *Item) Decision {
	best, result := unseen, Decision{}
	for _, t := range s.teams {
		if d, v := t.decide(&s.caller, s.view, i); v > best {
			best, result = v, d
			if v == allowed {
				break
			}
		}
	}
	if best == unseen {
		result.Why = "the caller is in no team that sees server " + i.Server
		if len(s.teams) == 1 {
			result.Why = "team " + s.teams[0].name + " does not see server " + i.Server
		}
	}
	return result
}

// Teams gives those of the teams that allow an item by themselves, with no scope missing: whose limits a use of it
// falls under.
func (s *Share) Teams(i *Item) []string {
	var out []string
	for _, t := range s.teams {
		if _, v := t.decide(&s.caller, s.view, i); v == allowed {
			out = append(out, t.name)
		}
	}
	return out
}

// verdict orders what teams say of an item: where they differ, the highest counts.
type verdict uint8

const (
	unseen  verdict = iota // the team does not see the server
	unruled                // no rule allows it
	denied
	stepUp // allowed once more scopes are granted
	allowed
)

func (t *team) decide(c *Caller, view *callerView, i *Item) (Decision, verdict) {
	if i.Team != "" && i.Team != t.name || i.Team == "" && !t.sees(i.Server) {
		return Decision{}, unseen
	}
	var tool *toolView
	var result Decision
	found := unruled
	for n := range t.rules {
		r := &t.rules[n]
		deny := matches(r.deny, i)
		why := deny
		if why == nil {
			why = matches(r.allow, i)
		}
		if why == nil {
			continue
		}
		if r.when != nil {
			if tool == nil {
				tool = newToolView(i)
			}
			switch holds, err := r.when.eval(view, tool); {
			case err != nil:
				return Decision{Why: fmt.Sprintf("%s cannot be evaluated: %v", r.where, err)}, denied
			case !holds:
				continue
			}
		}
		switch {
		case deny != nil:
			return Decision{Why: deny.why}, denied
		case slices.ContainsFunc(r.require, func(s string) bool { return !c.HasScope(s) }):
			if found < stepUp {
				found, result = stepUp, Decision{Allowed: true, Scopes: r.require, Why: why.why + r.stepUp}
			}
		case found < allowed:
			found, result = allowed, Decision{Allowed: true, Why: why.why}
		}
	}
	if found == unruled {
		result.Why = t.unruled
	}
	return result, found
}

func (t *team) sees(server string) bool {
	_, ok := slices.BinarySearch(t.upstreams, server)
	return ok
}

// matches gives the first pattern that matches, or nil.
func matches(list []pattern, i *Item) *pattern {
	for n := range list {
		if list[n].match(i) {
			return &list[n]
		}
	}
	return nil
}

// Rights is a text that two callers share only if the policy cannot tell them apart in these teams.
func (p *Policy) Rights(c Caller, teams []string) string {
	return string(p.AppendRights(nil, c, teams))
}

// AppendRights appends what Rights returns.
func (p *Policy) AppendRights(dst []byte, c Caller, teams []string) []byte {
	for _, name := range teams {
		if p.teams[name] != nil && c.InTeam(name) {
			dst = appendPart(dst, name)
		}
	}
	dst = append(dst, ';')
	for _, s := range c.Scopes {
		if p.uses.scopes || p.requires[s] {
			dst = appendPart(dst, s)
		}
	}
	if p.uses.teams {
		dst = append(dst, ';')
		for _, name := range c.Teams {
			dst = appendPart(dst, name)
		}
	}
	if p.uses.subject {
		dst = appendPart(appendPart(append(dst, ';'), c.Issuer), c.Subject)
	}
	if !p.uses.allClaims && len(p.uses.claims) == 0 {
		return dst
	}
	var parts []any
	if p.uses.allClaims {
		parts = append(parts, c.Claims)
	} else {
		for _, name := range p.uses.names() {
			v, has := c.Claims[name]
			parts = append(parts, has, v) // an expression can tell a claim that is null from one that is not there
		}
	}
	b, err := json.Marshal(parts)
	if err != nil {
		// Claims come from JSON, so this cannot be; a caller of its own is the safe answer.
		return fmt.Appendf(dst, "!%q %q %q", c.Key(), teams, c.Scopes)
	}
	return append(append(dst, ';'), b...)
}

// appendPart writes a text so that its end is known whatever is in it.
func appendPart(dst []byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	return append(append(dst, ':'), s...)
}
