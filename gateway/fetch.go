package gateway

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// catalogueMethods are the methods about prompts and resources, by name, each with the kind that has to be
// on offer for it to mean anything.
var catalogueMethods = map[string]struct {
	kind  kind
	serve func(g *Gateway, ctx context.Context, x *exchange) answer
}{
	"prompts/list":             {prompts, func(g *Gateway, _ context.Context, x *exchange) answer { return g.listOffers(x, prompts) }},
	"prompts/get":              {prompts, (*Gateway).getPrompt},
	"resources/list":           {resources, func(g *Gateway, _ context.Context, x *exchange) answer { return g.listOffers(x, resources) }},
	"resources/templates/list": {templates, func(g *Gateway, _ context.Context, x *exchange) answer { return g.listOffers(x, templates) }},
	"resources/read":           {resources, (*Gateway).readResource},
}

// handleCatalogue answers the methods about prompts and resources.
func (g *Gateway) handleCatalogue(ctx context.Context, x *exchange) answer {
	if x.method == "completion/complete" {
		g.awaitStart(ctx, x, startGrace)
		if !x.serves(prompts) && !x.serves(resources) {
			return methodNotFound(x.method)
		}
		return g.complete(ctx, x)
	}
	m, ok := catalogueMethods[x.method]
	if !ok {
		return g.extension(ctx, x)
	}
	g.awaitStart(ctx, x, startGrace)
	if !x.serves(m.kind) {
		return methodNotFound(x.method)
	}
	return m.serve(g, ctx, x)
}

// errand is one request for what is no tool on its way to the upstream that owns it.
type errand struct {
	owner *upstream.Upstream
	what  string // as texts name it, for example "Prompt a_b"
	name  string // the owner's own name; "" for none
	edits []wire.Edit
	whole bool // the result has to be seen before it is passed on
}

// send asks the owner of an errand.
func (g *Gateway) send(ctx context.Context, x *exchange, e errand) (reply *upstream.Reply, f *failure.Failure, a answer) {
	c := x.call()
	c.Name, c.Edits = e.name, e.edits
	if x.method == "resources/read" && !e.whole {
		c.Into = x.sink(readDefaults...)
	}
	return g.ask(ctx, x, target{e.owner, e.what}, c)
}

// ask places a call and tells apart how it can end without a reply. Then a is the answer, unless there is a
// failure: that is Headgate's own, and the caller words it.
func (g *Gateway) ask(ctx context.Context, x *exchange, t target, c *upstream.Call) (reply *upstream.Reply, f *failure.Failure, a answer) {
	reply, err := g.place(ctx, x, t, c)
	if err == nil {
		return reply, nil, a
	}
	if ctx.Err() != nil || x.passing != nil && x.passing.broken {
		return nil, nil, answer{silent: true}
	}
	if a, refused := refusedCall(err); refused {
		return nil, nil, a
	}
	if f = failure.As(err); f == nil {
		panic(fmt.Errorf("a request failed without a reason: %w", err))
	}
	return nil, f, a
}

// fetch sends an errand and makes the answer of what comes back. again resolves the request anew in x: it
// is called when nothing was sent and the catalogue has changed meanwhile, as when a reload took the
// owner away, and gives an errand to somebody else, or an answer.
func (g *Gateway) fetch(ctx context.Context, x *exchange, e errand, again func() (errand, answer, bool)) answer {
	x.routed.upstream, x.routed.owner = e.owner.ID(), e.owner
	reply, f, a := g.send(ctx, x, e)
	switch {
	case reply == nil && f == nil:
		return a
	case f != nil && f.Outcome == failure.NotStarted:
		if now, ok := g.admit(x.caller, x.at); ok && now.s != x.s {
			x.guest = now
			next, a, ok := again()
			if !ok {
				return a
			}
			if next.owner != e.owner {
				return g.fetch(ctx, x, next, again)
			}
		}
		return failRead(f, e.what)
	case f != nil:
		return failRead(f, e.what)
	case reply.Error != nil:
		// The leak filter of the server is for all of its errors.
		return answer{err: g.maskError(&tool{name: x.method, owner: e.owner, rules: x.s.rulesOf(e.owner)}, reply.Error)}
	}
	g.links.note(x, e.owner, reply)
	if x.method == "resources/read" {
		return answer{result: uncached(reply.Result, reply.Era, x.era), reply: reply}
	}
	return answer{result: completed(reply.Result, reply.Era, x.era), reply: reply}
}

// getPrompt routes prompts/get to the owner of the prompt.
func (g *Gateway) getPrompt(ctx context.Context, x *exchange) answer {
	raw, _ := x.params.Get("name")
	name, ok := wire.String(raw)
	if !ok {
		return invalidParams("prompts/get needs params.name, a string")
	}
	if a, bad := argumentsOf(x.params); bad {
		return a
	}
	find := func() (errand, answer, bool) {
		p, ok := x.v.shelves[prompts].find(name)
		switch {
		case !ok:
			return errand{}, unknownPrompt(name), false
		case p.scopes != nil:
			return errand{}, insufficientScope(p.scopes), false
		}
		return errand{owner: p.owner, what: "Prompt " + name, name: p.listed.Key}, answer{}, true
	}
	e, a, ok := find()
	if !ok {
		return a
	}
	return g.fetch(ctx, x, e, find)
}

func argumentsOf(params wire.Object) (a answer, bad bool) {
	if args, ok := params.Get("arguments"); ok && args.Kind() != '{' && string(args) != "null" {
		return invalidParams("params.arguments must be an object"), true
	}
	return answer{}, false
}
