package upstream

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
)

// Call is one request of a client to this server.
type Call struct {
	Method string
	Params wire.Object // the client's params; nil when it sent none
	Meta   wire.Object // the members of its params._meta; nil if they have not been read
	Name   string      // the server's own name of what is called; it replaces params.name; "" for none
	// Edits are further members of params that this hop has another value for: the uri of a resource, or
	// the ref of a completion.
	Edits []wire.Edit
	// Verbatim says that the method is an extension's, of which nothing is known.
	Verbatim bool
	Tool     *Tool // the tool called, for Mcp-Param-* headers; nil when the method calls none
	// Repeatable says that the call may run twice without harm, so that it may be sent again after it may
	// have reached the server.
	Repeatable bool

	// Capabilities are the client's, as a JSON object; nil when it has none that this hop may use.
	Capabilities jsontext.Value
	// LogLevel is the least level of log messages that the client wants; "" for none.
	LogLevel string
	// Progress is the client's progress token as JSON; nil when it wants no progress.
	Progress jsontext.Value
	// Header holds the client's HTTP headers, of which only the configured ones are forwarded.
	Header http.Header
	// Caller is on whose behalf the call is made.
	Caller Caller
	// Account is the client's trace context, and takes down where the time went; nil for none.
	Account *telemetry.Account
	// Ask answers a request that the server makes of the client during the call. It may block until ctx ends, which it
	// does when the call ends or the server takes the question back. nil refuses. The time limit for a step does not
	// count meanwhile; the one over all does.
	Ask func(ctx context.Context, q Question) Answer
	// Notify receives progress and log notifications of the call in order, with the client's own
	// progress token. It must not block. nil drops them.
	Notify func(method string, params jsontext.Value)
	// Into takes a result that is large while it is still coming in, where the transport can do that; nil has every result
	// held in the Reply. Once its Begin has returned true, the call is not sent again whatever comes of it.
	Into Sink
}

// Reply is what the server answered: exactly one of Result and Error is set, as the server wrote it.
type Reply struct {
	Result jsontext.Value
	Error  jsontext.Value
	Era    Era // of the server
	// Closed is Result with one more brace behind it, or nil: see wire.Message.
	Closed []byte
	// Plain says that Result is known to have no member isError with the value true.
	Plain bool
	// Passed says that the call's Sink has taken the result, all but Last, its end, without the closing brace. Result is its
	// outline then, which has the same members, but those with large values with an empty one of their kind. Links are
	// the URIs that its content refers to. Last may be appended to.
	Passed bool
	Last   []byte
	Links  []string

	buffer *buffer // that the bytes lie in; nil if it is not to be given back
}

const (
	// waitForLink is how long a call waits for a server that is being connected again.
	waitForLink = 5 * time.Second
	// kickGap is how long after a failed attempt to connect a call may ask for another one.
	kickGap = time.Second
)

// Call sends one request and returns the server's answer. The server runs it at most once: it is sent
// again only if it did not reach the server, if the server refused it for a reason that concerns the
// hop alone, or if running it twice does no harm, and then as often as the configuration allows. Errors
// are *failure.Failure, or ctx's when ctx ended first.
func (u *Upstream) Call(ctx context.Context, c *Call) (*Reply, error) {
	defer u.begin()()
	done, wait, ok := u.breaker.enter()
	if !ok {
		u.opts.Telemetry.Refused(ctx, u.cfg.ID, telemetry.BreakerState(u.breaker.state()))
		return nil, &failure.Failure{Server: u.cfg.ID, Reason: failure.BreakerOpen, Outcome: failure.NotStarted, RetryAfter: wait}
	}
	hop := errNeutral
	defer func() { u.judge(done, hop) }()
	queued := time.Now()
	release, waited, err := u.slots.take(ctx, u.cfg.ID)
	if waited {
		u.opts.Telemetry.Queued(ctx, c.Account, u.cfg.ID, time.Since(queued))
	}
	if err != nil {
		return nil, err
	}
	defer release()
	began := time.Now()
	callCtx, clock := u.startClock(ctx)
	defer clock.stop()
	k := &calling{Call: c, clock: clock, tries: u.triesFor(c.Method, c.Repeatable, clock)}
	reply, err := u.attempt(callCtx, k)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if f := failure.As(err); f != nil && f.Outcome != failure.Unknown && k.lost != nil {
		err = k.lost // an earlier try may have been run; that the last one was not is no comfort
	}
	if hop = u.hopOutcome(err, began); hop != nil && clock.heldUp(err) {
		hop = errNeutral
	}
	return reply, err
}

