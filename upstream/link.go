package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// Era is one of the two ways in which MCP opens a conversation (2026-07-28, basic/versioning,
// "Terminology").
type Era uint8

const (
	// Legacy is an initialize handshake and a session: 2024-11-05 to 2025-11-25.
	Legacy Era = iota
	// Modern is protocol fields on every request: 2026-07-28.
	Modern
)

// String returns "legacy" or "modern".
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// MarshalText makes an Era readable in JSON.
func (e Era) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// peer is what was negotiated with the server on one link. It is immutable.
type peer struct {
	era          Era
	version      string
	serverInfo   jsontext.Value
	capabilities jsontext.Value
	instructions string
	clientInfo   jsontext.Value // Headgate's own Implementation object
	probing      bool           // nothing is settled yet: this is what the probe speaks
}

// link is one connection that has been negotiated.
type link struct {
	transport
	peer *peer
}

// transport carries messages to one server. Its methods may be called concurrently.
type transport interface {
	// roundTrip sends one request and waits for its answer. When ctx ends first it tells the server
	// that the request is cancelled. Errors are *hopError, *failure.Failure or ctx's.
	roundTrip(ctx context.Context, r *request) (wire.Message, error)
	// notify sends one notification.
	notify(ctx context.Context, method string, params jsontext.Value) error
	// negotiated tells the transport what the hop speaks from now on.
	negotiated(p *peer)
	// follow reads the messages that the server sends outside any request, until the stream ends. It
	// returns errNoStream when the server offers none. opened is called whenever a stream stands.
	follow(ctx context.Context, opened func()) error
	// lost is closed when the connection can no longer be used; cause then says why.
	lost() <-chan struct{}
	cause() error
	// fail marks the connection as lost; requests in flight go on if the transport can carry them.
	fail(err error)
	// close ends the connection and waits for everything it started.
	close()
}

// request is one JSON-RPC request to the server.
type request struct {
	id     int64 // from Upstream.ids, so that no two links ever share one
	method string
	params jsontext.Value
	caller *Caller     // whose credentials it carries; nil for those of the session
	header http.Header // HTTP only: Mcp-Name, Mcp-Param-* and forwarded headers; nil for none
	// onNotify receives the notifications that belong to this request, in order, until roundTrip
	// returns. It must not block. nil drops them.
	onNotify func(wire.Message)
	// onAsk receives a request that the server makes on this request's behalf, with what delivers the answer. It must
	// not block; false means that nobody will answer. nil refuses them all.
	onAsk func(m wire.Message, send func(ctx context.Context, body []byte)) bool
	// wantsLog says that notifications/message belong to this request where the transport cannot tell.
	wantsLog bool
	// remake makes the params of a further try, which tell the server of another span; nil where they stay
	// the same.
	remake func() jsontext.Value
	tries  *tries // what may be sent again; nil for what is sent once
	// onReply is called when the first byte of an answer over HTTP is there; nil for nobody.
	onReply func()
	body    *buffer // that the answer lies in; nil if it is not to be given back

	into   Sink       // takes a large result over HTTP; nil to have every result held
	clock  *callClock // of the call, which stands still meanwhile
	passed bool       // it has begun to
	last   []byte     // the end of the result, without its closing brace, that has not been handed to it
	links  []string   // the URIs in the content that it has taken
	// sent is set once a byte of the request can have reached the server.
	sent atomic.Bool
}

// cancellable reports whether the server is told when the request is given up. initialize must not
// be cancelled (2025-11-25, basic/utilities/cancellation), and a probe is asked before a server may
// be sent anything else.
func (r *request) cancellable() bool {
	return r.method != "initialize" && r.method != "server/discover"
}

// events receives what a server says outside any request.
type events struct {
	// listChanged is called for the list_changed notification of any list. It must not block.
	listChanged func()
	// updated is called for notifications/resources/updated. It must not block.
	updated func(params jsontext.Value)
}

func (e events) handle(m wire.Message) {
	switch m.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		if e.listChanged != nil {
			e.listChanged()
		}
	case "notifications/resources/updated":
		if e.updated != nil {
			e.updated(m.Params)
		}
	}
}

var (
	errNoStream    = errors.New("the server offers no stream of its own")
	errListTimeout = errors.New("reading a list took too long")
	errQueue       = errors.New("as many calls as concurrent allows are in flight, and none ended in time")
	errClosed      = errors.New("the connection was closed")
)

// hopError is a refusal that concerns the hop between Headgate and the server and not the request:
// the request was not run and may be sent again once the hop is repaired.
type hopError struct {
	kind hopFault
	err  error
}

type hopFault uint8

const (
	sessionLost    hopFault = iota + 1 // the server no longer knows the session
	eraChanged                         // the server speaks another era or version than was negotiated
	headerMismatch                     // the server misses or disputes an Mcp-Param-* header
	eraDoubtful                        // the answer may be a modern server's to a legacy request
)

// String is the fault as traces and metrics show it.
func (f hopFault) String() string {
	return map[hopFault]string{sessionLost: "session_lost", eraChanged: "version_refused", headerMismatch: "headers_refused",
		eraDoubtful: "request_refused"}[f]
}

func (e *hopError) Error() string {
	kind := map[hopFault]string{sessionLost: "session lost", eraChanged: "protocol version refused", headerMismatch: "headers refused",
		eraDoubtful: "request refused as malformed"}[e.kind]
	return fmt.Sprintf("%s: %v", kind, e.err)
}

func (e *hopError) Unwrap() error { return e.err }

// refusal answers a request of a server that no client is asked: only ping has an answer, and everything else ends
// at once instead of leaving the tool waiting.
func refusal(m wire.Message) []byte {
	if m.Method == "ping" {
		return wire.AppendResult(nil, m.ID, jsontext.Value("{}"))
	}
	return wire.AppendError(nil, m.ID, Undeclared(m.Method).Error)
}
