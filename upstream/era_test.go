package upstream

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/mcptest"
)

// soon makes a silent server be asked the second question at once.
var soon = Options{ProbeTimeout: time.Millisecond, HTTPProbeTimeout: 200 * time.Millisecond}

func TestProbeAnsweredWithRefusal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		refuse func(c *mcptest.Call)
	}{
		{"-32601", func(c *mcptest.Call) { c.Error(`{"code":-32601,"message":"Method not found"}`) }},
		{"-32602", func(c *mcptest.Call) { c.Error(`{"code":-32602,"message":"Invalid request parameters"}`) }},
		{"-32600 with 400", func(c *mcptest.Call) {
			c.Raw(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no session"}}`)
		}},
		{"400 text", func(c *mcptest.Call) { c.Raw(400, "text/plain", "Bad Request") }},
		{"404", func(c *mcptest.Call) { c.Raw(404, "text/html", "<html>") }},
		{"405", func(c *mcptest.Call) { c.Raw(405, "", "") }},
		{"500", func(c *mcptest.Call) { c.Raw(500, "text/plain", "panic") }},
		{"reset", func(c *mcptest.Call) { c.Reset() }},
		{"empty 200", func(c *mcptest.Call) { c.Raw(200, "application/json", "") }},
		{"a result to anything", func(c *mcptest.Call) { c.Result(`{"ok":true}`) }},
		{"a null result", func(c *mcptest.Call) { c.Result(`null`) }},
		{"-32022 with legacy versions", func(c *mcptest.Call) {
			c.Error(`{"code":-32022,"message":"Unsupported","data":{"supported":["2025-06-18","2025-11-25"],"requested":"2026-07-28"}}`)
		}},
		{"discover without the modern version", func(c *mcptest.Call) {
			c.Result(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
				if c.Method != "server/discover" {
					return false
				}
				tt.refuse(c)
				return true
			}}
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			if got := r.Status(); got.Era != "legacy" || got.Version != "2025-11-25" {
				t.Errorf("status %+v", got)
			}
			r.mustCall("echo", `{}`)
		})
	}
}

// TestVersionRefusedOnce: a server that refuses the version and names it as supported is asked once more, and
// the attempt is not lost; one that goes on like that is down.
func TestVersionRefusedOnce(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{false, true} {
		var asked atomic.Int32
		s := &mcptest.Server{Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
			if c.Method != "server/discover" || asked.Add(1) > 1 && !always {
				return false
			}
			c.Error(`{"code":-32022,"message":"Unsupported","data":{"supported":["2025-11-25","2026-07-28"],"requested":"2026-07-28"}}`)
			return true
		}}
		if always {
			r := run(t, httpAt(s.StartHTTP(t).URL), Options{})
			r.await("to fail", func() bool { return r.Status().State == Down })
			if got := r.Status().Error; !strings.Contains(got, "says that it supports it") || s.Count("initialize") != 0 {
				t.Errorf("error %q, %d times initialize", got, s.Count("initialize"))
			}
			continue
		}
		r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
		if got := r.Status(); got.Era != "modern" || s.Count("server/discover") != 2 {
			t.Errorf("status %+v after %d questions", got, s.Count("server/discover"))
		}
		r.mustCall("echo", `{}`)
	}
}

func TestNoCommonVersion(t *testing.T) {
	t.Parallel()
	refuse := func(answer string) *mcptest.Server {
		return &mcptest.Server{Era: mcptest.Legacy, OnRequest: func(c *mcptest.Call) bool {
			c.Error(answer)
			return true
		}}
	}
	for _, tt := range []struct {
		name, answer, want string
	}{
		{"unknown versions", `{"code":-32022,"message":"Unsupported","data":{"supported":["2031-01-01"]}}`, `no common protocol version: the server supports ["2031-01-01"]`},
		{"no versions", `{"code":-32022,"message":"Unsupported"}`, "no common protocol version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := refuse(tt.answer)
			for name, start := range map[string]func() (*configs.Upstream, Options){
				"http":  func() (*configs.Upstream, Options) { return httpAt(s.StartHTTP(t).URL), Options{} },
				"pipes": func() (*configs.Upstream, Options) { return settings(), piped(s) },
			} {
				cfg, opts := start()
				r := run(t, cfg, opts)
				r.await(name+" to fail", func() bool { return r.Status().State == Down })
				if got := r.Status().Error; !strings.Contains(got, tt.want) {
					t.Errorf("%s: error %q", name, got)
				}
			}
			if n := s.Count("initialize"); n != 0 {
				t.Errorf("initialize was sent %d times", n)
			}
		})
	}
}