// calling is one call on its way, over all its tries.
type calling struct {
	*Call
	clock   *callClock
	tries   *tries
	repairs int   // how often the hop was set up again for it
	lost    error // of a try of which it is not known whether it was run
}

func (u *Upstream) attempt(ctx context.Context, k *calling) (*Reply, error) {
	if u.separates() && u.keepsApart(u.era()) {
		return u.attemptApart(ctx, k)
	}
	c := k.Call
	l, err := u.live(ctx)
	if err != nil {
		return nil, err
	}
	if u.keepsApart(l.peer.era) { // it was of another era before
		return u.attemptApart(ctx, k)
	}
	r := &request{id: u.ids.Add(1), method: c.Method, caller: &c.Caller, tries: k.tries, onReply: k.clock.reply}
	t := u.startTrip(ctx, r.method, c.Account)
	hop := hopFields{capabilities: c.Capabilities, logLevel: c.LogLevel, trace: t.Carries, meta: c.Meta}
	if c.Progress != nil {
		hop.progress = strconv.AppendInt(nil, r.id, 10)
	}
	edits := c.Edits
	if c.Name != "" {
		edits = append([]wire.Edit{{Name: "name", Value: wire.AppendString(nil, c.Name)}}, edits...)
	}
	r.params = l.peer.params(c.Params, edits, &hop)
	// Each try is a round trip of its own for traces, and the server is told so.
	k.tries.over = func(reason failure.Reason) { t.failed(l.peer, r, c.Name, reason) }
	r.remake = func() jsontext.Value {
		t = u.startTrip(ctx, r.method, c.Account)
		hop.trace = t.Carries
		return l.peer.params(c.Params, edits, &hop)
	}
	r.header = u.callHeaders(l, c)
	r.into, r.clock = c.Into, k.clock
	r.wantsLog = c.LogLevel != "" && c.Notify != nil
	asked := newQuestions(ctx, c, k.clock)
	defer asked.end()
	r.onAsk = asked.take
	r.onNotify = func(m wire.Message) {
		t.heard(m)
		if !asked.withdrawn(m) {
			u.relay(c, k.clock, m)
		}
	}
	if r.wantsLog && l.peer.era == Legacy {
		u.ensureLogLevel(ctx, l, c.LogLevel)
	}

	m, err := l.roundTrip(ctx, r)
	k.tries.over = nil
	m, err = t.over(ctx, l.peer, r, c.Name)(m, err)
	if err == nil {
		reply, err := u.reply(l, m)
		if err == nil {
			reply.buffer, reply.Passed, reply.Last, reply.Links = r.body, r.passed, r.last, r.links
		}
		return reply, err
	}
	u.blame(err)
	if r.passed && ctx.Err() == nil {
		return nil, err // the client has the beginning of this try's answer
	}
	var fault *hopError
	switch {
	case errors.As(err, &fault) && fault.kind == eraDoubtful:
		if k.repairs > 0 || !u.doubts.allow() {
			return u.reply(l, m)
		}
		// The catalogue cannot be read from a server of another era.
		u.refreshNow(ctx)
		if u.isCurrent(l) {
			return u.reply(l, m)
		}
		return u.repaired(ctx, k)
	case errors.As(err, &fault) && k.repairs == 0 && !(fault.kind == sessionLost && u.stubborn.has(c.Name)):
		if fault.kind == headerMismatch {
			u.refreshNow(ctx)
			if t := u.Catalogue().Tool(c.Name); t != nil && c.Tool != nil {
				again := *c
				again.Tool = t
				k.Call = &again
			}
		} else {
			u.log.Info("the hop is set up again", "reason", u.redact.Replace(fault.Error()))
			u.opts.Telemetry.Repaired(ctx, u.cfg.ID, fault.kind.String())
			l.fail(err)
			u.dropLink(l, err)
		}
		return u.repaired(ctx, k)
	case errors.As(err, &fault):
		if fault.kind == sessionLost {
			u.stubborn.add(c.Name)
		}
		return nil, &failure.Failure{Server: u.cfg.ID, Reason: failure.BadUpstreamAnswer, Outcome: failure.Refused, Cause: err}
	case ctx.Err() != nil:
		return nil, u.timeout(ctx, r)
	case unreachable(err):
		l.fail(err)
		u.dropLink(l, err)
		if k.repairs == 0 {
			// Nothing was sent, so a server that is just coming back may have it.
			return u.repaired(ctx, k)
		}
	case turnedBack(err) && k.tries.safe:
		if pause, ok := k.tries.take(failure.Overloaded, failure.As(err).RetryAfter); ok && wait(ctx, pause) {
			return u.attempt(ctx, k)
		}
	case lostOnTheWay(err):
		k.lost = cmp.Or(k.lost, err)
		select {
		case <-l.lost():
			u.dropLink(l, err) // whoever is told of the loss meets the link no more
		default:
		}
		if !k.tries.safe {
			break
		}
		if pause, ok := k.tries.take(failure.ConnectionLost, 0); ok && wait(ctx, pause) {
			return u.attempt(ctx, k)
		}
	}
	return nil, err
}

