package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// maxPages bounds the pages read of one list, and maxTools the tools taken from one server, so that
// a cursor that never ends costs a bounded amount of time and memory.
const (
	maxPages = 100
	maxTools = 20_000
	// maxBytes bounds the definitions taken from one server.
	maxBytes = 64 << 20
)

// reading is one list of a server while its pages are read.
type reading struct {
	kind   *listKind
	server string
	// inspect looks at one definition: key is what names it, take puts it into the list, and the error is a
	// *toolError if it is withheld.
	inspect  func(def jsontext.Value) (key string, take func(), err error)
	ttl      time.Duration // the smallest ttlMs of a page; negative when none had one
	findings []Finding
	keys     map[string]bool
	seen     int // items, the bad ones included
	size     int // bytes of the definitions
}

func newReading(kind *listKind, server string) *reading {
	return &reading{kind: kind, server: server, ttl: -1, keys: make(map[string]bool)}
}

// readingTools reads into the tools of a catalogue.
func readingTools(server string, c *Catalogue) *reading {
	r := newReading(&toolKind, server)
	r.inspect = func(def jsontext.Value) (string, func(), error) {
		t, findings, err := inspectTool(def)
		for _, f := range findings {
			r.find(t.Name, f.Rule, f.Text)
		}
		return t.Name, func() { c.Tools = append(c.Tools, t) }, err
	}
	return r
}

// readingItems reads into any other list.
func readingItems(kind *listKind, server string, list *List) *reading {
	r := newReading(kind, server)
	r.inspect = func(def jsontext.Value) (string, func(), error) {
		item, err := kind.inspect(r, def)
		return item.Key, func() { list.Items = append(list.Items, item) }, err
	}
	return r
}

func (r *reading) find(key, rule, text string) {
	f := Finding{Server: r.server, Kind: r.kind.noun, Tool: clip(key, 512), Rule: rule, Text: text}
	if r.kind == &toolKind {
		f.Kind = ""
	}
	r.findings = append(r.findings, f)
}

// readPages reads all pages of a list. One limit is for the whole of it: a server that takes its time over every page
// would hold up readiness, and whoever waits for the catalogue, for as long as it likes.
func (u *Upstream) readPages(ctx context.Context, l *link, r *reading) error {
	ctx, cancel := context.WithTimeoutCause(ctx, u.opts.ListTimeout, errListTimeout)
	defer cancel()
	k := r.kind
	cursors := make(map[string]bool)
	var cursor jsontext.Value
	for page := 0; ; page++ {
		if page == maxPages {
			r.find("", "pages", fmt.Sprintf("the list of %ss did not end after %d pages; what came before is served", k.noun, maxPages))
			return nil
		}
		result, err := u.listPage(ctx, l, k.method, cursor)
		var rpc *rpcError
		switch {
		case errors.As(err, &rpc) && rpc.code == wire.CodeMethodNotFound:
			// Servers with resources need not have templates, and some say so in this way.
			if k.method != "resources/templates/list" {
				r.find("", "capability", "the server advertises "+k.capability+" but does not know "+k.method)
			}
			return nil
		case errors.Is(err, errListTimeout) && page > 0:
			r.find("", "pages", fmt.Sprintf("the list of %ss did not end within %v; the pages that came before are served", k.noun, u.opts.ListTimeout))
			return nil
		case err != nil:
			return err
		}
		limitTTL(&r.ttl, result)
		raw, _ := result.Get(k.member)
		defs, err := wire.Array(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", k.method, err)
		}
		for _, def := range defs {
			if !r.take(def) {
				return nil
			}
		}
		next, ok := result.Get("nextCursor")
		switch {
		case !ok || string(next) == "null":
			return nil
		case next.Kind() != '"':
			r.find("", "cursor", "nextCursor is not a string; the list ends there")
			return nil
		case cursors[string(next)]:
			r.find("", "cursor", "the server repeated a cursor; the list ends there")
			return nil
		}
		cursors[string(next)] = true
		cursor = next.Clone()
	}
}

// take adds one item, or a finding that says why not. It reports false when no more can be taken.
func (r *reading) take(def jsontext.Value) bool {
	k := r.kind
	if r.seen++; r.seen > k.most {
		r.find("", k.tooMany(), fmt.Sprintf("the server lists more than %d %ss; the rest is withheld", k.most, k.noun))
		return false
	}
	if r.size += len(def); r.size > maxBytes {
		r.find("", k.tooMany(), fmt.Sprintf("the definitions of the %ss are larger than %d bytes; the rest is withheld", k.noun, maxBytes))
		return false
	}
	key, take, err := r.inspect(def)
	var bad *toolError
	switch {
	case errors.As(err, &bad):
		if key == "" {
			key = fmt.Sprintf("#%d", r.seen)
		}
		r.find(key, bad.rule, bad.text+"; the "+k.noun+" is withheld")
	case r.keys[key]:
		r.find(key, "duplicate_name", "the server lists it more than once; the first one is served")
	default:
		r.keys[key] = true
		take()
	}
	return true
}

// tooMany is the rule that withholds what is beyond the bounds of a list.
func (k *listKind) tooMany() string {
	if k == &toolKind {
		return "tools"
	}
	return "items"
}

// limitTTL takes the ttlMs of one page into account (2026-07-28, server/utilities/caching).
func limitTTL(ttl *time.Duration, page wire.Object) {
	raw, _ := page.Get("ttlMs")
	ms, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return
	}
	d := min(time.Duration(max(ms, 0)), 24*time.Hour/time.Millisecond) * time.Millisecond
	if *ttl < 0 || d < *ttl {
		*ttl = d
	}
}

// listPage asks for one page of a list.
func (u *Upstream) listPage(ctx context.Context, l *link, method string, cursor jsontext.Value) (wire.Object, error) {
	var params wire.Object
	if cursor != nil {
		params = wire.Object{{Name: "cursor", Raw: jsontext.Value(`"cursor"`), Value: cursor}}
	}
	t := u.startTrip(ctx, method, nil)
	r := &request{id: u.ids.Add(1), method: method, params: l.peer.params(params, nil, &hopFields{trace: t.Carries}), tries: u.triesFor(method, true, nil)}
	msg, err := t.over(ctx, l.peer, r, "")(l.roundTrip(ctx, r))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if msg.Error != nil {
		code, text, _ := wire.ErrorCode(msg.Error)
		return nil, fmt.Errorf("%s: %w", method, &rpcError{code: code, message: u.redact.clip(text, 200)})
	}
	result, err := wire.ParseObject(msg.Result)
	if err != nil {
		return nil, fmt.Errorf("%s: result: %w", method, err)
	}
	return result, nil
}
