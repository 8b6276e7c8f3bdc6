package oauth

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/secret"
)

// Config is one client of one authorization server, and what its tokens are for.
type Config struct {
	// TokenURL is the token endpoint. It is the operator's word and may be anywhere; empty means that it
	// is found by the metadata of Resource.
	TokenURL string
	// ClientID and ClientSecret are the client's credentials.
	ClientID     string
	ClientSecret secret.Text
	// Scopes are asked for with every token; nil for none.
	Scopes []string
	// Audience is what the tokens are for, as the authorization server knows it; "" leaves Resource to say it.
	Audience string
	// Resource is the URL of the server that the tokens are for, without query and fragment.
	Resource string
	// Challenge sends Resource a request without a token and returns the WWW-Authenticate headers of the
	// answer; nil if there are none. It is needed where TokenURL is empty.
	Challenge func(ctx context.Context) []string
	// AllowedHosts are the hosts, with or without port, that learned URLs may lead to wherever they are, and
	// by http too.
	AllowedHosts []string
}

const (
	// requestTime bounds one search for a token, discovery included.
	requestTime = 20 * time.Second
	// maxTokens bounds the callers whose tokens are kept.
	maxTokens = 4096
	// A refusal is remembered for refusedFirst, and twice as long every time, up to refusedMost.
	refusedFirst = 30 * time.Second
	refusedMost  = 5 * time.Minute
	// The same for an endpoint that cannot be reached.
	unreachedFirst = time.Second
	unreachedMost  = 8 * time.Second
)

// Tokens gets tokens and keeps them. Its methods may be called at any time from any goroutine.
type Tokens struct {
	cfg     Config
	guard   *guard
	learned *http.Client // for URLs that were learned
	given   *http.Client // for TokenURL
	idle    func()

	ctx     context.Context // of requests; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and every entry
	at      endpoint   // url is empty until it was found
	client  pause      // refusals of the client itself
	entries map[key]*entry
	order   *list.List // of *entry, the latest used first; without that of the client itself
	closed  bool
}

// key is the digest of a token to exchange; the zero key stands for the client itself.
type key [sha256.Size]byte

// entry is what is known of one token.
type entry struct {
	key     key
	element *list.Element // nil for the client's own
	token   token
	before  secret.Text // what the token was before, which logs must not show either
	renew   time.Time   // when the token is to be replaced, a little before it expires
	flight  *flight     // the request under way; nil for none
	refused pause       // of the authorization server
	dropped pause       // of the server that the token is for
}

// flight is a request that several may wait for. The other fields are set before done is closed.
type flight struct {
	done  chan struct{}
	token secret.Text
	err   *Error
}

// pause is a time in which something is not tried again, longer at every repetition.
type pause struct {
	until time.Time
	last  time.Duration
	err   *Error
}

func (p *pause) begin(err *Error, first, most time.Duration) {
	if p.err != nil && p.err.Refused != err.Refused {
		p.last = 0
	}
	p.last = min(max(2*p.last, first), most)
	p.until, p.err = time.Now().Add(p.last), err
}

func (p *pause) over() bool { return !time.Now().Before(p.until) }

// New makes Tokens. It does no I/O. Close ends it.
func New(cfg Config) *Tokens {
	t := &Tokens{cfg: cfg, guard: newGuard(cfg.AllowedHosts), entries: make(map[key]*entry), order: list.New()}
	var tr *http.Transport
	t.learned, tr = t.guard.client()
	plain := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
		IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10}
	t.given = &http.Client{Transport: plain, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.idle = func() {
		tr.CloseIdleConnections()
		plain.CloseIdleConnections()
	}
	t.at = endpoint{url: cfg.TokenURL, client: t.given}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Close ends the requests under way and waits for them. Nobody gets a new token after it.
func (t *Tokens) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
	t.idle()
}

// Own returns a token of the client itself. Errors are *Error, or ctx's.
func (t *Tokens) Own(ctx context.Context) (secret.Text, error) { return t.get(ctx, secret.Text{}) }

// For returns what a caller's token was exchanged for. Errors are *Error, or ctx's.
func (t *Tokens) For(ctx context.Context, subject secret.Text) (secret.Text, error) {
	if subject.IsZero() {
		return secret.Text{}, &Error{Refused: true, err: errors.New("the caller has no token that could be exchanged")}
	}
	return t.get(ctx, subject)
}

