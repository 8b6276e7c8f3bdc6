package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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

// Catalogue is what a server offers, read whole at one moment. It is immutable once published.
type Catalogue struct {
	Era          Era
	Version      string         // negotiated protocol version of the hop
	ServerInfo   jsontext.Value // the server's Implementation object, nil if it gave none
	Capabilities jsontext.Value // the server's capabilities object, nil if it gave none
	Instructions string
	Tools        []Tool // in the server's order, names unique
	Prompts      List
	Resources    List
	Templates    List // of resources
	// TTL is the smallest ttlMs the server gave for its tool list; negative when it gave none.
	TTL      time.Duration
	Findings []Finding
}

// Tool returns the tool with the server's own name, or nil.
func (c *Catalogue) Tool(name string) *Tool {
	if c == nil {
		return nil
	}
	for i := range c.Tools {
		if c.Tools[i].Name == name {
			return &c.Tools[i]
		}
	}
	return nil
}

// Announces reports whether the server declared a feature of a capability, for example "subscribe" of
// "resources".
func (c *Catalogue) Announces(capability, feature string) bool {
	return announces(c.Capabilities, capability, feature)
}

// HasCapability reports whether the server declared the capability, for example "logging".
func (c *Catalogue) HasCapability(name string) bool {
	return hasMember(c.Capabilities, name)
}

// Finding is one thing that was repaired or withheld, and why.
type Finding struct {
	Server string `json:"server"`
	Kind   string `json:"kind,omitempty"` // prompt, resource or resource template; "" for a tool
	Tool   string `json:"tool,omitempty"` // what it is listed as
	Rule   string `json:"rule"`
	Text   string `json:"text"`
}

// equal reports whether two catalogues offer the same, byte for byte.
func (c *Catalogue) equal(o *Catalogue) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Era == o.Era && c.Version == o.Version && c.Instructions == o.Instructions && c.TTL == o.TTL &&
		bytes.Equal(c.ServerInfo, o.ServerInfo) && bytes.Equal(c.Capabilities, o.Capabilities) &&
		slices.Equal(c.Findings, o.Findings) &&
		c.Prompts.equal(&o.Prompts) && c.Resources.equal(&o.Resources) && c.Templates.equal(&o.Templates) &&
		slices.EqualFunc(c.Tools, o.Tools, func(a, b Tool) bool {
			return a.Name == b.Name && bytes.Equal(a.Definition, b.Definition)
		})
}

// readCatalogue reads every list that the server advertised.
func (u *Upstream) readCatalogue(ctx context.Context, l *link) (*Catalogue, error) {
	c := &Catalogue{
		Era:          l.peer.era,
		Version:      l.peer.version,
		ServerInfo:   l.peer.serverInfo,
		Capabilities: l.peer.capabilities,
		Instructions: l.peer.instructions,
		TTL:          -1,
	}
	for i := range listKinds {
		listKinds[i].of(c).TTL = -1
	}
	if err := u.readLists(ctx, l, c); err != nil {
		return nil, err
	}
	return c, nil
}

func (u *Upstream) readTools(ctx context.Context, l *link, c *Catalogue) error {
	// One limit for the whole list: a server that takes its time over every page would hold up
	// readiness, and whoever waits for the catalogue, for as long as it likes.
	ctx, cancel := context.WithTimeoutCause(ctx, u.opts.ListTimeout, errListTimeout)
	defer cancel()
	list := toolList{server: u.cfg.ID, c: c, names: make(map[string]bool)}
	cursors := make(map[string]bool)
	var cursor jsontext.Value
	for page := 0; ; page++ {
		if page == maxPages {
			list.find("", "pages", fmt.Sprintf("the tool list did not end after %d pages; what came before is served", maxPages))
			return nil
		}
		result, err := u.listPage(ctx, l, "tools/list", cursor)
		var rpc *rpcError
		if errors.As(err, &rpc) && rpc.code == wire.CodeMethodNotFound {
			list.find("", "capability", "the server advertises tools but does not know tools/list")
			return nil
		}
		if errors.Is(err, errListTimeout) && page > 0 {
			list.find("", "pages", fmt.Sprintf("the tool list did not end within %v; the pages that came before are served", u.opts.ListTimeout))
			return nil
		}
		if err != nil {
			return err
		}
		limitTTL(&c.TTL, result)
		raw, _ := result.Get("tools")
		defs, err := wire.Array(raw)
		if err != nil {
			return fmt.Errorf("tools/list: %w", err)
		}
		for _, def := range defs {
			if !list.take(def) {
				return nil
			}
		}
		next, ok := result.Get("nextCursor")
		if !ok || string(next) == "null" {
			return nil
		}
		if next.Kind() != '"' {
			list.find("", "cursor", "nextCursor is not a string; the list ends there")
			return nil
		}
		if cursors[string(next)] {
			list.find("", "cursor", "the server repeated a cursor; the list ends there")
			return nil
		}
		cursors[string(next)] = true
		cursor = next.Clone()
	}
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

// toolList takes the tools of one server into its catalogue.
type toolList struct {
	server string
	c      *Catalogue
	names  map[string]bool
	seen   int // tools, the bad ones included
	size   int // bytes of the definitions
}

func (l *toolList) find(tool, rule, text string) {
	l.c.Findings = append(l.c.Findings, Finding{Server: l.server, Tool: tool, Rule: rule, Text: text})
}

// take adds one tool, or a finding that says why not. It reports false when no more can be taken.
func (l *toolList) take(def jsontext.Value) bool {
	if l.seen++; l.seen > maxTools {
		l.find("", "tools", fmt.Sprintf("the server lists more than %d tools; the rest is withheld", maxTools))
		return false
	}
	if l.size += len(def); l.size > maxBytes {
		l.find("", "tools", fmt.Sprintf("the definitions of the tools are larger than %d bytes; the rest is withheld", maxBytes))
		return false
	}
	t, findings, err := inspectTool(def)
	for _, f := range findings {
		l.find(t.Name, f.Rule, f.Text)
	}
	var bad *toolError
	switch {
	case errors.As(err, &bad):
		name := t.Name
		if name == "" {
			name = fmt.Sprintf("#%d", l.seen)
		}
		l.find(name, bad.rule, bad.text+"; the tool is withheld")
	case l.names[t.Name]:
		l.find(t.Name, "duplicate_name", "the server lists this name more than once; the first one is served")
	default:
		l.names[t.Name] = true
		l.c.Tools = append(l.c.Tools, t)
	}
	return true
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

// rpcError is a JSON-RPC error that a server gave to a request of Headgate's own.
type rpcError struct {
	code    int64
	message string
}

func (e *rpcError) Error() string {
	return fmt.Sprintf("the server answered error %d: %q", e.code, clip(e.message, 200))
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

func hasMember(obj jsontext.Value, name string) bool {
	if obj == nil {
		return false
	}
	o, err := wire.ParseObject(obj)
	if err != nil {
		return false
	}
	v, ok := o.Get(name)
	return ok && string(v) != "null"
}

// announces reports whether the server says of a capability, such as "tools", that it has a feature,
// such as "listChanged".
func announces(capabilities jsontext.Value, capability, feature string) bool {
	if capabilities == nil {
		return false
	}
	caps, err := wire.ParseObject(capabilities)
	if err != nil {
		return false
	}
	v, _ := caps.Get(capability)
	if v == nil {
		return false
	}
	members, err := wire.ParseObject(v)
	if err != nil {
		return false
	}
	flag, _ := members.Get(feature)
	return string(flag) == "true"
}
