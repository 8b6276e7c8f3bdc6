package upstream

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// This file decides what is sent again. A request that may have reached the server is sent again only if
// running it twice does no harm; one that cannot have reached it always may be.

// tries is what one request may still cost beyond its first sending. It is used by one goroutine.
type tries struct {
	left   int                  // how often it may be sent again
	safe   bool                 // it may run twice
	budget *retryBudget         // of the upstream
	clock  *callClock           // of the call; nil where a context alone bounds it
	tell   func(failure.Reason) // told of every further try, before its pause; nil for nobody
	// over is told the same of tries inside of one round trip; nil for nobody.
	over func(failure.Reason)
	n    int // tries so far
}

// triesFor is what a request with a method may cost; safe says that it may run twice although it is more
// than a reading.
func (u *Upstream) triesFor(method string, safe bool, clock *callClock) *tries {
	u.budget.deposit()
	return &tries{left: u.cfg.Retries, safe: safe || onlyReads(method), budget: &u.budget, clock: clock, tell: func(reason failure.Reason) {
		u.log.Debug("a request is sent again", "method", method, "reason", string(reason))
	}}
}

// onlyReads reports whether a method changes nothing at the server, so that it may run any number of
// times.
func onlyReads(method string) bool {
	return strings.HasSuffix(method, "/list") ||
		slices.Contains([]string{"server/discover", "resources/read", "prompts/get", "completion/complete", "ping"}, method)
}

// The pauses before further tries: doubled each time, and spread so that many callers do not come back
// together.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// take allows one more try after a pause of at least atLeast, or refuses it: there are none left, the
// pause would outlast the call, or so many calls are being sent again already that more would only add to
// the load of a server in trouble.
func (t *tries) take(reason failure.Reason, atLeast time.Duration) (pause time.Duration, ok bool) {
	if t == nil || t.left == 0 {
		return 0, false
	}
	step := min(firstPause<<t.n, maxPause)
	pause = max(atLeast, step/2+rand.N(step))
	if t.clock != nil && pause >= t.clock.left() || !t.budget.withdraw() {
		return 0, false
	}
	t.left--
	t.n++
	if t.tell != nil {
		t.tell(reason)
	}
	return pause, true
}

// retryBudget keeps the further tries to a share of the calls: each call pays a part of one in, each try
// takes one out. It begins full.
type retryBudget struct {
	mu     sync.Mutex // guards tokens
	tokens float64
}

const (
	retryShare = 0.2 // tries for each call
	retryStock = 20  // what a quiet time leaves to be spent at once
)

func (b *retryBudget) deposit() {
	b.mu.Lock()
	b.tokens = min(b.tokens+retryShare, retryStock)
	b.mu.Unlock()
}

func (b *retryBudget) withdraw() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// sending is one HTTP request on its way, over all its tries.
type sending struct {
	tries   *tries        // nil for what is sent once
	body    []byte        // of the next try
	remake  func() []byte // makes the body of a further try; nil where it is the same
	trace   sendTrace
	reached bool          // a byte of one of the tries can have reached the server
	fresh   bool          // an idle connection had ended; the next one is new
	pause   time.Duration // before the next try
}

// sendingKey is where the context of a request has its sending.
type sendingKey struct{}

func sendingOf(ctx context.Context) *sending { return ctx.Value(sendingKey{}).(*sending) }

// newEngine makes what sends the requests of an upstream: the tries are go-retryablehttp's to run, and whether there is
// another one, and when, is for the sending of the request to say.
func newEngine(client *http.Client) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: client,
		// Of a sending's own, which are bounded, and one more for an idle connection that had ended.
		RetryMax:       math.MaxInt,
		RequestLogHook: func(_ retryablehttp.Logger, req *http.Request, _ int) { sendingOf(req.Context()).trace.begin() },
		CheckRetry: func(ctx context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			return sendingOf(ctx).again(resp, err), nil
		},
		Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration { return 0 },
		PrepareRetry: func(req *http.Request) error {
			s := sendingOf(req.Context())
			if !wait(req.Context(), s.pause) {
				return req.Context().Err()
			}
			if s.remake != nil {
				s.body = s.remake()
				req.ContentLength = int64(len(s.body))
			}
			return nil
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// onlyRoundTrips hides CloseIdleConnections from the engine, which would call it after every failure: the
// idle connections are those of other calls too.
type onlyRoundTrips struct{ http.RoundTripper }

// again decides whether the request goes out once more, now that one try of it has come to resp or err.
func (s *sending) again(resp *http.Response, err error) bool {
	s.pause = 0
	s.reached = s.reached || s.trace.sent()
	if err != nil && !s.trace.sent() && s.trace.reused && !s.fresh {
		s.fresh = true // an idle connection had ended, and nothing was sent
		return true
	}
	if s.tries == nil {
		return false
	}
	reason, atLeast := failure.Unavailable, time.Duration(0)
	switch {
	case err != nil && !s.trace.sent():
	case !s.tries.safe:
		return false
	case err != nil:
		reason = failure.ConnectionLost
	default:
		if reason = turnedAway(resp); reason == "" {
			return false
		}
		atLeast, _ = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	}
	pause, ok := s.tries.take(reason, atLeast)
	s.pause = pause
	if ok && s.tries.over != nil {
		s.tries.over(reason)
	}
	return ok
}

// turnedAway says why an answer with an HTTP status is worth another try, or "": servers and the proxies
// before them send these for what passes. An answer that is a message counts as the answer, whatever its
// status.
func turnedAway(resp *http.Response) failure.Reason {
	reason := failure.ConnectionLost
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		reason = failure.Overloaded
	case http.StatusServiceUnavailable:
		if resp.Header.Get("Retry-After") != "" {
			reason = failure.Overloaded
		}
	case http.StatusBadGateway, http.StatusGatewayTimeout:
	default:
		return ""
	}
	if mediaType(resp) == "application/json" {
		body, err := peekBody(resp)
		if m, perr := wire.Parse(body); err == nil && perr == nil && m.Kind == wire.KindResponse {
			return ""
		}
	}
	return reason
}
