//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// suiteFolder has the official conformance suite, and a node that is new enough for it.
const suiteFolder = "conformance"

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
	noRequests = "the server has no way to ask in the midst of a call in its modern mode, whoever calls"
	noKeys     = "the questions of a legacy server have no keys, and the scenario looks for the server's own"
	noRounds   = "the legacy server does not ask again for the second round; it answers with a demand that legacy clients cannot read"
	noSession  = "the legacy server was told of capabilities with its session, and not with the request"
)

// acrossEras are the scenarios that fail, by the era of the client, the era of the server, and version, whatever the
// transport between Headgate and the server. Where both ends are of one era there are none. Nothing else may fail, and
// all of these must.
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

// leavesWaiting is how the scenarios are called which leave calls behind that wait for their client. Where a stream
// is shared by the calls of a modern client, the next question would be refused, since it says nothing of its call.
// There each of them is run alone.
const leavesWaiting = "input-required-result-"

// TestConformance runs the official suite against the SDK's server, and against Headgate in front of it, in both
// eras and over every transport. Every scenario that passes directly passes through Headgate.
func TestConformance(t *testing.T) {
	direct, configs := startConformance(t)
	through := map[way]string{}
	for _, w := range ways {
		through[w] = startHeadgate(t, configs[w]).endpoint
	}
	for _, v := range versions {
		t.Run(v.version, func(t *testing.T) {
			passes := runSuite(t, direct[v.era], v.version)
			report(v.version, "directly", passes)
			if failed := failing(passes); len(passes) != v.scenarios || len(failed) > 0 {
				t.Errorf("directly %d scenarios, want %d; these fail: %q", len(passes), v.scenarios, failed)
			}
			for scenario, why := range acrossEras["legacy client, modern server, "+v.version] {
				if why == noRequests && runSuite(t, direct["modern"], v.version, scenario)[scenario] {
					t.Errorf("%s passes with the server in its modern mode directly", scenario)
				}
			}
			for _, w := range ways {
				t.Run(w.era+" server over "+w.transport, func(t *testing.T) {
					t.Parallel()
					got := runSuite(t, through[w], v.version)
					if v.era == "modern" && w.era == "legacy" && w.transport != "http" {
						runAlone(t, configs[w], v.version, got)
					}
					name := fmt.Sprintf("%s client, %s server", v.era, w.era)
					report(v.version, fmt.Sprintf("through Headgate, %s over %s", name, w.transport), got)
					compare(t, acrossEras[name+", "+v.version], passes, got)
				})
			}
		})
	}
}

// runAlone runs those scenarios that leave calls waiting, each in front of a Headgate of its own, and sets which pass.
func runAlone(t *testing.T, config, version string, passes map[string]bool) {
	var mu sync.Mutex // guards passes
	t.Run("alone", func(t *testing.T) {
		for scenario := range maps.Clone(passes) {
			if !strings.HasPrefix(scenario, leavesWaiting) {
				continue
			}
			t.Run(scenario, func(t *testing.T) {
				t.Parallel()
				passed := runSuite(t, startHeadgate(t, config).endpoint, version, scenario)[scenario]
				mu.Lock()
				defer mu.Unlock()
				passes[scenario] = passed
			})
		}
	})
}

// compare holds which scenarios pass against which pass directly and which are known to fail.
func compare(t *testing.T, known map[string]string, passes, got map[string]bool) {
	t.Helper()
	for scenario := range passes {
		passed, run := got[scenario]
		_, expected := known[scenario]
		switch {
		case !run:
			t.Errorf("%s was not run", scenario)
		case !passed && !expected:
			t.Errorf("%s fails", scenario)
		case passed && expected:
			t.Errorf("%s passes, and is to be struck off the list", scenario)
		}
	}
	for scenario, why := range known {
		if _, run := passes[scenario]; !run {
			t.Errorf("the list has %s, which the suite has not", scenario)
		}
		t.Logf("fails as known: %s: %s", scenario, why)
	}
}

// report prints how many scenarios of a version pass, and which do not.
func report(version, what string, passes map[string]bool) {
	text := fmt.Sprintf("%s, %s: %d of %d scenarios pass\n", version, what, len(passes)-len(failing(passes)), len(passes))
	for _, scenario := range failing(passes) {
		text += "    fails: " + scenario + "\n"
	}
	fmt.Print(text)
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

// scenarioLine is what the suite says of one scenario in its summary, and resultLine what it says when it has run that
// one alone.
var (
	scenarioLine = regexp.MustCompile(`^[✓✗] ([a-z0-9-]+): (\d+) passed, (\d+) failed`)
	resultLine   = regexp.MustCompile(`(?m)^Passed: \d+/\d+, (\d+) failed`)
)

// runSuite runs one scenario of a version against an endpoint, or all of them, and returns which pass.
func runSuite(t *testing.T, endpoint, version string, scenario ...string) map[string]bool {
	t.Helper()
	node, suite := suiteProgram(t)
	results := t.TempDir()
	args := []string{suite, "server", "--url", endpoint, "--spec-version", version, "--output-dir", results}
	if len(scenario) > 0 {
		args = append(args, "--scenario", scenario[0])
	} else {
		args = append(args, "--suite", "all")
	}
	cmd := exec.CommandContext(t.Context(), node, args...)
	cmd.Dir = results
	// The suite's exit status says no more than its summary.
	out, err := cmd.CombinedOutput()
	passes := map[string]bool{}
	if _, summary, found := bytes.Cut(out, []byte("=== SUMMARY ===\n")); found {
		for line := range strings.Lines(string(summary)) {
			if m := scenarioLine.FindStringSubmatch(line); m != nil {
				passes[m[1]] = m[3] == "0"
			}
		}
	} else if m := resultLine.FindSubmatch(out); m != nil && len(scenario) > 0 {
		passes[scenario[0]] = string(m[1]) == "0"
	} else {
		t.Fatalf("the suite gives no summary: %v:\n%s", err, out)
	}
	for _, scenario := range failing(passes) {
		explain(t, results, scenario)
	}
	return passes
}

// explain logs what the suite says of the checks of a scenario that failed.
func explain(t *testing.T, results, scenario string) {
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
				t.Logf("%s: %s: %s", scenario, c.ID, c.ErrorMessage)
			}
		}
	}
}
