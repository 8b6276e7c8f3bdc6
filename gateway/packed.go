package gateway

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
)

// listed is the result of a list, encoded when it is first asked for, and compressed when that is. All callers of a view
// are served the same bytes.
type listed struct {
	text   once[jsontext.Value]
	packed once[*packed]
}

// leastPacked is the size in bytes up to which a list is not worth being compressed.
const leastPacked = 1 << 10

// packed is a compressed list. The id of the answer to it is different each time, so it stands behind the result, where
// it is added as it is: an end that is not compressed costs no more than a few bytes.
type packed struct {
	deflated []byte // up to the end of the result (RFC 1951), on the border of a byte
	crc      uint32 // of what that stands for
	size     uint32 // the same, in bytes, modulo 2^32
}

// packedHead is what stands before the result in a packed answer.
const packedHead = `{"result":`

func pack(list jsontext.Value) *packed {
	var b bytes.Buffer
	z, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		panic(err) // the level is one that there is
	}
	sum := crc32.NewIEEE()
	for _, part := range [][]byte{[]byte(packedHead), list} {
		_, _ = z.Write(part) // a buffer takes everything
		_, _ = sum.Write(part)
	}
	_ = z.Flush()
	return &packed{deflated: bytes.Clone(b.Bytes()), crc: sum.Sum32(), size: uint32(len(packedHead) + len(list))}
}

// parts is the answer to a request, as gzip (RFC 1952), in parts that follow one another; ok is false for an id that is
// too long to be added.
func (p *packed) parts(id wire.ID) (parts [3][]byte, ok bool) {
	end := append(append([]byte(`,"jsonrpc":"2.0","id":`), id...), '}')
	if len(end) > 1<<15 {
		return parts, false
	}
	// The last block is a stored one: its length, the same inverted, its bytes. Then checksum and size of all.
	last := binary.LittleEndian.AppendUint16([]byte{1}, uint16(len(end)))
	last = binary.LittleEndian.AppendUint16(last, ^uint16(len(end)))
	last = append(last, end...)
	last = binary.LittleEndian.AppendUint32(last, crc32.Update(p.crc, crc32.IEEETable, end))
	last = binary.LittleEndian.AppendUint32(last, p.size+uint32(len(end)))
	return [3][]byte{{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}, p.deflated, last}, true
}

// acceptsGzip reads an Accept-Encoding header (RFC 9110, 12.5.3).
func acceptsGzip(h http.Header) bool {
	for _, v := range h["Accept-Encoding"] {
		for part := range strings.SplitSeq(v, ",") {
			name, params, _ := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
				continue
			}
			weight, ok := strings.CutPrefix(strings.ToLower(strings.Join(strings.Fields(params), "")), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			return !ok || err == nil && q > 0
		}
	}
	return false
}

// packedList is the answer to a request for a list, compressed if the client wants it so and it is worth it. It is made
// for plain answers alone, which lists are.
func (r *responder) packedList(id wire.ID, a answer) (parts [3][]byte, ok bool) {
	if a.list == nil || len(a.result) < leastPacked || !r.json || !acceptsGzip(r.header) {
		return parts, false
	}
	p := a.list.packed.get(func() *packed {
		p := pack(a.result)
		if a.charge != nil {
			a.charge(len(p.deflated))
		}
		return p
	})
	if parts, ok = p.parts(id); ok {
		r.w.Header().Set("Content-Encoding", "gzip")
	}
	return parts, ok
}
