package gateway

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// verdict is what became of one request. It is worked out once, from the answer, and everything that
// tells of a request takes it from here: two accounts of one request cannot differ.
type verdict struct {
	outcome string           // "ok", "tool_error", "protocol_error", "cancelled", or the reason of failed
	code    int64            // of a JSON-RPC error; 0 where there is none
	failed  *failure.Failure // nil unless Headgate failed the request in its own name
	size    int              // of the result or the error, in bytes
}

// The outcomes that are no failure of Headgate's own.
const (
	outcomeOK            = "ok"
	outcomeToolError     = "tool_error"     // the upstream's result says isError
	outcomeProtocolError = "protocol_error" // a JSON-RPC error, the upstream's or one of a request that nobody was asked
	outcomeCancelled     = "cancelled"
)

func verdictOf(a answer) verdict {
	v := verdict{outcome: outcomeOK, failed: a.failed, size: max(len(a.result), len(a.err))}
	if a.err != nil {
		v.outcome = outcomeProtocolError
		v.code, _, _ = wire.ErrorCode(a.err)
	}
	switch {
	case a.failed != nil:
		v.outcome = string(a.failed.Reason)
	case a.silent && a.result == nil:
		v.outcome = outcomeCancelled
	case a.err == nil && !a.plain && wire.ToolError(a.result):
		v.outcome = outcomeToolError
	}
	return v
}

// errorType is the error.type of a verdict: the JSON-RPC code, tool_error, or the reason of a failure; ""
// for success.
func (v verdict) errorType() string {
	switch {
	case v.outcome == outcomeOK:
		return ""
	case v.outcome == outcomeProtocolError:
		return strconv.FormatInt(v.code, 10)
	}
	return v.outcome
}

// observe answers one request with f and takes down what became of it. Every transport has it around all
// that it does with a parsed request.
func (g *Gateway) observe(ctx context.Context, x *exchange, m wire.Message, f func(context.Context) answer) answer {
	a, tell := g.observed(ctx, x, m, f)
	tell()
	return a
}

// observed is observe for an answer that is written first: tell has to be called then, whatever came of the writing. A
// line of log, a span and the metrics are a tenth of what a gateway adds to the time that a client waits.
func (g *Gateway) observed(ctx context.Context, x *exchange, m wire.Message, f func(context.Context) answer) (a answer, tell func()) {
	x.id, x.method = m.ID, m.Method
	began := time.Now()
	g.inFlight.Add(1)
	ctx = g.trace(ctx, x, m)
	a = g.contain(m.Method, func() answer { return f(ctx) })
	v := verdictOf(a)
	if n, ok := x.passed(); ok {
		v.size = n
	}
	g.remember(x, a, v)
	took := time.Since(began)
	return a, func() {
		g.report(ctx, x, v, took)
		g.inFlight.Add(-1)
	}
}

// report tells of a request that has been answered.
func (g *Gateway) report(ctx context.Context, x *exchange, v verdict, took time.Duration) {
	g.count(ctx, x, v, took)
	g.logAccess(ctx, x, v, took)
}
