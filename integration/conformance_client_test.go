//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// clientScenarios are those of the suite in which it plays the server for a client that needs no token. They run with
// the SDK's client, directly and in front of Headgate, at every version that the suite has them for.
var clientScenarios = []string{
	"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "request-metadata",
	"sep-2322-client-request-state", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers",
	"json-schema-ref-no-deref", "json-schema-2020-12-preservation",
}

// tokenScenarios are those about the authorization of a client that have a sense where Headgate is the client, with
// credentials of its own, and the checks of them that fail because they are about the authorization code.
var tokenScenarios = map[string][]string{
	"auth/client-credentials-basic":  nil,
	"auth/pre-registration":          nil,
	"auth/resource-mismatch":         nil,
	"auth/metadata-issuer-mismatch":  nil,
	"auth/metadata-default":          {"authorization-request", "client-registration", "resource-parameter-in-authorization"},
	"auth/metadata-var1":             {"authorization-request", "client-registration", "resource-parameter-in-authorization"},
	"auth/metadata-var2":             {"authorization-request", "client-registration", "resource-parameter-in-authorization"},
	"auth/metadata-var3":             {"authorization-request", "client-registration", "resource-parameter-in-authorization"},
	"auth/token-endpoint-auth-basic": {"resource-parameter-in-authorization"},
	"auth/token-endpoint-auth-post":  {"resource-parameter-in-authorization"},
}

const (
	noCode   = "it is about the authorization code; Headgate sends nobody to an authorization server"
	noScopes = "it is about the scopes of an authorization request; those of Headgate's token are configured"
	noWay    = "Headgate does not have this way to get a token"
	noSkills = "it is about hosts that load skills; what passes through Headgate is what the server says"
)

// leftOut are the scenarios that are not run, and why.
var leftOut = map[string]string{
	"auth/basic-cimd":                           noCode,
	"auth/token-endpoint-auth-none":             noCode,
	"auth/authorization-server-migration":       "it is about registering anew; Headgate's id and secret are configured",
	"auth/2025-03-26-oauth-metadata-backcompat": "it is about servers without metadata of their own; oauth.token_url is to be set for them",
	"auth/2025-03-26-oauth-endpoint-fallback":   "it is about servers without metadata of their own; oauth.token_url is to be set for them",
	"auth/iss-supported":                        noCode,
	"auth/iss-not-advertised":                   noCode,
	"auth/iss-supported-missing":                noCode,
	"auth/iss-wrong-issuer":                     noCode,
	"auth/iss-unexpected":                       noCode,
	"auth/iss-normalized":                       noCode,
	"auth/scope-from-www-authenticate":          noScopes,
	"auth/scope-from-scopes-supported":          noScopes,
	"auth/scope-omitted-when-undefined":         noScopes,
	"auth/scope-step-up":                        noScopes,
	"auth/scope-retry-limit":                    noScopes,
	"auth/offline-access-scope":                 noScopes,
	"auth/offline-access-not-supported":         noScopes,
	"auth/client-credentials-jwt":               noWay,
	"auth/enterprise-managed-authorization":     noWay,
	"auth/dpop":                                 noWay,
	"auth/dpop-nonce":                           noWay,
	"auth/wif-jwt-bearer":                       noWay,
	"sep-2640-client-no-prefetch":               noSkills,
	"sep-2640-client-verify-digest":             noSkills,
	"sep-2640-client-verify-size":               noSkills,
	"sep-2640-client-verify-frontmatter":        noSkills,
}

// behindHeadgate runs a Headgate in front of the server at $1, and a client in front of that. The server asks on the
// stream of its session, so sessions are not shared. With TOKENS set Headgate gets tokens with the credentials that the
// suite tells, or with any, and the client, which needs none, lists tools and calls the first.
const behindHeadgate = `#!/bin/sh
dir=$(mktemp -d "$WORLD/XXXXXX")
more=
if [ -n "$TOKENS" ]; then
	told() { printf '%s' "$MCP_CONFORMANCE_CONTEXT" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
	id=$(told client_id) secret=$(told client_secret)
	more=', "oauth": {"grant": "client_credentials", "client_id": "'${id:-headgate}'", "client_secret": "'${secret:-any-secret}'"},
		"allowed_private_hosts": ["localhost"]'
	export MCP_CONFORMANCE_SCENARIO=http-standard-headers
fi
printf '{"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "upstreams": {"suite": {"url": "%s", "prefix": "", "session": "client"%s}}}' \
	"$1" "$more" > "$dir/headgate.json"
"$HEADGATE" serve --config "$dir/headgate.json" 2> "$dir/log" &
pid=$!
for i in $(seq 300); do
	url=$(sed -n 's/.*"msg":"ready","listen":"\([^"]*\)".*/\1/p' "$dir/log")
	[ -n "$url" ] && break
	sleep 0.1
done
"$CLIENT" "$url"
status=$?
kill "$pid"
wait "$pid"
cat "$dir/log" >&2
exit $status
`

