//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clientScenarios are those of the suite in which it plays the server, save those about the authorization of a
// client, which is no matter between Headgate's clients and the servers behind it.
var clientScenarios = []string{
	"initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "request-metadata",
	"sep-2322-client-request-state", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers",
	"json-schema-ref-no-deref", "json-schema-2020-12-preservation",
}

// behindHeadgate runs a Headgate in front of the server at $1, and a client in front of that. The server asks on the
// stream of its session, so sessions are not shared.
const behindHeadgate = `#!/bin/sh
dir=$(mktemp -d "$WORLD/XXXXXX")
printf '{"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "upstreams": {"suite": {"url": "%s", "prefix": "", "session": "client"}}}' "$1" > "$dir/headgate.json"
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

// TestConformanceClient has the suite play the server, and runs the SDK's client directly and in front of Headgate.
func TestConformanceClient(t *testing.T) {
	world := t.TempDir()
	client, behind := filepath.Join(world, "client"), filepath.Join(world, "behind")
	if out, err := exec.Command("go", "build", "-o", client, "github.com/modelcontextprotocol/go-sdk/conformance/everything-client").CombinedOutput(); err != nil {
		t.Fatalf("building the SDK's client: %v: %s", err, out)
	}
	if err := os.WriteFile(behind, []byte(behindHeadgate), 0o700); err != nil {
		t.Fatal(err)
	}
	node, suite := suiteProgram(t)
	for _, who := range []struct{ name, command string }{{"directly", client}, {"through Headgate", behind}} {
		passed := 0
		for _, scenario := range clientScenarios {
			cmd := exec.CommandContext(t.Context(), node, suite, "client", "--command", who.command, "--scenario", scenario, "--output-dir", t.TempDir())
			cmd.Env = append(os.Environ(), "WORLD="+world, "HEADGATE="+binary, "CLIENT="+client)
			own := ownGroup(t, cmd)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-own()
			if strings.Contains(out.String(), "OVERALL: PASSED") {
				passed++
			} else {
				t.Errorf("%s fails %s:\n%s", scenario, who.name, &out)
			}
		}
		fmt.Printf("client scenarios, %s: %d of %d pass\n", who.name, passed, len(clientScenarios))
	}
}
