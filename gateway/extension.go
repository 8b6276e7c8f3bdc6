package gateway

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/failure"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// coreMethods are the first words of the protocol's own methods, which are never taken for an extension's.
var coreMethods = []string{"completion", "elicitation", "initialize", "logging", "notifications", "ping", "prompts", "resources", "roots",
	"sampling", "server", "subscriptions", "tools"}

// extensionMembers are the capabilities in which servers of either era announce extensions by name.
var extensionMembers = []string{"extensions", "experimental"}

// extension passes a request that is not the protocol's own to the one server that can be meant: the one that has made
// the task that it names, or the only one that the caller sees and that announces the extension of the method.
func (g *Gateway) extension(ctx context.Context, x *exchange) answer {
	word, _, ok := strings.Cut(x.method, "/")
	if !ok || slices.Contains(coreMethods, word) {
		return methodNotFound(x.method)
	}
	var able []*upstream.Upstream
	for _, p := range x.v.servers(x.s) {
		if announces(p.catalogue, x.method) {
			able = append(able, p.up)
		}
	}
	if len(able) == 0 {
		return methodNotFound(x.method)
	}
	var up *upstream.Upstream
	raw, named := x.params.Get("taskId")
	switch id, _ := wire.String(raw); {
	case word == "tasks" && named:
		owner, known := g.tasks.find(x.owner(), id)
		i := slices.IndexFunc(able, func(up *upstream.Upstream) bool {
			return owner != nil && (up == owner || up.ID() == owner.ID() && !x.s.has(owner))
		})
		switch {
		case known && owner == nil:
			return invalidTask("two servers have given a task this id")
		case i < 0:
			return invalidTask("Unknown task")
		}
		up = able[i]
	case len(able) > 1:
		return ambiguous(x.method)
	default:
		up = able[0]
	}
	x.routed = route{upstream: up.ID(), owner: up, teams: x.v.teams}
	release, over := g.limiter.Acquire(x.v.teams, x.caller, x.method)
	if over != nil {
		return failExtension(overLimit(over, up.ID()), x.method)
	}
	defer release()
	// requestState and inputResponses mean what the extension says, so nothing is bridged; but a legacy server may ask a
	// legacy client here as well (2025-11-25, basic/utilities/tasks, "Input Required Status").
	c := x.call()
	c.Verbatim, c.Ask = true, x.ask
	c.Caller.Capabilities = jsontext.Value(abilitiesOf(x.capabilities))
	reply, err := up.Call(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return answer{silent: true}
		}
		f := failure.As(err)
		if f == nil {
			f = &failure.Failure{Server: up.ID(), Reason: failure.ConnectionLost, Outcome: failure.Unknown, Cause: err}
		}
		return failExtension(f, x.method)
	}
	g.tasks.note(x.owner(), up, reply.Result)
	if reply.Error != nil {
		return answer{err: g.maskError(&tool{name: x.method, owner: up, rules: x.s.rulesOf(up)}, reply.Error), status: errorStatus(reply.Error)}
	}
	result := reply.Result
	if x.method == "tasks/list" {
		result = g.ownTasks(x, up, result)
	}
	return answer{result: completed(result, reply.Era, x.era)}
}

// servers are the upstreams that a view shows something of, and all that are shared when nothing is hidden, in order.
func (v *view) servers(s *snapshot) []part {
	shown := v.shows()
	var out []part
	for _, p := range s.parts {
		if v.allowed == nil && p.team == "" || shown[p.up] {
			out = append(out, p)
		}
	}
	return out
}

// announces reports whether a server's capabilities name the extension that a method belongs to: by a capability that
// is the method's first word, as tasks has had one, or by an extension whose name, or the last part of it, the method
// begins with.
func announces(c *upstream.Catalogue, method string) bool {
	word, _, _ := strings.Cut(method, "/")
	caps, _ := wire.ParseObject(c.Capabilities)
	if v, _ := caps.Get(word); v.Kind() == '{' {
		return true
	}
	for _, member := range extensionMembers {
		v, _ := caps.Get(member)
		all, _ := wire.ParseObject(v)
		for _, m := range all {
			last := m.Name[strings.LastIndexByte(m.Name, '/')+1:]
			if last == word || strings.HasPrefix(method, m.Name+"/") {
				return true
			}
		}
	}
	return false
}

// withExtensions adds to the capabilities of a view what its servers announce beyond the protocol: extensions by name,
// and the tasks of 2025-11-25. Where two servers set the same one up differently, its settings are left out.
func (s *snapshot) withExtensions(v *view, caps jsontext.Value) jsontext.Value {
	found := make(map[string]wire.Object)
	add := func(member string, all wire.Object) {
		for _, m := range all {
			if m.Value.Kind() != '{' {
				continue
			}
			have := found[member]
			if old, ok := have.Get(m.Name); !ok {
				found[member] = append(have, m)
			} else if !bytes.Equal(old, m.Value) {
				i := slices.IndexFunc(have, func(o wire.Member) bool { return o.Name == m.Name })
				have[i].Value = jsontext.Value("{}")
			}
		}
	}
	for _, p := range v.servers(s) {
		obj, err := wire.ParseObject(p.catalogue.Capabilities)
		if err != nil {
			continue
		}
		for _, member := range extensionMembers {
			raw, _ := obj.Get(member)
			all, _ := wire.ParseObject(raw)
			add(member, all)
		}
		if raw, ok := obj.Get("tasks"); ok {
			add("", wire.Object{{Name: "tasks", Raw: jsontext.Value(`"tasks"`), Value: raw}})
		}
	}
	obj, err := wire.ParseObject(caps)
	if err != nil || len(found) == 0 {
		return caps
	}
	var edits []wire.Edit
	for _, member := range extensionMembers {
		if all := found[member]; all != nil {
			slices.SortFunc(all, func(a, b wire.Member) int { return strings.Compare(a.Name, b.Name) })
			edits = append(edits, wire.Edit{Name: member, Value: all.Append(nil)})
		}
	}
	if raw, ok := found[""].Get("tasks"); ok {
		edits = append(edits, wire.Edit{Name: "tasks", Value: raw})
	}
	return obj.Append(nil, edits...)
}

// ownTasks takes the tasks of others out of a list: a server that knows Headgate alone lists everybody's.
func (g *Gateway) ownTasks(x *exchange, up *upstream.Upstream, result jsontext.Value) jsontext.Value {
	obj, err := wire.ParseObject(result)
	if err != nil {
		return jsontext.Value(`{"tasks":[]}`)
	}
	raw, _ := obj.Get("tasks")
	all, _ := wire.Array(raw)
	b := []byte{'['}
	for _, t := range all {
		owner, _ := g.tasks.find(x.owner(), taskOf(t))
		if owner == nil || owner.ID() != up.ID() {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, t...)
	}
	return obj.Append(nil, wire.Edit{Name: "tasks", Value: append(b, ']')})
}
