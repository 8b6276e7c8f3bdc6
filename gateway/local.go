package gateway

import (
	"context"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// Answer is the outcome of a call made by the operator, with the channel it came in.
type Answer struct {
	Result json.RawMessage // set when the call was answered with a result
	Error  json.RawMessage // set when it was answered with a JSON-RPC error
}

// IsError reports whether the answer is a result with isError: true.
func (a Answer) IsError() bool {
	obj, err := wire.ParseObject(jsontext.Value(a.Result))
	if err != nil {
		return false
	}
	v, _ := obj.Get("isError")
	return string(v) == "true"
}

// Call calls a tool by its exposed name on the path that a client's call takes, as a modern client
// without capabilities, and at the endpoint of a team or, when team is "", of all its teams. arguments is a JSON object or nil.
// ok is false when there is no such endpoint for the caller.
func (g *Gateway) Call(ctx context.Context, caller authz.Caller, team, name string, arguments json.RawMessage) (result Answer, ok bool) {
	at, ok := g.admit(caller, endpoint(team))
	if !ok {
		return Answer{}, false
	}
	params := wire.Object{{Name: "name", Raw: jsontext.Value(`"name"`), Value: wire.AppendString(nil, name)}}
	if arguments != nil {
		params = append(params, wire.Member{Name: "arguments", Raw: jsontext.Value(`"arguments"`), Value: jsontext.Value(arguments)})
	}
	x := &exchange{guest: at, era: upstream.Modern, params: params}
	m := wire.Message{Method: "tools/call", Params: params.Append(nil)}
	a := g.observe(ctx, x, m, func(ctx context.Context) answer { return g.handle(ctx, x) })
	return Answer{Result: json.RawMessage(a.result), Error: json.RawMessage(a.err)}, true
}
