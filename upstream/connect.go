package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// The protocol versions that Headgate speaks to servers, newest first.
const modernVersion = "2026-07-28"

var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// connect opens a connection and negotiates it. On success the link is ready for calls; on failure
// nothing is left behind.
func (u *Upstream) connect(ctx context.Context) (*link, error) {
	switch {
	case u.opts.Embedded != nil:
		return within(ctx, u.cfg.ConnectTimeout, func(ctx context.Context) (*link, error) {
			return u.negotiateOrClose(ctx, u.startEmbedded(u.opts.Embedded))
		})
	case u.cfg.Type == "stdio":
		// start_timeout allows for a cold start.
		return within(ctx, u.cfg.StartTimeout, u.connectChild)
	case u.cfg.Type == "sse":
		return within(ctx, u.cfg.ConnectTimeout, u.connectSSE)
	}
	return u.connectHTTP(ctx)
}

var errConnectTimeout = errors.New("the server did not answer in time while connecting")

// within bounds f, and says what ran out where f knows only that its context ended.
func within[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errConnectTimeout)
	defer cancel()
	v, err := f(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return v, err
}

// connectChild starts the child and negotiates with it.
func (u *Upstream) connectChild(ctx context.Context) (*link, error) {
	c, err := u.startChild()
	if err != nil {
		return nil, err
	}
	c.duplex.wg.Go(func() { c.watch() })
	return u.negotiateOrClose(ctx, c)
}

func (u *Upstream) connectSSE(ctx context.Context) (*link, error) {
	s, err := u.openSSE(ctx)
	if err != nil {
		return nil, err
	}
	p, err := u.initialize(ctx, s, legacyVersions[0])
	if err != nil {
		s.close()
		return nil, err
	}
	return &link{s, p}, nil
}

// negotiateOrClose settles the era over a duplex connection.
func (u *Upstream) negotiateOrClose(ctx context.Context, t transport) (*link, error) {
	p, err := u.negotiate(ctx, t)
	if err != nil {
		t.close()
		return nil, err
	}
	t.negotiated(p)
	return &link{t, p}, nil
}

// negotiate finds the era of a server on a shared stream (2026-07-28, basic/transports/stdio,
// "Backward Compatibility"): discover first, initialize when the answer is anything but modern. A
// server that stays silent gets the initialize as well, on the same process, and the first answer
// that settles the matter wins; so a child that only starts slowly is not mistaken for one that
// ignores the question.
func (u *Upstream) negotiate(ctx context.Context, t transport) (*peer, error) {
	if u.skipProbe() {
		p, err := u.initialize(ctx, t, legacyVersions[0])
		if err == nil || !u.probeAfter(err) {
			return p, err
		}
	}
	type outcome struct {
		peer *peer
		next string // the legacy version to ask for; "" when peer or err settles it
		err  error
	}
	probe := make(chan outcome, 1)
	probeCtx, stopProbe := context.WithCancel(ctx)
	defer stopProbe()
	go func() {
		p, next, err := u.discover(probeCtx, t)
		probe <- outcome{p, next, err}
	}()
	timer := time.NewTimer(u.opts.ProbeTimeout)
	defer timer.Stop()
	select {
	case o := <-probe:
		if o.next == "" {
			return o.peer, o.err
		}
		return u.initialize(ctx, t, o.next)
	case <-timer.C:
	}
	if u.cfg.Era == "modern" {
		o := <-probe
		if o.peer == nil && o.err == nil {
			o.err = errNotModern
		}
		return o.peer, o.err
	}
	init := make(chan outcome, 1)
	initCtx, stopInit := context.WithCancel(ctx)
	defer stopInit()
	go func() {
		p, err := u.initialize(initCtx, t, legacyVersions[0])
		init <- outcome{peer: p, err: err}
	}()
	for {
		select {
		case o := <-probe:
			if o.peer != nil {
				stopInit()
				<-init
				return o.peer, nil
			}
			probe = nil
		case o := <-init:
			var refused *rpcError
			if probe != nil && errors.As(o.err, &refused) {
				// A modern server that has both questions may refuse the second one first.
				if late := <-probe; late.peer != nil {
					return late.peer, nil
				}
				return o.peer, o.err
			}
			stopProbe()
			if probe != nil {
				<-probe
			}
			return o.peer, o.err
		}
	}
}

var errNotModern = errors.New("the configuration says era: modern, but the server does not answer server/discover")

