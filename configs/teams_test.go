package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const someDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestAuthAndTeams(t *testing.T) {
	got, err := Load("testdata/teams.good.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantFiles := []string{"testdata/teams.good.yaml", "testdata/teams/*.*", "testdata/teams/from-file.toml", "testdata/teams/second.json"}
	if !slices.Equal(got.Files(), wantFiles) {
		t.Errorf("files = %q, want %q", got.Files(), wantFiles)
	}
	clearPrivate(got)
	first, second := defaultJWT(), defaultJWT()
	first.Issuer, first.Audience, first.Algorithms = "https://idp.example.com/realms/a", "https://gw.example.com/mcp", []string{"ES256"}
	first.Leeway, first.TeamsClaim, first.ScopesClaim = 0, "realm_access.teams", ""
	second.Issuer, second.Audience, second.JWKSURL = "http://127.0.0.1:9000", "a", "http://127.0.0.1:9000/keys"
	wantAuth := &Auth{
		APIKeys: []APIKey{{Name: "ci", SHA256: someDigest, Subject: "ci-bot", Teams: []string{"payments", "from-file"}, Scopes: []string{"repo:read"}}},
		JWT:     []JWT{first, second},
	}
	ledger, other := defaultUpstream("ledger"), defaultUpstream("ledger")
	ledger.Type, ledger.Command, ledger.Env = TypeStdio, "server", map[string]string{"A": "b"}
	other.Type, other.URL = TypeHTTP, "https://ledger.example.com/mcp"
	wantTeams := map[string]*Team{
		"payments": {
			Name: "payments", Upstreams: []string{"github", "off"}, OwnUpstreams: map[string]*Upstream{"ledger": ledger},
			Rules: []Rule{
				{Allow: []string{"github_*"}, Deny: []string{"*_delete_*"}, When: "tool.annotations.readOnlyHint"},
				{Allow: []string{"ledger_pay"}, RequireScope: []string{"ledger:pay", "ledger:read"}},
			},
			Limits: Limits{CallsPerMinute: 600, Concurrent: 50, PerCaller: &Limits{CallsPerMinute: 60},
				PerTool: map[string]Limits{"ledger_*": {Concurrent: 1}}},
			Naming: Naming{Separator: "__", MaxNameLength: 60},
		},
		"from-file": {
			Name: "from-file", File: "teams/from-file.toml", Upstreams: []string{"github"},
			OwnUpstreams: map[string]*Upstream{"ledger": other}, Rules: []Rule{{Allow: []string{"server:github"}}},
		},
		"second": {
			Name: "second", File: "teams/second.json", Upstreams: []string{"off"}, OwnUpstreams: map[string]*Upstream{},
			Rules: []Rule{{Deny: []string{"*"}}},
		},
	}
	if !reflect.DeepEqual(got.Auth, wantAuth) {
		t.Errorf("auth = %+v, want %+v", *got.Auth, *wantAuth)
	}
	for name, want := range wantTeams {
		if !reflect.DeepEqual(got.Teams[name], want) {
			t.Errorf("team %s = %+v, want %+v", name, got.Teams[name], want)
		}
	}
	if len(got.Teams) != len(wantTeams) || got.PublicURL != "https://gw.example.com/mcp" || len(got.Warnings) > 0 {
		t.Errorf("configuration = %v", got)
	}
}

// TestNoTeamsIsNotNothing holds that what was meant as a policy never turns into none.
func TestNoTeamsIsNotNothing(t *testing.T) {
	auth := "auth: {jwt: {issuer: 'https://idp.example.com', audience: x}}\n"
	for text, wantNil := range map[string]bool{
		auth: true, auth + "include: []": true, auth + "include:": true,
		auth + "teams: {}": false, auth + "teams:": false, auth + "include: [none/*.yaml]": false,
	} {
		cfg := mustParse(t, "c.yaml", text, Options{})
		if (cfg.Teams == nil) != wantNil || len(cfg.Teams) > 0 {
			t.Errorf("%q gives teams %v", text, cfg.Teams)
		}
		if warned := slices.ContainsFunc(cfg.Warnings, func(w string) bool { return strings.Contains(w, "nothing is allowed") }); warned == wantNil {
			t.Errorf("%q gives warnings %q", text, cfg.Warnings)
		}
	}
}

// TestEveryTeamKeyHasAnEffect is TestEveryKeyHasAnEffect for the keys of lists and of maps by name.
func TestEveryTeamKeyHasAnEffect(t *testing.T) {
	const base = `{"auth": {"api_keys": [{"name": "ci", "sha256": "` + someDigest + `", "subject": "s"}],
		"jwt": {"issuer": "https://idp.example.com", "audience": "x"}},
		"upstreams": {"github": {"command": "x"}},
		"teams": {"a": {"rules": [{"allow": ["a_*"]}], "limits": {"calls_per_minute": 1}}, "b": {}}}`
	samples := map[string]any{
		"auth.api_keys.0.name": "other", "auth.api_keys.0.sha256": strings.Repeat("0", 64), "auth.api_keys.0.subject": "other",
		"auth.api_keys.0.teams": []string{"a"}, "auth.api_keys.0.scopes": []string{"s"},
		"auth.jwt.issuer": "https://other.example.com", "auth.jwt.audience": "y", "auth.jwt.jwks_url": "https://idp.example.com/keys",
		"auth.jwt.algorithms": []string{"ES256"}, "auth.jwt.subject_claim": "uid", "auth.jwt.teams_claim": "t", "auth.jwt.scopes_claim": "s",
		"auth.jwt.leeway":   "1s",
		"teams.a.upstreams": []string{"github"}, "teams.a.own_upstreams": map[string]any{"mine": map[string]any{"command": "x"}},
		"teams.a.naming.separator": ".", "teams.a.naming.max_name_length": 7,
		"teams.a.rules.0.allow": []string{"b_*"}, "teams.a.rules.0.deny": []string{"b_*"}, "teams.a.rules.0.when": "true",
		"teams.a.rules.0.require_scope":   []string{"s"},
		"teams.a.limits.calls_per_minute": 2, "teams.a.limits.concurrent": 2,
		"teams.a.limits.per_caller.calls_per_minute": 2, "teams.a.limits.per_caller.concurrent": 2,
		"teams.a.limits.per_tool.x*.calls_per_minute": 2, "teams.a.limits.per_tool.x*.concurrent": 2,
	}
	var keys []string
	keys = addKeys(keys, "auth.api_keys.0.", apiKeyFields)
	keys = addKeys(keys, "auth.jwt.", jwtFields)
	keys = addKeys(keys, "teams.a.", teamFields)
	keys = addKeys(keys, "teams.a.rules.0.", ruleFields)
	for _, at := range []string{"teams.a.limits.", "teams.a.limits.per_caller.", "teams.a.limits.per_tool.x*."} {
		keys = addKeys(keys, at, limitFields)
	}
	keys = append(keys, "teams.a.own_upstreams")
	before := mustParse(t, "c.json", base, Options{})
	clearPrivate(before)
	for _, key := range keys {
		t.Run(key, func(t *testing.T) {
			sample, ok := samples[key]
			if !ok {
				t.Fatal("no sample")
			}
			var doc any
			if err := json.Unmarshal([]byte(base), &doc); err != nil {
				t.Fatal(err)
			}
			put, err := json.Marshal(withValue(doc, strings.Split(key, "."), sample))
			if err != nil {
				t.Fatal(err)
			}
			after := mustParse(t, "c.json", string(put), Options{})
			clearPrivate(after)
			if reflect.DeepEqual(before, after) {
				t.Error("setting it changes nothing")
			}
			if before.String() == after.String() && key != "auth.api_keys.0.sha256" {
				t.Error("setting it does not show")
			}
		})
	}
}

func addKeys[T any](keys []string, at string, fields []field[T]) []string {
	for _, f := range fields {
		keys = append(keys, at+f.name)
	}
	return keys
}

// withValue sets a value deep in a document.
func withValue(doc any, path []string, v any) any {
	if len(path) == 0 {
		return v
	}
	if list, ok := doc.([]any); ok {
		list[0] = withValue(list[0], path[1:], v)
		return list
	}
	m, _ := doc.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m[path[0]] = withValue(m[path[0]], path[1:], v)
	return m
}

func TestCheckRules(t *testing.T) {
	var asked []string
	check := func(teams map[string]*Team) []Problem {
		var out []Problem
		for name, team := range teams {
			for i, r := range team.Rules {
				asked = append(asked, name+" "+r.When)
				if strings.HasPrefix(r.When, "bad") {
					out = append(out, Problem{Path: fmt.Sprintf("teams.%s.rules[%d].when", name, i), Text: "does not compile: " + r.When})
				}
			}
		}
		return out
	}
	dir := t.TempDir()
	put(t, dir+"/t.yaml", "rules: [{allow: [a], when: bad}]")
	put(t, dir+"/c.yaml", `
lists: {page_size: -1}
auth: {jwt: {issuer: "https://idp.example.com", audience: x}}
teams: {a: {rules: [{allow: [a], when: bad}, {allow: [a], when: good}, {allow: [a], when: 5}, {allow: [a], when: "bad${env:MARK}"}]}}
include: [t.yaml]
`)
	_, err := Load(dir+"/c.yaml", Options{CheckRules: check, Environ: []string{"MARK=" + marker}})
	want := `lists.page_size: must not be negative
t.yaml: rules[0].when: does not compile: bad
teams.a.rules[0].when: does not compile: bad
teams.a.rules[2].when: found a number, expected a string; put it in quotes
teams.a.rules[3].when: is not valid; the reason is not shown, since it may repeat the value`
	if err == nil || err.Error() != want {
		t.Errorf("errors:\n%v\nwant:\n%s", err, want)
	}
	if len(asked) != 5 {
		t.Errorf("asked about %q", asked)
	}
}

func TestTeamSecretsStayInside(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/t.yaml", `
own_upstreams: {web: {url: "https://`+marker+`@ledger.example.com/?k=`+marker+`", headers: {X: `+marker+`, Authorization: `+marker+`}, prefix: "${env:MARK}"}}
upstreams: ["${env:MARK}"]
rules: [{allow: ["${env:MARK}"], when: "${env:MARK}", require_scope: ["${env:MARK}"]}]
`)
	text := `
auth:
  api_keys: [{name: "${env:MARK}", sha256: "` + someDigest + `", subject: "${env:MARK}", teams: ["${env:MARK}"], scopes: ["${env:MARK}"]}]
  jwt: {issuer: "https://idp.example.com/${env:MARK}", audience: "${env:MARK}", jwks_url: "https://idp.example.com/?k=` + marker + `"}
upstreams: {"` + strings.ToLower(marker) + `": {command: x}}
teams: {a: {own_upstreams: {x: {command: "${env:MARK}"}}}}
include: ["t.yaml"]
`
	put(t, dir+"/c.yaml", text)
	o := Options{Environ: []string{"MARK=" + strings.ToLower(marker)}}
	cfg, err := Load(dir+"/c.yaml", o)
	if err != nil {
		t.Fatal(err)
	}
	shown := cfg.Redacted().(map[string]any)
	delete(shown["upstreams"].(map[string]any), strings.ToLower(marker)) // an id is no secret
	cfg.Upstreams = nil
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", cfg)
	var key bytes.Buffer
	slog.New(slog.NewTextHandler(&key, nil)).Info("x", "key", cfg.Auth.APIKeys[0])
	keys, err := json.Marshal(cfg.Auth.APIKeys)
	if err != nil {
		t.Fatal(err)
	}
	for how, s := range map[string]string{
		"Redacted": fmt.Sprint(shown), "%+v": fmt.Sprintf("%+v", cfg), "slog": logged.String(),
	} {
		if strings.Contains(strings.ToUpper(s), marker) || strings.Contains(s, someDigest) {
			t.Errorf("%s shows a secret: %s", how, s)
		}
	}
	for how, s := range map[string]string{
		"slog": key.String(), "JSON": string(keys), "%v": fmt.Sprintf("%v %+v", cfg.Auth, cfg.Auth.APIKeys), "%#v": fmt.Sprintf("%#v", cfg.Auth.APIKeys),
	} {
		if strings.Contains(s, someDigest) {
			t.Errorf("%s of a key shows its digest: %s", how, s)
		}
	}

	const jwt = "auth: {jwt: {issuer: 'https://idp.example.com', audience: x}}\n"
	for _, bad := range []string{
		"auth: {api_keys: [{name: a, subject: b, sha256: " + marker + "}]}", "auth: {api_keys: [{name: a, subject: b, sha256: '${env:MARK}'}]}",
		"auth: {api_keys: [{name: a, subject: b, sha256: [" + marker + "]}]}", "auth: {api_keys: [" + marker + "]}",
		"auth: {jwt: {issuer: 'http://" + marker + "@x', audience: x}}", "auth: {jwt: {issuer: '${env:MARK}', audience: x}}",
		"auth: {jwt: {issuer: 'https://x', audience: x, algorithms: ['${env:MARK}']}}", "auth: {jwt: {issuer: 'https://x', audience: x, algorithms: ['HS${env:MARK}']}}",
		"public_url: 'https://x/?" + marker + "'", "include: ['${env:MARK}[']\n" + jwt,
		jwt + "teams: {a: {upstreams: ['${env:MARK}']}}", jwt + "teams: {a: {rules: [{allow: [a], require_scope: ['${env:MARK} x']}]}}",
		jwt + "teams: {a: {upstreams: ['${env:MARK}', '${env:MARK}']}}", jwt + "teams: {a: {limits: {concurrent: '${env:MARK}'}}}",
		jwt + "teams: {a: {naming: {separator: '${env:MARK}'}}}", jwt + "teams: {a: {own_upstreams: {x: {url: 'http:" + marker + "'}}}}",
		"auth: {api_keys: [{name: a, subject: b, sha256: " + someDigest + ", teams: ['${env:MARK}']}]}\nteams: {a: {}}",
	} {
		if got := parseErrors(t, "c.yaml", bad, Options{Environ: []string{"MARK=" + marker}}).Error(); strings.Contains(strings.ToUpper(got), marker) {
			t.Errorf("the errors of %s show the secret: %s", bad, got)
		}
	}
}

func TestTeamFileReadableByAll(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/c.yaml", "auth: {jwt: {issuer: 'https://idp.example.com', audience: x}}\ninclude: ['teams/*']")
	if err := os.Mkdir(dir+"/teams", 0o700); err != nil {
		t.Fatal(err)
	}
	file := dir + "/teams/a.yaml"
	put(t, file, "own_upstreams: {x: {command: s, env: {TOKEN: x}}}")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(dir+"/c.yaml", Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"teams/a.yaml: holds credentials and is readable by every user; set its mode to 0600"}
	if !slices.Equal(cfg.Warnings, want) {
		t.Errorf("warnings = %q, want %q", cfg.Warnings, want)
	}
}

func TestWhichFilesAreTeams(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*") // a folder's name is no glob
	for _, sub := range []string{"teams/folder.yaml", "more/x", "more/y"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"teams/a.yaml", "teams/b.json", "teams/.hidden.yaml", "teams/README.md", "more/x/c.yml", "more/y/d.toml", "odd\n.yaml"} {
		put(t, filepath.Join(dir, file), "")
	}
	const auth = "auth: {jwt: {issuer: 'https://idp.example.com', audience: x}}\n"
	tests := []struct{ name, include, want, warns string }{
		{"one glob", "[teams/*.yaml]", "a", ""},
		{"two that meet", "[teams/*.yaml, teams/a.*]", "a", ""},
		{"everything", "['teams/*']", "a b", "teams/README.md: not read"},
		{"folders", "['more/*/*']", "c d", ""},
		{"absolute", "['" + quoteGlob(dir) + "/teams/a.yaml']", "a", ""},
		{"hidden when asked for", "[teams/.h*]", "", ""},
		{"no file", "[none/*.yaml]", "", "matches no file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			put(t, dir+"/c.yaml", auth+"include: "+tt.include)
			cfg, err := Load(dir+"/c.yaml", Options{})
			if tt.want == "" && tt.warns == "" {
				if err == nil || !strings.HasPrefix(err.Error(), "teams/.hidden.yaml: the team's name") {
					t.Errorf("error = %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for name := range cfg.Teams {
				names = append(names, name)
			}
			slices.Sort(names)
			if strings.Join(names, " ") != tt.want {
				t.Errorf("teams = %q, want %q", names, tt.want)
			}
			if !strings.Contains(strings.Join(cfg.Warnings, "\n"), tt.warns) {
				t.Errorf("warnings = %q, want %q", cfg.Warnings, tt.warns)
			}
		})
	}
	t.Run("a name that is no line", func(t *testing.T) {
		put(t, dir+"/c.yaml", auth+"include: [odd*]")
		if _, err := Load(dir+"/c.yaml", Options{}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("error = %v", err)
		}
	})
}
