package gateway

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

const sessionHeader = "Mcp-Session-Id"

// owner is whom a session is bound to: the caller, whatever its token, at one endpoint.
func (g guest) owner() string { return string(g.at) + "\x00" + g.caller.Key() }

// serveLegacy serves a POST of the handshake era (2025-11-25, basic/transports).
func (g *Gateway) serveLegacy(p *post) {
	out := p.responder()
	out.telemetry = g.opts.Telemetry
	if p.m.Kind == wire.KindRequest && p.m.Method == "initialize" {
		g.openSession(p, out)
		return
	}
	s, ok := g.session(p.w, p.r, p.guest, p.m.ID)
	if !ok {
		return
	}
	switch p.m.Kind {
	case wire.KindNotification:
		if p.m.Method == "notifications/cancelled" {
			s.cancel(cancelledID(p.m))
		}
		p.w.WriteHeader(http.StatusAccepted)
		return
	case wire.KindResponse:
		s.asked.answered(p.m)
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := context.WithCancel(p.r.Context())
	defer cancel()
	defer s.begin(p.m.ID, cancel)()
	x := &exchange{guest: p.guest, given: p.given, era: upstream.Legacy, header: p.r.Header, notify: out.notify, channel: out.channel()}
	x.passTo(out)
	a, tell := g.observed(ctx, x, p.m, func(ctx context.Context) answer { return g.handleLegacy(ctx, s, x, p.m) })
	defer tell()
	g.reply(out, p.m.ID, upstream.Legacy, a)
}

// handleLegacy answers one request of a session, whatever the transport.
func (g *Gateway) handleLegacy(ctx context.Context, s *session, x *exchange, m wire.Message) answer {
	x.session = s
	if a, ok := x.read(m); !ok {
		return a
	}
	switch m.Method {
	case "logging/setLevel":
		return s.setLevel(x)
	case "resources/subscribe", "resources/unsubscribe":
		return g.watchLegacy(ctx, s, x)
	}
	x.logLevel = s.level()
	g.enable(x, s)
	return g.handle(ctx, x)
}

// openSession answers initialize. A session id that comes with it is of an earlier session and means
// nothing here.
func (g *Gateway) openSession(p *post, out *responder) {
	x := &exchange{guest: p.guest, given: p.given, era: upstream.Legacy, header: p.r.Header}
	opened := false
	a := g.observe(p.r.Context(), x, p.m, func(ctx context.Context) answer {
		a, ok := x.read(p.m)
		if ok {
			g.awaitStart(ctx, x, handshakeGrace)
			a, opened = g.initialize(x.v, x.params)
			x.version = negotiated(x.params)
		}
		return a
	})
	if !opened {
		g.reply(out, p.m.ID, upstream.Legacy, a)
		return
	}
	s := newSession(p.owner())
	s.version.Store(&x.version)
	s.asked.declare(x.params)
	if limits := &p.s.cfg.Overload; !g.sessions.open(s, limits.Sessions, p.each(limits.CallerSessions)) {
		g.busy(p.w, p.m.ID, "too many sessions are open; end those that are not needed")
		return
	}
	p.w.Header().Set(sessionHeader, s.id)
	g.reply(out, p.m.ID, upstream.Legacy, a)
}

// session finds the session of an HTTP request, or refuses; id is that of the message in it, if any.
func (g *Gateway) session(w http.ResponseWriter, r *http.Request, at guest, id wire.ID) (*session, bool) {
	ids := r.Header.Values(sessionHeader)
	if len(ids) != 1 || ids[0] == "" {
		g.refuseID(w, telemetry.RefusedSession, http.StatusBadRequest, id,
			"this request belongs to no session: send initialize first and then its "+sessionHeader+" with every request, or speak protocol version "+modernVersion)
		return nil, false
	}
	if v := r.Header.Get("Mcp-Protocol-Version"); v != "" && !slices.Contains(legacyVersions, v) {
		g.refuseID(w, telemetry.RefusedSession, http.StatusBadRequest, id, "Mcp-Protocol-Version is not one that a session can have")
		return nil, false
	}
	s := g.sessions.get(ids[0], at.owner())
	if s == nil {
		g.refuseID(w, telemetry.RefusedSession, http.StatusNotFound, id, "no such session; send initialize to open a new one")
		return nil, false
	}
	return s, true
}

// serveGet serves the stream on which a session hears what belongs to no request.
func (g *Gateway) serveGet(w http.ResponseWriter, r *http.Request, at guest) {
	if r.Header.Get(sessionHeader) == "" {
		g.methodNotAllowed(w, "POST")
		return
	}
	s, ok := g.session(w, r, at, "")
	if !ok {
		return
	}
	if !accepts(r).stream {
		g.refuse(w, telemetry.RefusedAccept, http.StatusNotAcceptable, "Accept must allow text/event-stream")
		return
	}
	closed, ok := g.openStream(at)
	if !ok {
		g.busy(w, "", tooManyStreams)
		return
	}
	defer closed()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	list := g.watch(at)
	defer list.close()
	defer s.openStream(cancel)()

	streamHeaders(w.Header())
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	// Headers alone may wait in a proxy; a comment brings them through.
	err := write(w, rc, wire.AppendComment(nil, ""))
	tell := func(method string, params jsontext.Value) {
		if err == nil {
			err = write(w, rc, wire.AppendEvent(nil, "", "", wire.AppendNotification(nil, method, params)))
		}
	}
	s.updates.again()
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
			return
		case <-list.over:
			return
		case <-g.drained:
			return
		case <-list.signal:
			for _, method := range list.changed(g).notifications() {
				tell(method, nil)
			}
			s.updates.settle(g, list.guest, true)
		case <-s.updates.ready:
			for _, params := range s.updates.take(g, list.guest) {
				tell(resourceUpdated, updatedFor(params, ""))
			}
		case <-tick.C:
			s.touch()
			err = write(w, rc, wire.AppendComment(nil, ""))
		}
	}
	if ctx.Err() == nil {
		g.opts.Telemetry.StreamDropped(telemetry.SideClient, "")
	}
}

func (g *Gateway) serveDelete(w http.ResponseWriter, r *http.Request, at guest) {
	if r.Header.Get(sessionHeader) == "" {
		g.methodNotAllowed(w, "POST")
		return
	}
	if s, ok := g.session(w, r, at, ""); ok {
		g.sessions.close(s)
		w.WriteHeader(http.StatusNoContent)
	}
}
