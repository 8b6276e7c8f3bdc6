package authz

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/configs"
)

func TestDecide(t *testing.T) {
	readOnly := Annotations{ReadOnly: true}
	teams := map[string]*configs.Team{
		"payments": {Name: "payments", Upstreams: []string{"github", "files"}, Rules: []configs.Rule{
			{Allow: []string{"github_*"}, When: `tool.annotations.readOnlyHint || "repo:write" in caller.scopes`},
			{Deny: []string{"*_delete_*"}},
			{Allow: []string{"files_write"}, RequireScope: []string{"files:write", "files:read"}},
			{Allow: []string{"annotation:readOnlyHint"}},
		}},
		"support": {Name: "support", Upstreams: []string{"github"}, Rules: []configs.Rule{
			{Allow: []string{"github_delete_repo"}},
			{Allow: []string{"server:github"}, When: `has(caller.claims.level) && caller.claims.level > 3`},
			{Allow: []string{"github_audit"}, When: `caller.claims.auditor`},
			{Allow: []string{"github_audit"}},
		}},
	}
	p, err := NewPolicy(teams)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		caller Caller
		teams  []string
		item   Item
		want   bool
		scopes string
		why    string
	}{
		{"read-only tool", Caller{Teams: []string{"payments"}}, []string{"payments"}, Item{Kind: KindTool, Name: "github_get", Server: "github", Annotations: readOnly}, true, "", "rules[0] allows"},
		{"writing tool without the scope", Caller{Teams: []string{"payments"}}, []string{"payments"}, Item{Kind: KindTool, Name: "github_put", Server: "github"}, false, "", "no rule"},
		{"writing tool with the scope", Caller{Teams: []string{"payments"}, Scopes: []string{"repo:write"}}, []string{"payments"}, Item{Kind: KindTool, Name: "github_put", Server: "github"}, true, "", "rules[0]"},
		{"deny wins", Caller{Teams: []string{"payments"}, Scopes: []string{"repo:write"}}, []string{"payments"}, Item{Kind: KindTool, Name: "github_delete_repo", Server: "github"}, false, "", `rules[1] denies "*_delete_*"`},
		{"another team's share", Caller{Teams: []string{"payments", "support"}}, []string{"payments", "support"}, Item{Kind: KindTool, Name: "github_delete_repo", Server: "github"}, true, "", "teams.support.rules[0]"},
		{"one team's endpoint", Caller{Teams: []string{"payments", "support"}}, []string{"payments"}, Item{Kind: KindTool, Name: "github_delete_repo", Server: "github"}, false, "", "denies"},
		{"a team that is not the caller's", Caller{Teams: []string{"payments"}}, []string{"support"}, Item{Kind: KindTool, Name: "github_delete_repo", Server: "github"}, false, "", ""},
		{"a server the team does not see", Caller{Teams: []string{"support"}}, []string{"support"}, Item{Kind: KindTool, Name: "files_read", Server: "files", Annotations: readOnly}, false, "", "does not see"},
		{"step-up", Caller{Teams: []string{"payments"}, Scopes: []string{"files:read"}}, []string{"payments"}, Item{Kind: KindTool, Name: "files_write", Server: "files"}, true, "files:read files:write", "with scopes"},
		{"step-up done", Caller{Teams: []string{"payments"}, Scopes: []string{"files:read", "files:write"}}, []string{"payments"}, Item{Kind: KindTool, Name: "files_write", Server: "files"}, true, "", ""},
		{"a rule that cannot be evaluated denies what another allows", Caller{Teams: []string{"support"}}, []string{"support"}, Item{Kind: KindTool, Name: "github_audit", Server: "github"}, false, "", "rules[2] cannot be evaluated"},
		{"cannot be evaluated", Caller{Teams: []string{"support"}, Claims: map[string]any{"level": "high"}}, []string{"support"}, Item{Kind: KindTool, Name: "github_get", Server: "github"}, false, "", "cannot be evaluated"},
		{"claim missing", Caller{Teams: []string{"support"}}, []string{"support"}, Item{Kind: KindTool, Name: "github_get", Server: "github"}, false, "", "no rule"},
		{"claim", Caller{Teams: []string{"support"}, Claims: map[string]any{"level": 4.0}}, []string{"support"}, Item{Kind: KindTool, Name: "github_get", Server: "github"}, true, "", "server:github"},
		{"own server of another team", Caller{Teams: []string{"payments"}}, []string{"payments"}, Item{Kind: KindTool, Name: "github_get", Server: "github", Team: "support", Annotations: readOnly}, false, "", "does not see"},
		{"no team", Caller{}, nil, Item{Kind: KindTool, Name: "github_get", Server: "github", Annotations: readOnly}, false, "", "in no team"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := p.Decide(tt.caller, tt.teams, &tt.item)
			if d.Allowed != tt.want || strings.Join(d.Scopes, " ") != tt.scopes || !strings.Contains(d.Why, tt.why) {
				t.Errorf("got %+v, want allowed %v, scopes %q, why …%s…", d, tt.want, tt.scopes, tt.why)
			}
		})
	}
}

func TestNewPolicyFaults(t *testing.T) {
	tests := []struct{ name, rule, want string }{
		{"unknown field", `caller.subjct == "a"`, "undefined field 'subjct'"},
		{"not a bool", `caller.subject`, "not a bool"},
		{"syntax", `caller.subject ==`, "Syntax error"},
		{"unknown variable", `user == "a"`, "undeclared reference"},
		{"wrong type", `tool.annotations.readOnlyHint == "yes"`, "found no matching overload"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewPolicy(map[string]*configs.Team{"a": {Rules: []configs.Rule{{Allow: []string{"*"}, When: tt.rule}}}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "teams.a.rules[0].when") {
				t.Errorf("got %v, want the place and %q", err, tt.want)
			}
		})
	}
}

func TestRights(t *testing.T) {
	policy := func(when string) *Policy {
		p, err := NewPolicy(map[string]*configs.Team{"a": {Rules: []configs.Rule{{Allow: []string{"*"}, When: when}}}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	alice := Caller{Subject: "alice", Claims: map[string]any{"level": 1.0, "jti": "x"}}
	bob := Caller{Subject: "bob", Claims: map[string]any{"level": 1.0, "jti": "y"}}
	senior := Caller{Subject: "bob", Claims: map[string]any{"level": 2.0, "jti": "y"}}
	tests := []struct {
		name, when          string
		bobIsSame, seniorIs bool
	}{
		{"nothing of the caller", `tool.name == "x"`, true, true},
		{"the subject", `caller.subject == "alice"`, false, false},
		{"one claim by name", `caller.claims.level == 1`, true, false},
		{"one claim by index", `caller.claims["level"] == 1`, true, false},
		{"a claim by a computed name", `caller.claims[tool.name] == 1`, false, false},
		{"all claims", `size(caller.claims) == 2`, false, false},
		{"scopes", `"x" in caller.scopes`, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := policy(tt.when)
			teams := []string{"a"}
			if got := p.Rights(alice, teams) == p.Rights(bob, teams); got != tt.bobIsSame {
				t.Errorf("alice and bob the same: %v", got)
			}
			if got := p.Rights(alice, teams) == p.Rights(senior, teams); got != tt.seniorIs {
				t.Errorf("alice and the senior bob the same: %v", got)
			}
		})
	}
}
