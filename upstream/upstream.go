package upstream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/telemetry"
)

// Options are what an [Upstream] needs beside its configuration. The zero value works.
type Options struct {
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
	// Telemetry receives traces and metrics; nil discards them.
	Telemetry *telemetry.Telemetry
	// OnChange is called after the catalogue or the state changed. It must not block.
	OnChange func()
	// ClientInfo is the Implementation object that Headgate shows to servers.
	ClientInfo jsontext.Value
	// Embedded runs the server in process instead of what the configuration names.
	Embedded ServeFunc
	// StaleFor is how long the catalogue of a server that is gone stays listed; 0 means 10 minutes.
	StaleFor time.Duration
	// Refresh is how often the catalogue of a server is read again that neither gives a ttlMs nor
	// announces changes; 0 means 5 minutes.
	Refresh time.Duration
	// ListTimeout bounds the reading of a whole list, all its pages together, instead of what the
	// configuration says; 0 leaves it to that.
	ListTimeout time.Duration
	// ProbeTimeout is how long a server on a stream may stay silent on server/discover before it is
	// sent an initialize as well; 0 means 3 seconds.
	ProbeTimeout time.Duration
	// HTTPProbeTimeout is the same over HTTP; 0 means 5 seconds.
	HTTPProbeTimeout time.Duration
	// RereadGap is the least time between two readings of the catalogue that the server causes by
	// announcements; 0 means 1 second.
	RereadGap time.Duration
	// MaxBackoff caps the pause between attempts to connect; 0 means 30 seconds.
	MaxBackoff time.Duration
	// OneClient says that all calls are of one client, so that a server may ask it on any stream.
	OneClient bool
	// SessionIdle is how long a session that belongs to one caller or client stays open without a call; 0
	// means 30 minutes.
	SessionIdle time.Duration

	// exitGrace is how long a broken pipe waits for the exit that explains it, and lastWords how long an exit
	// waits for the last of what the process wrote; 0 means half a second, and a fifth of one.
	exitGrace, lastWords time.Duration
}

func (o *Options) setDefaults(cfg *configs.Upstream) {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.ClientInfo == nil {
		o.ClientInfo = jsontext.Value(`{"name":"headgate","version":"0"}`)
	}
	def(&o.StaleFor, 10*time.Minute)
	def(&o.Refresh, 5*time.Minute)
	def(&o.ListTimeout, cfg.ListTimeout)
	def(&o.ListTimeout, 30*time.Second)
	def(&o.ProbeTimeout, 3*time.Second)
	def(&o.HTTPProbeTimeout, 5*time.Second)
	def(&o.RereadGap, time.Second)
	def(&o.MaxBackoff, 30*time.Second)
	def(&o.SessionIdle, 30*time.Minute)
	def(&o.exitGrace, 500*time.Millisecond)
	def(&o.lastWords, 200*time.Millisecond)
}

// Upstream is one server. Run drives it; all other methods may be called at any time from any
// goroutine.
type Upstream struct {
	cfg    *configs.Upstream
	opts   Options
	log    *slog.Logger
	redact *masker
	creds  *credentials
	apart  apart                  // sessions of single callers
	parent *Upstream              // of such a session, whose catalogue is the parent's; nil otherwise
	holder atomic.Pointer[Caller] // whose session it is; nil otherwise
	ids    atomic.Int64           // request ids, unique over all links

	catalogue atomic.Pointer[Catalogue]
	changed   chan struct{} // capacity 1: the server announced a change
	gap       chan struct{} // capacity 1: announcements may have been missed
	kick      chan struct{} // capacity 1: somebody needs the server now
	logLevel  atomic.Int32  // legacy: the level set on the current link, as an index into logLevels; -1 for none

	watches  *watches
	breaker  *breaker
	slots    *slots
	budget   retryBudget
	answered atomic.Int64 // when a call was last answered, in Unix nanoseconds
	restarts atomic.Int64 // connections lost that had been up
	alarm    func(d time.Duration, f func()) alarm

	knownLegacy bool     // owned by Run: ask initialize first
	atOnce      *limiter // attempts without a pause
	stubborn    stubborn
	doubts      *limiter // how often a call has the era of the server verified

	mu        sync.Mutex // guards the fields below
	state     State
	link      *link
	attempts  int             // attempts to connect that ended
	lastEnd   time.Time       // when the last one ended
	lastErr   error           // why the server is not up; nil when it is
	since     time.Time       // when state was entered
	moved     chan struct{}   // closed and replaced on every change of the above
	refreshes []chan struct{} // whoever waits for the catalogue to be read again
	calls     int             // in flight
	idle      chan struct{}   // closed when calls reaches 0; nil while nobody asks
}

// State is what an upstream is doing.
type State string

