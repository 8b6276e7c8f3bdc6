package gateway

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/authz"
	"github.com/headgate/headgate/configs"
	"github.com/headgate/headgate/internal/failure"
)

// maxUnsettled bounds how many calls are remembered; the oldest is forgotten first.
const maxUnsettled = 10_000

// callKey is a digest of who calls what with which arguments.
type callKey [sha256.Size]byte

// unsettled are the calls of guarded tools whose outcome is unknown, each with the time at which it became so.
// They live as long as the process, not as a configuration.
type unsettled struct {
	mu    sync.Mutex // guards the fields below
	calls map[callKey]*list.Element
	order list.List // of unsettledCall, oldest first
}

type unsettledCall struct {
	key callKey
	at  time.Time
}

func newUnsettled() *unsettled { return &unsettled{calls: make(map[callKey]*list.Element)} }

// add remembers a call.
func (u *unsettled) add(key callKey, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.calls[key]; e != nil {
		u.order.Remove(e)
	}
	u.calls[key] = u.order.PushBack(unsettledCall{key, at})
	if u.order.Len() > maxUnsettled {
		u.remove(u.order.Front())
	}
}

// left returns how much of the window is left for a call; 0 when it may be made.
func (u *unsettled) left(key callKey, now time.Time, window time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.calls[key]
	if e == nil {
		return 0
	}
	left := window - now.Sub(e.Value.(unsettledCall).at)
	if left <= 0 {
		u.remove(e)
		return 0
	}
	return left
}

// remove forgets an entry. u.mu is held.
func (u *unsettled) remove(e *list.Element) {
	delete(u.calls, u.order.Remove(e).(unsettledCall).key)
}

// guards reports whether a tool's calls are held back after an unknown outcome. One that is safe to repeat never
// is: its callers are told to repeat it.
func (t *tool) guards() bool {
	return t.rules != nil && !t.repeatable && configs.MatchTool(t.rules.entry.GuardTools, t.definition.Name)
}

// digestCall is the key of a call. The server is named by who owns it and by its id, not by a connection, and the tool
// by its own name, so that neither a reload nor another endpoint makes another call of it.
func digestCall(caller authz.Caller, t *tool, arguments jsontext.Value) callKey {
	h := sha256.New()
	for _, part := range []string{caller.Issuer, caller.Subject, t.rules.team, t.rules.entry.ID, t.definition.Name, string(canonical(arguments))} {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = h.Write([]byte(part))
	}
	return callKey(h.Sum(nil))
}

// canonical is the form of arguments in which neither white space, nor the order of members, nor the escaping of
// strings makes a difference. It is that of RFC 8785 except that numbers keep their text: 1 and 1.0 may mean two
// things to a server, and so do large integers that are one float. Arguments that are absent or null are {}.
// What cannot be brought into this form (a name that stands twice, half of a surrogate pair) stays as it is.
func canonical(arguments jsontext.Value) jsontext.Value {
	if len(arguments) == 0 || arguments.Kind() == 'n' {
		return jsontext.Value("{}")
	}
	v := arguments.Clone()
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)); err != nil {
		return arguments
	}
	return v
}

// guarded is the failure of a call that is not made because the same call is unsettled; nil lets it be made.
func (g *Gateway) guarded(x *exchange, t *tool) *failure.Failure {
	if !t.guards() {
		return nil
	}
	arguments, _ := x.params.Get("arguments")
	left := g.unsettled.left(digestCall(x.caller, t, arguments), time.Now(), t.rules.entry.GuardWindow)
	if left == 0 {
		return nil
	}
	return &failure.Failure{Server: t.owner.ID(), Reason: failure.Guarded, Outcome: failure.NotStarted, RetryAfter: left}
}

// unsettle takes note of a call that did not come to an answer, if its outcome is unknown.
func (g *Gateway) unsettle(x *exchange, t *tool, outcome failure.Outcome) {
	if outcome == failure.Unknown && t.guards() {
		arguments, _ := x.params.Get("arguments")
		g.unsettled.add(digestCall(x.caller, t, arguments), time.Now())
	}
}