func TestSilentServerFallsBack(t *testing.T) {
	t.Parallel()
	t.Run("HTTP", func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, SilentDiscover: true, Tools: mcptest.Builtin("echo")}
		r := up(t, httpAt(s.StartHTTP(t).URL), soon)
		r.mustCall("echo", `{}`)
	})
	t.Run("pipes", func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, SilentDiscover: true, Tools: mcptest.Builtin("echo")}
		opts := piped(s)
		opts.ProbeTimeout = time.Millisecond
		r := up(t, settings(), opts)
		r.mustCall("echo", `{}`)
	})
	t.Run("child", func(t *testing.T) {
		starts := filepath.Join(t.TempDir(), "starts")
		r := up(t, childOf(mcptest.ChildSpec{SilentDiscover: true, StartsFile: starts}), soon)
		r.mustCall("echo", `{}`)
		if n := lines(t, starts); n != 1 {
			t.Errorf("%d processes were started", n)
		}
	})
}

func lines(t *testing.T, file string) int {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(raw), "\n")
}

// A child that only starts slowly gets both questions before it reads the first, in both eras.
func TestSlowChildIsNotTakenForSilent(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		starts := filepath.Join(t.TempDir(), "starts")
		r := up(t, childOf(mcptest.ChildSpec{Era: era, StartDelayMs: 200, StartsFile: starts}), soon)
		if got := r.Status().Era; got != era {
			t.Errorf("era %s", got)
		}
		r.mustCall("echo", `{}`)
		if n := lines(t, starts); n != 1 {
			t.Errorf("%d processes were started", n)
		}
	})
}

// slowly serves an SDK server that gets to see nothing before initialize has been written too.
func slowly(serve ServeFunc) ServeFunc {
	return func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
		var held []byte
		buf := make([]byte, 4096)
		for !strings.Contains(string(held), `"initialize"`) {
			n, err := in.Read(buf)
			if err != nil {
				return err
			}
			held = append(held, buf[:n]...)
		}
		return serve(ctx, readCloser{io.MultiReader(strings.NewReader(string(held)), in), in}, out)
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

func TestSlowSDKServer(t *testing.T) {
	t.Parallel()
	// The server of the SDK speaks both eras and refuses the second question.
	embedded := demo.Servers(time.Now)[1]
	opts := soon
	opts.Embedded = slowly(embedded.Serve)
	r := up(t, settings(), opts)
	if r.Status().Tries != 1 {
		t.Errorf("status %+v", r.Status())
	}
	r.mustCall("list_ledgers", `{}`)

	t.Run("legacy only", func(t *testing.T) {
		opts := soon
		opts.Embedded = slowly(func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
			srv := mcp.NewServer(&mcp.Implementation{Name: "old", Version: "1"}, nil)
			srv.AddTool(&mcp.Tool{Name: "hi", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
			srv.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					if method == "server/discover" {
						return nil, io.ErrUnexpectedEOF
					}
					return next(ctx, method, req)
				}
			})
			err := srv.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
		r := up(t, settings(), opts)
		if r.Status().Era != "legacy" {
			t.Errorf("status %+v", r.Status())
		}
		r.mustCall("hi", `{}`)
	})
}

// A modern server may refuse the second question before it answers the first.
func TestSecondQuestionRefusedFirst(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{})
	s := &mcptest.Server{Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
		switch c.Method {
		case "server/discover":
			<-refused
		case "initialize":
			c.Error(`{"code":-32601,"message":"Method not found"}`)
			close(refused)
			return true
		}
		return false
	}}
	opts := piped(s)
	opts.ProbeTimeout = time.Millisecond
	r := up(t, settings(), opts)
	if got := r.Status(); got.Era != "modern" || got.Tries != 1 {
		t.Errorf("status %+v", got)
	}
}

