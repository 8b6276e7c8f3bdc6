package gateway

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// source is a server that a resource may be read from.
type source struct {
	part   *part
	uri    string   // the server's own
	scopes []string // that the caller has to be granted first; nil when it has what it needs
}

// sources finds whom a URI belongs to, for the caller and nobody else. known says that there is one owner:
// it lists the URI, or the URI names it, or it has the template that describes the URI most closely, or
// it has given the caller a link. Without one, those that may be asked are returned in order. What the
// caller may not read has no source.
func (g *Gateway) sources(at guest, uri string) (list []source, known bool) {
	v := at.v
	if p, ok := v.shelves[resources].find(uri); ok {
		if part := v.scope.partOf(p.owner); part != nil {
			return []source{{part, p.listed.Key, p.scopes}}, true
		}
	}
	d := at.decider()
	if server, own, ok := readAlias(uri); ok {
		for _, p := range v.scope.parts {
			if p.entry.ID == server {
				if s, ok := d.source(p, own); ok {
					return []source{s}, true
				}
			}
		}
		return nil, true
	}
	var best source
	most := -1
	for _, p := range v.scope.parts {
		literal := p.literal(uri)
		if literal <= most {
			continue // of equals the first server in order
		}
		if s, ok := d.source(p, uri); ok {
			best, most = s, literal
		}
	}
	if most >= 0 {
		return []source{best}, true
	}
	if key, ok := g.links.owner(at.caller.Key(), uri); ok {
		for _, p := range v.scope.parts {
			if key == (memberKey{p.team, p.entry.ID}) {
				if s, ok := d.source(p, uri); ok {
					return []source{s}, true
				}
			}
		}
	}
	for _, p := range v.scope.parts {
		if p.has[resources] && len(list) < maxAsked {
			if s, ok := d.source(p, uri); ok {
				list = append(list, s)
			}
		}
	}
	return list, false
}

// maxAsked bounds the servers that are asked for a URI that none of them is known to have.
const maxAsked = 32

// partOf returns the part that an upstream is of.
func (sc *scope) partOf(u *upstream.Upstream) *part {
	for _, p := range sc.parts {
		if p.up == u {
			return p
		}
	}
	return nil
}

// literal is the number of literal characters of the closest of a server's templates that match a URI, or
// -1 when none does.
func (p *part) literal(uri string) int {
	most := -1
	for i := range p.catalogue.Templates.Items {
		if t := p.catalogue.Templates.Items[i].Template; t != nil && t.Literal() > most && t.Match(uri) {
			most = t.Literal()
		}
	}
	return most
}

// decider decides about URIs that no list holds, as the policy decides about those that one does.
type decider struct{ share *authz.Share } // nil: everything is allowed

func (at guest) decider() decider {
	if at.s.policy == nil {
		return decider{}
	}
	return decider{at.s.policy.Share(at.caller, at.v.teams)}
}

// source says whether the caller may read a URI of a server. A rule about the URI in any of its forms, about
// its alias or about a template that it is an instance of is one about it; and where the URI is not written in
// the plainest form, that one has to be allowed too: what a server makes of an encoded slash is not known
// here. One with ".." in it is read by nobody that rules are for.
func (d decider) source(p *part, uri string) (source, bool) {
	s := source{part: p, uri: uri}
	if d.share == nil {
		return s, true
	}
	if climbs(uri) {
		return s, false
	}
	made := d.decide(p, uri, formsOf(uri))
	s.scopes = made.Scopes
	if plain := canonicalURI(uri); made.Allowed && plain != uri {
		also := d.decide(p, plain, nil)
		made.Allowed = also.Allowed
		s.scopes = append(slices.Clip(s.scopes), also.Scopes...)
	}
	return s, made.Allowed
}

func (d decider) decide(p *part, uri string, forms []string) authz.Decision {
	item := authz.Item{Kind: authz.KindResource, Name: uri, Also: []string{aliasOf(p.entry.ID, uri)}, Server: p.entry.ID, Original: uri, Team: p.team}
	for _, f := range forms {
		item.Also = append(item.Also, f, aliasOf(p.entry.ID, f))
	}
	for i := range p.catalogue.Templates.Items {
		l := &p.catalogue.Templates.Items[i]
		if l.Template != nil && (l.Template.Match(uri) || slices.ContainsFunc(forms, l.Template.Match)) {
			item.Also = append(item.Also, l.Key)
		}
	}
	return d.share.Decide(&item)
}

