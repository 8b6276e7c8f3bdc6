package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

const (
	// maxRounds bounds how often a modern server may demand more for one call of a legacy client, and maxInputs what
	// it may demand at a time.
	maxRounds = 20
	maxInputs = 16
	// roundPause is what each round lets the next one wait that demands nothing of the client.
	roundPause = 100 * time.Millisecond
)

// demanded is a result that demands input.
type demanded struct {
	inputs wire.Object    // inputRequests
	state  jsontext.Value // requestState; nil for none
}

// inputRequired reads a result of a modern server; ok is false for any other than one that demands input. An error is
// of one that is not what the specification wants.
func inputRequired(reply *upstream.Reply) (d demanded, ok bool, err error) {
	if reply.Era != upstream.Modern || reply.Error != nil || !bytes.Contains(reply.Result, []byte("input_required")) {
		return demanded{}, false, nil
	}
	obj, perr := wire.ParseObject(reply.Result)
	if kind, _ := obj.Get("resultType"); perr != nil || string(kind) != `"input_required"` {
		return demanded{}, false, nil
	}
	if raw, has := obj.Get("inputRequests"); has {
		if d.inputs, perr = wire.ParseObject(raw); perr != nil {
			return demanded{}, true, errors.New("inputRequests is not an object with unique names")
		}
	}
	if raw, has := obj.Get("requestState"); has {
		if raw.Kind() != '"' {
			return demanded{}, true, errors.New("requestState is not a string")
		}
		d.state = raw
	}
	switch {
	case d.inputs == nil && d.state == nil:
		return demanded{}, true, errors.New("input_required with neither inputRequests nor requestState")
	case len(d.inputs) > maxInputs:
		return demanded{}, true, errors.New("too many inputRequests at a time")
	}
	return d, true, nil
}

// rounds makes a call for a legacy client: what a modern server demands is asked of the client, and the call is made
// again with it, as often as it takes.
func (g *Gateway) rounds(ctx context.Context, x *exchange, to target, c *upstream.Call) (*upstream.Reply, error) {
	reply, err := to.up.Call(ctx, c)
	if err != nil || reply.Era != upstream.Modern {
		return reply, err
	}
	d, more, bad := inputRequired(reply)
	if !more {
		return reply, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, to.up.Config().MaxCallTimeout, errClientTime)
	defer cancel()
	refused := func(err error) error {
		return &failure.Failure{Server: to.up.ID(), Reason: failure.InputRefused, Outcome: failure.Refused, Cause: err}
	}
	for round := 1; ; round++ {
		if bad == nil && round > maxRounds {
			bad = errors.New("it demanded input too often for one call")
		}
		if bad != nil {
			return nil, &failure.Failure{Server: to.up.ID(), Reason: failure.BadUpstreamAnswer, Outcome: failure.Refused, Cause: bad}
		}
		responses, err := g.gather(ctx, x, d.inputs)
		if err == nil && len(d.inputs) == 0 {
			err = pause(ctx, time.Duration(round)*roundPause)
		}
		if err != nil && errors.Is(context.Cause(ctx), errClientTime) {
			err = errClientTime
		}
		if err != nil {
			return nil, refused(err)
		}
		again := *c
		edits := []wire.Edit{{Name: "inputResponses", Value: responses}, {Name: "requestState", Value: d.state}}
		if again.Params, err = wire.ParseObject(c.Params.Append(nil, edits...)); err != nil {
			return nil, refused(err)
		}
		reply, err := to.up.Call(ctx, &again)
		if err != nil && errors.Is(context.Cause(ctx), errClientTime) {
			return nil, &failure.Failure{Server: to.up.ID(), Reason: failure.Timeout, Outcome: failure.Unknown,
				Limit: to.up.Config().MaxCallTimeout, Cause: errClientTime}
		}
		if err != nil {
			return nil, err
		}
		if d, more, bad = inputRequired(reply); !more {
			return reply, nil
		}
	}
}

var errClientTime = errors.New("all rounds of a call together took longer than max_call_timeout")

// gather asks a legacy client for everything that a server demands, all at a time, and writes inputResponses; nil
// where nothing is demanded. An error says that the client gave no answer that can be passed on: of all that can be
// demanded only an elicitation can be declined (2026-07-28, client/sampling and client/roots, "Error Handling").
func (g *Gateway) gather(ctx context.Context, x *exchange, inputs wire.Object) (jsontext.Value, error) {
	if inputs == nil {
		return nil, nil
	}
	answers := make([]upstream.Answer, len(inputs))
	methods := make([]string, len(inputs))
	var asking sync.WaitGroup
	for i, in := range inputs {
		request, err := wire.ParseObject(in.Value)
		if err != nil {
			return nil, errors.New("an inputRequest is not an object")
		}
		raw, _ := request.Get("method")
		methods[i], _ = wire.String(raw)
		params, _ := request.Get("params")
		q := upstream.Question{Method: methods[i], Params: forLegacy(params)}
		if x.ask == nil {
			answers[i] = upstream.Undeclared(q.Method)
			continue
		}
		asking.Go(func() { answers[i] = x.ask(ctx, q) })
	}
	asking.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := []byte{'{'}
	for i, in := range inputs {
		a := answers[i]
		if a.Error != nil {
			code, _, _ := wire.ErrorCode(a.Error)
			switch {
			case methods[i] != "elicitation/create":
				return nil, errors.New("the client answered " + methods[i] + " with an error")
			case code == wire.CodeMethodNotFound || code == wire.CodeInvalidParams:
				a.Result = jsontext.Value(`{"action":"decline"}`) // it cannot
			default:
				a.Result = jsontext.Value(`{"action":"cancel"}`)
			}
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, in.Raw...), ':'), a.Result...)
	}
	return append(b, '}'), nil
}

// forLegacy adds to the params of a question what legacy clients want there: an elicitation in url mode has an id
// (2025-11-25, client/elicitation).
func forLegacy(params jsontext.Value) jsontext.Value {
	obj, err := wire.ParseObject(params)
	if err != nil {
		return nil
	}
	mode, _ := obj.Get("mode")
	if _, has := obj.Get("elicitationId"); has || string(mode) != `"url"` {
		return params
	}
	return obj.Append(nil, wire.Edit{Name: "elicitationId", Value: wire.AppendString(nil, rand.Text())})
}

// pause waits within ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
