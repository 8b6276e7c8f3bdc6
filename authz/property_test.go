package authz

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/configs"
)

// world makes random teams, callers and items of few parts, so that they meet often.
type world struct{ *rand.Rand }

func pick[T any](w world, from ...T) T { return from[w.IntN(len(from))] }

func (w world) some(from ...string) []string {
	var out []string
	for _, s := range from {
		if w.IntN(3) == 0 {
			out = append(out, s)
		}
	}
	return out
}

func (w world) patterns() []string {
	return w.some("*", "a_*", "*_get", "b_put", "server:a", "server:b", "annotation:readOnlyHint", "annotation:destructiveHint=false", "?_get")
}

func (w world) rule() configs.Rule {
	r := configs.Rule{RequireScope: w.some("x", "y")}
	if r.Allow = w.patterns(); w.IntN(4) == 0 {
		r.Allow, r.Deny = nil, w.patterns()
	}
	r.When = pick(w, "", "", "", `"x" in caller.scopes`, `caller.subject == "alice"`, `caller.claims.level > 2`, `"t2" in caller.teams`,
		`has(caller.claims.level)`, `tool.annotations.readOnlyHint`, `tool.server == "a"`, `caller.claims["level"] == null`)
	return r
}

func (w world) teams() map[string]*configs.Team {
	teams := map[string]*configs.Team{}
	for _, name := range []string{"t1", "t2", "t3"} {
		t := &configs.Team{Name: name, Upstreams: w.some("a", "b")}
		for range w.IntN(5) {
			t.Rules = append(t.Rules, w.rule())
		}
		teams[name] = t
	}
	return teams
}

func (w world) caller() Caller {
	c := Caller{Subject: pick(w, "alice", "bob"), Issuer: pick(w, "", "https://idp.example.com"), Teams: set(w.some("t1", "t2", "t3", "t4")), Scopes: set(w.some("x", "y", "z"))}
	switch w.IntN(4) {
	case 0:
		c.Claims = map[string]any{"level": float64(w.IntN(5)), "other": fmt.Sprint(w.IntN(9))}
	case 1:
		c.Claims = map[string]any{"level": nil}
	case 2:
		c.Claims = map[string]any{"other": "x"}
	}
	return c
}

func (w world) item() *Item {
	server := pick(w, "a", "b")
	return &Item{
		Kind: pick(w, KindTool, KindTool, KindPrompt, KindResource), Name: server + "_" + pick(w, "get", "put", "x"), Server: server, Team: pick(w, "", "", "t1", "t2"),
		Annotations: Annotations{ReadOnly: w.IntN(2) == 0, Destructive: w.IntN(2) == 0, Idempotent: w.IntN(2) == 0, OpenWorld: w.IntN(2) == 0},
	}
}

