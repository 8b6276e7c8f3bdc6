package upstream

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// Listed is a prompt, a resource or a resource template as its server defined it.
type Listed struct {
	// Key is what it is asked for by: the name of a prompt, the URI of a resource, the text of a template.
	Key        string
	Definition jsontext.Value // the definition, with additive repairs only
	Template   *Template      // of a template that URIs can be matched with; nil for everything else
}

// List is one of the lists of a server, read whole.
type List struct {
	Items []Listed      // in the server's order, keys unique
	TTL   time.Duration // the smallest ttlMs the server gave for it; negative when it gave none
}

// Find returns the item with a key, or nil.
func (l *List) Find(key string) *Listed {
	for i := range l.Items {
		if l.Items[i].Key == key {
			return &l.Items[i]
		}
	}
	return nil
}

func (l *List) equal(o *List) bool {
	return l.TTL == o.TTL && slices.EqualFunc(l.Items, o.Items, func(a, b Listed) bool {
		return a.Key == b.Key && bytes.Equal(a.Definition, b.Definition)
	})
}

// listKind is one of the lists of a server (2026-07-28, server/tools, server/prompts and server/resources).
type listKind struct {
	noun       string // of one item
	capability string
	method     string
	member     string // of the result
	most       int    // items taken from one server

	// Of all but tools.
	key      string // member of an item
	optional []optionalMember
	of       func(*Catalogue) *List
}

var toolKind = listKind{noun: "tool", capability: "tools", method: "tools/list", member: "tools", most: maxTools}

// optionalMember is a member whose wrong type makes strict clients refuse the whole list, with the first
// byte that a value of the right type may have.
type optionalMember struct{ name, kinds, want string }

// maxTemplates bounds the templates of one server: a URI that nobody lists is compared with each.
const maxTemplates = 1000

// maxKey bounds a URI, a template or the name of a prompt, in bytes.
const maxKey = 4096

// listKinds are those besides tools.
var listKinds = []listKind{
	{noun: "prompt", capability: "prompts", method: "prompts/list", member: "prompts", key: "name", most: maxTools,
		optional: []optionalMember{{"title", `"`, "a string"}, {"description", `"`, "a string"}, {"arguments", `[`, "an array"},
			{"icons", `[`, "an array"}, {"_meta", `{`, "an object"}},
		of: func(c *Catalogue) *List { return &c.Prompts }},
	{noun: "resource", capability: "resources", method: "resources/list", member: "resources", key: "uri", most: maxTools,
		optional: []optionalMember{{"title", `"`, "a string"}, {"description", `"`, "a string"}, {"mimeType", `"`, "a string"},
			{"size", `-0123456789`, "a number"}, {"annotations", `{`, "an object"}, {"icons", `[`, "an array"}, {"_meta", `{`, "an object"}},
		of: func(c *Catalogue) *List { return &c.Resources }},
	{noun: "resource template", capability: "resources", method: "resources/templates/list", member: "resourceTemplates", key: "uriTemplate", most: maxTemplates,
		optional: []optionalMember{{"title", `"`, "a string"}, {"description", `"`, "a string"}, {"mimeType", `"`, "a string"},
			{"annotations", `{`, "an object"}, {"icons", `[`, "an array"}, {"_meta", `{`, "an object"}},
		of: func(c *Catalogue) *List { return &c.Templates }},
}

// readLists reads the lists that the server advertised, at the same time. One that cannot be read costs
// itself and no other: it stays as it was, with a finding. Only a fault of the connection fails them all.
func (u *Upstream) readLists(ctx context.Context, l *link, c *Catalogue) error {
	readers := make([]*reading, len(listKinds))
	lists := make([]List, len(listKinds))
	errs := make([]error, len(listKinds)+1)
	var wg sync.WaitGroup
	if hasMember(l.peer.capabilities, "tools") {
		wg.Go(func() { errs[len(listKinds)] = u.readTools(ctx, l, c) })
	}
	for i := range listKinds {
		if !hasMember(l.peer.capabilities, listKinds[i].capability) {
			continue
		}
		r := readingItems(&listKinds[i], u.cfg.ID, &lists[i])
		readers[i] = r
		wg.Go(func() {
			errs[i] = u.readPages(ctx, l, r)
			lists[i].TTL = r.ttl
		})
	}
	wg.Wait()
	if err := errs[len(listKinds)]; err != nil {
		return fmt.Errorf("reading tools: %w", err)
	}
	was := u.Catalogue()
	served := hasMember(l.peer.capabilities, "tools")
	for i := range listKinds {
		served = served || readers[i] != nil && errs[i] == nil
	}
	for i := range listKinds {
		k, r := &listKinds[i], readers[i]
		switch err := errs[i]; {
		case r == nil:
			continue
		case err == nil:
		case !served || ctx.Err() != nil || isHopFault(err) || unreachable(err) || lostOnTheWay(err) && httpStatus(err) == 0 || refusesCredentials(err):
			return fmt.Errorf("reading %ss: %w", k.noun, err)
		default:
			r.findings = []Finding{{Server: u.cfg.ID, Kind: k.noun, Rule: "list", Text: "the list cannot be read: " + clip(u.redact.Replace(unprefixed(err)), 200)}}
			if lists[i] = (List{TTL: minRefresh}); was != nil {
				lists[i].Items = k.of(was).Items
			}
		}
		*k.of(c) = lists[i]
		c.Findings = append(c.Findings, r.findings...)
	}
	return nil
}

