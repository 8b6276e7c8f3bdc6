package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/ledger"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// Options are what a [Gateway] needs beside its configuration.
type Options struct {
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
	// Version is Headgate's own, as clients and servers are told.
	Version string
	// Embedded are the in-process servers by upstream id; their entries in the configuration name no
	// url and no command.
	Embedded map[string]upstream.ServeFunc
	// Telemetry receives traces and metrics; nil discards them.
	Telemetry *telemetry.Telemetry
	// Upstream holds the timings of upstreams for which the zero value is not right.
	Upstream upstream.Options
	// Count, if not nil, is told how often something happened to the calls of a tool, under its exposed name: one of
	// the Event constants. It is called on the path of calls and must not block.
	Count func(event, server, tool string, n int)
}

// Gateway is one Headgate. Run drives it; Handler and ServeStdio serve clients while it runs.
type Gateway struct {
	log      *slog.Logger
	info     jsontext.Value // Headgate's Implementation object
	opts     Options
	cursors  *cursors
	snapshot atomic.Pointer[snapshot]
	changed  chan struct{} // capacity 1: something a snapshot depends on has changed
	subs     hub           // whoever wants to hear of a changed list
	sessions *sessions
	drained  chan struct{} // closed by Drain
	drain    func()
	started  time.Time
	limiter  *authz.Limiter
	issuers  *http.Client // fetches the keys of issuers
	streams  tally        // GET streams and subscriptions over HTTP
	bodies   *bodies
	ledger   *ledger.Ledger
	auditor  atomic.Pointer[auditor]
	links    *links
	watched  tally         // resources that listeners watch
	bodyTime time.Duration // how long a client may take to send a request body
	callLog  *slog.Logger  // one line for each request
	inFlight atomic.Int64  // requests
	unwatch  func()        // takes the gauges of g off

	unsettled *unsettled
	notices   *notices
	sealer    *sealer
	talks     *talks
	tasks     *tasks
	drifts    driftQueue

	mu          sync.Mutex // guards the fields below
	cfg         *configs.Config
	access      *access
	fleet       map[memberKey]*member // serving
	next        map[memberKey]*member // replacing one of fleet as soon as it is settled
	rules       rulebook              // of the entries in force
	start       func(*member)         // starts a member; nil while Run is not running
	startAccess func(*access)         // the same for what an access runs
	ending      <-chan struct{}       // closed when Run ends what it runs; nil before it began
	retired     sync.WaitGroup        // members that still finish their calls
	rebuilt     chan struct{}         // closed and replaced with every snapshot
	settled     bool                  // once, every upstream had ended its first attempt to connect
}

// memberKey tells upstreams apart: teams may use one id for servers of their own.
type memberKey struct{ team, id string }

// member is an upstream and the goroutine that drives it.
type member struct {
	up     *upstream.Upstream
	entry  *configs.Upstream
	cancel context.CancelFunc
	done   chan struct{}
}

// entries are the upstreams of a configuration that are in service.
func entries(cfg *configs.Config) map[memberKey]*configs.Upstream {
	out := make(map[memberKey]*configs.Upstream)
	add := func(team string, ups map[string]*configs.Upstream) {
		for id, entry := range ups {
			if !entry.Disabled {
				out[memberKey{team, id}] = entry
			}
		}
	}
	add("", cfg.Upstreams)
	for name, t := range cfg.Teams {
		add(name, t.OwnUpstreams)
	}
	return out
}

// New makes a Gateway. It does no I/O. The error is of the rules of teams.
func New(cfg *configs.Config, opts Options) (*Gateway, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Version == "" {
		opts.Version = "dev"
	}
	g := &Gateway{
		log:      telemetry.For(opts.Logger, telemetry.LogGateway),
		info:     jsontext.Value(`{"name":"headgate","version":` + string(wire.AppendString(nil, opts.Version)) + `}`),
		opts:     opts,
		cursors:  newCursors(),
		changed:  make(chan struct{}, 1),
		callLog:  telemetry.For(opts.Logger, telemetry.LogAccess),
		drained:  make(chan struct{}),
		cfg:      cfg,
		fleet:    make(map[memberKey]*member),
		next:     make(map[memberKey]*member),
		rules:    make(rulebook),
		rebuilt:  make(chan struct{}),
		started:  time.Now(),
		limiter:  authz.NewLimiter(nil),
		ledger:   newLedger(cfg),
		issuers:  &http.Client{Timeout: 15 * time.Second},
		bodyTime: 30 * time.Second,
		bodies:   newBodies(cfg.Overload.Bodies),
		links:    newLinks(),

		unsettled: newUnsettled(),
		notices:   newNotices(opts.Logger, opts.Count),
		sealer:    newSealer(),
		talks:     newTalks(),
		tasks:     newTasks(),
		drifts:    make(driftQueue, maxWaiting),
	}
	g.sessions = newSessions(func(s *session) {
		g.sessionOver(s)
		g.opts.sessionOver(s)
	})
	g.drain = sync.OnceFunc(func() { close(g.drained) })
	var err error
	if g.access, err = g.newAccess(cfg, nil); err != nil {
		return nil, err
	}
	g.auditor.Store(newAuditor(cfg.Audit, g.log))
	for key, entry := range entries(cfg) {
		g.fleet[key] = g.newMember(cfg, key, entry)
	}
	g.rebuild()
	g.unwatch = g.opts.Telemetry.Watch(g.gauges)
	return g, nil
}