// The states of an upstream.
const (
	Connecting State = "connecting" // an attempt is under way
	Up         State = "up"         // calls are sent
	Down       State = "down"       // the last attempt failed; the next one waits
	Stopped    State = "stopped"    // Run has not begun or has returned
)

// New validates nothing that configs has not, and does no I/O.
func New(cfg *configs.Upstream, opts Options) *Upstream {
	u := newUpstream(cfg, opts)
	u.creds = newCredentials(u)
	u.redact = &masker{redactor(cfg), u.creds.tokens}
	return u
}

// newUpstream makes an Upstream without credentials and masker.
func newUpstream(cfg *configs.Upstream, opts Options) *Upstream {
	opts.setDefaults(cfg)
	return &Upstream{
		cfg:     cfg,
		opts:    opts,
		log:     telemetry.For(opts.Logger, telemetry.LogUpstream).With("upstream", cfg.ID),
		changed: make(chan struct{}, 1),
		gap:     make(chan struct{}, 1),
		kick:    make(chan struct{}, 1),
		state:   Stopped,
		moved:   make(chan struct{}),
		atOnce:  newLimiter(5, 10*time.Second),
		doubts:  newLimiter(1, time.Minute),
		watches: newWatches(),
		breaker: newBreaker(cfg.Breaker),
		slots:   newSlots(cfg.Concurrent, cfg.QueueTimeout),
		budget:  retryBudget{tokens: retryStock},
		alarm:   func(d time.Duration, f func()) alarm { return time.AfterFunc(d, f) },
	}
}

// redactor masks the configured secrets in whatever a server echoes.
func redactor(cfg *configs.Upstream) *strings.Replacer {
	const shortest = 6 // anything shorter would mask ordinary words
	secrets := make(map[string]bool)
	add := func(v string) {
		quoted := strconv.Quote(v) // as texts of ours show it
		for _, s := range []string{v, quoted[1 : len(quoted)-1]} {
			if len(s) >= shortest {
				secrets[s] = true
			}
		}
	}
	for _, v := range cfg.Secrets() {
		add(v)
	}
	// The longest goes first: a secret may begin with another.
	var pairs []string
	for _, s := range slices.SortedFunc(maps.Keys(secrets), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	}) {
		pairs = append(pairs, s, "***")
	}
	return strings.NewReplacer(pairs...)
}

// ID returns the server's id.
func (u *Upstream) ID() string { return u.cfg.ID }

// Config returns the settings that u was made from; they must not be changed.
func (u *Upstream) Config() *configs.Upstream { return u.cfg }

// Catalogue returns what the server offered when it was last asked, or nil when it never answered or
// has been gone for longer than StaleFor.
func (u *Upstream) Catalogue() *Catalogue {
	if u.parent != nil {
		return u.parent.Catalogue()
	}
	return u.catalogue.Load()
}

// Status is a snapshot of an upstream's state for operators.
type Status struct {
	ID        string         `json:"id"`
	Transport string         `json:"transport"` // http, sse, stdio or embedded
	State     State          `json:"state"`
	Since     time.Time      `json:"since"`
	Era       string         `json:"era,omitempty"`
	Version   string         `json:"version,omitempty"`
	Tools     int            `json:"tools"`
	Prompts   int            `json:"prompts"`
	Resources int            `json:"resources"`
	Templates int            `json:"templates"` // of resources
	Findings  int            `json:"findings"`
	Reason    failure.Reason `json:"reason,omitempty"`  // why it is not up
	Error     string         `json:"error,omitempty"`   // the same in words, without secrets
	Breaker   string         `json:"breaker,omitempty"` // closed, open or half_open; "" where there is none
	InFlight  int            `json:"inFlight"`          // calls
	Waiting   int64          `json:"waiting"`           // calls that wait for their turn
	Tries     int            `json:"tries"`             // attempts to connect that ended
	Restarts  int64          `json:"restarts"`          // connections lost that had been up
	// Sessions are those that belong to one caller or client each.
	Sessions int `json:"sessions,omitempty"`
}

// Status returns the current state.
func (u *Upstream) Status() Status {
	u.mu.Lock()
	s := Status{ID: u.cfg.ID, Transport: u.cfg.Type, State: u.state, Since: u.since, Tries: u.attempts, Restarts: u.restarts.Load(),
		Breaker: u.breaker.state(), InFlight: u.calls, Waiting: u.slots.waiting.Load()}
	if u.opts.Embedded != nil {
		s.Transport = "embedded"
	}
	if u.lastErr != nil {
		s.Reason = failure.Unavailable
		if f := failure.As(u.lastErr); f != nil {
			s.Reason = f.Reason
		}
		s.Error = u.redact.Replace(unprefixed(u.lastErr))
	}
	if u.link != nil {
		s.Era, s.Version = u.link.peer.era.String(), u.link.peer.version
	}
	u.mu.Unlock()
	if c := u.Catalogue(); c != nil {
		s.Tools, s.Findings = len(c.Tools), len(c.Findings)
		s.Prompts, s.Resources, s.Templates = len(c.Prompts.Items), len(c.Resources.Items), len(c.Templates.Items)
	}
	s.Sessions = u.apart.count()
	return s
}

