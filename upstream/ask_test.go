package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

// TestTimeWhileTheClientIsAsked: the time for a step stops while a question is open, and begins anew with the last
// answer; the time over all goes on.
func TestTimeWhileTheClientIsAsked(t *testing.T) {
	start := func(t *testing.T) (context.Context, *callClock) {
		cfg := settings()
		cfg.CallTimeout, cfg.MaxCallTimeout = time.Minute, 10*time.Minute
		return New(cfg, Options{}).startClock(t.Context())
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, c := start(t)
		defer c.stop()
		time.Sleep(50 * time.Second)
		c.hold()
		c.hold()
		time.Sleep(3 * time.Minute)
		c.progress()
		c.release()
		time.Sleep(3 * time.Minute)
		c.release()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		var limit *limitError
		if !errors.As(context.Cause(ctx), &limit) || limit.d != time.Minute {
			t.Errorf("%v", context.Cause(ctx))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, c := start(t)
		defer c.stop()
		c.hold()
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var limit *limitError
		if !errors.As(context.Cause(ctx), &limit) || limit.d != 10*time.Minute {
			t.Errorf("%v", context.Cause(ctx))
		}
	})
}

// answering answers every question with its own words, and notes them.
type answering struct {
	mu  sync.Mutex // guards got
	got []string
}

func (a *answering) ask(_ context.Context, q Question) Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, q.Method+" "+string(q.Params))
	return Answer{Result: jsontext.Value(`{"to":` + string(q.Params) + `}`)}
}

// asker is a legacy server whose tool asks one question with the word of its arguments.
func asker() *mcptest.Server {
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("ask", func(c *mcptest.Call) {
		result, fault := c.Ask("elicitation/create", string(c.Member("arguments")))
		c.Structured(`{"told":` + string(result) + string(fault) + `}`)
	})}}
}

// TestWhomAQuestionReaches: over HTTP a question goes to the call on whose stream it came; on any other stream to the
// one call of a session that is kept apart, or to the one client's, and else to nobody.
func TestWhomAQuestionReaches(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		if tt.era == mcptest.Modern {
			continue
		}
		for _, session := range []string{configs.SessionShared, configs.SessionCaller, configs.SessionClient} {
			t.Run(tt.name+" "+session, func(t *testing.T) {
				t.Parallel()
				s := asker()
				cfg, opts := tt.connect(t, s)
				cfg.Session = session
				overHTTP := cfg.Type == "http" && opts.Embedded == nil
				r := up(t, cfg, opts)
				a := &answering{}
				reply, err := r.Call(t.Context(), &Call{Method: "tools/call", Params: params(t, `{"name":"x","arguments":{"w":1.0}}`), Name: "ask",
					Caller: Caller{Key: "a", Session: "one", Capabilities: jsontext.Value(`{"elicitation":{}}`)}, Ask: a.ask})
				if err != nil {
					t.Fatal(err)
				}
				told := string(reply.Result)
				if reaches := overHTTP || session != configs.SessionShared; reaches != strings.Contains(told, `{"to":{"w":1.0}}`) || reaches == strings.Contains(told, "-32601") {
					t.Errorf("told %s", told)
				}
				want := `"capabilities":{}`
				switch {
				case session == configs.SessionClient:
					want = `"capabilities":{"elicitation":{}}`
				case session == configs.SessionCaller:
					want = `"capabilities":` + bridged
				case overHTTP:
					want = `"capabilities":` + bridged
				}
				if caps := string(last(s, "initialize").Body); !strings.Contains(caps, want) {
					t.Errorf("initialize %s", caps)
				}
			})
		}
	}
}

// TestQuestionsOnOneStream: with two calls in flight a question on a stream of one client reaches that client, and on
// one of several clients nobody.
func TestQuestionsOnOneStream(t *testing.T) {
	t.Parallel()
	for _, session := range []string{configs.SessionCaller, configs.SessionClient} {
		t.Run(session, func(t *testing.T) {
			t.Parallel()
			started, release := make(chan struct{}), make(chan struct{})
			s := asker()
			s.Tools = append(s.Tools, tool("wait", func(c *mcptest.Call) {
				close(started)
				<-release
				c.Text("done")
			}))
			cfg := settings()
			cfg.Type, cfg.Session = "stdio", session
			r := up(t, cfg, piped(s))
			call := func(name string, a *answering) string {
				reply, err := r.Call(t.Context(), &Call{Method: "tools/call", Params: params(t, `{"arguments":{"w":1.0}}`), Name: name,
					Caller: Caller{Key: "a", Session: "one", Capabilities: jsontext.Value(`{"elicitation":{}}`)}, Ask: a.ask})
				if err != nil {
					return fmt.Sprint(err)
				}
				return string(reply.Result)
			}
			waiting, asked := &answering{}, &answering{}
			done := make(chan string, 1)
			go func() { done <- call("wait", waiting) }()
			<-started
			told := call("ask", asked)
			close(release)
			<-done
			got := slices.Concat(waiting.got, asked.got)
			if session == configs.SessionClient && (len(got) != 1 || !strings.Contains(told, `"to"`)) {
				t.Errorf("told %s, asked %q", told, got)
			}
			if session == configs.SessionCaller && (len(got) != 0 || !strings.Contains(told, "-32601")) {
				t.Errorf("told %s, asked %q", told, got)
			}
		})
	}
}