// skipProbe reports whether the server is known to be legacy: by configuration, or because it was so
// before, or because it died of the probe.
func (u *Upstream) skipProbe() bool {
	return u.cfg.Era == "legacy" || u.cfg.Era == "auto" && u.knownLegacy
}

// probeAfter reports whether a server that was legacy refused its initialize in a way that a modern
// one would, so that it is worth being asked what it is.
func (u *Upstream) probeAfter(err error) bool {
	if u.cfg.Era != "auto" {
		return false
	}
	var refused *rpcError
	status := httpStatus(err)
	return errors.As(err, &refused) || status >= 400 && status < 500 && !settlesProbe(err)
}

// discover asks server/discover. It returns the peer of a modern server, or the legacy version to
// initialize with, or an error that settles the attempt. A server that refuses the version and names the same
// one among those it supports is asked once more (2026-07-28, basic/versioning).
func (u *Upstream) discover(ctx context.Context, t transport) (*peer, string, error) {
	p, next, err := u.discoverOnce(ctx, t)
	if errors.Is(err, errSameVersion) {
		return u.discoverOnce(ctx, t)
	}
	return p, next, err
}

// errSameVersion says that a server refused the modern version and names it as supported.
var errSameVersion = errors.New("the server refuses protocol version " + modernVersion + " and says that it supports it")

func (u *Upstream) discoverOnce(ctx context.Context, t transport) (*peer, string, error) {
	probing := &peer{era: Modern, version: modernVersion, clientInfo: u.opts.ClientInfo, probing: true}
	t.negotiated(probing)
	trip := u.startTrip(ctx, "server/discover", nil)
	r := &request{id: u.ids.Add(1), method: "server/discover", params: probing.params(nil, nil, &hopFields{trace: trip.Carries})}
	m, err := trip.over(ctx, probing, r, "")(t.roundTrip(ctx, r))
	if err != nil {
		return nil, "", err
	}
	if m.Error != nil {
		code, text, _ := wire.ErrorCode(m.Error)
		if code != wire.CodeUnsupportedVersion {
			if u.cfg.Era == "modern" {
				return nil, "", fmt.Errorf("%w: it answered error %d: %q", errNotModern, code, u.redact.clip(text, 200))
			}
			return nil, legacyVersions[0], nil
		}
		supported := supportedIn(m.Error, "data", "supported")
		if slices.Contains(supported, modernVersion) {
			return nil, "", errSameVersion
		}
		next, err := legacyChoice(supported)
		return nil, next, err
	}
	obj, err := wire.ParseObject(m.Result)
	versions := stringsIn(obj, "supportedVersions")
	if err != nil || versions == nil {
		return nil, legacyVersions[0], nil // a legacy server that answers anything to anything
	}
	if !slices.Contains(versions, modernVersion) {
		next, err := legacyChoice(versions)
		return nil, next, err
	}
	return u.newPeer(Modern, modernVersion, obj), "", nil
}

