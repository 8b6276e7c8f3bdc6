package gateway

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/secret"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// Handler serves clients of both eras over Streamable HTTP at /mcp.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", g.serveMCP)
	mux.HandleFunc("/mcp/{$}", g.serveMCP)
	mux.HandleFunc("/teams/{team}/mcp", g.serveMCP)
	mux.HandleFunc("/teams/{team}/mcp/{$}", g.serveMCP)
	mux.HandleFunc("/healthz", g.serveHealth)
	mux.HandleFunc(metadataPath, g.serveMetadata)
	mux.HandleFunc(metadataPath+"/", g.serveMetadata)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.noSuchPath(w)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			// Also for bodies that nobody wants: the server reads what is left of them before it answers.
			// It lifts the limit itself at the end of the body. Recorders in tests know no deadlines.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.bodyTime))
		}
		mux.ServeHTTP(w, r)
	})
}

func (g *Gateway) serveMCP(w http.ResponseWriter, r *http.Request) {
	at := guest{s: g.snapshot.Load(), at: endpoint(r.PathValue("team"))}
	cfg := at.s.cfg
	if ok, why := allowed(cfg, r); !ok {
		g.refuse(w, telemetry.RefusedForbidden, http.StatusForbidden, "Forbidden: "+why)
		return
	}
	cors(w, r)
	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", "POST, GET, DELETE, OPTIONS")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var ok bool
	if at.caller, ok = g.authenticate(w, r, at.s, at.at); !ok {
		return
	}
	at.credential = secret.New(r.Header.Get("Authorization"))
	if at.v = at.s.viewFor(at.caller, at.at); at.v == nil {
		// A team that is not the caller's and one that does not exist are the same.
		g.noSuchPath(w)
		return
	}
	switch r.Method {
	case http.MethodPost:
		g.servePost(w, r, at)
	case http.MethodGet:
		g.serveGet(w, r, at)
	case http.MethodDelete:
		g.serveDelete(w, r, at)
	default:
		g.methodNotAllowed(w, "POST, GET, DELETE")
	}
}

func (g *Gateway) servePost(w http.ResponseWriter, r *http.Request, at guest) {
	if !isJSON(r.Header.Get("Content-Type")) {
		g.refuse(w, telemetry.RefusedContentType, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	accept := accepts(r)
	if !accept.json && !accept.stream {
		g.refuse(w, telemetry.RefusedAccept, http.StatusNotAcceptable, "Accept must allow application/json or text/event-stream, better both")
		return
	}
	release, ok := g.bodies.reserve(r, at.s.cfg.MaxBody)
	if !ok {
		w.Header().Set("Connection", "close")
		g.busy(w, "", "too many large requests are in flight")
		return
	}
	defer release()
	body, err := readBody(w, r, at.s.cfg.MaxBody)
	if err != nil {
		why, status, text := telemetry.RefusedUnreadable, http.StatusBadRequest, "the request body could not be read"
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			why, status, text = telemetry.RefusedLarge, http.StatusRequestEntityTooLarge, "the request is larger than max_body allows"
		case errors.Is(err, os.ErrDeadlineExceeded):
			why, status, text = telemetry.RefusedSlow, http.StatusRequestTimeout, "the request body took too long to arrive"
		}
		w.Header().Set("Connection", "close") // what is left of the body is not waited for
		g.refuse(w, why, status, text)
		return
	}
	m, err := wire.Parse(body)
	if err != nil {
		g.opts.Telemetry.TurnedAway(telemetry.RefusedMalformed, telemetry.TransportTCP)
		writeJSON(w, http.StatusBadRequest, malformed(err))
		return
	}
	header := r.Header.Values("Mcp-Protocol-Version")
	if len(header) > 1 {
		g.opts.Telemetry.TurnedAway(telemetry.RefusedMalformed, telemetry.TransportTCP)
		g.reply((&post{guest: at, w: w, r: r, accept: accept}).responder(), m.ID, upstream.Modern, headerMismatch("Mcp-Protocol-Version is given more than once"))
		return
	}
	p := &post{guest: at, w: w, r: r, accept: accept, m: m, given: readGiven(m)}
	if len(header) == 1 {
		p.version = header[0]
	}
	if p.modern() {
		g.serveModern(p)
	} else {
		g.serveLegacy(p)
	}
}

// isJSON reports whether a Content-Type is that of JSON.
func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == "application/json"
}

// wholeBody is the size in bytes up to which a body is given its memory before it has arrived.
const wholeBody = 64 << 10

// readBody reads a body of at most limit bytes.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body := http.MaxBytesReader(w, r.Body, limit)
	if n := r.ContentLength; n >= 0 && n <= min(limit, wholeBody) {
		b := make([]byte, n)
		_, err := io.ReadFull(body, b)
		return b, err
	}
	return io.ReadAll(body)
}

// post is one POST whose body is a message.
type post struct {
	guest
	w       http.ResponseWriter
	r       *http.Request
	accept  acceptable
	m       wire.Message
	given   *given // of m
	version string // Mcp-Protocol-Version, "" when absent
}

// responder makes the responder of the POST.
func (p *post) responder() *responder {
	out := newResponder(p.w, p.r.Header, p.accept)
	out.challenge = func(scopes []string) { challenge(p.w, p.s, p.r, p.at, "insufficient_scope", scopes) }
	return out
}

