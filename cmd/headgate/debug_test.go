package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/telemetry"
)

func TestDebugListen(t *testing.T) {
	p := start(t, strings.NewReader(""), slices.Concat(free, []string{"HEADGATE_DEBUG_LISTEN=127.0.0.1:0"}), "serve")
	base := strings.TrimSuffix(member(t, p.log.await(t, `"msg":"profiles are served to everybody on this machine"`), "debug"), "/debug/pprof/")
	p.log.await(t, `"msg":"ready"`)
	get := func(path string) []byte {
		t.Helper()
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: HTTP %d, %v", path, resp.StatusCode, err)
		}
		return b
	}
	var m telemetry.Memory
	if err := json.Unmarshal(get("/debug/memory?gc=1"), &m); err != nil || m.Mallocs == 0 || m.Heap == 0 || m.System < m.Heap {
		t.Errorf("memory is %+v, %v", m, err)
	}
	if b := get("/debug/pprof/goroutine?debug=1"); !strings.Contains(string(b), "goroutine profile") {
		t.Errorf("the profile is %.80q", b)
	}
	p.signal()
	if err := p.end(t); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// Nobody beyond the machine is to read profiles.
func TestDebugListenIsLoopback(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:6060", "127.0.0.1", "example.com:1"} {
		t.Run(addr, func(t *testing.T) {
			p := start(t, strings.NewReader(""), slices.Concat(free, []string{"HEADGATE_DEBUG_LISTEN=" + addr}), "serve")
			if err := p.end(t); err == nil || !strings.Contains(err.Error(), "loopback") {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// What is served to clients and to operators has no profiles.
func TestNoProfilesUnasked(t *testing.T) {
	p, endpoint := serve(t)
	admin := member(t, p.log.await(t, `"msg":"ready"`), "admin")
	for _, base := range []string{strings.TrimSuffix(endpoint, "/mcp"), admin} {
		resp, err := http.Get(base + "/debug/pprof/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s/debug/pprof/ is HTTP %d", base, resp.StatusCode)
		}
	}
}
