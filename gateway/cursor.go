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

// pageOf cuts the page that x asks for out of a list that is sorted by key, and makes the cursor of the next
// one. It reports whole where x asks for the list and is to get all of it.
func pageOf[T any](g *Gateway, x *exchange, list []T, key func(T) string) (page []T, next string, whole bool, refused *answer) {
	from, size := 0, x.s.cfg.Lists.PageSize
	raw, paged := x.params.Get("cursor")
	switch {
	case paged && string(raw) != "null":
		cursor, ok := wire.String(raw)
		last, err := g.cursors.read(x.method, x.owner(), cursor)
		if !ok || err != nil {
			a := protocolError(wire.CodeInvalidParams, "Invalid cursor: list again from the beginning", nil, 0)
			return nil, "", false, &a
		}
		// The first one after the last one shown, whether that still exists or not.
		var found bool
		from, found = slices.BinarySearchFunc(list, last, func(e T, name string) int { return strings.Compare(key(e), name) })
		if found {
			from++
		}
		if size <= 0 {
			size = len(list) // paging was turned off while the client was paging
		}
	case size <= 0 || len(list) <= size:
		return list, "", true, nil
	}
	to := min(from+size, len(list))
	if to < len(list) {
		next = g.cursors.make(x.method, x.owner(), key(list[to-1]))
	}
	return list[from:to], next, false, nil
}

// listTools answers tools/list from the snapshot alone.
func (g *Gateway) listTools(x *exchange) answer {
	page, next, whole, refused := pageOf(g, x, x.v.tools, func(t *tool) string { return t.name })
	switch {
	case refused != nil:
		return *refused
	case whole:
		return x.v.answerList(x.v.list(x.era), &x.v.lists[x.era])
	}
	return answer{result: x.v.encode(page, x.era, next), plain: true}
}
