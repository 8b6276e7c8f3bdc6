package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// This file brings what a server asks of the client to a client of the other era. A modern server ends a request with
// a demand for input and is sent it again with what it wants (2026-07-28, basic/patterns/mrtr); a legacy one asks in
// the midst of it. Between two of one era nothing is changed.

// target is what a call is for: what is called or read, under the name that clients know it by, and its owner.
type target struct {
	up   *upstream.Upstream
	name string
}

// place makes a call, in the way that its client and its server can talk to each other meanwhile.
func (g *Gateway) place(ctx context.Context, x *exchange, to target, c *upstream.Call) (*upstream.Reply, error) {
	reply, err := g.carry(ctx, x, to, c)
	if err == nil {
		if mentions(to.up, "tasks") {
			g.tasks.note(x.owner(), to.up, reply.Result)
		}
		if reply.Passed {
			x.passing.passed(reply)
		}
	}
	return reply, err
}

func (g *Gateway) carry(ctx context.Context, x *exchange, to target, c *upstream.Call) (*upstream.Reply, error) {
	can := abilitiesOf(x.capabilities)
	c.Caller.Capabilities = jsontext.Value(can)
	if x.era == upstream.Legacy {
		c.Ask = x.ask
		return g.rounds(ctx, x, to, c)
	}
	raw, resumes := x.params.Get("requestState")
	state, _ := wire.String(raw)
	legacy := to.up.Catalogue() != nil && to.up.Catalogue().Era == upstream.Legacy
	mark, own := g.sealer.open(state)
	switch {
	case resumes && own:
		return g.resume(ctx, x, to, mark)
	case resumes && legacy:
		return nil, &stateError{"was changed, or made before this gateway was started"}
	case legacy && can != nil:
		return g.begin(ctx, x, to, c)
	}
	return to.up.Call(ctx, c)
}

// stateError refuses a requestState.
type stateError struct{ why string }

func (e *stateError) Error() string {
	return "requestState " + e.why + "; make the call without it to begin anew"
}

// begin makes a call that may be interrupted by questions, for a modern client.
func (g *Gateway) begin(ctx context.Context, x *exchange, to target, c *upstream.Call) (*upstream.Reply, error) {
	k := newTalk(x, to)
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.cancel = cancel
	c.Ask, c.Notify = k.ask, k.notify
	c.Into = nil // another request may get the answer
	if !g.talks.start(k, func() {
		defer cancel()
		defer close(k.done)
		defer func() {
			if k.fault = recover(); k.fault != nil {
				k.fault = fmt.Errorf("%v, in a call:\n%s", k.fault, debug.Stack())
			}
		}()
		k.reply, k.err = to.up.Call(callCtx, c)
	}) {
		cancel()
		c.Ask = nil
		c.Notify = x.notify
		return to.up.Call(ctx, c)
	}
	return g.attend(ctx, x, k)
}

// resume takes up the call that a requestState stands for, with what the request answers.
func (g *Gateway) resume(ctx context.Context, x *exchange, to target, mark ticket) (*upstream.Reply, error) {
	switch {
	case mark.Owner != x.owner() || mark.Server != to.up.ID() || mark.Call != callDigest(x, to.name):
		return nil, &stateError{"belongs to another call"}
	case time.Now().After(mark.Expires):
		return nil, &stateError{"has expired, and the call that waited for it was cancelled"}
	}
	answers, err := readAnswers(x.params)
	if err != nil {
		return nil, err
	}
	k := g.talks.get(mark.Talk)
	switch {
	case k == nil && g.talks.isDraining():
		return nil, &stateError{"stands for a call that was cancelled, since this gateway is being stopped"}
	case k == nil:
		return nil, &stateError{"stands for a call that has ended"}
	case k.up != to.up && x.s.has(k.up):
		return nil, &stateError{"belongs to another call"} // a server of the same id in another team
	case !k.attend(x, mark.Round, answers):
		return nil, &stateError{"was used already"}
	}
	g.talks.unpark(k)
	return g.attend(ctx, x, k)
}

// has reports whether an upstream serves in a snapshot.
func (s *snapshot) has(up *upstream.Upstream) bool {
	for i := range s.parts {
		if s.parts[i].up == up {
			return true
		}
	}
	return false
}

// readAnswers reads the inputResponses of a request.
func readAnswers(params wire.Object) (map[string]upstream.Answer, error) {
	raw, ok := params.Get("inputResponses")
	if !ok {
		return nil, nil
	}
	obj, err := wire.ParseObject(raw)
	if err != nil {
		return nil, &paramsError{"params.inputResponses must be an object with unique names"}
	}
	answers := make(map[string]upstream.Answer, len(obj))
	for _, m := range obj {
		if m.Value.Kind() != '{' {
			return nil, &paramsError{"every member of params.inputResponses must be an object"}
		}
		answers[m.Name] = upstream.Answer{Result: m.Value}
	}
	return answers, nil
}