// legacyChoice picks the newest legacy version of a server that does not speak the modern one.
func legacyChoice(versions []string) (string, error) {
	for _, v := range legacyVersions {
		if slices.Contains(versions, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("no common protocol version: the server supports %q", versions)
}

func (u *Upstream) newPeer(era Era, version string, result wire.Object) *peer {
	p := &peer{era: era, version: version, clientInfo: u.opts.ClientInfo}
	if v, ok := result.Get("capabilities"); ok {
		p.capabilities = v.Clone()
	}
	if v, ok := result.Get("instructions"); ok {
		p.instructions, _ = wire.String(v)
	}
	info, ok := result.Get("serverInfo")
	if meta, has := result.Get("_meta"); has && !ok {
		if m, err := wire.ParseObject(meta); err == nil {
			info, ok = m.Get("io.modelcontextprotocol/serverInfo")
		}
	}
	if ok {
		p.serverInfo = info.Clone()
	}
	return p
}

// initialize opens a legacy session (2025-11-25, basic/lifecycle).
func (u *Upstream) initialize(ctx context.Context, t transport, version string) (*peer, error) {
	t.negotiated(&peer{era: Legacy, version: "", clientInfo: u.opts.ClientInfo, probing: true})
	params := jsontext.Value(`{"protocolVersion":"` + version + `","capabilities":` + string(u.declared(t)) + `,"clientInfo":` + string(u.opts.ClientInfo) + `}`)
	r := &request{id: u.ids.Add(1), method: "initialize", params: params}
	m, err := u.startTrip(ctx, r.method, nil).over(ctx, &peer{version: version}, r, "")(t.roundTrip(ctx, r))
	if err != nil {
		return nil, err
	}
	if m.Error != nil {
		code, text, _ := wire.ErrorCode(m.Error)
		return nil, fmt.Errorf("initialize: %w", &rpcError{code, u.redact.clip(text, 200)})
	}
	obj, err := wire.ParseObject(m.Result)
	if err != nil {
		return nil, fmt.Errorf("initialize: result: %w", err)
	}
	raw, _ := obj.Get("protocolVersion")
	got, ok := wire.String(raw)
	// A version older than those we know still has the same messages; one from the modern era
	// cannot be the answer to a handshake.
	if !ok || got >= modernVersion || !isDate(got) {
		return nil, fmt.Errorf("initialize: the server chose protocol version %q, which a session cannot have", clip(got, 40))
	}
	p := u.newPeer(Legacy, got, obj)
	t.negotiated(p)
	if err := t.notify(ctx, "notifications/initialized", nil); err != nil {
		return nil, fmt.Errorf("notifications/initialized: %w", err)
	}
	return p, nil
}

func isDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// connectHTTP finds out what stands behind a URL (2026-07-28, basic/transports/streamable-http,
// "Backward Compatibility"): a modern server, a legacy one, or the deprecated HTTP+SSE pair.
func (u *Upstream) connectHTTP(ctx context.Context) (*link, error) {
	t := u.newStreamable()
	p, err := u.negotiateHTTP(ctx, t)
	if err == nil {
		t.negotiated(p)
		return &link{t, p}, nil
	}
	t.close()
	status := httpStatus(err)
	if status != http.StatusBadRequest && status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return nil, err
	}
	cause := fmt.Errorf("no MCP endpoint at this URL: %w", err)
	if !u.cfg.TypeGiven && u.cfg.Era != "modern" {
		l, sseErr := within(ctx, u.cfg.ConnectTimeout, u.connectSSE)
		if sseErr == nil {
			return l, nil
		}
		cause = fmt.Errorf("no MCP endpoint at this URL: HTTP %d to a POST, and to a GET: %w", status, sseErr)
	}
	return nil, &failure.Failure{Server: u.cfg.ID, Reason: failure.Unavailable, Outcome: failure.NotStarted, Cause: cause}
}

func (u *Upstream) negotiateHTTP(ctx context.Context, t *streamable) (*peer, error) {
	initialize := func(version string) (*peer, error) {
		return within(ctx, u.cfg.ConnectTimeout, func(ctx context.Context) (*peer, error) { return u.initialize(ctx, t, version) })
	}
	var refused error
	if u.skipProbe() {
		p, err := initialize(legacyVersions[0])
		if err == nil || !u.probeAfter(err) {
			return p, err
		}
		refused = err
	}
	limit := u.opts.HTTPProbeTimeout
	if u.cfg.Era == "modern" {
		limit = u.cfg.ConnectTimeout // there is no other question to ask
	}
	version := legacyVersions[0]
	p, err := within(ctx, min(limit, u.cfg.ConnectTimeout), func(ctx context.Context) (*peer, error) {
		p, next, err := u.discover(ctx, t)
		version = cmp.Or(next, version)
		return p, err
	})
	switch {
	case p != nil:
		return p, nil
	case err != nil && (u.cfg.Era == "modern" || ctx.Err() != nil || settlesProbe(err)):
		return nil, err
	case refused != nil:
		return nil, refused
	}
	return initialize(version)
}

// settlesProbe reports whether a failed probe says more than that the server is not modern.
func settlesProbe(err error) bool {
	if errors.Is(err, errConnectTimeout) {
		return false
	}
	f := failure.As(err)
	if f == nil {
		return true
	}
	switch f.Reason {
	case failure.CredentialsRefused, failure.Unavailable, failure.Overloaded:
		return true
	}
	return false
}

// supportedIn returns the strings at obj.path… .
func supportedIn(v jsontext.Value, path ...string) []string {
	for i, name := range path {
		obj, err := wire.ParseObject(v)
		if err != nil {
			return nil
		}
		if i == len(path)-1 {
			return stringsIn(obj, name)
		}
		v, _ = obj.Get(name)
	}
	return nil
}

func stringsIn(obj wire.Object, name string) []string {
	v, _ := obj.Get(name)
	elems, err := wire.Array(v)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(elems))
	for _, e := range elems {
		if s, ok := wire.String(e); ok {
			out = append(out, clip(s, 40))
		}
	}
	return out
}
