package integration

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/headgate/headgate"
	sdk    = "github.com/modelcontextprotocol/go-sdk/mcp"
)

// goPackage is what "go list -json" says of a package.
type goPackage struct {
	ImportPath   string
	Name         string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// rule forbids the packages under from to import those under to.
type rule struct {
	from, to string
	tests    bool // their tests too
}

// The rule of the layout: cmd → gateway → {upstream, naming, authz}, with configs and internal/* below.
func rules() []rule {
	var all []rule
	forbid := func(tests bool, from []string, to ...string) {
		for _, f := range from {
			for _, t := range to {
				if f != t {
					all = append(all, rule{from: f, to: t, tests: tests})
				}
			}
		}
	}
	layers := []string{"upstream", "naming", "authz"}
	forbid(true, layers, slices.Concat(layers, []string{"gateway", "cmd"})...)
	forbid(true, []string{"gateway"}, "cmd")
	forbid(true, []string{"configs", "internal"}, slices.Concat(layers, []string{"gateway", "cmd"})...)
	forbid(true, []string{"cmd", "gateway", "upstream", "naming", "authz", "configs", "internal"}, "integration")
	forbid(false, []string{"cmd", "gateway", "upstream", "naming", "authz", "configs", "internal"}, "internal/mcptest", "internal/otlptest")
	// The message path is raw: the SDK's typed client and server have no place on it.
	forbid(false, []string{"gateway", "upstream", "internal/wire"}, sdk)
	return all
}

func TestImportRule(t *testing.T) {
	packages := listPackages(t)
	all := rules()
	for _, p := range packages {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		for _, r := range all {
			if !under(name, r.from) {
				continue
			}
			imports := p.Imports
			if r.tests {
				imports = slices.Concat(imports, p.TestImports, p.XTestImports)
			}
			for _, i := range imports {
				if under(strings.TrimPrefix(i, module+"/"), r.to) {
					t.Errorf("%s imports %s; nothing under %s may import %s", name, i, r.from, r.to)
				}
			}
		}
	}
	// A rule on a package that is not there holds nothing back.
	for _, r := range all {
		for _, side := range []string{r.from, r.to} {
			known := side == sdk || slices.ContainsFunc(packages, func(p goPackage) bool {
				return under(strings.TrimPrefix(p.ImportPath, module+"/"), side)
			})
			if !known {
				t.Errorf("the import rule names %s, which does not exist", side)
			}
		}
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range listPackages(t) {
		file := "doc.go"
		if p.Name == "main" {
			file = "main.go"
		}
		if _, err := os.Stat(filepath.Join(p.Dir, file)); err != nil {
			t.Errorf("%s has no %s", p.ImportPath, file)
		}
	}
}

func TestUnder(t *testing.T) {
	for _, c := range []struct {
		name, dir string
		want      bool
	}{
		{"gateway", "gateway", true},
		{"internal/wire", "internal", true},
		{"gatewayx", "gateway", false},
		{"net/http", "gateway", false},
		{sdk, sdk, true},
	} {
		if got := under(c.name, c.dir); got != c.want {
			t.Errorf("under(%q, %q) = %t, want %t", c.name, c.dir, got, c.want)
		}
	}
}

// under reports whether a package is dir or lies below it.
func under(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// listPackages lists the packages of the module.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,Imports,TestImports,XTestImports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing the packages: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("the module has no packages")
	}
	return all
}
