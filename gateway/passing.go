package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/upstream"
)

// passing sends a large result to a client over HTTP while it is still coming in from its server. It is the sink of the
// call. Once it has begun, the answer can only be completed or cut off.
type passing struct {
	out *responder
	id  wire.ID
	to  upstream.Era
	// defaults are what a modern client may rely on and a legacy server leaves out.
	defaults []field

	began   bool
	broken  bool           // the client took no more
	size    int            // of the result, in bytes, as far as it has been passed on
	written int64          // of the answer
	total   int64          // that the answer will have; -1 where that is not known
	lacks   bool           // the defaults may have to be added
	outline jsontext.Value // of a result that has come in to its end
	last    []byte         // what is left to be written of that
}

// maxDefaults is more than all defaults take, in bytes.
const maxDefaults = 128

// sink is where a call may pass on a large result; nil where every result has to be seen first.
func (x *exchange) sink(defaults ...field) upstream.Sink {
	if x.passing == nil {
		return nil
	}
	x.passing.id, x.passing.to, x.passing.defaults = x.id, x.era, defaults
	return x.passing
}

// passed is how much of a result has been passed on, in bytes; ok is false where none was.
func (x *exchange) passed() (size int, ok bool) {
	if x.passing == nil || !x.passing.began {
		return 0, false
	}
	return x.passing.size, true
}

// passTo lets large results of a request go to a responder while they come in.
func (x *exchange) passTo(out *responder) {
	x.passing = &out.passing
	x.passing.out = out
}

// passed takes what came of the call.
func (p *passing) passed(reply *upstream.Reply) {
	p.outline, p.last = reply.Result, reply.Last
	p.size += len(reply.Last) + 1
}

// Begin implements [upstream.Sink].
func (p *passing) Begin(from upstream.Era, size int64) bool {
	if from == upstream.Modern && p.to == upstream.Legacy {
		return false // it may ask for input
	}
	p.lacks = from != p.to
	head := wire.ResultParts(p.id, nil)[0]
	p.total = -1
	if size >= 0 {
		// One byte more than there can be: an answer that is cut off is never as long as was announced.
		p.total = int64(len(head)) + size + 1
		if p.lacks {
			p.total += maxDefaults
		}
	}
	if !p.out.begin(p.total) {
		return false
	}
	p.began = true
	p.write(head)
	return true
}

// Write implements [upstream.Sink].
func (p *passing) Write(b []byte) error {
	p.size += len(b)
	return p.write(b)
}

func (p *passing) write(b []byte) error {
	p.written += int64(len(b))
	err := writePieces(p.out.w, p.out.rc, b)
	p.broken = p.broken || err != nil
	return err
}

// end completes the answer, or cuts it off if a is not a result that has been passed on. What the announced length has
// more room for than is needed becomes white space, which means nothing behind a message.
func (p *passing) end(a answer) {
	if p.outline == nil || a.silent || a.err != nil || a.failed != nil {
		// The client has to know that this is not all. net/http ends the connection for this value, silently, and in
		// every version of HTTP. There are clients that make a request again when they have nothing of the answer to it.
		if !p.broken {
			_ = p.out.rc.SetWriteDeadline(time.Now().Add(writeLimit))
			_ = p.out.rc.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	rest := p.last
	had := len(rest)
	if obj, err := wire.ParseObject(p.outline); p.lacks && err == nil {
		for _, m := range missing(obj, p.defaults) {
			if len(obj) > 0 || len(rest) > had {
				rest = append(rest, ',')
			}
			rest = append(rest, m...)
		}
	}
	rest = append(rest, "}}"...)
	for n := p.total - p.written - int64(len(rest)); n > 0; n-- {
		rest = append(rest, ' ')
	}
	if p.write(rest) == nil {
		_ = p.out.rc.Flush()
	}
}

// begin starts a plain answer of a size in bytes, or of one that is not known with -1. false means that the answer is to
// come whole: the client wants a stream, or has one already.
func (r *responder) begin(size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.json || r.closed || r.queue != nil {
		return false
	}
	r.closed = true // what else the server may say is not part of the answer
	h := r.w.Header()
	h.Set("Content-Type", "application/json")
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	_ = r.rc.SetWriteDeadline(time.Now().Add(writeLimit))
	r.w.WriteHeader(http.StatusOK)
	return true
}
