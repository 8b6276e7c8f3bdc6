package upstream

import (
	"bytes"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// lastID matches an id that is the last member of a message, or the last but jsonrpc.
var lastID = regexp.MustCompile(`"id"\s*:\s*(-?[0-9]{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)

// scanID looks for the id of a message that cannot be parsed whole: among the members that can be
// read from its beginning, else at its very end. Only top-level members count, so that an id inside
// a result never fails somebody else's request.
func scanID(head, tail []byte) (int64, bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(head), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err == nil && tok.Kind() == '{' {
		for dec.PeekKind() == '"' {
			name, err := dec.ReadToken()
			if err != nil {
				break
			}
			isID := name.String() == "id"
			v, err := dec.ReadValue()
			if err != nil {
				break
			}
			if isID {
				return wire.ID(v).Int64()
			}
		}
	}
	if m := lastID.FindSubmatch(tail); m != nil {
		id, err := strconv.ParseInt(string(m[1]), 10, 64)
		return id, err == nil
	}
	return 0, false
}

// limiter lets n events through in each window and counts the rest.
type limiter struct {
	n      int
	window time.Duration

	mu      sync.Mutex // guards the fields below
	start   time.Time
	used    int
	dropped int
}

func newLimiter(n int, window time.Duration) *limiter {
	return &limiter{n: n, window: window}
}

func (l *limiter) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.start) >= l.window {
		l.start, l.used = now, 0
	}
	if l.used >= l.n {
		l.dropped++
		return false
	}
	l.used++
	return true
}

// takeDropped returns and resets the number of events that were not let through.
func (l *limiter) takeDropped() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.dropped
	l.dropped = 0
	return n
}
