package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/mcptest"
)

// TestAuditFileIsCheckedFirst: serve and stdio end before they serve anybody when the audit log cannot be opened.
func TestAuditFileIsCheckedFirst(t *testing.T) {
	dir := t.TempDir()
	config := write(t, dir, "headgate.yaml", "audit: {file: "+filepath.Join(dir, "none", "audit.jsonl")+"}\n")
	for _, command := range []string{"serve", "stdio"} {
		out, errs, err := headgate(t, command, "-c", config)
		if want := "headgate: audit.file: opening the audit log: the directory " + filepath.Join(dir, "none") + " does not exist; create it, with access for Headgate alone\n"; err == nil || out != "" || errs != want {
			t.Errorf("%s: err %v, stderr %q, want %q", command, err, errs, want)
		}
	}
	// validate opens nothing, here as elsewhere.
	if _, errs, err := headgate(t, "validate", "-c", config); err != nil {
		t.Errorf("validate: %v, %s", err, errs)
	}
}

// TestAuditOfCall: a call of the command line is held to the audit log as any other.
func TestAuditOfCall(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	dir := t.TempDir()
	file := filepath.Join(dir, "audit.jsonl")
	config := func(file string) string {
		return write(t, dir, "headgate.yaml", fmt.Sprintf("audit: {file: %s, required: true}\nupstreams:\n  up: {type: http, url: %q}\n", file, s.StartHTTP(t).URL))
	}
	if _, errs, err := headgate(t, "call", "-c", config(file), "up_echo", "{}"); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	b, err := os.ReadFile(file)
	if err != nil || strings.Count(string(b), "\n") != 2 || !strings.Contains(string(b), `"subject":"operator"`) || !strings.Contains(string(b), `"outcome":"ok"`) {
		t.Errorf("recorded %q, %v", b, err)
	}
	out, errs, err := headgate(t, "call", "-c", config("/dev/full"), "up_echo", "{}")
	if err == nil || !strings.Contains(out, "The call was not sent") || !strings.Contains(errs, "no space left on device") {
		t.Errorf("on a full disk: err %v, stdout %q, stderr %q", err, out, errs)
	}
	if n := s.Executions("echo"); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
}

// TestReloadWithAnAuditFileThatCannotBeOpened: the old configuration stays in force, as with any other error.
func TestReloadWithAnAuditFileThatCannotBeOpened(t *testing.T) {
	s := &mcptest.Server{Tools: mcptest.Builtin("echo", "more")}
	dir := t.TempDir()
	url := s.StartHTTP(t).URL
	text := func(audit string) string {
		return fmt.Sprintf("audit: {file: %s, required: true}\nupstreams:\n  up: {type: http, url: %q}\n", audit, url)
	}
	file := filepath.Join(dir, "audit.jsonl")
	p, endpoint := serve(t, "-c", write(t, dir, "headgate.yaml", text(file)))
	awaitListed(t, endpoint, "up_echo")
	write(t, dir, "headgate.yaml", text(filepath.Join(dir, "none", "audit.jsonl")))
	p.log.await(t, "reload failed, the old configuration stays in force")
	if answer, err := callTool(endpoint, "up_echo"); err != nil || !strings.Contains(answer, `"result"`) {
		t.Errorf("%s, %v", answer, err)
	}
	other := filepath.Join(dir, "other.jsonl")
	write(t, dir, "headgate.yaml", text(other))
	p.log.await(t, "configuration reloaded")
	if answer, err := callTool(endpoint, "up_more"); err != nil || !strings.Contains(answer, `"result"`) {
		t.Errorf("%s, %v", answer, err)
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
	for name, tool := range map[string]string{file: "up_echo", other: "up_more"} {
		b, err := os.ReadFile(name)
		if err != nil || strings.Count(string(b), "\n") != 2 || !strings.Contains(string(b), `"tool":"`+tool+`"`) {
			t.Errorf("%s has %q, %v", name, b, err)
		}
	}
}