func (g *Gateway) newMember(cfg *configs.Config, key memberKey, entry *configs.Upstream) *member {
	o := g.opts.Upstream
	o.Logger = g.opts.Logger
	o.Telemetry = g.opts.Telemetry
	if key.team != "" {
		o.Logger = o.Logger.With("team", key.team)
	} else {
		o.Embedded = g.opts.Embedded[key.id]
	}
	o.OnChange = g.touch
	o.ClientInfo = g.info
	if o.StaleFor == 0 {
		o.StaleFor = cfg.Lists.StaleFor
	}
	if o.Refresh == 0 {
		o.Refresh = cfg.Lists.TTL
	}
	if o.SessionIdle == 0 {
		o.SessionIdle = cfg.SessionIdle
	}
	return &member{up: upstream.New(entry, o), entry: entry, done: make(chan struct{})}
}

// touch asks for a new snapshot.
func (g *Gateway) touch() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// settle is how long a change waits for others before a snapshot is built, so that a burst of them
// makes one.
const settle = 50 * time.Millisecond

// Run connects the upstreams and keeps the catalogue until ctx ends; then it ends every upstream and
// every process it started, and returns.
func (g *Gateway) Run(ctx context.Context) {
	// Upstreams outlive the moment at which clients are turned away, and end with Run.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	start := func(m *member) {
		ctx, cancel := context.WithCancel(base)
		m.cancel = cancel
		go func() {
			defer close(m.done)
			m.up.Run(ctx)
		}()
	}
	g.mu.Lock()
	g.start = start
	for _, m := range g.members() {
		start(m)
	}
	g.access.start(base)
	g.auditor.Load().start()
	g.ending = base.Done()
	g.startAccess = func(a *access) { a.start(base) }
	g.mu.Unlock()

	var watchers sync.WaitGroup
	watchers.Go(func() { g.watchDrift(base) })
	janitor := time.NewTicker(sessionSweep)
	defer janitor.Stop()
	for run := true; run; {
		select {
		case <-ctx.Done():
			run = false
		case <-g.changed:
			t := time.NewTimer(settle)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
			select {
			case <-g.changed:
			default:
			}
			g.rebuild()
		case <-janitor.C:
			g.sessions.sweep(g.config().SessionIdle)
		}
	}
	g.Drain()
	g.mu.Lock()
	g.start = nil
	all := g.members()
	access := g.access
	auditor := g.auditor.Load()
	g.mu.Unlock()
	g.talks.close()
	cancel()
	access.stop()
	for _, m := range all {
		<-m.done
	}
	g.retired.Wait()
	watchers.Wait()
	g.sessions.closeAll()
	auditor.stop()
	g.unwatch()
}

// members returns every member, serving or not yet. g.mu is held.
func (g *Gateway) members() []*member {
	return slices.Concat(slices.Collect(maps.Values(g.fleet)), slices.Collect(maps.Values(g.next)))
}

// config returns the configuration in force.
func (g *Gateway) config() *configs.Config { return g.snapshot.Load().cfg }

// rebuild builds a snapshot and puts it in place; whoever asked to hear of a changed list hears of
// it if the list differs.
func (g *Gateway) rebuild() {
	g.mu.Lock()
	for id, m := range g.next {
		if m.up.Settled() {
			if old := g.fleet[id]; old != nil {
				g.retire(old)
			}
			g.fleet[id] = m
			delete(g.next, id)
		}
	}
	settled := true
	current := entries(g.cfg)
	parts := make([]part, 0, len(g.fleet))
	for key, m := range g.fleet {
		// The entry in force, not the one the member was made from: they may differ in what the member
		// does not depend on, such as the prefix.
		entry := current[key]
		if entry == nil {
			entry = m.entry
		}
		parts = append(parts, part{team: key.team, entry: entry, rules: g.rules.of(key, entry), up: m.up})
		settled = settled && m.up.Settled()
	}
	g.rules.keep(current)
	s := build(g.cfg, g.access, parts)
	g.settled = g.settled || settled
	s.settled = g.settled && settled && len(g.next) == 0
	s.started = g.settled
	old := g.snapshot.Swap(s)
	close(g.rebuilt)
	g.rebuilt = make(chan struct{})
	g.mu.Unlock()

	if old == nil {
		return
	}
	known := make(map[upstream.Finding]bool, len(old.made))
	for _, f := range old.made {
		known[f] = true
	}
	for _, f := range s.made {
		if !known[f] {
			g.log.Warn("finding", "upstream", f.Server, "tool", f.Tool, "rule", f.Rule, "text", f.Text)
		}
	}
	// With teams every subscriber looks for itself whether its own list differs.
	if s.everything == nil || s.access != old.access || !s.everything.same(old.everything) {
		g.subs.tell()
	}
}