// Settled reports whether the first attempt to connect has ended, well or badly, and where it ended
// well the catalogue has been read.
func (u *Upstream) Settled() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.attempts > 0
}

func (u *Upstream) events() events {
	if u.parent != nil {
		return u.parent.events()
	}
	return events{listChanged: func() { signal(u.changed) }, updated: u.watches.updated}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// transition changes the state and wakes whoever waits for it.
func (u *Upstream) transition(f func()) {
	u.mu.Lock()
	before := u.state
	f()
	if u.state != before {
		u.since = time.Now()
	}
	close(u.moved)
	u.moved = make(chan struct{})
	u.mu.Unlock()
	u.opts.OnChange()
}

// Run connects and keeps connected until ctx ends, and then closes everything it opened. It never
// fails: a server that cannot be reached is tried again, with a capped and jittered pause.
func (u *Upstream) Run(ctx context.Context) {
	defer u.creds.close()
	defer u.apart.begin(ctx, u.opts.SessionIdle)()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 200 * time.Millisecond
	pause.MaxInterval = u.opts.MaxBackoff
	stale := time.NewTimer(u.opts.StaleFor)
	defer stale.Stop()
	probing, stopProbing := context.WithCancel(ctx)
	var prober sync.WaitGroup
	prober.Go(func() { u.probeBreaker(probing) })
	prober.Go(func() { u.keepWatches(probing) })
	defer prober.Wait()
	defer stopProbing()
	defer u.transition(func() { u.state, u.link = Stopped, nil })
	for ctx.Err() == nil {
		u.transition(func() { u.state = Connecting })
		began := time.Now()
		l, err := u.connect(ctx)
		if err == nil {
			err = u.serve(ctx, l, stale)
			if time.Since(began) > 10*time.Second {
				pause.Reset()
			}
		} else if f := failure.As(err); u.cfg.Type == "stdio" && !u.knownLegacy && f != nil && f.Reason == failure.ConnectionLost {
			u.knownLegacy = true // it died of the question; do not ask again
		} else {
			u.knownLegacy = false
		}
		if ctx.Err() != nil {
			return
		}
		u.report(err)
		wait := pause.NextBackOff()
		if refusesCredentials(err) {
			// Asking again changes nothing until somebody acts, and may lock an account.
			wait = max(wait, min(5*time.Minute, 10*u.opts.MaxBackoff))
		}
		var lost *lostError
		if errors.As(err, &lost) && lost.atOnce {
			wait = 0
		}
		u.transition(func() {
			u.lastErr, u.lastEnd, u.link = err, time.Now(), nil
			if wait > 0 {
				u.state = Down
				u.attempts++
			} else {
				u.state = Connecting
			}
		})
		if !u.sleep(ctx, wait, stale) {
			return
		}
	}
}

// sleep waits for the next attempt; somebody who needs the server ends the wait early.
func (u *Upstream) sleep(ctx context.Context, wait time.Duration, stale *time.Timer) bool {
	if wait == 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-u.kick:
			return true
		case <-stale.C:
			u.expire()
		case <-ctx.Done():
			return false
		}
	}
}

// expire drops the catalogue of a server that has been gone for too long.
func (u *Upstream) expire() {
	if u.catalogue.Swap(nil) != nil {
		u.log.Warn("the server has been gone for too long; its tools are withdrawn", "after", u.opts.StaleFor)
		u.opts.OnChange()
	}
}

func (u *Upstream) report(err error) {
	u.mu.Lock()
	first := u.lastErr == nil || u.lastErr.Error() != err.Error()
	u.mu.Unlock()
	level := slog.LevelDebug
	if first {
		level = slog.LevelWarn // say it once, not at every attempt
	}
	u.log.Log(context.Background(), level, "the server is not available", "error", u.redact.Replace(unprefixed(err)))
}

// unprefixed words an error for a place that names the upstream already.
func unprefixed(err error) string {
	if f := failure.As(err); f != nil && f.Cause != nil {
		return string(f.Reason) + ": " + f.Cause.Error()
	}
	return err.Error()
}

// lostError says that a link that was up ended.
type lostError struct {
	err    error
	atOnce bool // the next attempt does not wait
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// Redact masks the configured secrets of this upstream in a text for logs.
func (u *Upstream) Redact(s string) string { return u.redact.Replace(s) }
