package upstream

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/mcptest"
)

// TestOneCallLosesTheConnectionOfAnother: why a shared connection was lost is the affair of the call that lost
// it. Another one in flight on it was sent, so that it is neither sent again nor told that it was not
// started.
func TestOneCallLosesTheConnectionOfAnother(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer  func(w http.ResponseWriter)
		reason  failure.Reason
		outcome failure.Outcome
	}{
		"the session is not known": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, failure.BadUpstreamAnswer, failure.Refused},
		"nobody listens":           {nil, failure.Unavailable, failure.NotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{tool("wait", func(c *mcptest.Call) { <-c.Ctx.Done() }), tool("fail", nil)}}
			s.OnHTTP = func(w http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if tt.answer == nil || !bytes.Contains(body, []byte(`"name":"fail"`)) {
					return false
				}
				tt.answer(w)
				return true
			}
			h := s.StartSSE(t)
			cfg := httpAt(h.URL)
			cfg.Type = "sse"
			r := up(t, cfg, Options{})
			var waiting sync.WaitGroup
			waiting.Go(func() {
				_, err := r.call("wait", `{}`)
				wantFailure(t, err, failure.ConnectionLost, failure.Unknown)
			})
			awaitAt(t, s, "the call", func() bool { return s.Executions("wait") == 1 })
			if tt.answer == nil {
				h.Stop()
			}
			_, err := r.call("fail", `{}`)
			wantFailure(t, err, tt.reason, tt.outcome)
			waiting.Wait()
			if n := s.Executions("wait"); n != 1 {
				t.Errorf("the call in flight was run %d times", n)
			}
		})
	}
}
