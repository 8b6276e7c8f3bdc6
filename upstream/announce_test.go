package upstream

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
)

// listeners are the ways in which announcements arrive.
var listeners = []struct {
	name, era string
	separate  bool // the stream is opened beside the connection
	connect   func(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options)
}{
	{"GET stream", mcptest.Legacy, true, overHTTP},
	{"listen over HTTP", mcptest.Modern, true, overHTTP},
	{"legacy pipes", mcptest.Legacy, false, overPipes},
	{"listen over pipes", mcptest.Modern, true, overPipes},
	{"HTTP+SSE", mcptest.Legacy, false, func(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
		cfg := httpAt(s.StartSSE(t).URL)
		cfg.Type = "sse"
		return cfg, Options{}
	}},
}

// listening starts an upstream whose stream stands, and waits for the reading that closes the gap.
func listening(t *testing.T, s *mcptest.Server, connect func(*testing.T, *mcptest.Server) (*configs.Upstream, Options), separate bool) *rig {
	t.Helper()
	cfg, opts := connect(t, s)
	r := up(t, cfg, opts)
	awaitAt(t, s, "the stream", func() bool { return s.Streams() > 0 && (!separate || s.Count("tools/list") == 2) })
	return r
}

func TestAnnouncedChange(t *testing.T) {
	t.Parallel()
	for _, tt := range listeners {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: tt.era, ListChanged: true, Tools: mcptest.Builtin("echo")}
			r := listening(t, s, tt.connect, tt.separate)
			s.SetTools([]mcptest.Tool{tool("new", nil)})
			s.NotifyToolsChanged()
			r.awaitTool("new")
			r.mustCall("new", `{}`)
		})
	}
}

// A change in the moment before the stream stands is announced to nobody, and found all the same.
func TestChangeBeforeTheStreamStands(t *testing.T) {
	t.Parallel()
	for _, era := range []string{mcptest.Modern, mcptest.Legacy} {
		t.Run(era, func(t *testing.T) {
			release := make(chan struct{})
			s := &mcptest.Server{Era: era, ListChanged: true, Tools: mcptest.Builtin("echo")}
			s.OnHTTP = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
					select {
					case <-release:
					case <-r.Context().Done():
					}
				}
				return false
			}
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			s.SetTools([]mcptest.Tool{tool("new", nil)})
			close(release)
			r.awaitTool("new")
		})
	}
}

func TestBurstOfAnnouncements(t *testing.T) {
	t.Parallel()
	for _, tt := range listeners {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: tt.era, ListChanged: true, Tools: mcptest.Builtin("echo")}
			r := listening(t, s, func(t *testing.T, s *mcptest.Server) (*configs.Upstream, Options) {
				cfg, opts := tt.connect(t, s)
				opts.RereadGap = time.Second
				return cfg, opts
			}, tt.separate)
			before, began := s.Count("tools/list"), time.Now()
			for range 499 {
				s.NotifyToolsChanged()
			}
			s.SetTools([]mcptest.Tool{tool("last", nil)})
			s.NotifyToolsChanged()
			r.awaitTool("last")
			if n := s.Count("tools/list") - before; n > 3+int(time.Since(began)/r.opts.RereadGap) {
				t.Errorf("the list was read %d times", n)
			}
		})
	}
}

// Some servers announce first and change then.
func TestAnnouncementBeforeTheChange(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, ListChanged: true, Tools: mcptest.Builtin("echo")}
	r := listening(t, s, overPipes, false)
	before := s.Count("tools/list")
	s.NotifyToolsChanged()
	awaitAt(t, s, "the reading", func() bool { return s.Count("tools/list") > before })
	s.SetTools([]mcptest.Tool{tool("late", nil)})
	r.awaitTool("late")
}

func TestNoStreamIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{404, 405, 406, 501, 400, 200} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, ListChanged: true, Tools: mcptest.Builtin("echo"), OnHTTP: func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet {
					return false
				}
				http.Error(w, "no", status)
				return true
			}}
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			awaitAt(t, s, "GET", func() bool { return s.Count("GET") == 1 })
			r.mustCall("echo", `{}`)
			eventually(t, "the end of the attempts", func() bool { return r.logged("the server offers no stream for announcements") })
			r.stop()
			if s.Count("GET") != 1 || s.Count("initialize") != 1 {
				t.Errorf("%d GETs, %d sessions", s.Count("GET"), s.Count("initialize"))
			}
		})
	}
	t.Run("subscription refused", func(t *testing.T) {
		for _, connect := range []func(*testing.T, *mcptest.Server) (*configs.Upstream, Options){overHTTP, overPipes} {
			s := &mcptest.Server{ListChanged: true, Tools: mcptest.Builtin("echo"), OnRequest: func(c *mcptest.Call) bool {
				if c.Method != "subscriptions/listen" {
					return false
				}
				c.Error(`{"code":-32601,"message":"Method not found"}`)
				return true
			}}
			cfg, opts := connect(t, s)
			r := up(t, cfg, opts)
			awaitAt(t, s, "the question", func() bool { return s.Count("subscriptions/listen") == 1 })
			r.mustCall("echo", `{}`)
			eventually(t, "the end of the attempts", func() bool { return r.logged("the server offers no stream for announcements") })
			r.stop()
			if n := s.Count("subscriptions/listen"); n != 1 {
				t.Errorf("asked %d times", n)
			}
		}
	})
	t.Run("not advertised", func(t *testing.T) {
		bothEras(t, func(t *testing.T, era string) {
			s := &mcptest.Server{Era: era, Tools: mcptest.Builtin("echo")}
			r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
			r.mustCall("echo", `{}`)
			r.stop()
			if s.Count("GET")+s.Count("subscriptions/listen") != 0 {
				t.Error("a stream was asked for")
			}
		})
	})
}

func TestStreamWithoutHeadersHoldsUpNothing(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		s := &mcptest.Server{Era: era, ListChanged: true, Tools: mcptest.Builtin("echo"), OnHTTP: func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" {
				once()
				<-r.Context().Done()
				return true
			}
			return false
		}}
		r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
		<-asked
		r.mustCall("echo", `{}`)
	})
}

func TestDroppedStreamIsReopened(t *testing.T) {
	t.Parallel()
	for _, graceful := range []bool{false, true} {
		bothEras(t, func(t *testing.T, era string) {
			s := &mcptest.Server{Era: era, ListChanged: true, Tools: mcptest.Builtin("echo")}
			r := listening(t, s, overHTTP, true)
			s.SetTools([]mcptest.Tool{tool("meanwhile", nil)})
			s.EndStreams(graceful)
			r.awaitTool("meanwhile")
			awaitAt(t, s, "the stream", func() bool { return s.Streams() == 1 })
			s.SetTools([]mcptest.Tool{tool("again", nil)})
			s.NotifyToolsChanged()
			r.awaitTool("again")
			if got := r.Status(); got.Tries != 1 {
				t.Errorf("status %+v", got)
			}
		})
	}
}

func TestNoiseOnStreams(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, ListChanged: true, Tools: mcptest.Builtin("echo"), OnHTTP: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(": hello\n\ndata: not json\n\nevent: other\ndata: {}\n\ndata:\n\ndata: " + strings.Repeat("x", 5000) + "\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/tools/list_changed\"}\n\n"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}}
	cfg := httpAt(s.StartHTTP(t).URL)
	cfg.MaxAnswer = 4096
	r := up(t, cfg, Options{})
	s.SetTools([]mcptest.Tool{tool("new", nil)})
	r.awaitTool("new")
}
