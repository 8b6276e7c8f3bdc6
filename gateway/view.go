package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// view is what one set of callers sees of a scope. Everything that a caller gets to see or to use is
// looked up here, and nowhere else. It is immutable.
type view struct {
	scope        *scope
	teams        []string         // whose shares it is made of; nil without teams
	by           map[int][]string // the teams that allow a tool, by index in scope.tools, where it is not all of them
	allowed      []bool           // by index in scope.tools; nil: all
	stepUp       map[int][]string // scopes that a caller lacks, by index in scope.tools
	tools        []*tool          // the allowed ones, bytewise by name
	lists        [2]listed        // results of tools/list by era
	shelves      [kinds]shown
	capabilities jsontext.Value
	instructions string
	ttl          time.Duration
	cacheScope   string
	charge       func(bytes int) // told of every list that is encoded; nil where nobody counts
}

// usable is a tool that a view shows, with what else the view knows of it.
type usable struct {
	*tool
	scopes []string // that the caller has to be granted first; nil when it has what it needs
	teams  []string // whose limits apply
}

// find looks an exposed name up. A name that the view hides is as unknown as one that does not exist.
func (v *view) find(name string) (t usable, ok bool) {
	i, ok := v.scope.byName[name]
	for ok && v.allowed != nil && !v.allowed[i] {
		i++
		ok = i < len(v.scope.tools) && v.scope.tools[i].name == name
	}
	if !ok {
		return usable{}, false
	}
	t = usable{tool: v.scope.tools[i], scopes: v.stepUp[i], teams: v.teams}
	if by := v.by[i]; by != nil {
		t.teams = by
	}
	return t, true
}

// views are the views of one snapshot, made when they are first asked for. Their number is bounded:
// rights that have not been seen for the longest time are forgotten first. So is their memory: when they
// have grown too large, all are forgotten, and those still in use are made again.
type views struct {
	mu       sync.Mutex // guards the fields below
	bytes    int        // what the views have cost, about
	scopes   map[string]*once[*scope]
	byRights map[string]*once[*view]
	byBits   map[[sha256.Size]byte]*view
	order    []string // of byRights, oldest first
}

func newViews() views {
	return views{
		scopes:   make(map[string]*once[*scope]),
		byRights: make(map[string]*once[*view]),
		byBits:   make(map[[sha256.Size]byte]*view),
	}
}

// maxRights bounds the different rights of callers that are remembered for one snapshot.
const maxRights = 4096

// maxViewBytes bounds the memory of the views of one snapshot.
const maxViewBytes = 512 << 20

// charge adds to the memory of the views.
func (v *views) charge(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bytes += n; v.bytes <= maxViewBytes {
		return
	}
	clear(v.byRights)
	clear(v.byBits)
	v.order, v.bytes = nil, n
}

// once holds a value that the first of many makes while the others wait.
type once[T any] struct {
	do    sync.Once
	made  atomic.Bool
	value T
}

func (o *once[T]) get(f func() T) T {
	o.do.Do(func() {
		o.value = f()
		o.made.Store(true)
	})
	return o.value
}

// peek returns the value if it has been made.
func (o *once[T]) peek() (value T, ok bool) {
	if !o.made.Load() {
		return value, false
	}
	return o.value, true
}

// viewFor returns what a caller sees at an endpoint. It returns nil when the endpoint is a team's that
// does not exist or is not the caller's.
func (s *snapshot) viewFor(c authz.Caller, at endpoint) *view {
	if s.policy == nil {
		if at != "" {
			return nil
		}
		return s.everything
	}
	var teams []string
	if at == "" {
		teams = s.policy.Teams(c)
	} else if c.InTeam(string(at)) && s.cfg.Teams[string(at)] != nil {
		teams = []string{string(at)}
	} else {
		return nil
	}
	var room [256]byte // the usual rights need no more, and no allocation
	rights := s.policy.AppendRights(append(append(room[:0], at...), 0), c, teams)
	o := s.views.rights(rights)
	if v, ok := o.peek(); ok {
		return v
	}
	return s.viewOnce(o, c, teams, at)
}

// viewOnce makes the view of some rights, or waits until somebody has.
func (s *snapshot) viewOnce(o *once[*view], c authz.Caller, teams []string, at endpoint) *view {
	return o.get(func() *view { return s.makeView(c, teams, at) })
}

func (v *views) rights(text []byte) *once[*view] {
	v.mu.Lock()
	defer v.mu.Unlock()
	if o := v.byRights[string(text)]; o != nil {
		return o
	}
	key := string(text)
	if len(v.order) == maxRights {
		delete(v.byRights, v.order[0])
		v.order = v.order[1:]
	}
	o := new(once[*view])
	v.byRights[key] = o
	v.order = append(v.order, key)
	return o
}

