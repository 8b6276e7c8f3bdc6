package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReloadKeepsBrokenTeams goes through the states of a folder of team files.
func TestReloadKeepsBrokenTeams(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/teams", 0o700); err != nil {
		t.Fatal(err)
	}
	main := `
auth: {jwt: {issuer: "https://idp.example.com", audience: x}}
upstreams: {github: {command: x}}
teams: {here: {upstreams: [github]}}
include: ["teams/*.*"]
`
	check := func(teams map[string]*Team) []Problem {
		var out []Problem
		for name, team := range teams {
			for _, r := range team.Rules {
				if r.When == "bad" {
					out = append(out, Problem{Path: "teams." + name + ".rules[0].when", Text: "does not compile"})
				}
			}
		}
		return out
	}
	o := Options{CheckRules: check, Environ: []string{"HOST=a"}}
	load := func(t *testing.T) (*Config, error) {
		t.Helper()
		return Load(dir+"/c.yaml", o)
	}
	put(t, dir+"/c.yaml", main)
	put(t, dir+"/teams/a.yaml", "rules: [{allow: [first]}]\nown_upstreams: {ledger: {url: 'https://${env:HOST}/'}}")
	put(t, dir+"/teams/b.yaml", "rules: [{allow: [first]}]\nown_upstreams: {ledger: {command: x}}")
	first, err := load(t)
	if err != nil {
		t.Fatal(err)
	}

	steps := []struct {
		name   string
		change map[string]string // file to text; "" removes it
		teams  string            // name:pattern of the first rule, "kept" if the very team of the first load
		errors string            // of teams
		fails  string            // of the whole load
	}{
		{"syntax", map[string]string{"teams/a.yaml": "rules: ["}, "a:kept b:first here:", "teams/a.yaml: line 1: did not find expected node content", ""},
		{"unknown key", map[string]string{"teams/a.yaml": "rulez: []"}, "a:kept b:first here:", "teams/a.yaml: rulez: unknown key; did you mean rules?", ""},
		{"value", map[string]string{"teams/a.yaml": "limits: {concurrent: -1}"}, "a:kept b:first here:", "teams/a.yaml: limits.concurrent: must not be negative", ""},
		{"expression", map[string]string{"teams/a.yaml": "rules: [{allow: [second], when: bad}]"}, "a:kept b:first here:", "teams/a.yaml: rules[0].when: does not compile", ""},
		{"upstream", map[string]string{"teams/a.yaml": "upstreams: [other]"}, "a:kept b:first here:", `teams/a.yaml: upstreams[0]: there is no upstream "other"`, ""},
		{"not a file", map[string]string{"teams/a.yaml": "dangling"}, "a:kept b:first here:", "teams/a.yaml: cannot be read: no such file or directory", ""},
		{"the others reload", map[string]string{"teams/a.yaml": "rules: 5", "teams/b.yaml": "rules: [{allow: [second]}]"}, "a:kept b:second here:", "teams/a.yaml: rules: found a number, expected a list of maps", ""},
		{"a new one that is broken", map[string]string{"teams/a.yaml": "", "teams/new.yaml": "rules: 5"}, "b:second here:", "teams/new.yaml: rules: found a number, expected a list of maps", ""},
		{"twice", map[string]string{"teams/new.yaml": "", "teams/a.yaml": "rules: [{allow: [second]}]", "teams/a.json": "{}"}, "a:kept b:second here:", "teams/a.yaml: the team a is defined already, by teams/a.json", ""},
		{"also in the main file", map[string]string{"teams/a.json": "", "teams/here.yaml": "rules: [{allow: [second]}]"}, "a:second b:second here:", "teams/here.yaml: the team here is defined already, by teams.here", ""},
		{"main file", map[string]string{"teams/here.yaml": "", "teams/a.yaml": "rules: 5", "c.yaml": main + "lists: {page_size: -1}"}, "", "", "lists.page_size: must not be negative\nteams/a.yaml: rules: found a number, expected a list of maps"},
		{"rule in the main file", map[string]string{"teams/a.yaml": "", "c.yaml": strings.Replace(main, "[github]", "[github], rules: [{allow: [x], when: bad}]", 1)}, "", "", "teams.here.rules[0].when: does not compile"},
		{"well again", map[string]string{"teams/a.yaml": "rules: [{allow: [third]}]", "c.yaml": main}, "a:third b:second here:", "", ""},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			for file, text := range step.change {
				path := filepath.Join(dir, file)
				if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				switch text {
				case "":
				case "dangling":
					link(t, "nowhere", path)
				default:
					put(t, path, text)
				}
			}
			o.Previous = first
			cfg, err := load(t)
			if step.fails != "" {
				if err == nil || err.Error() != step.fails || cfg != nil {
					t.Fatalf("error = %v, want %s", err, step.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, team := range cfg.Teams {
				text := name + ":"
				switch {
				case name == "a" && team == first.Teams["a"]:
					text += "kept"
				case len(team.Rules) > 0:
					text += team.Rules[0].Allow[0]
				}
				got = append(got, text)
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != step.teams {
				t.Errorf("teams = %s, want %s", s, step.teams)
			}
			if s := (&Errors{List: cfg.TeamErrors}).Error(); s != step.errors {
				t.Errorf("errors = %s, want %s", s, step.errors)
			}
			if step.errors != "" && !strings.Contains(cfg.String(), "team_errors") {
				t.Errorf("the errors do not show: %v", cfg)
			}
			if kept := cfg.Teams["a"]; kept == first.Teams["a"] && strings.Contains(cfg.String(), "https://a/") {
				t.Errorf("a value of a kept team shows: %v", cfg)
			}

			o.Previous = nil
			if _, err := load(t); (err == nil) != (step.errors == "") {
				t.Errorf("a first load gives %v", err)
			}
		})
	}
}

func TestWatchGlobs(t *testing.T) {
	tests := []struct {
		name, glob string
		steps      []func(t *testing.T, dir string)
	}{
		{"one folder", "teams/*.yaml", []func(t *testing.T, dir string){
			func(t *testing.T, dir string) { put(t, dir+"/teams/a.yaml", "1") },
			func(t *testing.T, dir string) { put(t, dir+"/teams/a.yaml", "2") },
			func(t *testing.T, dir string) { put(t, dir+"/teams/b.yaml", "1") },
			func(t *testing.T, dir string) { rename(t, dir+"/teams/b.yaml", dir+"/teams/c.yaml") },
			func(t *testing.T, dir string) { rename(t, dir+"/teams/c.yaml", dir+"/teams/c.txt") },
		}},
		{"a folder that comes later", "later/*.yaml", []func(t *testing.T, dir string){
			func(t *testing.T, dir string) {
				mkdir(t, dir+"/later")
				put(t, dir+"/later/a.yaml", "1")
			},
		}},
		{"folders that come later", "*/team.yaml", []func(t *testing.T, dir string){
			func(t *testing.T, dir string) {
				mkdir(t, dir+"/x")
				put(t, dir+"/x/team.yaml", "1")
			},
			func(t *testing.T, dir string) { put(t, dir+"/x/team.yaml", "2") },
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "a[b]")
			mkdir(t, dir)
			mkdir(t, dir+"/teams")
			changes := watching(t, quoteGlob(dir)+"/"+tt.glob)
			for _, step := range tt.steps {
				step(t, dir)
				select {
				case <-changes:
				case <-t.Context().Done():
					t.Fatal("no change seen")
				}
			}
		})
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}
