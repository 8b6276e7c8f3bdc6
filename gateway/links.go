package gateway

import (
	"bytes"
	"container/list"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// The bounds on remembered links, in bytes of their URIs: for one caller, for all of them, and for one
// link.
const (
	maxCallerLinks = 256 << 10
	maxLinks       = 64 << 20
	maxLink        = maxURI
	linkCost       = 200 // about what an entry takes besides its URI
)

// maxURI is the longest URI that Headgate remembers or watches, in bytes.
const maxURI = 4096

// maxScanned bounds the results that are looked through for links, in bytes.
const maxScanned = 8 << 20

// links remembers which server gave a caller which URI, so that the links inside of results lead back to
// it. What was not used for the longest time is forgotten first.
type links struct {
	mu      sync.Mutex               // guards the fields below
	callers map[string]*list.Element // of order
	order   *list.List               // of *callerLinks, last used first
	size    int
}

type callerLinks struct {
	caller string
	byURI  map[string]*list.Element // of order
	order  *list.List               // of *link, last used first
	size   int
}

type link struct {
	uri   string
	owner memberKey
}

func (l *link) cost() int { return len(l.uri) + linkCost }

func newLinks() *links { return &links{callers: make(map[string]*list.Element), order: list.New()} }

// owner returns who gave a caller a URI.
func (ls *links) owner(caller, uri string) (memberKey, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	at := ls.callers[caller]
	if at == nil {
		return memberKey{}, false
	}
	ls.order.MoveToFront(at)
	c := at.Value.(*callerLinks)
	e := c.byURI[uri]
	if e == nil {
		return memberKey{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*link).owner, true
}

// remember takes down that an owner gave a caller URIs.
func (ls *links) remember(caller string, owner memberKey, uris []string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	at := ls.callers[caller]
	if at == nil {
		at = ls.order.PushFront(&callerLinks{caller: caller, byURI: make(map[string]*list.Element), order: list.New()})
		ls.callers[caller] = at
	}
	ls.order.MoveToFront(at)
	c := at.Value.(*callerLinks)
	for _, uri := range uris {
		if len(uri) > maxLink {
			continue
		}
		if e := c.byURI[uri]; e != nil {
			e.Value.(*link).owner = owner
			c.order.MoveToFront(e)
			continue
		}
		l := &link{uri, owner}
		c.byURI[uri] = c.order.PushFront(l)
		c.size += l.cost()
		ls.size += l.cost()
		for c.size > maxCallerLinks {
			ls.size -= c.forget()
		}
	}
	for ls.size > maxLinks {
		last := ls.order.Back()
		c := last.Value.(*callerLinks)
		ls.size -= c.size
		ls.order.Remove(last)
		delete(ls.callers, c.caller)
	}
}

// forget drops the link that was not used for the longest time and returns what it cost.
func (c *callerLinks) forget() int {
	last := c.order.Back()
	l := last.Value.(*link)
	c.order.Remove(last)
	delete(c.byURI, l.uri)
	c.size -= l.cost()
	return l.cost()
}

// add takes down that an upstream knows a URI for a caller.
func (ls *links) add(x *exchange, owner *upstream.Upstream, uris ...string) {
	if p := x.v.scope.partOf(owner); p != nil && len(uris) > 0 {
		ls.remember(x.caller.Key(), memberKey{p.team, p.entry.ID}, uris)
	}
}

// note takes down the URIs of a result that passes to a caller: those of links and of embedded resources
// in the content of tools and the messages of prompts, and of what a read gave.
func (ls *links) note(x *exchange, owner *upstream.Upstream, reply *upstream.Reply) {
	result := reply.Result
	if !mentions(owner, "resources") {
		return // nothing can be read from it
	}
	if len(reply.Links) == 0 && (len(result) > maxScanned || !bytes.Contains(result, []byte(`"uri"`))) {
		return
	}
	if c := owner.Catalogue(); c == nil || !c.HasCapability("resources") {
		return // nothing can be read from it
	}
	if reply.Passed {
		ls.add(x, owner, reply.Links...)
		return
	}
	var uris []string
	take := func(v jsontext.Value) {
		if uri, ok := wire.String(v); ok {
			uris = append(uris, uri)
		}
	}
	content := func(v jsontext.Value) {
		block, _ := wire.ParseObject(v)
		switch typ, _ := block.Get("type"); string(typ) {
		case `"resource_link"`:
			uri, _ := block.Get("uri")
			take(uri)
		case `"resource"`:
			inner, _ := block.Get("resource")
			resource, _ := wire.ParseObject(inner)
			uri, _ := resource.Get("uri")
			take(uri)
		}
	}
	obj, _ := wire.ParseObject(result)
	for _, m := range obj {
		switch m.Name {
		case "content":
			elements(m.Value, content)
		case "messages":
			elements(m.Value, func(v jsontext.Value) {
				message, _ := wire.ParseObject(v)
				c, _ := message.Get("content")
				if c.Kind() == '[' {
					elements(c, content)
				} else {
					content(c)
				}
			})
		case "contents":
			elements(m.Value, func(v jsontext.Value) {
				resource, _ := wire.ParseObject(v)
				uri, _ := resource.Get("uri")
				take(uri)
			})
		}
	}
	ls.add(x, owner, uris...)
}

// elements calls f for the elements of an array; anything else has none.
func elements(v jsontext.Value, f func(jsontext.Value)) {
	for e, err := range wire.Elements(v) {
		if err == nil {
			f(e)
		}
	}
}
