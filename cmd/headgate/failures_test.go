package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gateway"
	"github.com/headgate/headgate/internal/ledger"
	"github.com/headgate/headgate/internal/mcptest"
)

// moments are the times in what failures prints, which no golden file can hold.
var moments = regexp.MustCompile(`\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2} UTC`)

// callWith calls a tool with arguments.
func callWith(t *testing.T, endpoint, name, arguments string) {
	t.Helper()
	if _, err := post(endpoint, "tools/call", name, `"name":"`+name+`","arguments":`+arguments+`,`); err != nil {
		t.Fatal(err)
	}
}

// brokenServer has a tool that works, one that never does, and one whose text would disturb a terminal.
func brokenServer() *mcptest.Server {
	var calls atomic.Int64
	return &mcptest.Server{Tools: append(mcptest.Builtin("echo", "fail"),
		mcptest.Tool{Def: `{"name":"never","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			n := calls.Add(1)
			c.ToolError(fmt.Sprintf(`No invoice "INV-%d"; ask for one of ledger %d.`, n, 1000+n))
		}},
		mcptest.Tool{Def: `{"name":"loud","inputSchema":{"type":"object"}}`, Call: func(c *mcptest.Call) {
			c.ToolError("\x1b[31mred\x07 \u202eeman" + "\nsecond line")
		}})}
}

func TestFailures(t *testing.T) {
	config := write(t, t.TempDir(), "headgate.yaml", fmt.Sprintf("upstreams:\n  up: {type: http, url: %q}\n", brokenServer().StartHTTP(t).URL))
	p, endpoint := serve(t, "-c", config)
	admin := strings.TrimPrefix(member(t, p.log.await(t, `"msg":"ready"`), "admin"), "http://")
	awaitListed(t, endpoint, "up_echo")

	out, errs, err := headgate(t, "failures", "--admin", admin)
	if err != nil || errs != "" {
		t.Fatalf("err %v, stderr %q", err, errs)
	}
	golden(t, "failures-none", moments.ReplaceAllString(out, "TIME"))

	for range 4 {
		callWith(t, endpoint, "up_echo", `{}`)
		callWith(t, endpoint, "up_never", `{}`)
	}
	callWith(t, endpoint, "up_loud", `{}`)
	callWith(t, endpoint, "up_fail", `{}`)
	callWith(t, endpoint, "up_fial", `{}`)
	for name, args := range map[string][]string{
		"failures":         {"--admin", admin},
		"failures-tool":    {"--admin", "http://" + admin + "/", "--tool", "up_never"},
		"failures-healthy": {"--admin", admin, "--tool", "up_echo"},
	} {
		out, errs, err := headgate(t, append([]string{"failures"}, args...)...)
		if err != nil || errs != "" {
			t.Fatalf("%s: err %v, stderr %q", name, err, errs)
		}
		golden(t, name, moments.ReplaceAllString(out, "TIME"))
	}

	out, _, err = headgate(t, "failures", "--admin", admin, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var report gateway.FailureReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Tools[0].Name != "up_never" || report.Tools[0].Failed != 4 || report.Tools[0].Rate != 1 {
		t.Errorf("%v: %s", err, out)
	}
	_, errs, err = headgate(t, "failures", "--admin", admin, "--tool", "up_nevr")
	if err == nil || errs != "headgate: there is no tool \"up_nevr\", and none of that name has been called; headgate tools lists the exposed names\n" {
		t.Errorf("unknown tool: err %v, stderr %q", err, errs)
	}
	// The address is that of the configuration when the command line says none.
	here := write(t, t.TempDir(), "here.yaml", "admin_listen: "+admin+"\n")
	if out, errs, err := headgate(t, "failures", "-c", here); err != nil || !strings.Contains(out, "up_never") {
		t.Errorf("by configuration: err %v, stderr %q, stdout %q", err, errs, out)
	}
	// The MCP endpoint is not the admin address.
	front := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/mcp")
	if _, errs, err := headgate(t, "failures", "--admin", front); err == nil || !strings.Contains(errs, "not as the admin address of a Headgate") {
		t.Errorf("the front: err %v, stderr %q", err, errs)
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Error(err)
	}
}

// TestFailuresOfAnotherServer: whatever answers at the address, the error says what to do.
func TestFailuresOfAnotherServer(t *testing.T) {
	stranger := func(status int, typ, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if status == http.StatusFound {
				w.Header().Set("Location", "/elsewhere")
			}
			w.Header().Set("Content-Type", typ)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	raw := mcptest.ListenRaw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
		_ = c.Close()
	})
	closed := mcptest.Reserve(t)
	const not = "not as the admin address of a Headgate"
	for _, c := range []struct{ name, addr, want string }{
		{"html", stranger(200, "text/html", "<p>hi"), not},
		{"other json", stranger(200, "application/json", `{"status":"ok"}`), not},
		{"not json", stranger(200, "application/json", `hi`), not},
		{"not found", stranger(404, "text/plain", "404"), not},
		{"other not found", stranger(404, "application/json", `{"error":"x"}`), not},
		{"redirect", stranger(302, "application/json", `{}`), not},
		{"not HTTP", raw, not},
		{"nothing listens", closed, "nothing listens at " + closed},
		{"no port", "127.0.0.1", "is not host:port"},
		{"port 0", "127.0.0.1:0", "has port 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, err := headgate(t, "failures", "--admin", c.addr)
			if err == nil || out != "" || !strings.HasPrefix(errs, "headgate: ") || !strings.Contains(errs, c.want) {
				t.Errorf("err %v, stdout %q, stderr %q", err, out, errs)
			}
		})
	}
	off := write(t, t.TempDir(), "off.yaml", "admin_listen: off\n")
	if _, errs, err := headgate(t, "failures", "-c", off); err == nil || !strings.Contains(errs, "admin_listen is off") {
		t.Errorf("off: err %v, stderr %q", err, errs)
	}
}

// TestFailuresWithoutTexts says why there are none.
func TestFailuresWithoutTexts(t *testing.T) {
	var out strings.Builder
	err := printFailures(&out, gateway.FailureReport{Since: time.Unix(0, 0), Totals: ledger.Counts{Calls: 2, Failed: 1, Rate: 0.5}, Tools: []ledger.Tool{
		{Name: "a\x1b[2Jb", Upstream: "a", Counts: ledger.Counts{Calls: 2, Failed: 1, Rate: 0.5, Outcomes: map[string]int64{"ok": 1, "timeout": 1}}},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "failures-without-texts", out.String())
}
