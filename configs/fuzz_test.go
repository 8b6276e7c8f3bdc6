package configs

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.good.*", "testdata/*.bad.*", "examples/*.*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			data = includeLine.ReplaceAll(data, nil)
			for i, ext := range extensions {
				if filepath.Ext(file) == ext {
					f.Add(uint8(i), data)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, format uint8, data []byte) {
		if strings.Contains(string(data), "file:") || strings.Contains(string(data), "include") {
			return // the fuzzer must not read this machine's files
		}
		name := "c" + extensions[int(format)%len(extensions)]
		cfg, err := Parse(name, data, Options{Environ: []string{"A=b"}})
		if err == nil {
			if cfg.Auth == nil && (!IsLoopback(cfg.Listen) || cfg.Teams != nil) || cfg.String() == "" {
				t.Errorf("accepted %v", cfg)
			}
			checkAccepted(t, cfg)
			for id, u := range cfg.Upstreams {
				if u.ID != id || !idPattern.MatchString(id) || (u.URL == "") == (u.Command == "") || u.Type == "" {
					t.Errorf("accepted %q: %v", id, u)
				}
			}
			return
		}
		var all *Errors
		if !errors.As(err, &all) || len(all.List) == 0 || cfg != nil {
			t.Fatalf("error is a %T: %v", err, err)
		}
		if strings.Count(err.Error(), "\n") != len(all.List)-1 {
			t.Errorf("%d problems are not as many lines:\n%v", len(all.List), err)
		}
		if !slices.IsSortedFunc(all.List, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) }) {
			t.Errorf("problems are not sorted:\n%v", err)
		}
		again, err2 := Parse(name, data, Options{Environ: []string{"A=b"}})
		if again != nil || err2 == nil || err2.Error() != err.Error() {
			t.Errorf("two runs differ:\n%v\n%v", err, err2)
		}
	})
}

// includeLine is taken out of seeds, since the fuzzer must not look for files either.
var includeLine = regexp.MustCompile(`(?m)^include: .*$`)

// checkAccepted holds what the types of auth and teams promise.
func checkAccepted(t *testing.T, cfg *Config) {
	if a := cfg.Auth; a != nil {
		if len(a.APIKeys)+len(a.JWT) == 0 {
			t.Errorf("accepted auth without a way in")
		}
		for _, k := range a.APIKeys {
			if k.Name == "" || k.Subject == "" || !digestPattern.MatchString(k.SHA256) {
				t.Errorf("accepted %v", k)
			}
		}
		for _, j := range a.JWT {
			if j.Issuer == "" || j.Audience == "" || len(j.Algorithms) == 0 || slices.Contains(j.Algorithms, "none") || j.Leeway < 0 {
				t.Errorf("accepted %v", j)
			}
		}
	}
	for name, team := range cfg.Teams {
		if team.Name != name || !idPattern.MatchString(name) || team.Limits.Concurrent < 0 || team.Limits.CallsPerMinute < 0 {
			t.Errorf("accepted %q: %v", name, team)
		}
		for _, id := range team.Upstreams {
			if cfg.Upstreams[id] == nil || team.OwnUpstreams[id] != nil {
				t.Errorf("accepted upstream %q of team %q", id, name)
			}
		}
		for _, r := range team.Rules {
			if len(r.Allow)+len(r.Deny) == 0 {
				t.Errorf("accepted a rule without patterns in team %q", name)
			}
		}
	}
}

var extensions = []string{".yaml", ".json", ".toml"}
