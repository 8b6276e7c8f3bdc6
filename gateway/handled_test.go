package gateway

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// handled lets a test see of a request what the gateway tells of it once the answer has been written: whoever has read an
// answer to its end has waited for the end of its handler.
type handled struct {
	next *http.Transport

	mu   sync.Mutex // guards the fields below
	n    int
	done map[string]chan struct{}
}

const handledHeader = "Test-Request"

// handler serves what the transport sends.
func (t *handled) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(handledHeader)
		r.Header.Del(handledHeader)
		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if c := t.done[id]; c != nil {
				close(c)
				delete(t.done, id)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func (t *handled) RoundTrip(r *http.Request) (*http.Response, error) {
	done := make(chan struct{})
	t.mu.Lock()
	t.n++
	id := strconv.Itoa(t.n)
	t.done[id] = done
	t.mu.Unlock()
	r = r.Clone(r.Context())
	r.Header.Set(handledHeader, id)
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		resp.Body = &handledBody{resp.Body, done}
	}
	return resp, err
}

// handledBody ends when the handler that wrote it does.
type handledBody struct {
	io.ReadCloser
	done <-chan struct{}
}

func (b *handledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		select {
		case <-b.done:
		case <-time.After(limit): // the connection has ended before there was a handler
		}
	}
	return n, err
}
