package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/telemetry"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// exchange is one request of a client, the same from every transport and era.
type exchange struct {
	guest
	era     upstream.Era
	method  string
	params  wire.Object // nil when there are none
	meta    wire.Object // the members of params._meta
	given   *given      // where they come from, if they have been read already
	header  http.Header // nil on stdio
	id      wire.ID
	routed  route
	account telemetry.Account
	span    telemetry.Span
	size    int         // of the params, in bytes
	session *session    // a legacy client's; nil for others
	passing *passing    // for large results; nil where the transport cannot pass them on
	version string      // that an initialize led to; "" for other requests
	audit   *auditEntry // nil without an audit log

	capabilities jsontext.Value // a modern client's; nil when it may not be asked anything
	// ask has a question of a server answered by a legacy client, on the stream of this request; nil for a client that
	// cannot be asked.
	ask      func(ctx context.Context, q upstream.Question) upstream.Answer
	channel  channel        // to a legacy client, for questions
	logLevel string         // least level of log messages wanted; "" for none
	progress jsontext.Value // the client's progress token; nil for none
	// notify sends a notification that belongs to this request to the client. It does not block. nil
	// drops them.
	notify func(method string, params jsontext.Value)
}

// route is where a tools/call went; the zero value is one that reached no tool.
type route struct {
	tool     string   // exposed name
	upstream string   // id
	teams    []string // whose limits apply
	owner    *upstream.Upstream
}

// contain runs the answering of one request, and answers itself when that panics. Every transport has
// it around all that it does with a parsed request; a panic is caught here and nowhere else.
func (g *Gateway) contain(method string, f func() answer) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			id, failed := incident()
			g.log.Error("panic while answering a request", "incident", id, "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			a = failed
		}
	}()
	return f()
}

// handle answers one request.
func (g *Gateway) handle(ctx context.Context, x *exchange) answer {
	switch x.method {
	case "tools/list", "tools/call":
		g.awaitStart(ctx, x, startGrace)
	case "server/discover":
		g.awaitStart(ctx, x, handshakeGrace)
	}
	switch x.method {
	case "tools/call":
		return g.callTool(ctx, x)
	case "tools/list":
		return g.listTools(x)
	case "server/discover":
		if x.era == upstream.Modern {
			return g.discover(x.v)
		}
	case "ping":
		if x.era == upstream.Legacy {
			return answer{result: jsontext.Value("{}")}
		}
	}
	return g.handleCatalogue(ctx, x)
}

// startGrace is how long after the start a list or a call waits for upstreams that are being connected
// for the first time. Many hosts list once, right after they have started Headgate, and keep what they
// got; what is slower than this reaches those that listen through list_changed.
//
// A handshake waits less: it tells instructions and capabilities, which come from upstreams too, but
// a host takes one that is slow for a server that does not start.
const (
	startGrace     = 3 * time.Second
	handshakeGrace = 500 * time.Millisecond
)

// awaitStart waits until every upstream has had its first attempt, or the grace is over, and shows x
// what there is then.
func (g *Gateway) awaitStart(ctx context.Context, x *exchange, grace time.Duration) {
	left := grace - time.Since(g.started)
	if x.s.settled || left <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	_ = g.WaitSettled(ctx) // what has come by the end of the grace is what there is
	if now, ok := g.admit(x.caller, x.at); ok {
		x.guest = now
	}
}

// routedParams are the members of params that Headgate itself reads or that decide what a server runs. A
// member that differs from one of them only in case would be taken for it by servers that match
// names loosely, and is refused.
var routedParams = []string{"name", "uri", "arguments", "_meta", "cursor", "ref", "task", "inputResponses", "requestState"}

// routedMeta is the same for _meta.
var routedMeta = []string{"progressToken", metaVersion, metaClientInfo, metaCapabilities, metaLogLevel, metaSubscription}

// The _meta keys of the protocol (2026-07-28, basic, "Reserved keys").
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
)

// callTool routes a call to the upstream that owns the tool.
func (g *Gateway) callTool(ctx context.Context, x *exchange) answer {
	raw, _ := x.params.Get("name")
	name, ok := wire.String(raw)
	if !ok {
		return invalidParams("tools/call needs params.name, a string")
	}
	if a, bad := argumentsOf(x.params); bad {
		return a
	}
	g.beginAudit(x, name)
	var held place
	defer func() { held.leave() }()
	for {
		a, moved := g.callOwner(ctx, x, name, &held)
		if !moved {
			return a
		}
	}
}