// TestQuestionTakenBack: a server that takes its question back ends the asking, and gets no answer to it.
func TestQuestionTakenBack(t *testing.T) {
	t.Parallel()
	for _, tt := range transports {
		if tt.era == mcptest.Modern {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked, gone := make(chan struct{}), make(chan struct{})
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("ask", func(c *mcptest.Call) {
				go c.Ask("elicitation/create", `{"message":"?"}`)
				<-asked
				c.Notify("notifications/cancelled", `{"requestId":"nobody's"}`)
				c.Notify("notifications/cancelled", `{"requestId":1}`)
				<-gone
				c.Text("done")
			})}}
			cfg, opts := tt.connect(t, s)
			cfg.Session = configs.SessionCaller
			r := up(t, cfg, opts)
			_, err := r.Call(t.Context(), &Call{Method: "tools/call", Name: "ask", Caller: Caller{Key: "a"}, Ask: func(ctx context.Context, _ Question) Answer {
				close(asked)
				<-ctx.Done()
				close(gone)
				return Answer{}
			}})
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range s.Requests() {
				if got.Method == "" && got.Body != nil {
					t.Errorf("answered: %s", got.Body)
				}
			}
		})
	}
}

// TestTooManyQuestions: one more than are open at a time is refused, and the others are answered.
func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	open, release := make(chan struct{}, maxQuestions), make(chan struct{})
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("ask", func(c *mcptest.Call) {
		answers := make(chan string, maxQuestions)
		for range maxQuestions {
			go func() {
				result, _ := c.Ask("elicitation/create", `{}`)
				answers <- string(result)
			}()
		}
		for range maxQuestions {
			<-open
		}
		_, fault := c.Ask("elicitation/create", `{}`)
		close(release)
		for range maxQuestions {
			if got := <-answers; got != `{"ok":1}` {
				t.Errorf("answer %s", got)
			}
		}
		c.Text(string(fault))
	})}}
	r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
	reply, err := r.Call(t.Context(), &Call{Method: "tools/call", Name: "ask", Ask: func(ctx context.Context, _ Question) Answer {
		open <- struct{}{}
		<-release
		return Answer{Result: jsontext.Value(`{"ok":1}`)}
	}})
	if err != nil || !strings.Contains(string(reply.Result), "-32601") {
		t.Errorf("%v %v", reply, err)
	}
}

func params(t *testing.T, text string) wire.Object {
	t.Helper()
	obj, err := wire.ParseObject(jsontext.Value(text))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestServerEndsSubscription: a server on a stream may end a subscription without a result; it is asked for again.
func TestServerEndsSubscription(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{ListChanged: true, Tools: mcptest.Builtin("echo")}
	listens := make(chan string, 16)
	s.OnRequest = func(c *mcptest.Call) bool {
		if c.Method != "subscriptions/listen" {
			return false
		}
		c.Notify("notifications/cancelled", `{"requestId":"x"}`)
		c.Notify("notifications/cancelled", `{"requestId":`+c.ID+`}`)
		select {
		case listens <- c.ID:
		default:
		}
		return true
	}
	cfg := settings()
	cfg.Type = "stdio"
	r := up(t, cfg, piped(s))
	for range 2 {
		select {
		case <-listens:
		case <-time.After(patience):
			t.Fatal("no subscription")
		}
	}
	r.mustCall("echo", `{}`)
}

// TestQuestionOnTheSessionsStream: what a server over HTTP asks on the stream of a session that is kept apart is for the
// call in flight there; on a shared session it is refused at once, though the server has nothing else to say on a stream.
func TestQuestionOnTheSessionsStream(t *testing.T) {
	t.Parallel()
	for _, session := range []string{configs.SessionShared, configs.SessionCaller, configs.SessionClient} {
		t.Run(session, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: mcptest.Legacy}
			var answer string
			s.Tools = []mcptest.Tool{tool("ask", func(c *mcptest.Call) {
				_ = s.Await(c.Ctx, func() bool { return s.Streams() > 0 })
				// Broadcast makes notifications; an id behind the params turns one into a request.
				s.Broadcast("elicitation/create", `{"message":"?"},"id":"q-1"`)
				_ = s.Await(c.Ctx, func() bool {
					answer = string(last(s, "").Body)
					return strings.Contains(answer, `"id":"q-1"`)
				})
				c.Text("done")
			})}
			cfg := httpAt(s.StartHTTP(t).URL)
			cfg.Session = session
			r := up(t, cfg, Options{})
			a := &answering{}
			c := &Call{Method: "tools/call", Params: params(t, `{"arguments":{}}`), Name: "ask", Ask: a.ask,
				Caller: Caller{Key: "a", Session: "one", Capabilities: jsontext.Value(`{"elicitation":{}}`)}}
			if _, err := r.Call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			want := `"result":{"to":{"message":"?"}}`
			if session == configs.SessionShared {
				want = `"code":-32601`
			}
			if !strings.Contains(answer, want) {
				t.Errorf("answer %s", answer)
			}
		})
	}
}