// inspect reads a definition as far as Headgate needs it, repairs what can be repaired by adding, and
// refuses with a *toolError what would harm the clients that list it.
func (k *listKind) inspect(r *reading, def jsontext.Value) (Listed, error) {
	var item Listed
	obj, err := wire.ParseObject(def)
	if err != nil {
		return item, &toolError{"definition", "the definition is not a JSON object with unique names"}
	}
	raw, _ := obj.Get(k.key)
	key, ok := wire.String(raw)
	if !ok || key == "" {
		return item, &toolError{"name", "the definition has no " + k.key}
	}
	item.Key = key
	if len(key) > maxKey {
		return item, &toolError{"too_long", fmt.Sprintf("its %s is longer than %d bytes", k.key, maxKey)}
	}
	var edits []wire.Edit
	if v, has := obj.Get("name"); !has || string(v) == "null" {
		edits = append(edits, wire.Edit{Name: "name", Value: wire.AppendString(nil, key)})
		r.find(key, "name_missing", "it has no name, without which strict clients refuse the whole list; its "+k.key+" is given for it")
	} else if v.Kind() != '"' {
		return item, &toolError{"definition", "name is not a string"}
	}
	for _, m := range k.optional {
		v, has := obj.Get(m.name)
		switch {
		case !has:
		case string(v) == "null":
			edits = append(edits, wire.Edit{Name: m.name})
			r.find(key, "null_member", m.name+" is null, which strict clients refuse; it is left out")
		case !strings.Contains(m.kinds, string(v[:1])):
			return item, &toolError{"definition", m.name + " is not " + m.want}
		case m.name == "arguments":
			if err := inspectArguments(v); err != nil {
				return item, err
			}
		}
	}
	adviseText(obj, func(rule, text string) { r.find(key, rule, text) })
	item.Definition = slices.Clone(def)
	if edits != nil {
		item.Definition = obj.Append(nil, edits...)
	}
	if k.key == "uriTemplate" {
		if item.Template = newTemplate(key); item.Template == nil {
			r.find(key, "uri_template", "it is no URI template that URIs can be matched with; reads of its URIs find the server only by asking")
		}
	}
	return item, nil
}

// inspectArguments holds the arguments of a prompt to what strict clients demand: objects with a name.
func inspectArguments(v jsontext.Value) error {
	list, err := wire.Array(v)
	if err != nil {
		return &toolError{"definition", "arguments is not an array"}
	}
	for _, a := range list {
		obj, err := wire.ParseObject(a)
		name, _ := obj.Get("name")
		if err != nil || name.Kind() != '"' {
			return &toolError{"definition", "arguments holds something that is not an object with a name"}
		}
	}
	return nil
}

// refreshAfter is when the catalogue is to be read again: after the least ttlMs that the server gave for
// one of its lists, or else after the given time.
func (c *Catalogue) refreshAfter(d time.Duration) time.Duration {
	ttl := c.TTL
	for i := range listKinds {
		if t := listKinds[i].of(c).TTL; t >= 0 && (ttl < 0 || t < ttl) {
			ttl = t
		}
	}
	if ttl < 0 {
		return d
	}
	return max(ttl, minRefresh)
}

// announced are the members of a subscription's filter for changed lists, by the capability that they
// belong to.
var announced = []struct{ capability, filter string }{
	{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
}

// speaksUp reports whether the server has something to say outside of any request.
func (p *peer) speaksUp() bool {
	for _, a := range announced {
		if announces(p.capabilities, a.capability, "listChanged") {
			return true
		}
	}
	return p.era == Legacy && announces(p.capabilities, "resources", "subscribe")
}

// listenParams asks for the announcements of all lists that the server announces changes of.
func (p *peer) listenParams() jsontext.Value {
	filter := []byte{'{'}
	for _, a := range announced {
		if announces(p.capabilities, a.capability, "listChanged") {
			if len(filter) > 1 {
				filter = append(filter, ',')
			}
			filter = append(filter, `"`+a.filter+`":true`...)
		}
	}
	return p.listenFor(append(filter, '}'))
}

// listenFor are the params of a subscription with a filter.
func (p *peer) listenFor(filter jsontext.Value) jsontext.Value {
	return p.params(wire.Object{{Name: "notifications", Raw: jsontext.Value(`"notifications"`), Value: filter}}, nil, nil)
}

// uri is the URI that the server is asked for.
func (c *Call) uri() string {
	raw, _ := c.Params.Get("uri")
	for _, e := range c.Edits {
		if e.Name == "uri" {
			raw = e.Value
		}
	}
	uri, _ := wire.String(raw)
	return uri
}