func mustPolicy(t testing.TB, teams map[string]*configs.Team) *Policy {
	t.Helper()
	p, err := NewPolicy(teams)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// grade orders decisions.
func grade(d Decision) int {
	switch {
	case !d.Allowed:
		return 0
	case d.Scopes != nil:
		return 1
	}
	return 2
}

// TestPolicyProperties holds what must be true of any policy, on random ones.
func TestPolicyProperties(t *testing.T) {
	names := []string{"t1", "t2", "t3", "t4"}
	var seen [3]int
	for seed := range uint64(400) {
		w := world{rand.New(rand.NewPCG(seed, 1))}
		teams := w.teams()
		p := mustPolicy(t, teams)
		harder := maps.Clone(teams)
		victim := *teams[pick(w, "t1", "t2", "t3")]
		victim.Rules = slices.Insert(slices.Clone(victim.Rules), w.IntN(len(victim.Rules)+1), configs.Rule{Deny: append(w.patterns(), "b_x"), When: w.rule().When})
		harder[victim.Name] = &victim
		q := mustPolicy(t, harder)

		var callers []Caller
		for range 12 {
			callers = append(callers, w.caller())
		}
		var items []*Item
		for range 12 {
			items = append(items, w.item())
		}
		decisions := map[string]string{}
		for _, c := range callers {
			var all strings.Builder
			for _, i := range items {
				d := p.Decide(c, names, i)
				seen[grade(d)]++
				best := 0
				for _, name := range names {
					alone := grade(p.Decide(c, []string{name}, i))
					best = max(best, alone)
					if alone > 0 && (!c.InTeam(name) || teams[name] == nil || !slices.ContainsFunc(teams[name].Rules, func(r configs.Rule) bool { return len(r.Allow) > 0 })) {
						t.Fatalf("seed %d: team %s allows %v to %v without a rule that does", seed, name, *i, c)
					}
				}
				if best != grade(d) {
					t.Fatalf("seed %d: the union decides %+v, the best of the single teams is %d", seed, d, best)
				}
				if free := p.Share(c, names).Teams(i); (len(free) > 0) != (grade(d) == 2) || slices.ContainsFunc(free, func(n string) bool { return grade(p.Decide(c, []string{n}, i)) != 2 }) {
					t.Fatalf("seed %d: teams %q allow it, and the decision is %+v", seed, free, d)
				}
				if after := q.Decide(c, names, i); grade(after) > grade(d) {
					t.Fatalf("seed %d: with one more rule that denies, %+v becomes %+v", seed, d, after)
				}
				if d.Why == "" {
					t.Fatalf("seed %d: no reason for %+v", seed, d)
				}
				fmt.Fprintf(&all, "%v ", d)
			}
			rights := p.Rights(c, names)
			if before, ok := decisions[rights]; ok && before != all.String() {
				t.Fatalf("seed %d: two callers have the rights %s and get\n%s\n%s", seed, rights, before, all.String())
			}
			decisions[rights] = all.String()
		}
	}
	if slices.Min(seen[:]) < 1000 {
		t.Errorf("denied, step-up and allowed were seen %v times", seen)
	}
}

func TestRightsTellApart(t *testing.T) {
	policy := func(when string, scopes ...string) *Policy {
		return mustPolicy(t, map[string]*configs.Team{"a": {Rules: []configs.Rule{{Allow: []string{"*"}, When: when, RequireScope: scopes}}}, "b": {}})
	}
	base := Caller{Subject: "alice", Issuer: "i", Teams: []string{"a", "b"}, Scopes: []string{"x", "y"}, Claims: map[string]any{"n": nil}}
	change := func(f func(*Caller)) Caller { c := base; f(&c); return c }
	tests := []struct {
		name   string
		policy *Policy
		other  Caller
		same   bool
	}{
		{"another subject, without conditions", policy(""), change(func(c *Caller) { c.Subject = "bob" }), true},
		{"other scopes, without conditions", policy(""), change(func(c *Caller) { c.Scopes = nil }), true},
		{"other scopes that no rule requires", policy("", "x"), change(func(c *Caller) { c.Scopes = []string{"x", "z"} }), true},
		{"a required scope", policy("", "x"), change(func(c *Caller) { c.Scopes = []string{"y"} }), false},
		{"scopes in a condition", policy(`"z" in caller.scopes`), change(func(c *Caller) { c.Scopes = []string{"x"} }), false},
		{"a team that does not exist", policy(""), change(func(c *Caller) { c.Teams = []string{"a", "b", "c"} }), true},
		{"a team in a condition", policy(`"c" in caller.teams`), change(func(c *Caller) { c.Teams = []string{"a", "b", "c"} }), false},
		{"one team less", policy(""), change(func(c *Caller) { c.Teams = []string{"a"} }), false},
		{"the issuer in a condition", policy(`caller.issuer == "i"`), change(func(c *Caller) { c.Issuer = "j" }), false},
		{"a claim that is null and one that is not there", policy(`has(caller.claims.n)`), change(func(c *Caller) { c.Claims = nil }), false},
		{"the whole caller in a condition", policy(`caller == caller`), change(func(c *Caller) { c.Subject = "bob" }), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			teams := []string{"a", "b", "c"}
			if same := tt.policy.Rights(base, teams) == tt.policy.Rights(tt.other, teams); same != tt.same {
				t.Errorf("same rights: %t", same)
			}
		})
	}
}

