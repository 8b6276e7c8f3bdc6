//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// conformanceServer is the SDK's server for the suite. The suite's names of tools, prompts and resources are
// hard-coded in it. It speaks Streamable HTTP, in one mode for each era, and stdio.
const conformanceServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// way is how Headgate reaches the SDK's server.
type way struct{ era, transport string }

// ways are all of them. HTTP+SSE is of the legacy era alone.
var ways = []way{
	{"legacy", "http"}, {"modern", "http"}, {"legacy", "stdio"}, {"modern", "stdio"}, {"legacy", "sse"},
}

// startConformance starts the SDK's server in the mode of each era, and returns its endpoints by era, and a
// configuration of Headgate for each way to it.
func startConformance(t *testing.T) (direct map[string]string, configs map[way]string) {
	t.Helper()
	server := filepath.Join(t.TempDir(), "server")
	if out, err := exec.Command("go", "build", "-o", server, conformanceServer).CombinedOutput(); err != nil {
		t.Fatalf("building the SDK's server: %v: %s", err, out)
	}
	direct, configs = map[string]string{}, map[way]string{}
	for _, era := range []string{"legacy", "modern"} {
		direct[era] = startConformanceServer(t, server, era)
	}
	for _, w := range ways {
		upstream := map[string]any{"prefix": ""}
		switch w.transport {
		case "http":
			upstream["url"] = direct[w.era] // its era is found out
		case "stdio":
			// The server speaks both eras; it can ask where it has a process for each client.
			upstream["command"], upstream["era"], upstream["session"] = server, w.era, "client"
		case "sse":
			upstream["url"], upstream["type"], upstream["session"] = relaySSE(t, server)+"/sse", "sse", "client"
		}
		text, err := json.Marshal(map[string]any{"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "upstreams": map[string]any{"everything": upstream}})
		if err != nil {
			t.Fatal(err)
		}
		configs[w] = filepath.Join(t.TempDir(), "headgate.json")
		if err := os.WriteFile(configs[w], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return direct, configs
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

// relaySSE serves HTTP+SSE until the end of the test, which the SDK's server does not: each stream is the pipes of a
// process of its own, and every message passes as it is. It returns the URL without a path.
func relaySSE(t *testing.T, server string) string {
	t.Helper()
	var mu sync.Mutex
	inputs := map[string]io.Writer{} // by session, guarded by mu
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) {
		cmd := exec.CommandContext(r.Context(), server)
		in, err := cmd.StdinPipe()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer cmd.Wait()
		mu.Lock()
		id := fmt.Sprint(len(inputs))
		inputs[id] = in
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: endpoint\ndata: /message?session=%s\n\n", id)
		lines := bufio.NewReader(out)
		for err == nil {
			if err = http.NewResponseController(w).Flush(); err != nil {
				break
			}
			var line []byte
			if line, err = lines.ReadBytes('\n'); err == nil {
				fmt.Fprintf(w, "event: message\ndata: %s\n", line)
			}
		}
	})
	mux.HandleFunc("POST /message", func(w http.ResponseWriter, r *http.Request) {
		var line bytes.Buffer
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Compact(&line, body)
		}
		line.WriteByte('\n')
		mu.Lock()
		defer mu.Unlock()
		in, known := inputs[r.URL.Query().Get("session")]
		if err != nil || !known {
			http.Error(w, "no such session, or no message", http.StatusBadRequest)
			return
		}
		if _, err := in.Write(line.Bytes()); err != nil {
			http.Error(w, err.Error(), http.StatusGone)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	relay := httptest.NewServer(mux)
	t.Cleanup(func() {
		relay.CloseClientConnections()
		relay.Close()
	})
	return relay.URL
}