// readResource routes resources/read.
func (g *Gateway) readResource(ctx context.Context, x *exchange) answer {
	raw, _ := x.params.Get("uri")
	uri, ok := wire.String(raw)
	if !ok {
		return invalidParams("resources/read needs params.uri, a string")
	}
	list, known := g.sources(x.guest, uri)
	if len(list) == 0 {
		return unknownResource(uri, x.era)
	}
	if !known {
		return g.askAround(ctx, x, uri, list)
	}
	find := func() (errand, answer, bool) {
		list, _ := g.sources(x.guest, uri)
		switch {
		case len(list) == 0:
			return errand{}, unknownResource(uri, x.era), false
		case list[0].scopes != nil:
			return errand{}, insufficientScope(list[0].scopes), false
		}
		return list[0].errand(uri), answer{}, true
	}
	e, a, ok := find()
	if !ok {
		return a
	}
	return x.withCode(g.fetch(ctx, x, e, find))
}

func (s source) errand(uri string) errand {
	e := errand{owner: s.part.up, what: "Resource " + clipName(uri)}
	if s.uri != uri {
		e.edits = []wire.Edit{{Name: "uri", Value: wire.AppendString(nil, s.uri)}}
	}
	return e
}

// askTime is how long each of several servers may take to say whether it knows a URI.
const askTime = 10 * time.Second

// askAround asks servers in order for a URI that none is known to have, until one knows it. A server that
// cannot be asked is passed over; if nobody else knows the URI, its failure is the answer, since the
// resource may be there.
func (g *Gateway) askAround(ctx context.Context, x *exchange, uri string, list []source) answer {
	var failed *answer
	for _, s := range list {
		if s.scopes != nil {
			// Whether the resource is there is not to be found out without them, so it is as if it were not.
			continue
		}
		e := s.errand(uri)
		e.whole = true // or another server could not be asked any more
		x.routed.upstream, x.routed.owner = e.owner.ID(), e.owner
		askCtx, cancel := context.WithTimeout(ctx, askTime)
		reply, f, a := g.send(askCtx, x, e)
		cancel()
		if ctx.Err() != nil {
			return answer{silent: true}
		}
		if a.silent {
			f = &failure.Failure{Server: e.owner.ID(), Reason: failure.Timeout, Outcome: failure.Unknown, Limit: askTime}
		}
		switch {
		case f != nil:
			if failed == nil {
				a := failRead(f, e.what)
				failed = &a
			}
		case reply == nil:
			failed = &a // the request goes on with another server's
		case reply.Error != nil && saysUnknown(reply.Error):
		case reply.Error != nil:
			return answer{err: g.maskError(&tool{name: x.method, owner: e.owner, rules: x.s.rulesOf(e.owner)}, reply.Error)}
		default:
			g.links.note(x, e.owner, reply)
			g.links.add(x, e.owner, uri)
			return answer{result: uncached(reply.Result, reply.Era, x.era), reply: reply}
		}
	}
	if failed != nil {
		return *failed
	}
	return unknownResource(uri, x.era)
}

// isNotFound reports whether a code is one by which servers say that there is no such resource: those of the
// two eras.
func isNotFound(code int64) bool {
	return code == wire.CodeInvalidParams || code == wire.CodeResourceNotFound
}

// saysUnknown reports that a server which was asked on the chance does not know a URI. Beside the codes
// for it there are servers that give 0 for whatever goes wrong, and some that do not serve reads at all.
func saysUnknown(err jsontext.Value) bool {
	code, _, ok := wire.ErrorCode(err)
	return !ok || code == 0 || code == wire.CodeMethodNotFound || isNotFound(code)
}

// withCode gives the error of a resource that is not there the code of the client's era, whichever the
// server used; message and data stay.
func (x *exchange) withCode(a answer) answer {
	if a.failed != nil || a.err == nil {
		return a
	}
	code, _, ok := wire.ErrorCode(a.err)
	if !ok || !isNotFound(code) || code == notFoundCode(x.era) {
		return a
	}
	obj, err := wire.ParseObject(a.err)
	if err != nil {
		return a
	}
	a.err = obj.Append(nil, wire.Edit{Name: "code", Value: strconv.AppendInt(nil, notFoundCode(x.era), 10)})
	return a
}

// notFoundCode is what an era calls a resource that is not there (2026-07-28, server/resources, "Error
// Handling"; 2025-11-25, the same).
func notFoundCode(era upstream.Era) int64 {
	if era == upstream.Modern {
		return wire.CodeInvalidParams
	}
	return wire.CodeResourceNotFound
}