// repaired sends a call once more after the hop has been set up again.
func (u *Upstream) repaired(ctx context.Context, k *calling) (*Reply, error) {
	k.repairs++
	return u.attempt(ctx, k)
}

func timedOut(err error) bool {
	f := failure.As(err)
	return f != nil && f.Reason == failure.Timeout
}

// turnedBack reports that the server was too busy for the request. Over HTTP the tries are used up then; over
// other transports the request is tried again here.
func turnedBack(err error) bool {
	f := failure.As(err)
	return f != nil && f.Reason == failure.Overloaded && f.Outcome == failure.Refused
}

// lostOnTheWay reports that the connection ended after the request may have been read from it.
func lostOnTheWay(err error) bool {
	f := failure.As(err)
	return f != nil && f.Reason == failure.ConnectionLost && f.Outcome == failure.Unknown
}

// unreachable reports that nothing was sent because nobody was there.
func unreachable(err error) bool {
	f := failure.As(err)
	var creds *credentialError
	return f != nil && f.Reason == failure.Unavailable && f.Outcome == failure.NotStarted && !errors.As(err, &creds)
}

func (u *Upstream) timeout(ctx context.Context, r *request) error {
	var limit *limitError
	if !errors.As(context.Cause(ctx), &limit) {
		return ctx.Err()
	}
	f := &failure.Failure{Server: u.cfg.ID, Reason: failure.Timeout, Outcome: failure.Unknown, Limit: limit.d, Cause: limit}
	if !r.sent.Load() {
		f.Outcome = failure.NotStarted
	}
	return f
}

// reply checks that an answer is MCP: a result is an object.
func (u *Upstream) reply(l *link, m wire.Message) (*Reply, error) {
	if m.Error == nil && m.Result.Kind() != '{' {
		return nil, &failure.Failure{Server: u.cfg.ID, Reason: failure.BadUpstreamAnswer, Outcome: failure.Unknown,
			Cause: errors.New("the result is not an object")}
	}
	return &Reply{Result: m.Result, Closed: m.Closed, Error: m.Error, Era: l.peer.era, Plain: m.Plain}, nil
}

func (u *Upstream) callHeaders(l *link, c *Call) http.Header {
	h := make(http.Header, 4)
	for _, name := range forwarded(u.cfg.ForwardHeaders) {
		if v := c.Header.Values(name); len(v) > 0 {
			h[http.CanonicalHeaderKey(name)] = v
		}
	}
	if l.peer.era == Modern {
		name := c.Name
		if c.Method == "resources/read" {
			name = c.uri()
		}
		if c.Verbatim {
			name = taskName(c)
		}
		if name != "" {
			h["Mcp-Name"] = []string{wire.EncodeHeaderValue(name)}
		}
		paramHeaders(h, c.Tool, c.Params)
	}
	return h
}

