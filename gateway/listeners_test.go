package gateway

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/upstream"
)

// restartable starts a server of a kind, which the returned function ends and starts anew, without what its clients
// have told it.
func restartable(t *testing.T, k *upstreamKind) (entryJSON string, o Options, again func()) {
	switch {
	case k.lines:
		restart := make(chan struct{}, 1)
		serve := serveLines(&k.server)
		o.Embedded = map[string]upstream.ServeFunc{k.id: func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				select {
				case <-restart:
					cancel()
				case <-ctx.Done():
				}
			})
			defer cancel()
			return serve(ctx, in, out)
		}}
		return embeddedEntry, o, func() { restart <- struct{}{} }
	case k.sse:
		h := k.server.StartSSE(t)
		return entry(h, `"type":"sse"`), o, func() { h.Stop(); h.Start() }
	}
	h := k.server.StartHTTP(t)
	return entry(h), o, func() { h.Stop(); k.server.Forget(); h.Start() }
}

// TestUpdatesFromEveryKind subscribes clients of every kind to a resource of servers of every kind, fifty and more in
// all: each server has one subscription, an update reaches all of them with what is unknown in it, a server that comes
// back has one subscription again, with one update for what may have been missed, and none after the last client is
// gone.
func TestUpdatesFromEveryKind(t *testing.T) {
	for _, k := range upstreamKinds() {
		t.Run(k.id, func(t *testing.T) {
			t.Parallel()
			s := watchable(&k.server)
			conf, o, again := restartable(t, k)
			g := launch(t, parseConfig(t, map[string]string{k.id: conf}), o)
			// A modern server has a stream for changed lists, and one for the resource.
			streams := 1
			if s.Era == mcptest.Legacy {
				awaitServer(t, s, "the stream", func() bool { return s.Streams() == streams })
			} else {
				streams = 2
			}
			list := g.listeners("x://a")
			var mu sync.Mutex // guards list
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					st := g.listenStream(fmt.Sprint(i), `{"resourceSubscriptions":["x://a"]}`)
					if got := st.next(); at(t, got, "params", "notifications") != `{"resourceSubscriptions":["x://a"]}` {
						t.Errorf("%d: %s", i, got)
					}
					mu.Lock()
					defer mu.Unlock()
					list = append(list, listener{fmt.Sprint("modern http, ", i), st.next, fmt.Sprintf(`"io.modelcontextprotocol/subscriptionId":%d}`, i), st.close})
				})
			}
			wg.Wait()
			if n := subscriptions(s, "x://a"); n != 1 {
				t.Errorf("%d subscriptions, want 1", n)
			}
			s.Broadcast("notifications/resources/updated", `{"uri":"x://a","z":1.0}`)
			hear(t, "an update", list, "x://a", `"z":1.0`)

			again()
			hear(t, "after a restart", list, "x://a", "")
			awaitServer(t, s, "the subscription", func() bool { return subscriptions(s, "x://a") == 2 && s.Streams() == streams })
			// What may have been missed is told of too, and may stand for an update of the same time, so that is repeated.
			done := make(chan struct{})
			wg.Go(func() {
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for {
					s.Broadcast("notifications/resources/updated", `{"uri":"x://a","z":2.0}`)
					select {
					case <-tick.C:
					case <-done:
						return
					case <-t.Context().Done():
						return
					}
				}
			})
			for _, l := range list {
				for got := l.next(); !strings.Contains(got, `"z":2.0`); got = l.next() {
					if at(t, got, "params", "uri") != `"x://a"` {
						t.Errorf("%s heard %s", l.name, got)
					}
				}
			}
			close(done)
			wg.Wait()
			if n := subscriptions(s, "x://a"); n != 2 {
				t.Errorf("%d subscriptions after a restart, want one more", n)
			}

			for _, l := range list {
				l.close()
			}
			awaitServer(t, s, "the end of the subscription", func() bool {
				if s.Era == mcptest.Legacy {
					return s.Count("resources/unsubscribe") == 1
				}
				return s.Streams() == 1 // the one for changed lists
			})
			if n := g.watched.count(); n != 0 {
				t.Errorf("%d are still counted", n)
			}
		})
	}
}