// makeView asks the policy about every tool of the scope, once for all callers with the same rights.
// Callers with other rights who may use the same tools share the encoded lists.
func (s *snapshot) makeView(c authz.Caller, teams []string, at endpoint) *view {
	sc := s.scopeOf(teams, at)
	share := s.policy.Share(c, teams)
	v := &view{scope: sc, teams: teams, allowed: make([]bool, len(sc.tools)), stepUp: map[int][]string{}, by: map[int][]string{}}
	sc.decide(share, func(i int, d authz.Decision) {
		v.allowed[i] = d.Allowed
		if d.Allowed && d.Scopes != nil {
			v.stepUp[i] = d.Scopes
		}
		if d.Allowed && len(teams) > 1 {
			if by := share.Teams(&sc.items[i]); len(by) < len(teams) {
				v.by[i] = by
			}
		}
	})
	v.place(share)
	key := v.digest(string(at), teams)
	s.views.mu.Lock()
	known := s.views.byBits[key]
	s.views.mu.Unlock()
	if known != nil {
		return known
	}
	s.finish(v)
	v.charge = s.views.charge
	v.charge(v.size())
	s.views.mu.Lock()
	defer s.views.mu.Unlock()
	if len(s.views.byBits) >= maxRights {
		clear(s.views.byBits)
	}
	s.views.byBits[key] = v
	return v
}

// size is about what the view takes besides its lists, in bytes.
func (v *view) size() int {
	return len(v.allowed) + 8*len(v.tools) + len(v.instructions) + v.shelfSize() + 256
}

// digest identifies what a view shows.
func (v *view) digest(at string, teams []string) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q%q", at, teams)
	for i, ok := range v.allowed {
		if ok {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], uint64(i))
			h.Write(b[:])
			fmt.Fprintf(h, "%q%q", v.stepUp[i], v.by[i])
		}
	}
	v.digestShelves(h)
	return [sha256.Size]byte(h.Sum(nil))
}

// finish encodes a view whose allowed tools are known.
func (s *snapshot) finish(v *view) {
	for i, t := range v.scope.tools {
		if v.allowed == nil || v.allowed[i] {
			v.tools = append(v.tools, t)
		}
	}
	v.cacheScope = "public"
	if v.allowed != nil {
		v.cacheScope = "private"
	}
	s.describe(v)
}

// list is the whole result of tools/list.
func (v *view) list(era upstream.Era) jsontext.Value {
	return v.lists[era].text.get(func() jsontext.Value { return v.charged(v.encode(v.tools, era, "")) })
}

// answerList answers with a whole list.
func (v *view) answerList(text jsontext.Value, l *listed) answer {
	return answer{result: text, plain: true, list: l, charge: v.charge}
}

// charged counts a list that is kept towards what views may take.
func (v *view) charged(list jsontext.Value) jsontext.Value {
	if v.charge != nil {
		v.charge(len(list))
	}
	return list
}

// same reports whether a client that listed everything of one view need not be told of the other.
func (v *view) same(o *view) bool {
	return v.differs(o) == changes{}
}

// sameTools is the same for the tools alone.
func (v *view) sameTools(o *view) bool {
	return v == o || v != nil && o != nil && slices.EqualFunc(v.tools, o.tools, func(a, b *tool) bool {
		return a == b || bytes.Equal(a.exposed, b.exposed)
	})
}

// describe fills in what a view says of its servers: those of which it shows something, and all of
// them when nothing is hidden.
func (s *snapshot) describe(v *view) {
	shown := v.shows()
	var notes []string
	logging := false
	for _, p := range v.scope.parts {
		if v.allowed != nil && !shown[p.up] {
			continue
		}
		c := p.catalogue
		if text := strings.TrimSpace(c.Instructions); text != "" {
			notes = append(notes, instructionsOf(v.scope.naming, p.entry, text))
		}
		logging = logging || c.HasCapability("logging")
	}
	v.ttl = s.ttlOf(v, shown, func(c *upstream.Catalogue) time.Duration { return c.TTL })
	for k := range kinds {
		v.shelves[k].ttl = s.ttlOf(v, shown, func(c *upstream.Catalogue) time.Duration { return kindInfos[k].of(c).TTL })
	}
	v.instructions = strings.Join(notes, "\n\n")
	v.capabilities = s.withExtensions(v, s.capabilitiesOf(v, logging))
}

// absentTTL is the longest that a client may keep a list that lacks the tools of a server which cannot be
// reached.
const absentTTL = 30 * time.Second

// awaits reports whether a part that has no catalogue would have a share in the view.
func (v *view) awaits(s *snapshot, p *part) bool {
	if v.allowed == nil {
		return p.team == ""
	}
	return slices.ContainsFunc(v.teams, func(name string) bool { return p.visibleTo(s.cfg.Teams[name]) })
}

// encode writes a page of tools/list.
func (v *view) encode(tools []*tool, era upstream.Era, next string) jsontext.Value {
	definitions := make([]jsontext.Value, len(tools))
	for i, t := range tools {
		definitions[i] = t.legacy
		if era == upstream.Modern {
			definitions[i] = t.exposed
		}
	}
	return v.encodePage("tools", definitions, v.ttl, era, next)
}

// encodePage writes the result of a list: the definitions of one page, and the cursor of the next, or "".
func (v *view) encodePage(member string, definitions []jsontext.Value, ttl time.Duration, era upstream.Era, next string) jsontext.Value {
	n := 128 + len(next)
	for _, d := range definitions {
		n += len(d) + 1
	}
	b := append(make([]byte, 0, n), '{')
	if era == upstream.Modern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"`+member+`":[`...)
	for i, d := range definitions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, d...)
	}
	b = append(b, ']')
	if next != "" {
		b = append(b, `,"nextCursor":`...)
		b = wire.AppendString(b, next)
	}
	if era == upstream.Modern {
		b = fmt.Appendf(b, `,"ttlMs":%d,"cacheScope":%q`, ttl.Milliseconds(), v.cacheScope)
	}
	return append(b, '}')
}