func TestCheckRules(t *testing.T) {
	teams := map[string]*configs.Team{
		"a": {Rules: []configs.Rule{{Allow: []string{"annotation:title"}, Deny: []string{"ok", "server:"}, When: "caller.nam == 'a' &&\n tool.nme == 'b'"}}},
		"b": {Rules: []configs.Rule{{Allow: []string{"*"}}, {Allow: []string{"*"}, When: "1 +"}}},
	}
	var got []string
	for _, p := range CheckRules(teams) {
		if strings.Contains(p.Text, "\n") {
			t.Errorf("more than one line: %q", p.Text)
		}
		got = append(got, p.String())
	}
	want := []string{
		`teams.a.rules[0].allow[0]: pattern "annotation:title": unknown annotation; there are readOnlyHint, destructiveHint, idempotentHint and openWorldHint`,
		`teams.a.rules[0].deny[1]: pattern "server:": an empty server`,
		`teams.a.rules[0].when: undefined field 'nam', at line 1, column 7; undefined field 'nme', at line 2, column 6`,
	}
	if len(got) != 4 || !slices.Equal(got[:3], want) || !strings.HasPrefix(got[3], "teams.b.rules[1].when: Syntax error") {
		t.Errorf("problems:\n%s", strings.Join(got, "\n"))
	}
	cfg := configs.Options{CheckRules: CheckRules}
	_, err := configs.Parse("c.yaml", []byte("auth: {jwt: {issuer: 'https://idp.example.com', audience: x}}\nteams: {a: {rules: [{allow: ['*'], when: caller.x}]}}\ndrain: -1s"), cfg)
	if err == nil || err.Error() != "drain: must not be negative\nteams.a.rules[0].when: undefined field 'x', at line 1, column 7" {
		t.Errorf("errors = %v", err)
	}
}

// TestCostLimit holds that an expression that takes too long denies.
func TestCostLimit(t *testing.T) {
	p := mustPolicy(t, map[string]*configs.Team{"a": {Upstreams: []string{"s"}, Rules: []configs.Rule{{
		Allow: []string{"*"}, When: `caller.scopes.all(a, caller.scopes.all(b, caller.scopes.all(c, a + b + c != "x")))`,
	}}}})
	c := Caller{Teams: []string{"a"}}
	if d := p.Decide(c, c.Teams, &Item{Kind: KindTool, Name: "x", Server: "s"}); !d.Allowed {
		t.Errorf("with nothing to do: %+v", d)
	}
	for n := range 100 {
		c.Scopes = append(c.Scopes, fmt.Sprintf("scope%03d", n))
	}
	if d := p.Decide(c, c.Teams, &Item{Kind: KindTool, Name: "x", Server: "s"}); d.Allowed || !strings.Contains(d.Why, "cannot be evaluated") {
		t.Errorf("with a million steps: %+v", d)
	}
}

func benchmarkPolicy(b *testing.B, when string) (*Policy, Caller, []*Item) {
	team := &configs.Team{Name: "a", Upstreams: []string{"s"}}
	for n := range 19 {
		team.Rules = append(team.Rules, configs.Rule{Allow: []string{fmt.Sprintf("s_group%d_*", n)}, When: when})
	}
	team.Rules = append(team.Rules, configs.Rule{Deny: []string{"*_delete_*"}})
	items := make([]*Item, 10_000)
	for n := range items {
		items[n] = &Item{Kind: KindTool, Name: fmt.Sprintf("s_group%d_tool_%d", n%25, n), Server: "s", Annotations: DefaultAnnotations()}
	}
	c := Caller{Subject: "alice", Teams: []string{"a"}, Scopes: []string{"repo:read", "repo:write"}, Claims: map[string]any{"sub": "alice", "level": 3.0}}
	return mustPolicy(b, map[string]*configs.Team{"a": team}), c, items
}

// BenchmarkDecide decides about 10,000 tools under 20 rules.
func BenchmarkDecide(b *testing.B) {
	for name, when := range map[string]string{"globs": "", "conditions": `tool.annotations.readOnlyHint || "repo:write" in caller.scopes`} {
		p, c, items := benchmarkPolicy(b, when)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := p.Share(c, c.Teams)
				for _, i := range items {
					s.Decide(i)
				}
			}
		})
	}
}

func BenchmarkRights(b *testing.B) {
	p, c, _ := benchmarkPolicy(b, `caller.claims.level > 2 && "repo:write" in caller.scopes`)
	b.ReportAllocs()
	for b.Loop() {
		p.Rights(c, c.Teams)
	}
}
