package upstream

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
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

// readTools reads the tools into the catalogue. Nobody else touches these members of it meanwhile.
func (u *Upstream) readTools(ctx context.Context, l *link, c *Catalogue) error {
	r := readingTools(u.cfg.ID, c)
	err := u.readPages(ctx, l, r)
	c.TTL, c.Findings = r.ttl, r.findings
	return err
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
