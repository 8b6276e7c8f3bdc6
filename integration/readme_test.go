package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// The README's commands are run from the top of the repository, in one shell, in their order. A block
// fenced sh is a command; the block right behind it, if it is fenced text or json, is what the command
// prints, where "…" stands for anything within a line and a line "…" for any lines. "headgate serve"
// runs beside the others until the end. The tests are not run from within themselves, and the ports
// are free ones instead of the default ones.

// patience is how long a test waits for what must happen, a cold build included.
const patience = 5 * time.Minute

func TestReadme(t *testing.T) {
	served, ran := runCommands(t, "../README.md")
	if served == 0 || ran == 0 {
		t.Errorf("%d servers and %d other commands were run", served, ran)
	}
}

func TestAccessPage(t *testing.T) {
	if _, ran := runCommands(t, "../docs/access.md"); ran < 4 {
		t.Errorf("%d commands were run", ran)
	}
}

func TestFailureLedgerPage(t *testing.T) {
	if served, ran := runCommands(t, "../docs/failures-ledger.md"); served != 1 || ran < 3 {
		t.Errorf("%d servers and %d other commands were run", served, ran)
	}
}

func TestAuditPage(t *testing.T) {
	if _, ran := runCommands(t, "../docs/audit.md"); ran < 2 {
		t.Errorf("%d commands were run", ran)
	}
}

func TestAnswersPage(t *testing.T) {
	if _, ran := runCommands(t, "../docs/answers.md"); ran < 2 {
		t.Errorf("%d commands were run", ran)
	}
}

// runCommands runs the commands of a page, and counts them.
func runCommands(t *testing.T, page string) (served, ran int) {
	readme, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t)
	blocks := commands(ports.Replace(string(readme)))
	if len(blocks) < 2 {
		t.Fatalf("%s has %d commands", page, len(blocks))
	}
	shell := startShell(t)
	for _, b := range blocks {
		switch {
		case b.command == "go test ./...":
		case strings.HasPrefix(b.command, "go run ./cmd/headgate serve"):
			served++
			startServer(t, strings.TrimSuffix(b.command, "&"), ports.Replace("127.0.0.1:8080"), ports.Replace("127.0.0.1:8081"))
		default:
			ran++
			out, status := shell.run(t, b.command)
			if b.output == "" && status != 0 {
				t.Errorf("%s\nends with status %d and prints\n%s", b.command, status, out)
			}
			if b.output != "" && !matches(b.output, out) {
				t.Errorf("%s\nprints\n%s\nand the page says\n%s", b.command, out, b.output)
			}
		}
	}
	return served, ran
}

// TestReadmeMatching holds the comparison to its word: a README test that passes on anything shows nothing.
func TestReadmeMatching(t *testing.T) {
	for _, c := range []struct {
		name, want, got string
		ok              bool
	}{
		{"same", "a\nb\n", "a\nb\n", true},
		{"other", "a\nb\n", "a\nc\n", false},
		{"less", "a\nb\n", "a\n", false},
		{"more", "a\n", "a\nb\n", false},
		{"within a line", "a…d\n", "abcd\n", true},
		{"within a line only", "a…d\n", "ab\ncd\n", false},
		{"any lines", "a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"no lines", "a\n…\n", "a\n", true},
		{"pattern characters", "a.*(\n", "abc(\n", false},
		{"json in another form", "{\"a\": [1, \"x…\"]}\n", "{\n  \"a\": [1,\n\"xyz\"]}\n", true},
		{"other json", "{\"a\": 1}\n", "{\"a\": 2}\n", false},
	} {
		if got := matches(c.want, c.got); got != c.ok {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// block is a command of the README and what it prints, "" where the README does not say.
type block struct{ command, output string }

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

func commands(readme string) []block {
	var all []block
	open := false // the last block was a command
	for _, m := range fence.FindAllStringSubmatch(readme, -1) {
		switch kind, body := m[1], m[2]; {
		case kind == "sh":
			all = append(all, block{command: strings.TrimSpace(body)})
			open = true
		case open && (kind == "text" || kind == "json"):
			all[len(all)-1].output = body
			open = false
		default:
			open = false
		}
	}
	return all
}

// matches compares an output with what the README says.
func matches(want, got string) bool {
	var w, g bytes.Buffer
	if json.Compact(&w, []byte(want)) == nil && json.Compact(&g, []byte(got)) == nil {
		want, got = w.String(), g.String()
	}
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for line := range strings.Lines(strings.TrimRight(want, "\n") + "\n") {
		if line == "…\n" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", `.*`))
	}
	pattern.WriteString(`\z`)
	return regexp.MustCompile(pattern.String()).MatchString(strings.TrimRight(got, "\n") + "\n")
}

// freePorts replaces the default addresses by ones that nobody uses.
func freePorts(t *testing.T) *strings.Replacer {
	t.Helper()
	var pairs []string
	for _, port := range []string{"8080", "8081"} {
		addr := mcptest.Reserve(t)
		for _, host := range []string{"127.0.0.1:", "localhost:"} {
			pairs = append(pairs, host+port, addr)
		}
	}
	return strings.NewReplacer(pairs...)
}

// shell is one shell that runs command after command.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

const endMark = "--- end of command, status "

func startShell(t *testing.T) *shell {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir = ".."
	own := ownGroup(t, cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatalf("the README's commands need bash: %v", err)
	}
	own()
	w.Close()
	t.Cleanup(func() { r.Close() })
	return &shell{in: in, out: bufio.NewReader(r)}
}

func (s *shell) run(t *testing.T, command string) (out string, status int) {
	t.Helper()
	fmt.Fprintf(s.in, "{ %s\n} </dev/null\necho \"%s$?\"\n", command, endMark)
	for {
		line, err := s.out.ReadString('\n')
		// The output of a command need not end with a line break.
		if text, rest, found := strings.Cut(line, endMark); found {
			if _, err := fmt.Sscan(rest, &status); err != nil {
				t.Fatalf("the shell's status: %v", err)
			}
			return out + text, status
		}
		out += line
		if err != nil {
			t.Fatalf("%s\nended the shell: %v; it printed\n%s", command, err, out)
		}
	}
}

// startServer starts a command that serves until the end of the test, and waits until it is ready.
func startServer(t *testing.T, command, listen, admin string) {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc", "-c", command)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "HEADGATE_LISTEN="+listen, "HEADGATE_ADMIN_LISTEN="+admin)
	own := ownGroup(t, cmd)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := own()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; {
		if resp, err := http.Get("http://" + admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
			if time.Now().Before(deadline) {
				continue
			}
		case <-ended:
		}
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%s\nis not ready; it printed\n%s", command, text)
	}
}

// ownGroup gives a command a process group of its own, which is ended with the test. The function it
// returns is to be called when the command has been started; its channel is closed when it has ended.
func ownGroup(t *testing.T, cmd *exec.Cmd) func() <-chan struct{} {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() <-chan struct{} {
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Errorf("%s does not end", cmd)
			}
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		})
		return ended
	}
}
