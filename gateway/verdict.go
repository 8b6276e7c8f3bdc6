package gateway

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
)

// verdict is what became of one request. It is worked out once, from the answer, and everything that
// tells of a request takes it from here: two accounts of one request cannot differ.
type verdict struct {
	outcome string           // "ok", "tool_error", "protocol_error", "cancelled", or the reason of failed
	code    int64            // of a JSON-RPC error; 0 where there is none
	failed  *failure.Failure // nil unless Headgate failed the request in its own name
}

// The outcomes that are no failure of Headgate's own.
const (
	outcomeOK            = "ok"
	outcomeToolError     = "tool_error"     // the upstream's result says isError
	outcomeProtocolError = "protocol_error" // a JSON-RPC error, the upstream's or one of a request that nobody was asked
	outcomeCancelled     = "cancelled"
)

func verdictOf(a answer) verdict {
	v := verdict{outcome: outcomeOK, failed: a.failed}
	if a.err != nil {
		v.outcome = outcomeProtocolError
		v.code, _, _ = wire.ErrorCode(a.err)
	}
	switch {
	case a.failed != nil:
		v.outcome = string(a.failed.Reason)
	case a.silent:
		v.outcome = outcomeCancelled
	case a.err == nil && !a.plain && isToolError(a.result):
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

// isToolError reports whether a result says isError: true. Most results do not hold the word, and are not
// parsed.
func isToolError(result jsontext.Value) bool {
	if !bytes.Contains(result, []byte(`"isError"`)) {
		return false
	}
	obj, err := wire.ParseObject(result)
	if err != nil {
		return false // names that stand twice: nobody can say what it means
	}
	flag, _ := obj.Get("isError")
	return flag.Kind() == 't'
}

// observe answers one request with f and takes down what became of it. Every transport has it around all
// that it does with a parsed request.
func (g *Gateway) observe(ctx context.Context, x *exchange, m wire.Message, f func(context.Context) answer) answer {
	x.id, x.method = m.ID, m.Method
	began := time.Now()
	a := g.contain(m.Method, func() answer { return f(ctx) })
	v := verdictOf(a)
	g.remember(x, a, v)
	g.report(x, v, time.Since(began))
	return a
}

// report tells of a request that has been answered.
func (g *Gateway) report(x *exchange, v verdict, took time.Duration) {
	g.log.Debug("answered", "method", x.method, "tool", x.routed.tool, "upstream", x.routed.upstream, "outcome", v.outcome, "took", took.String())
}