func TestChildThatDiesOfTheProbe(t *testing.T) {
	t.Parallel()
	starts := filepath.Join(t.TempDir(), "starts")
	r := up(t, childOf(mcptest.ChildSpec{DieOnDiscover: true, StartsFile: starts}), Options{})
	if n := lines(t, starts); n != 2 {
		t.Errorf("%d processes were started", n)
	}
	r.mustCall("echo", `{}`)
}

func TestLegacyVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2024-10-07"} {
		t.Run(version, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, Version: version, Tools: mcptest.Builtin("echo")}
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			r.mustCall("echo", `{}`)
			if got := r.Status().Version; got != version {
				t.Errorf("version %s", got)
			}
			want := version
			if version < "2025-06-18" {
				want = "" // the header came with that revision
			}
			if got := last(s, "tools/call").Header.Get("Mcp-Protocol-Version"); got != want {
				t.Errorf("version header %q, want %q", got, want)
			}
		})
	}
}

// last returns the last request of a method that a script received.
func last(s *mcptest.Server, method string) mcptest.Recorded {
	all := s.Requests()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Method == method {
			return all[i]
		}
	}
	return mcptest.Recorded{Header: http.Header{}}
}

func TestVersionOfTheWrongEra(t *testing.T) {
	t.Parallel()
	for _, version := range []string{`"2026-07-28"`, `"9999"`, `7`, `null`} {
		t.Run(version, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, OnRequest: func(c *mcptest.Call) bool {
				if c.Method != "initialize" {
					return false
				}
				c.Result(`{"protocolVersion":` + version + `,"capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
				return true
			}}
			r := run(t, settings(), piped(s))
			r.await("a failure", func() bool { return r.Status().State == Down })
			if !strings.Contains(r.Status().Error, "which a session cannot have") {
				t.Errorf("error %q", r.Status().Error)
			}
		})
	}
}

func TestPureSSEBehindAnURL(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Version: "2024-11-05", Tools: mcptest.Builtin("echo")}
	r := up(t, httpAt(s.StartSSE(t).URL), Options{})
	r.mustCall("echo", `{}`)
}

func TestWrongURL(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Tools: mcptest.Builtin("echo")}
	url := strings.TrimSuffix(s.StartHTTP(t).URL, "/mcp") + "/wrong"
	for _, given := range []bool{false, true} {
		cfg := httpAt(url)
		cfg.TypeGiven = given
		r := run(t, cfg, Options{})
		r.await("a failure", func() bool { return r.Status().State == Down })
		got := r.Status().Error
		if !strings.Contains(got, "no MCP endpoint at this URL") || !strings.Contains(got, "404") {
			t.Errorf("type given %v: error %q", given, got)
		}
	}
}

func TestPinnedEraSendsNoOtherProbe(t *testing.T) {
	t.Parallel()
	for _, pinned := range []string{mcptest.Modern, mcptest.Legacy} {
		for _, served := range []string{mcptest.Modern, mcptest.Legacy} {
			t.Run(pinned+" pin, "+served+" server", func(t *testing.T) {
				s := &mcptest.Server{Era: served, Tools: mcptest.Builtin("echo")}
				over := map[string]func() (*configs.Upstream, Options){
					"http":  func() (*configs.Upstream, Options) { return overHTTP(t, s) },
					"pipes": func() (*configs.Upstream, Options) { return overPipes(t, s) },
				}
				for name, connect := range over {
					cfg, opts := connect()
					cfg.Era = pinned
					opts.ProbeTimeout, opts.HTTPProbeTimeout = time.Millisecond, time.Millisecond
					r := run(t, cfg, opts)
					r.await(name+" to settle", r.Settled)
					want := Up
					if pinned != served {
						want = Down
					}
					r.await(name+" to be "+string(want), func() bool { return r.Status().State == want })
				}
				other := map[string]string{mcptest.Modern: "initialize", mcptest.Legacy: "server/discover"}[pinned]
				if s.Count(other) != 0 || s.Count("GET") != 0 && pinned == mcptest.Modern {
					t.Errorf("%s was sent %d times, GET %d times", other, s.Count(other), s.Count("GET"))
				}
			})
		}
	}
}