// callOwner sends a call to the upstream that owns the tool in x's snapshot. moved says that a reload took the owner
// away while the request was on its way to it: nothing was sent, and x has the snapshot in which to look again.
func (g *Gateway) callOwner(ctx context.Context, x *exchange, name string, held *place) (a answer, moved bool) {
	t, ok := x.v.find(name)
	if !ok {
		x.routed = route{}
		return unknownTool(name), false
	}
	x.routed = route{tool: t.name, upstream: t.owner.ID(), teams: t.teams, owner: t.owner}
	if t.scopes != nil {
		return insufficientScope(t.scopes), false
	}
	if x.era == upstream.Modern && x.header != nil {
		if text := t.definition.CheckHeaders(x.header, x.params); text != "" {
			return headerMismatch(text), false
		}
	}
	if over := held.take(g.limiter, t, x.caller); over != nil {
		return failCall(overLimit(over, t.owner.ID()), t.tool, x.era), false
	}
	if f := g.withhold(x, t.tool); f != nil {
		return failCall(f, t.tool, x.era), false
	}
	if a, ok := x.audit.sending(ctx, x); !ok {
		return a, false
	}
	c := x.call()
	c.Name, c.Tool, c.Repeatable = t.definition.Name, t.definition, t.repeatable
	if !t.rules.touchesErrors() && !t.checksResults() {
		c.Into = x.sink(resultComplete)
	}
	reply, f, a := g.ask(ctx, x, target{t.owner, t.name}, c)
	switch {
	case f != nil && f.Outcome == failure.NotStarted && g.moved(x, name, t.owner):
		return answer{}, true
	case f != nil:
		g.unsettle(x, t.tool, f.Outcome)
		return failCall(f, t.tool, x.era), false
	case a.silent:
		// The client hears nothing more of it, but the server may have run it.
		g.unsettle(x, t.tool, failure.Unknown)
		return a, false
	case reply == nil:
		return a, false
	}
	if f := g.badResult(t.tool, reply); f != nil {
		g.log.Warn("result withheld", "tool", t.name, "upstream", f.Server, "reason", string(f.Reason))
		return failCall(f, t.tool, x.era), false
	}
	g.links.note(x, t.owner, reply)
	return g.treat(x, t.tool, reply), false
}

// place is the place that a call holds under the limits of its teams. The zero value holds none.
type place struct {
	teams   []string
	ruled   string
	release func()
}

// take gets the place for a tool. A call that holds the same place already keeps it, and is not counted again.
func (p *place) take(l *authz.Limiter, t usable, caller authz.Caller) *authz.LimitError {
	if p.release != nil && p.ruled == t.ruled && slices.Equal(p.teams, t.teams) {
		return nil
	}
	p.leave()
	release, over := l.Acquire(t.teams, caller, t.ruled)
	if over == nil {
		*p = place{t.teams, t.ruled, release}
	}
	return over
}

func (p *place) leave() {
	if p.release != nil {
		p.release()
	}
	*p = place{}
}

// call is what every request to a server on behalf of x has in common.
func (x *exchange) call() *upstream.Call {
	return &upstream.Call{
		Method:       x.method,
		Params:       x.params,
		Meta:         x.meta,
		Capabilities: x.capabilities,
		LogLevel:     x.logLevel,
		Progress:     x.progress,
		Header:       x.header,
		Caller:       upstream.Caller{Key: x.caller.Key(), Token: x.caller.Token(), Session: x.session.name(), PerRequest: x.era == upstream.Modern},
		Notify:       x.notify,
		Account:      &x.account,
	}
}

// moved looks at the newest snapshot for a tool whose owner could not be reached; it reports whether
// somebody else owns the name there, or nobody, and leaves that snapshot in x.
func (g *Gateway) moved(x *exchange, name string, owner *upstream.Upstream) bool {
	now, ok := g.admit(x.caller, x.at)
	if !ok || now.s == x.s {
		return false
	}
	t, ok := now.v.find(name)
	if ok && t.owner == owner {
		return false
	}
	x.guest = now
	return true
}

// completed adds resultType to the result of a legacy server for a modern client, which may rely on
// it (2026-07-28, basic, "ResultType"). Any other result passes as it is.
func completed(result jsontext.Value, from, to upstream.Era) jsontext.Value {
	return withDefaults(result, from, to, resultComplete)
}

// uncached adds the hints as well that a modern client may rely on in a reading. A legacy server has none to give:
// such a result is not to be kept (2026-07-28, server/utilities/caching).
func uncached(result jsontext.Value, from, to upstream.Era) jsontext.Value {
	return withDefaults(result, from, to, readDefaults...)
}

type field struct{ name, value string }

var (
	resultComplete = field{"resultType", `"complete"`}
	readDefaults   = []field{{"ttlMs", "0"}, {"cacheScope", `"private"`}, resultComplete}
)

// withDefaults puts those members in front of the result of a legacy server for a modern client that it does not have.
func withDefaults(result jsontext.Value, from, to upstream.Era, members ...field) jsontext.Value {
	if from != upstream.Legacy || to != upstream.Modern {
		return result
	}
	obj, err := wire.ParseObject(result)
	if err != nil {
		return result // duplicate names: the server's affair
	}
	open := bytes.IndexByte(result, '{') + 1
	b := append(make([]byte, 0, len(result)+64), result[:open]...)
	for _, m := range missing(obj, members) {
		if len(b) > open {
			b = append(b, ',')
		}
		b = append(b, m...)
	}
	if len(obj) > 0 && len(b) > open {
		b = append(b, ',')
	}
	return append(b, result[open:]...)
}

// missing returns those members, as they are written, that an object does not have.
func missing(obj wire.Object, members []field) (texts []string) {
	for _, m := range members {
		if _, has := obj.Get(m.name); !has {
			texts = append(texts, `"`+m.name+`":`+m.value)
		}
	}
	return texts
}