// paramsError refuses params.
type paramsError struct{ text string }

func (e *paramsError) Error() string { return e.text }

// refusedCall is the answer to a call that was refused for what its params say.
func refusedCall(err error) (a answer, ok bool) {
	var state *stateError
	var params *paramsError
	if errors.As(err, &state) || errors.As(err, &params) {
		return invalidParams(err.Error()), true
	}
	return answer{}, false
}

// attend waits, for a request, until the call has ended or its server asks something.
func (g *Gateway) attend(ctx context.Context, x *exchange, k *talk) (*upstream.Reply, error) {
	drained := g.drained
	for {
		select {
		case <-k.done:
			g.talks.drop(k)
			if k.fault != nil {
				panic(k.fault)
			}
			if k.err != nil && ctx.Err() == nil && failure.As(k.err) == nil {
				// The gateway itself is being stopped.
				return nil, &failure.Failure{Server: k.server, Reason: failure.ConnectionLost, Outcome: failure.Unknown, Cause: k.err}
			}
			return k.reply, k.err
		case <-k.asked:
			if reply := g.demand(ctx, x, k); reply != nil {
				return reply, nil
			}
		case <-drained:
			// No request could bring an answer any more.
			drained = nil
			k.decline(true)
		case <-ctx.Done():
			k.cancel()
			<-k.done
			g.talks.drop(k)
			return nil, ctx.Err()
		}
	}
}

// demand makes the answer that asks a modern client for input, and lets the call wait for the next request. It
// returns nil when the request has to go on attending.
func (g *Gateway) demand(ctx context.Context, x *exchange, k *talk) *upstream.Reply {
	gather := time.NewTimer(askGather)
	defer gather.Stop()
	select {
	case <-gather.C:
	case <-k.done:
		return nil
	case <-ctx.Done():
		return nil
	}
	if !g.talks.park(k, x.each(callerTalks)) {
		g.log.Warn("what a server asks is not brought to its client, since too many calls wait for theirs", "method", k.method, "name", k.name, "upstream", k.server)
		k.decline(false)
		return nil
	}
	expires := time.Now().Add(g.talks.patience)
	open, round, ok := k.pause(g.talks.patience, func(round int) {
		g.log.Info("a call is given up, since its client did not come back with what the server asked for", "method", k.method, "name", k.name, "upstream", k.server)
		g.talks.abandon(k, round)
	})
	if !ok {
		g.talks.unpark(k)
		return nil
	}
	if g.talks.isDraining() {
		g.talks.abandon(k, round) // the drain may have come before the pause
	}
	b := []byte(`{"resultType":"input_required","inputRequests":{`)
	for i, o := range open {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `"`+o.key+`":{"method":`...)
		b = wire.AppendString(b, o.Method)
		params := questionParams(o.Params)
		if params == nil {
			params = []byte("{}") // the Go SDK's client fails the whole call where a question has no params
		}
		b = append(append(append(b, `,"params":`...), params...), '}')
	}
	b = append(b, `},"requestState":"`...)
	b = append(b, g.sealer.seal(ticket{Talk: k.id, Round: round, Owner: k.owner, Server: k.server, Call: callDigest(x, k.name), Expires: expires})...)
	return &upstream.Reply{Result: append(b, `"}`...), Era: upstream.Modern}
}

func questionKey(n int) string { return "q" + strconv.Itoa(n) }

// callDigest is what a requestState says of its call: method, what is called, and the arguments.
func callDigest(x *exchange, name string) string {
	args, _ := x.params.Get("arguments")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s", x.method, name, argumentsHash(args)))
	return hex.EncodeToString(sum[:])
}

// ask has a question answered by the client's next request.
func (k *talk) ask(ctx context.Context, q upstream.Question) upstream.Answer {
	o, a, ok := k.put(q)
	if !ok {
		return a
	}
	k.signal()
	select {
	case a = <-o.answer:
	case <-ctx.Done():
		k.withdraw(o)
	}
	return a
}

// notify passes a notification of the call to the request that attends, with its own token and from its own level on.
func (k *talk) notify(method string, params jsontext.Value) {
	x := k.attending()
	if x == nil || x.notify == nil {
		return
	}
	obj, err := wire.ParseObject(params)
	if err != nil {
		return
	}
	switch method {
	case "notifications/progress":
		if x.progress == nil {
			return
		}
		params = obj.Append(nil, wire.Edit{Name: "progressToken", Value: x.progress})
	case "notifications/message":
		raw, _ := obj.Get("level")
		level, _ := wire.String(raw)
		if x.logLevel == "" || upstream.LogLevelIndex(level) < upstream.LogLevelIndex(x.logLevel) {
			return
		}
	default:
		return // the end of an elicitation by URL is news for legacy clients alone
	}
	x.notify(method, params)
}
