package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/wire"
)

// cursors makes and checks the cursors of lists (2026-07-28, server/utilities/pagination). A cursor
// is the last name that was shown, with a code that binds it to method and caller; it holds nothing
// that its caller has not seen, and is good for as long as this process lives.
type cursors struct{ key [32]byte }

func newCursors() *cursors {
	c := new(cursors)
	rand.Read(c.key[:]) // never fails
	return c
}

var errCursor = errors.New("invalid cursor")

const cursorCode = 16 // bytes

func (c *cursors) code(method, caller, last string) []byte {
	m := hmac.New(sha256.New, c.key[:])
	for _, s := range []string{method, caller, last} {
		m.Write([]byte{byte(len(s) >> 24), byte(len(s) >> 16), byte(len(s) >> 8), byte(len(s))})
		m.Write([]byte(s))
	}
	return m.Sum(nil)[:cursorCode]
}

func (c *cursors) make(method, caller, last string) string {
	return base64.RawURLEncoding.EncodeToString(append(c.code(method, caller, last), last...))
}

func (c *cursors) read(method, caller, cursor string) (last string, err error) {
	if len(cursor) > 8192 {
		return "", errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < cursorCode {
		return "", errCursor
	}
	last = string(b[cursorCode:])
	if !hmac.Equal(b[:cursorCode], c.code(method, caller, last)) {
		return "", errCursor
	}
	return last, nil
}

// listTools answers tools/list from the snapshot alone.
func (g *Gateway) listTools(x *exchange) answer {
	v := x.v
	raw, paged := x.params.Get("cursor")
	size := x.s.cfg.Lists.PageSize
	if !paged || string(raw) == "null" {
		if size <= 0 || len(v.tools) <= size {
			return answer{result: v.list(x.era), plain: true}
		}
		return g.page(v, x, 0, size)
	}
	cursor, ok := wire.String(raw)
	last, err := g.cursors.read(x.method, x.owner(), cursor)
	if !ok || err != nil {
		return protocolError(wire.CodeInvalidParams, "Invalid cursor: list again from the beginning", nil, 0)
	}
	// The first name after the last one shown, whether that one still exists or not.
	from, found := slices.BinarySearchFunc(v.tools, last, func(t *tool, name string) int { return strings.Compare(t.name, name) })
	if found {
		from++
	}
	if size <= 0 {
		size = len(v.tools) // paging was turned off while the client was paging
	}
	return g.page(v, x, from, size)
}

func (g *Gateway) page(v *view, x *exchange, from, size int) answer {
	to := min(from+size, len(v.tools))
	next := ""
	if to < len(v.tools) {
		next = g.cursors.make(x.method, x.owner(), v.tools[to-1].name)
	}
	return answer{result: v.encode(v.tools[from:to], x.era, next), plain: true}
}
