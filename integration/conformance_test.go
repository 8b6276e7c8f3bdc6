//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// suiteFolder has the official conformance suite, and a node that is new enough for it.
const suiteFolder = "conformance"

// conformanceServer is the SDK's server for the suite. The suite's names of tools, prompts and resources are
// hard-coded in it.
const conformanceServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// versions are those of the suite, with the era of their clients and how many scenarios each has.
var versions = []struct {
	version, era string
	scenarios    int
}{
	{"2025-06-18", "legacy", 27},
	{"2025-11-25", "legacy", 33},
	{"2026-07-28", "modern", 40},
}

// noRequests and the others say why a scenario fails across the eras.
const (
	noRequests = "the server has no way to ask in its stateless mode, and says so to clients that reach it directly as well"
	noKeys     = "the questions of a legacy server have no keys, and the scenario looks for the server's own"
	noRounds   = "the legacy server does not ask again for the second round; it answers with a demand that legacy clients cannot read"
	noSession  = "the legacy server was told of capabilities with its session, and not with the request"
)

// acrossEras are the scenarios that fail, by the era of the client, the era of the server, and version. Where
// both ends are of one era there are none. Nothing else may fail, and all of these must.
var acrossEras = map[string]map[string]string{
	"legacy client, modern server, 2025-06-18": {
		"tools-call-sampling":    noRequests,
		"tools-call-elicitation": noRequests,
	},
	"legacy client, modern server, 2025-11-25": {
		"tools-call-sampling":          noRequests,
		"tools-call-elicitation":       noRequests,
		"elicitation-sep1034-defaults": noRequests,
		"elicitation-sep1330-enums":    noRequests,
	},
	"modern client, legacy server, 2026-07-28": {
		"input-required-result-basic-elicitation": noKeys,
		"input-required-result-multi-round":       noRounds,
		"input-required-result-capability-check":  noSession,
		"server-stateless":                        noSession,
	},
}

// TestConformance runs the official suite against the SDK's server, and against Headgate in front of it, in both
// eras. Every scenario that passes directly passes through Headgate.
func TestConformance(t *testing.T) {
	server := filepath.Join(t.TempDir(), "server")
	if out, err := exec.Command("go", "build", "-o", server, conformanceServer).CombinedOutput(); err != nil {
		t.Fatalf("building the SDK's server: %v: %s", err, out)
	}
	direct, through := map[string]string{}, map[string]string{}
	for _, era := range []string{"legacy", "modern"} {
		direct[era] = startConformanceServer(t, server, era)
		config := filepath.Join(t.TempDir(), "headgate.json")
		text := fmt.Sprintf(`{"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "upstreams": {"everything": {"url": %q, "prefix": ""}}}`, direct[era])
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		through[era] = startHeadgate(t, config).endpoint
	}
	for _, v := range versions {
		t.Run(v.version, func(t *testing.T) {
			passes := runSuite(t, "directly", direct[v.era], v.version)
			if failed := failing(passes); len(passes) != v.scenarios || len(failed) > 0 {
				t.Errorf("directly %d scenarios, want %d; these fail: %q", len(passes), v.scenarios, failed)
			}
			for _, era := range []string{"legacy", "modern"} {
				name := fmt.Sprintf("%s client, %s server", v.era, era)
				known := acrossEras[name+", "+v.version]
				got := runSuite(t, "through Headgate, "+name, through[era], v.version)
				for scenario := range passes {
					passed, run := got[scenario]
					_, expected := known[scenario]
					switch {
					case !run:
						t.Errorf("%s: %s was not run", name, scenario)
					case !passed && !expected:
						t.Errorf("%s: %s fails", name, scenario)
					case passed && expected:
						t.Errorf("%s: %s passes, and is to be struck off the list", name, scenario)
					}
				}
				for scenario, why := range known {
					if _, run := passes[scenario]; !run {
						t.Errorf("the list has %s, which the suite has not", scenario)
					}
					t.Logf("%s: fails as known: %s: %s", name, scenario, why)
				}
			}
		})
	}
}

// failing returns the scenarios that do not pass.
func failing(passes map[string]bool) []string {
	var failed []string
	for scenario, passed := range passes {
		if !passed {
			failed = append(failed, scenario)
		}
	}
	slices.Sort(failed)
	return failed
}

// startConformanceServer starts the SDK's server, in the mode that serves an era, until the end of the test, and
// returns its endpoint.
func startConformanceServer(t *testing.T, server, era string) string {
	t.Helper()
	addr := freeAddr(t)
	cmd := exec.Command(server, "-http="+addr, fmt.Sprintf("-stateless=%t", era == "modern"))
	own := ownGroup(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitListener(t, own(), "the SDK's server", addr)
	return "http://" + addr + "/mcp"
}

// suiteProgram returns the paths of the suite's node and of its program.
func suiteProgram(t *testing.T) (node, suite string) {
	t.Helper()
	modules, err := filepath.Abs(filepath.Join(suiteFolder, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	node = filepath.Join(modules, "node", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		t.Fatal("the suite is not installed; run make conformance: ", err)
	}
	return node, filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")
}

// scenarioLine is what the suite says of one scenario in its summary.
var scenarioLine = regexp.MustCompile(`^[✓✗] ([a-z0-9-]+): (\d+) passed, (\d+) failed`)

// runSuite runs all scenarios of a version against an endpoint, prints the suite's closing lines, and returns
// which scenarios pass.
func runSuite(t *testing.T, what, endpoint, version string) map[string]bool {
	t.Helper()
	node, suite := suiteProgram(t)
	results := t.TempDir()
	cmd := exec.CommandContext(t.Context(), node, suite, "server", "--url", endpoint, "--suite", "all", "--spec-version", version, "--output-dir", results)
	cmd.Dir = results
	// The suite's exit status says no more than its summary.
	out, err := cmd.CombinedOutput()
	_, summary, found := bytes.Cut(out, []byte("=== SUMMARY ===\n"))
	if !found {
		t.Fatalf("%s: the suite gives no summary: %v:\n%s", what, err, out)
	}
	passes, total := map[string]bool{}, ""
	for line := range strings.Lines(string(summary)) {
		if m := scenarioLine.FindStringSubmatch(line); m != nil {
			passes[m[1]] = m[3] == "0"
		} else if strings.HasPrefix(line, "Total: ") {
			total = strings.TrimSpace(line)
		}
	}
	failed := failing(passes)
	fmt.Printf("%s, %s: %d of %d scenarios pass. %s\n", version, what, len(passes)-len(failed), len(passes), total)
	for _, scenario := range failed {
		fmt.Printf("    fails: %s\n", scenario)
	}
	for _, scenario := range failed {
		explain(t, what, results, scenario)
	}
	return passes
}

// explain logs what the suite says of the checks of a scenario that failed.
func explain(t *testing.T, what, results, scenario string) {
	files, err := filepath.Glob(filepath.Join(results, "server-"+scenario+"-*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(raw, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range checks {
			if c.Status == "FAILURE" {
				t.Logf("%s: %s: %s: %s", what, scenario, c.ID, c.ErrorMessage)
			}
		}
	}
}
