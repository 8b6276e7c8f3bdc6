package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// newHTTPClient builds the client of one upstream. It has no overall timeout: calls and streams are
// bounded by their contexts.
func newHTTPClient(cfg *configs.Upstream) (*http.Client, *http.Transport) {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 30 * time.Second}
	tr := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newCountedConn(c), nil
		},
		TLSHandshakeTimeout:   cfg.ConnectTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		ReadBufferSize:        16 << 10,
		WriteBufferSize:       16 << 10,
		// A header block has no business being larger.
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: onlyRoundTrips{tr}, CheckRedirect: sameOrigin}, tr
}

// sameOrigin lets a redirect pass that keeps the method (307, 308) and the origin, as frameworks
// send for a missing slash. Any other would carry the configured credentials to somebody else.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > 3 || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || req.Method != first.Method {
		return http.ErrUseLastResponse
	}
	return nil
}

// bareError drops what *url.Error adds: the method and the URL, whose query may hold a secret.
func bareError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// do sends one HTTP request for r, which may be nil, as often as r may be sent, and sorts a failure to
// get any answer. r.sent is set as soon as there is a connection, which is before the first byte is
// written.
func (h *httpCore) do(ctx context.Context, method, target string, body []byte, header http.Header, r *request) (*http.Response, error) {
	for renewed := false; ; renewed = true {
		with, resp, err := h.send(ctx, method, target, body, header, r)
		if err != nil || renewed || !h.creds.renew(with, resp) {
			return resp, err
		}
		if r != nil {
			r.sent.Store(false) // what was sent was turned away
		}
	}
}

// send is do with one token.
func (h *httpCore) send(ctx context.Context, method, target string, body []byte, header http.Header, r *request) (with shown, _ *http.Response, _ error) {
	s := &sending{}
	if r != nil {
		s.tries = r.tries
		s.trace.onConn = func() { r.sent.Store(true) }
		s.trace.onReply = r.onReply
		if r.remake != nil && body != nil {
			s.remake = func() []byte { return wire.AppendRequest(nil, r.id, r.method, r.remake()) }
		}
	}
	var content any
	if s.body = body; body != nil {
		content = retryablehttp.ReaderFunc(func() (io.Reader, error) { return bytes.NewReader(s.body), nil })
	}
	sendCtx := context.WithValue(httptrace.WithClientTrace(ctx, s.trace.hooks()), sendingKey{}, s)
	req, err := retryablehttp.NewRequestWithContext(sendCtx, method, target, content)
	if err != nil {
		return with, nil, h.failure(failure.Unavailable, failure.NotStarted, err)
	}
	if req.Header, with, err = h.creds.put(ctx, header, r); err != nil {
		return with, nil, err
	}
	resp, err := h.engine.Do(req)
	if err != nil && r != nil && !s.reached && s.trace.unsent() {
		r.sent.Store(false)
	}
	switch {
	case err == nil:
		return with, resp, nil
	case ctx.Err() != nil:
		return with, nil, ctx.Err()
	case s.reached:
		return with, nil, h.failure(failure.ConnectionLost, failure.Unknown, bareError(err))
	}
	return with, nil, h.failure(failure.Unavailable, failure.NotStarted, bareError(err))
}

// httpCore is what the two HTTP transports share.
type httpCore struct {
	server     string
	engine     *retryablehttp.Client
	configured http.Header // the headers of the configuration
	creds      *credentials
	redact     *masker
	maxAnswer  int64
	lent       *buffers
}

func (h *httpCore) failure(r failure.Reason, o failure.Outcome, err error) error {
	return &failure.Failure{Server: h.server, Reason: r, Outcome: o, Cause: err}
}

// readBody reads an answer whole, up to max_answer bytes; head is a beginning of it that has been read already. lent
// is the buffer that it lies in, or nil.
func (h *httpCore) readBody(resp *http.Response, head []byte) (buf []byte, lent *buffer, err error) {
	from := io.Reader(resp.Body)
	if n := resp.ContentLength; n > int64(len(head)) && n <= h.maxAnswer {
		if lent = h.lent.take(n + 1); lent != nil {
			buf = lent.b
		} else {
			buf = make([]byte, 0, n+1)
		}
		buf = append(buf, head...)
	} else {
		if head != nil {
			buf = append(make([]byte, 0, len(head)+1), head...)
		}
		from = io.LimitReader(resp.Body, h.maxAnswer+1-int64(len(head)))
	}
	buf, err = appendAll(buf, from)
	if err == nil && int64(len(buf)) > h.maxAnswer {
		buf, err = nil, errTooLarge
	}
	return buf, lent, err
}

// peekBody reads the body of an answer up to a bound and puts it back.
func peekBody(resp *http.Response) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), resp.Body), resp.Body}
	return b, err
}

var errTooLarge = errors.New("the answer is larger than max_answer")

func appendAll(buf []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// statusFailure sorts an HTTP status that stands in place of an MCP answer.
func (h *httpCore) statusFailure(resp *http.Response) error {
	wait, hasWait := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	cause := &statusError{resp.StatusCode}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		return h.failure(failure.CredentialsRefused, failure.Refused, cause)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable && hasWait:
		return &failure.Failure{Server: h.server, Reason: failure.Overloaded, Outcome: failure.Refused, RetryAfter: wait, Cause: cause}
	case code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		// What a proxy says of the server behind it.
		return h.failure(failure.ConnectionLost, failure.Unknown, cause)
	case code == http.StatusRequestTimeout:
		return h.failure(failure.BadUpstreamAnswer, failure.Unknown, cause) // a proxy may say so of a server that took its time
	case code >= 300 && code < 400:
		outcome := failure.Refused
		if code < http.StatusTemporaryRedirect {
			// One that is to be followed by a GET is also what follows a POST that was acted on.
			outcome = failure.Unknown
		}
		return h.failure(failure.BadUpstreamAnswer, outcome, fmt.Errorf("%w, a redirect to another place; set url to where the server really is", cause))
	case code >= 400 && code < 500:
		return h.failure(failure.BadUpstreamAnswer, failure.Refused, cause)
	}
	return h.failure(failure.BadUpstreamAnswer, failure.Unknown, cause)
}

// statusError is an HTTP status that stands in place of an answer.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("the server answered HTTP %d", e.code) }

// httpStatus returns the status that err reports, or 0.
func httpStatus(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.code
	}
	return 0
}

// retryAfter reads a Retry-After header in either of its forms (RFC 9110, 10.2.3), capped at an hour.
func retryAfter(s string, now time.Time) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return time.Duration(min(n, 3600)) * time.Second, true
	}
	if at, err := http.ParseTime(s); err == nil {
		return min(max(at.Sub(now), 0), time.Hour), true
	}
	return 0, false
}

func mediaType(resp *http.Response) string {
	said := resp.Header.Get("Content-Type")
	if said == "application/json" || said == "text/event-stream" {
		return said
	}
	t, _, err := mime.ParseMediaType(said)
	if err != nil {
		return ""
	}
	return t
}