// modern reports the era of a request (2026-07-28, basic/versioning, "Backward Compatibility"):
// modern if it carries a protocol version in _meta, or names in its header a version that is not one
// of the handshake's. An initialize without one in _meta is the handshake whatever its header says.
func (p *post) modern() bool {
	if _, has := p.given.version(); has {
		return true
	}
	if p.m.Kind == wire.KindRequest && p.m.Method == "initialize" {
		return false
	}
	return p.version != "" && !slices.Contains(legacyVersions, p.version)
}

func (g *Gateway) serveModern(p *post) {
	if p.m.Kind == wire.KindNotification {
		// There is no notification a modern client could send over HTTP that means anything
		// (2026-07-28, basic/transports/streamable-http, "Sending Messages").
		p.w.WriteHeader(http.StatusAccepted)
		return
	}
	if p.m.Kind == wire.KindResponse {
		g.refuseID(p.w, telemetry.RefusedMalformed, http.StatusBadRequest, p.m.ID, "clients send no responses in this protocol version")
		return
	}
	out := p.responder()
	out.telemetry = g.opts.Telemetry
	x := &exchange{guest: p.guest, given: p.given, header: p.r.Header, notify: out.notify}
	x.passTo(out)
	var sub *subscription
	a, tell := g.observed(p.r.Context(), x, p.m, func(ctx context.Context) answer {
		a, ok := p.readModern(x)
		if !ok {
			return a
		}
		if x.method == "subscriptions/listen" {
			sub, a = p.subscription(x)
			return a
		}
		return g.handle(ctx, x)
	})
	if sub != nil {
		tell()
		g.listen(p, sub)
		return
	}
	defer tell()
	g.reply(out, p.m.ID, upstream.Modern, a)
}

// readModern reads a modern request and checks its headers against its body ("Server Validation").
func (p *post) readModern(x *exchange) (a answer, ok bool) {
	body, _ := p.given.version()
	switch {
	case p.version == "":
		return headerMismatch("Mcp-Protocol-Version is missing"), false
	case body != "" && body != p.version:
		return headerMismatch("Mcp-Protocol-Version does not match the request"), false
	case p.version != modernVersion:
		return unsupportedVersion(p.version), false
	}
	if a, ok := x.read(p.m); !ok {
		return a, false
	}
	if text := checkHeader(p.r.Header, "Mcp-Method", p.m.Method, false); text != "" {
		return headerMismatch(text), false
	}
	if member := namedBy[p.m.Method]; member != "" {
		raw, _ := x.params.Get(member)
		name, isString := wire.String(raw)
		if isString {
			if text := checkHeader(p.r.Header, "Mcp-Name", name, true); text != "" {
				return headerMismatch(text), false
			}
		}
	}
	return x.readModern()
}

// namedBy is the member of params that Mcp-Name mirrors, by method.
var namedBy = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

func checkHeader(h http.Header, name, want string, encoded bool) string {
	v := h.Values(name)
	switch {
	case len(v) == 0:
		return name + " is missing"
	case len(v) > 1:
		return name + " is given more than once"
	}
	got := v[0]
	if encoded {
		var err error
		if got, err = wire.DecodeHeaderValue(got); err != nil {
			return name + " has invalid characters or encoding"
		}
	}
	if got != want {
		return name + " does not match the request"
	}
	return ""
}

// reply sends an answer with the status that the era demands.
func (g *Gateway) reply(out *responder, id wire.ID, era upstream.Era, a answer) {
	if out.passing.began {
		out.passing.end(a)
		if a.reply != nil {
			a.reply.Release()
		}
		return
	}
	if a.silent {
		out.finish(0)
		return
	}
	if a.stepUp != nil {
		out.challenge(a.stepUp)
	}
	status := http.StatusOK
	// Legacy clients take any status but 200 for a fault of the transport.
	if era == upstream.Modern && a.status != 0 || a.status == http.StatusInternalServerError || a.stepUp != nil {
		status = a.status
	}
	if a.err != nil {
		out.finish(status, a.message(id))
		return
	}
	out.finish(status, out.parts(id, a)...)
	if a.reply != nil {
		a.reply.Release()
	}
}

// message is the answer as a JSON-RPC response.
func (a answer) message(id wire.ID) []byte {
	if a.err != nil {
		return wire.AppendError(make([]byte, 0, len(a.err)+64), id, a.err)
	}
	return wire.AppendResult(make([]byte, 0, len(a.result)+64), id, a.result)
}

// subscription reads a subscriptions/listen.
func (p *post) subscription(x *exchange) (*subscription, answer) {
	if !p.accept.stream {
		return nil, notAcceptable("Accept must allow text/event-stream for a subscription")
	}
	return newSubscription(p.m.ID, x)
}

// listen serves a subscription over HTTP (2026-07-28, basic/patterns/subscriptions).
func (g *Gateway) listen(p *post, sub *subscription) {
	closed, ok := g.openStream(p.guest)
	if !ok {
		g.busy(p.w, p.m.ID, tooManyStreams)
		return
	}
	defer closed()
	streamHeaders(p.w.Header())
	p.w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(p.w)
	g.subscribe(p.r.Context(), sub, nil, func(b []byte) error { return write(p.w, rc, wire.AppendEvent(nil, "", "", b)) },
		func() error { return write(p.w, rc, wire.AppendComment(nil, "")) })
}

// serveHealth answers whether the process is alive. It needs no caller.
func (g *Gateway) serveHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		g.methodNotAllowed(w, "GET")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}
