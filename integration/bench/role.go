package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/gateway"
)

// play is what a process of the benchmark does: it serves on a free port, says which, and answers each
// line of its input with its memory statistics until the input ends.
func play(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var handler http.Handler
	done := func() {}
	switch o.role {
	case "server":
		handler = newServer()
	case "proxy":
		target, err := url.Parse("http://" + o.target)
		if err != nil {
			return err
		}
		handler = newProxy(target)
	case "gateway":
		g, err := newGateway(o.target)
		if err != nil {
			return err
		}
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			g.Run(ctx)
		}()
		done = func() {
			cancel()
			<-ran
		}
		if err := g.WaitSettled(ctx); err != nil {
			return err
		}
		handler = g.Handler()
	default:
		return fmt.Errorf("unknown role %q", o.role)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Println(l.Addr())
	stopProfile, err := profile(o.profile)
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if err := json.NewEncoder(os.Stdout).Encode(memory{Mallocs: m.Mallocs, Bytes: m.TotalAlloc}); err != nil {
			return err
		}
	}
	err = stopProfile()
	_ = srv.Close()
	<-served
	done()
	return err
}

// memory is what a process has allocated since its start.
type memory struct{ Mallocs, Bytes uint64 }

func profile(dir string) (stop func() error, err error) {
	if dir == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := cpu.Close(); err != nil {
			return err
		}
		heap, err := os.Create(filepath.Join(dir, "allocs.pprof"))
		if err != nil {
			return err
		}
		if err := pprof.Lookup("allocs").WriteTo(heap, 0); err != nil {
			return err
		}
		return heap.Close()
	}, nil
}

func newProxy(target *url.URL) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server answers so fast that the answer can overtake the end of the request's body in the
		// proxy; without full duplex net/http then closes that body under the transport's hands.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}

func newGateway(endpoint string) (*gateway.Gateway, error) {
	cfg, err := configs.Parse("bench.yaml", gatewayConfig(endpoint, "127.0.0.1:0"), configs.Options{})
	if err != nil {
		return nil, err
	}
	return gateway.New(cfg, gateway.Options{Logger: slog.New(slog.DiscardHandler)})
}

// gatewayConfig is a configuration with the one server, whose tools get the prefix up_.
func gatewayConfig(endpoint, listen string) []byte {
	return fmt.Appendf(nil, "listen: %s\nadmin_listen: 127.0.0.1:0\nupstreams:\n  up: {type: http, url: %q}\n", listen, endpoint)
}

// server is the least that can be called an MCP server: it looks for what it needs in the request and
// answers with bytes made in advance. It offers as many tools as its path says.
type server struct {
	calls map[string][]byte // results by tool
	lists map[string][]byte // results by path
}

func newServer() *server {
	s := &server{calls: map[string][]byte{}, lists: map[string][]byte{}}
	for name, size := range sizes {
		s.calls[name] = []byte(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("0123456789abcdef", size/16) + `"}]}`)
	}
	for _, n := range []int{50, 500} {
		var defs []string
		for name := range sizes {
			defs = append(defs, definition(name))
		}
		for i := len(defs); i < n; i++ {
			defs = append(defs, definition("tool_"+strconv.Itoa(i)))
		}
		s.lists[serverPath(n)] = []byte(`{"resultType":"complete","ttlMs":300000,"cacheScope":"public","tools":[` + strings.Join(defs, ",") + `]}`)
	}
	return s
}

func serverPath(tools int) string { return "/" + strconv.Itoa(tools) }

// definition is a tool of a usual size, about 600 bytes.
func definition(name string) string {
	return `{"name":"` + name + `","title":"Read the levels","description":"Read the levels that the gauges of a canal have reported, newest first. ` +
		`Use it when the user asks how high the water stands, or stood. Do not use it to move a gate.",` +
		`"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"Words that the gauge's name contains"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"How many levels to return"}},"required":["query"],"additionalProperties":false},` +
		`"annotations":{"readOnlyHint":true,"openWorldHint":false}}`
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	id := after(body, `"id":`)
	if id == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var result []byte
	switch r.Header.Get("Mcp-Method") {
	case "tools/call":
		result = s.calls[r.Header.Get("Mcp-Name")]
	case "tools/list":
		result = s.lists[r.URL.Path]
	case "server/discover":
		result = []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},` +
			`"ttlMs":300000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}}}`)
	}
	head := `{"jsonrpc":"2.0","id":` + string(id)
	if result == nil {
		head, result = head+`,"error":`, []byte(`{"code":-32601,"message":"Method not found"}`)
	} else {
		head += `,"result":`
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(result)+1))
	_, _ = io.WriteString(w, head)
	_, _ = w.Write(result)
	_, _ = io.WriteString(w, "}")
}

// after returns the plain value, a number or a simple string, behind a key.
func after(body []byte, key string) []byte {
	_, rest, found := bytes.Cut(body, []byte(key))
	if !found {
		return nil
	}
	end := bytes.IndexAny(rest, ",}")
	if end < 0 {
		return nil
	}
	return rest[:end]
}