// Apply puts a new configuration in place. Upstreams whose entry is the same keep their connections;
// one that is gone or disabled leaves lists and calls at once, and its calls in flight may finish;
// one whose entry changed serves as it was until its successor has made its first attempt. The error is
// of the rules of teams or of the audit log's file; then nothing has changed.
func (g *Gateway) Apply(cfg *configs.Config) error {
	audits, err := g.nextAuditor(cfg.Audit)
	if err != nil {
		return err
	}
	g.mu.Lock()
	access, err := g.newAccess(cfg, g.access)
	if err != nil {
		audits.discard()
		g.mu.Unlock()
		return err
	}
	before := g.access
	g.access = access
	if g.startAccess != nil {
		g.startAccess(access)
	}
	current := entries(cfg)
	replaceAll := cfg.Lists.StaleFor != g.cfg.Lists.StaleFor || cfg.Lists.TTL != g.cfg.Lists.TTL
	for id, m := range g.next {
		// A replacement that the newer configuration overtakes never serves.
		g.retire(m)
		delete(g.next, id)
	}
	for key, m := range g.fleet {
		entry := current[key]
		if entry == nil {
			g.retire(m)
			delete(g.fleet, key)
			continue
		}
		idles := cfg.SessionIdle != g.cfg.SessionIdle && entry.Session != configs.SessionShared
		if replaceAll || idles || !sameConnection(m.entry, entry) {
			n := g.newMember(cfg, key, entry)
			g.next[key] = n
			g.startMember(n)
		}
	}
	for key, entry := range current {
		if g.fleet[key] == nil {
			m := g.newMember(cfg, key, entry)
			g.fleet[key] = m
			g.startMember(m)
		}
	}
	audits.commit()
	g.cfg = cfg
	g.mu.Unlock()
	g.ledger.KeepTexts(cfg.Failures.Texts)
	g.rebuild()
	before.stop()
	return nil
}

func (g *Gateway) startMember(m *member) {
	if g.start != nil {
		g.start(m)
	}
}

// sameConnection reports whether two entries differ at most in what concerns Headgate's side alone.
func sameConnection(a, b *configs.Upstream) bool {
	c := *b
	c.Prefix, c.Repeatable = a.Prefix, a.Repeatable
	c.Texts, c.Guidance, c.LeakFilter = a.Texts, a.Guidance, a.LeakFilter
	c.CheckArguments, c.CheckResults = a.CheckArguments, a.CheckResults
	c.GuardTools, c.GuardWindow = a.GuardTools, a.GuardWindow
	return a.Equal(&c)
}

// retire ends a member once its calls have finished, or after the drain time. g.mu is held.
func (g *Gateway) retire(m *member) {
	if g.start == nil || m.cancel == nil {
		return // never started, or Run ends it
	}
	limit := g.cfg.Drain
	g.retired.Go(func() {
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-m.up.Idle():
		case <-t.C:
		case <-m.done:
		}
		m.cancel()
		<-m.done
	})
}

// Drain tells every long-lived stream to end with its final message, and readiness to say no. Calls
// go on.
func (g *Gateway) Drain() {
	g.drain()
	g.talks.drain()
}

// WaitSettled waits until every upstream has ended its first attempt to connect, well or badly, or
// until ctx ends.
func (g *Gateway) WaitSettled(ctx context.Context) error {
	for {
		g.mu.Lock()
		rebuilt := g.rebuilt
		g.mu.Unlock()
		if g.snapshot.Load().settled {
			return nil
		}
		select {
		case <-rebuilt:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the upstreams: %w", ctx.Err())
		}
	}
}

// hub wakes subscribers. A subscriber that has not yet seen the last signal is not given another.
type hub struct {
	mu   sync.Mutex // guards subs
	subs map[chan struct{}]struct{}
}

func (h *hub) subscribe() (c chan struct{}, cancel func()) {
	c = make(chan struct{}, 1)
	h.mu.Lock()
	if h.subs == nil {
		h.subs = make(map[chan struct{}]struct{})
	}
	h.subs[c] = struct{}{}
	h.mu.Unlock()
	return c, func() {
		h.mu.Lock()
		delete(h.subs, c)
		h.mu.Unlock()
	}
}

func (h *hub) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
