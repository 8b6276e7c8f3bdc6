package upstream

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// heardBy collects the notifications of one call.
type heardBy struct {
	mu  sync.Mutex // guards all
	all []string
}

func (h *heardBy) notify(method string, params jsontext.Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, method+" "+string(params))
}

func (h *heardBy) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.all, "\n")
}

func TestProgressTokens(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: tt.era, Tools: []mcptest.Tool{tool("work", func(c *mcptest.Call) {
				if c.ProgressToken() != c.ID {
					t.Errorf("token %s of request %s", c.ProgressToken(), c.ID)
				}
				c.Notify("notifications/progress", `{"progress":1.0,"progressToken":`+c.ProgressToken()+`,"total":9007199254740993,"more":null}`)
				// Progress of nobody, and of a token that is none of ours.
				c.Notify("notifications/progress", `{"progressToken":987654,"progress":2}`)
				c.Notify("notifications/progress", `{"progressToken":"`+c.ProgressToken()+`","progress":3}`)
				c.Notify("notifications/progress", `{"progress":4}`)
				c.Text("done")
			})}}
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			for _, token := range []string{`"abc"`, `7`, `9007199254740993`, `"\u00e9 \""`, `1.5`} {
				var got heardBy
				c := r.toolCall("work", `{}`)
				c.Progress, c.Notify = jsontext.Value(token), got.notify
				if _, err := r.Call(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				want := `notifications/progress {"progress":1.0,"progressToken":` + token + `,"total":9007199254740993,"more":null}`
				if got.String() != want {
					t.Errorf("heard %s\nwant %s", &got, want)
				}
			}
		})
	}
}

func TestNoProgressUnlessAskedFor(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Tools: []mcptest.Tool{tool("work", func(c *mcptest.Call) {
		if c.ProgressToken() != "" {
			t.Errorf("token %s", c.ProgressToken())
		}
		c.Notify("notifications/progress", `{"progressToken":`+c.ID+`,"progress":1}`)
		c.Text("done")
	})}}
	r := up(t, settings(), piped(s))
	var got heardBy
	c := r.toolCall("work", `{}`)
	c.Notify = got.notify
	if _, err := r.Call(t.Context(), c); err != nil || got.String() != "" {
		t.Errorf("heard %s, %v", &got, err)
	}
}

// Progress that a server sends after the answer, or for another call, is heard by nobody.
func TestProgressAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tokens := make(chan string, 2)
			s := &mcptest.Server{Era: tt.era, Tools: []mcptest.Tool{
				tool("early", func(c *mcptest.Call) {
					tokens <- c.ProgressToken()
					c.Text("done")
					c.Progress(2, 0, "after the answer")
				}),
				tool("late", func(c *mcptest.Call) {
					c.Notify("notifications/progress", `{"progressToken":`+<-tokens+`,"progress":3}`)
					c.Progress(1, 0, "own")
					c.Text("done")
				}),
			}}
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			var early, late heardBy
			for name, h := range map[string]*heardBy{"early": &early} {
				c := r.toolCall(name, `{}`)
				c.Progress, c.Notify = jsontext.Value(`"e"`), h.notify
				if _, err := r.Call(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			c := r.toolCall("late", `{}`)
			c.Progress, c.Notify = jsontext.Value(`"l"`), late.notify
			if _, err := r.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if early.String() != "" || late.String() != `notifications/progress {"progressToken":"l","progress":1,"message":"own"}` {
				t.Errorf("early heard %s; late heard %s", &early, &late)
			}
		})
	}
}

// Nothing is delivered once roundTrip has returned, also if the reader had found the call before.
func TestNoNotificationAfterTheCall(t *testing.T) {
	d := &duplex{pending: map[int64]*pendingCall{}}
	heard := 0
	p := &pendingCall{req: &request{id: 1, onNotify: func(wire.Message) { heard++ }}}
	d.pending[1] = p
	progress := wire.Message{Kind: wire.KindNotification, Method: "notifications/progress", Params: jsontext.Value(`{"progressToken":1}`)}
	d.notification(progress)
	if heard != 1 {
		t.Fatal("nothing is delivered at all")
	}
	d.forget(p)
	p.notify(progress)
	d.notification(progress)
	if heard != 1 || len(d.pending) != 0 {
		t.Errorf("heard %d times", heard)
	}
}

func logs(c *mcptest.Call) {
	for _, level := range []string{"debug", "info", "warning", "error", "odd"} {
		c.Notify("notifications/message", `{"level":"`+level+`","data":{"n":1.0},"logger":"x"}`)
	}
	c.Notify("notifications/message", `{"data":"no level"}`)
	c.Text("done")
}

func TestLogMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: tt.era, Capabilities: `{"logging":{}}`, Tools: []mcptest.Tool{tool("log", logs)}}
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			for _, level := range []string{"warning", "warning", "error"} {
				var got heardBy
				c := r.toolCall("log", `{}`)
				c.LogLevel, c.Notify = level, got.notify
				if _, err := r.Call(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				want := `notifications/message {"level":"error","data":{"n":1.0},"logger":"x"}`
				if level == "warning" {
					want = strings.Replace(want, "error", "warning", 1) + "\n" + want
				}
				if got.String() != want {
					t.Errorf("%s: heard %s", level, &got)
				}
				meta := string(last(s, "tools/call").Body)
				if has := strings.Contains(meta, `"io.modelcontextprotocol/logLevel":"`+level+`"`); has != (tt.era == mcptest.Modern) {
					t.Errorf("request %s", meta)
				}
			}
			var none heardBy
			c := r.toolCall("log", `{}`)
			c.Notify = none.notify
			if _, err := r.Call(t.Context(), c); err != nil || none.String() != "" {
				t.Errorf("who asked for nothing heard %s, %v", &none, err)
			}
			want := 0
			if tt.era == mcptest.Legacy {
				want = 1
			}
			if n := s.Count("logging/setLevel"); n != want {
				t.Errorf("setLevel was sent %d times", n)
			}
			// A finer level is asked for, and only once.
			c = r.toolCall("log", `{}`)
			c.LogLevel, c.Notify = "debug", none.notify
			if _, err := r.Call(t.Context(), c); err != nil || s.Count("logging/setLevel") != 2*want {
				t.Errorf("setLevel was sent %d times, %v", s.Count("logging/setLevel"), err)
			}
		})
	}
}

func TestNoLogLevelWithoutCapability(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
	r := up(t, settings(), piped(s))
	for _, level := range []string{"info", `x"y`} {
		c := r.toolCall("echo", `{}`)
		c.LogLevel, c.Notify = level, func(string, jsontext.Value) {}
		if _, err := r.Call(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	if s.Count("logging/setLevel") != 0 {
		t.Error("setLevel was sent")
	}
}

// On a shared stream nothing says whose a log message is: it goes to the one call that asked for
// messages, and to nobody while two did.
func TestLogMessagesOnASharedStream(t *testing.T) {
	t.Parallel()
	both := make(chan struct{}, 2)
	logged, second := make(chan struct{}), make(chan struct{})
	s := &mcptest.Server{Era: mcptest.Legacy, Capabilities: `{"logging":{}}`, Tools: []mcptest.Tool{
		tool("wait", func(c *mcptest.Call) {
			both <- struct{}{}
			<-second
			c.Text("done")
		}),
		tool("log", func(c *mcptest.Call) {
			both <- struct{}{}
			<-logged
			logs(c)
		}),
	}}
	r := up(t, settings(), piped(s))
	var wait, log heardBy
	var calls sync.WaitGroup
	for name, h := range map[string]*heardBy{"wait": &wait, "log": &log} {
		c := r.toolCall(name, `{}`)
		c.LogLevel, c.Notify = "debug", h.notify
		calls.Go(func() {
			if _, err := r.Call(t.Context(), c); err != nil {
				t.Error(err)
			}
			if name == "log" {
				close(second)
			}
		})
	}
	<-both
	<-both
	close(logged)
	calls.Wait()
	if wait.String() != "" || log.String() != "" {
		t.Errorf("wait heard %s; log heard %s", &wait, &log)
	}
}

// A legacy server's question gets an answer at once, so that its tool ends.
func TestRequestsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		if tt.era == mcptest.Modern {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: tt.era, Tools: []mcptest.Tool{tool("ask", func(c *mcptest.Call) {
				result, fault := c.Ask("ping", "")
				if string(result) != `{}` || fault != nil {
					t.Errorf("ping: %s, %s", result, fault)
				}
				for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list", "x"} {
					result, fault := c.Ask(method, `{"message":"?"}`)
					if result != nil || !strings.Contains(string(fault), `"code":-32601`) {
						t.Errorf("%s: %s, %s", method, result, fault)
					}
				}
				c.Text("done")
			})}}
			cfg, opts := tt.connect(t, s)
			r := up(t, cfg, opts)
			r.mustCall("ask", `{}`)
			want := `"capabilities":{}`
			if cfg.Type == "http" && opts.Embedded == nil {
				want = `"capabilities":` + bridged
			}
			if caps := string(last(s, "initialize").Body); !strings.Contains(caps, want) {
				t.Errorf("initialize %s", caps)
			}
		})
	}
	t.Run("GET stream", func(t *testing.T) {
		s := &mcptest.Server{Era: mcptest.Legacy, ListChanged: true, Tools: mcptest.Builtin("echo")}
		listening(t, s, overHTTP, true)
		// Broadcast makes notifications; an id behind the params turns one into a request.
		s.Broadcast("ping", `{},"id":"q-1"`)
		awaitAt(t, s, "the answer", func() bool {
			return strings.Contains(string(last(s, "").Body), `"id":"q-1","result":{}`)
		})
	})
}