func keyOf(subject secret.Text) key {
	if subject.IsZero() {
		return key{}
	}
	return sha256.Sum256([]byte(subject.Reveal()))
}

func (t *Tokens) get(ctx context.Context, subject secret.Text) (secret.Text, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return secret.Text{}, unavailable("no more tokens are asked for")
	}
	e := t.entry(keyOf(subject))
	now := time.Now()
	if !e.token.value.IsZero() && now.Before(e.renew) {
		defer t.mu.Unlock()
		return e.token.value, nil
	}
	f := e.flight
	if f == nil {
		err := e.refused.err
		stop := !e.refused.over()
		if !t.client.over() {
			stop, err = true, t.client.err
		}
		if stop {
			defer t.mu.Unlock()
			return e.fallback(now, err)
		}
		f = &flight{done: make(chan struct{})}
		e.flight = f
		t.running.Go(func() { t.fly(e, f, subject) })
	}
	t.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return secret.Text{}, ctx.Err()
	}
	if f.err != nil {
		return secret.Text{}, f.err
	}
	return f.token, nil
}

// fallback is what there is while no new token can be had: the old one, to its very end.
func (e *entry) fallback(now time.Time, err *Error) (secret.Text, error) {
	if !err.Refused && !e.token.value.IsZero() && now.Before(e.token.expiry) {
		return e.token.value, nil
	}
	return secret.Text{}, err
}

// entry returns what is known under a key, and makes room for it. t.mu is held.
func (t *Tokens) entry(k key) *entry {
	if e := t.entries[k]; e != nil {
		if e.element != nil {
			t.order.MoveToFront(e.element)
		}
		return e
	}
	e := &entry{key: k}
	t.entries[k] = e
	if k == (key{}) {
		return e
	}
	e.element = t.order.PushFront(e)
	if t.order.Len() > maxTokens {
		last := t.order.Remove(t.order.Back()).(*entry)
		delete(t.entries, last.key)
	}
	return e
}

// fly gets one token, whoever waits for it.
func (t *Tokens) fly(e *entry, f *flight, subject secret.Text) {
	ctx, cancel := context.WithTimeout(t.ctx, requestTime)
	defer cancel()
	t.mu.Lock()
	at := t.at
	t.mu.Unlock()
	var err *Error
	if at.url == "" {
		at, err = t.discover(ctx)
	}
	var tok token
	if err == nil {
		tok, at.style, err = t.request(ctx, at, subject)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(f.done)
	e.flight = nil
	now := time.Now()
	if err == nil {
		t.at, t.client, e.refused = at, pause{}, pause{}
		if !e.token.value.IsZero() {
			e.before = e.token.value
		}
		e.token, e.renew = tok, tok.expiry.Add(-margin(tok.expiry.Sub(now)))
		f.token = tok.value
		return
	}
	switch {
	case err.Client:
		t.client.begin(err, refusedFirst, refusedMost)
	case err.Refused:
		e.refused.begin(err, refusedFirst, refusedMost)
	default:
		e.refused.begin(err, unreachedFirst, unreachedMost)
	}
	if err.Refused || t.cfg.TokenURL == "" {
		t.at = endpoint{url: t.cfg.TokenURL, client: t.given} // what was learned may not hold any more
	}
	if old, failed := e.fallback(now, err); failed == nil {
		f.token = old
	} else {
		f.err = err
	}
}

// margin is how long before its end a token of some lifetime is replaced.
func margin(life time.Duration) time.Duration { return min(30*time.Second, life/5) }

// Drop takes a token out of use that the server it is for has refused, and reports whether it is worth
// sending the request again with another: not if a new one was refused just now.
func (t *Tokens) Drop(subject, refused secret.Text) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[keyOf(subject)]
	if e == nil || e.token.value.Reveal() != refused.Reveal() {
		return true // somebody was faster
	}
	if !e.dropped.over() {
		return false
	}
	if time.Since(e.dropped.until) > refusedMost {
		e.dropped = pause{} // an old story
	}
	e.dropped.begin(&Error{Refused: true}, refusedFirst, refusedMost)
	e.token, e.before = token{}, refused
	return true
}

// Mask replaces the tokens that are kept in a text for logs.
func (t *Tokens) Mask(s string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		for _, v := range []secret.Text{e.token.value, e.before} {
			if !v.IsZero() {
				s = strings.ReplaceAll(s, v.Reveal(), "***")
			}
		}
	}
	return s
}