// TestConformanceClient has the suite play the server, and runs the SDK's client directly and in front of Headgate,
// and Headgate with a token of its own.
func TestConformanceClient(t *testing.T) {
	world := t.TempDir()
	client, behind := filepath.Join(world, "client"), filepath.Join(world, "behind")
	if out, err := exec.Command("go", "build", "-o", client, "github.com/modelcontextprotocol/go-sdk/conformance/everything-client").CombinedOutput(); err != nil {
		t.Fatalf("building the SDK's client: %v: %s", err, out)
	}
	if err := os.WriteFile(behind, []byte(behindHeadgate), 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "WORLD="+world, "HEADGATE="+binary, "CLIENT="+client)
	versions := listClientScenarios(t)
	for _, who := range []struct {
		name, command, token string
		scenarios            []string
	}{
		{"the SDK's client directly", client, "", clientScenarios},
		{"the SDK's client through Headgate", behind, "", clientScenarios},
		{"Headgate with a token of its own", behind, "TOKENS=1", slices.Sorted(maps.Keys(tokenScenarios))},
	} {
		var passed atomic.Int32
		all := 0
		t.Run(who.name, func(t *testing.T) {
			for _, scenario := range who.scenarios {
				for _, version := range versions[scenario] {
					all++
					t.Run(scenario+" "+version, func(t *testing.T) {
						if scenario != "sse-retry" { // which takes the time
							t.Parallel()
						}
						checks, out := runClientScenario(t, append(slices.Clone(env), who.token), who.command, scenario, version)
						var failed []string
						for id, status := range checks {
							if status == "FAILURE" {
								failed = append(failed, id)
							}
						}
						slices.Sort(failed)
						if len(checks) > 0 && slices.Equal(failed, tokenScenarios[scenario]) {
							passed.Add(1)
						} else {
							t.Errorf("of %d checks fail %q, want %q:\n%s", len(checks), failed, tokenScenarios[scenario], out)
						}
					})
				}
			}
		})
		fmt.Printf("client scenarios, %s: %d of %d are as they should be\n", who.name, passed.Load(), all)
	}
}

// listedScenario is how the suite lists a scenario and its versions.
var listedScenario = regexp.MustCompile(`(?m)^ *- (\S+) \[(.*)\]$`)

// listClientScenarios returns the versions of every scenario that the suite has for clients; all are run here or left
// out for a reason. The version of those of extensions is "extension".
func listClientScenarios(t *testing.T) map[string][]string {
	t.Helper()
	node, suite := suiteProgram(t)
	out, err := exec.CommandContext(t.Context(), node, suite, "list", "--client").Output()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string][]string{}
	for _, m := range listedScenario.FindAllSubmatch(out, -1) {
		versions[string(m[1])] = strings.Split(string(m[2]), ",")
	}
	placed := slices.Concat(clientScenarios, slices.Collect(maps.Keys(tokenScenarios)), slices.Collect(maps.Keys(leftOut)))
	slices.Sort(placed)
	if listed := slices.Sorted(maps.Keys(versions)); !slices.Equal(listed, placed) {
		t.Fatalf("the suite has %q, and here are %q", listed, placed)
	}
	for _, scenario := range slices.Sorted(maps.Keys(leftOut)) {
		t.Logf("left out: %s %v: %s", scenario, versions[scenario], leftOut[scenario])
	}
	return versions
}

// runClientScenario has the suite run a command as client, and returns how each of its checks went, the worst if one
// was made more than once, and what was printed.
func runClientScenario(t *testing.T, env []string, command, scenario, version string) (checks map[string]string, out string) {
	t.Helper()
	node, suite := suiteProgram(t)
	results := t.TempDir()
	args := []string{suite, "client", "--command", command, "--scenario", scenario, "--output-dir", results}
	if version != "extension" {
		args = append(args, "--spec-version", version)
	}
	cmd := exec.CommandContext(t.Context(), node, args...)
	cmd.Env = env
	own := ownGroup(t, cmd)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-own()
	checks = map[string]string{}
	err := filepath.WalkDir(results, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var all []struct{ ID, Status string }
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		for _, c := range all {
			if checks[c.ID] != "FAILURE" {
				checks[c.ID] = c.Status
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return checks, text.String()
}