// relay hands a notification of a call to the client, with the client's own progress token.
func (u *Upstream) relay(c *Call, clock *callClock, m wire.Message) {
	switch m.Method {
	case "notifications/progress":
		clock.progress()
		if c.Progress == nil || c.Notify == nil {
			return
		}
		obj, err := wire.ParseObject(m.Params)
		if err != nil {
			return
		}
		c.Notify(m.Method, obj.Append(nil, wire.Edit{Name: "progressToken", Value: c.Progress}))
	case "notifications/message":
		if c.LogLevel == "" || c.Notify == nil {
			return
		}
		obj, err := wire.ParseObject(m.Params)
		if err != nil {
			return
		}
		raw, _ := obj.Get("level")
		if level, ok := wire.String(raw); !ok || LogLevelIndex(level) < LogLevelIndex(c.LogLevel) {
			return
		}
		c.Notify(m.Method, m.Params)
	case "notifications/elicitation/complete":
		if c.Ask != nil && c.Notify != nil { // of a question that this client was asked
			c.Notify(m.Method, m.Params)
		}
	case "notifications/tasks", "notifications/tasks/status":
		if c.Verbatim && c.Notify != nil {
			c.Notify(m.Method, m.Params)
		}
	}
}

// logLevels are the levels of MCP logging, least first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// LogLevelIndex returns the rank of a log level (2026-07-28, server/utilities/logging), least first,
// or -1 for a word that is none.
func LogLevelIndex(level string) int { return slices.Index(logLevels, level) }

// ensureLogLevel asks a legacy server for log messages at a level. The session is shared, so the
// level only ever goes down; what a client did not ask for is filtered in relay.
func (u *Upstream) ensureLogLevel(ctx context.Context, l *link, level string) {
	if !hasMember(l.peer.capabilities, "logging") {
		return
	}
	want := int32(LogLevelIndex(level))
	if want < 0 {
		return
	}
	for {
		have := u.logLevel.Load()
		if have >= 0 && have <= want {
			return
		}
		if u.logLevel.CompareAndSwap(have, want) {
			break
		}
	}
	params := jsontext.Value(`{"level":"` + level + `"}`)
	m, err := l.roundTrip(ctx, &request{id: u.ids.Add(1), method: "logging/setLevel", params: params})
	if err != nil || m.Error != nil {
		u.log.Debug("the server did not take the log level", "level", level)
	}
}

// live returns the current link. While the server is being connected it waits, and when the server
// was down it asks for an attempt and waits for that, both for a bounded time.
func (u *Upstream) live(ctx context.Context) (*link, error) {
	u.mu.Lock()
	l := u.link
	u.mu.Unlock()
	if l != nil {
		return l, nil
	}
	t := time.NewTimer(u.linkWait())
	defer t.Stop()
	seen := -1
	for {
		u.mu.Lock()
		l, state, attempts, moved := u.link, u.state, u.attempts, u.moved
		idle, cause := time.Since(u.lastEnd), u.lastErr
		u.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if seen < 0 {
			seen = attempts
		}
		if state == Stopped || attempts > seen || state == Down && (idle < kickGap || refusesCredentials(cause)) {
			return nil, u.unavailable(cause)
		}
		if state == Down {
			signal(u.kick)
		}
		select {
		case <-moved:
		case <-t.C:
			return nil, u.unavailable(cause)
		case <-ctx.Done():
			return nil, u.unavailable(context.Cause(ctx))
		}
	}
}

// refusesCredentials reports that asking again changes nothing until somebody acts.
func refusesCredentials(err error) bool {
	f := failure.As(err)
	return f != nil && f.Reason == failure.CredentialsRefused
}

func (u *Upstream) unavailable(cause error) error {
	if refusesCredentials(cause) {
		return &failure.Failure{Server: u.cfg.ID, Reason: failure.CredentialsRefused, Outcome: failure.NotStarted, Cause: cause}
	}
	return &failure.Failure{Server: u.cfg.ID, Reason: failure.Unavailable, Outcome: failure.NotStarted, Cause: cause}
}

func (u *Upstream) isCurrent(l *link) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.link == l
}

// dropLink takes a link that failed out of use at once, so that no other call meets it before Run
// has seen the loss.
func (u *Upstream) dropLink(l *link, err error) {
	u.transition(func() {
		if u.link == l {
			u.link, u.state, u.lastErr = nil, Connecting, err
		}
	})
}

// begin counts a call; the returned function ends it.
func (u *Upstream) begin() (end func()) {
	u.mu.Lock()
	u.calls++
	u.mu.Unlock()
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.calls--
		if u.calls == 0 && u.idle != nil {
			close(u.idle)
			u.idle = nil
		}
	}
}

// Idle returns a channel that is closed as soon as no call is in flight.
func (u *Upstream) Idle() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	return u.idle
}
