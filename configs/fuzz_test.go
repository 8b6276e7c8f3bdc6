package configs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.good.*", "testdata/*.bad.*", "examples/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for i, ext := range extensions {
				if filepath.Ext(file) == ext {
					f.Add(uint8(i), data)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, format uint8, data []byte) {
		if strings.Contains(string(data), "file:") {
			return // the fuzzer must not read this machine's files
		}
		name := "c" + extensions[int(format)%len(extensions)]
		cfg, err := Parse(name, data, Options{Environ: []string{"A=b"}})
		if err == nil {
			if !IsLoopback(cfg.Listen) || cfg.String() == "" {
				t.Errorf("accepted %v", cfg)
			}
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

var extensions = []string{".yaml", ".json", ".toml"}
