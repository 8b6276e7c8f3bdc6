package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestResponderAfterTheAnswer: a notification that comes late changes nothing, whether the answer was
// plain or a stream.
func TestResponderAfterTheAnswer(t *testing.T) {
	for name, early := range map[string]int{"plain": 0, "stream": 2} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := newResponder(w, nil, acceptable{json: true, stream: true})
			for range early {
				r.notify("notifications/progress", []byte(`{"progress":1}`))
			}
			r.finish(200, []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
			before := w.Body.String()
			r.notify("notifications/progress", []byte(`{"progress":2}`))
			if w.Body.String() != before || r.queue != nil != (early > 0) {
				t.Errorf("%q became %q", before, w.Body)
			}
			if n := strings.Count(before, "notifications/progress"); n != early || !strings.Contains(before, `"result":{}`) {
				t.Errorf("%q", before)
			}
		})
	}
}

// TestResponderQueue: notifications beyond the queue are dropped, and the answer is not among them.
func TestResponderQueue(t *testing.T) {
	w := &heldRecorder{ResponseRecorder: httptest.NewRecorder(), hold: make(chan struct{})}
	r := newResponder(w, nil, acceptable{json: true, stream: true})
	for range 10 * notifyQueue {
		r.notify("n", nil)
	}
	close(w.hold)
	r.finish(200, []byte(`{"result":{}}`))
	n := strings.Count(w.Body.String(), `"method":"n"`)
	if n < notifyQueue || n > notifyQueue+1 || !strings.HasSuffix(w.Body.String(), "data: {\"result\":{}}\n\n") {
		t.Errorf("%d notifications, then %q", n, clip(w.Body.String()))
	}
}

// heldRecorder takes no byte until it is let.
type heldRecorder struct {
	*httptest.ResponseRecorder
	hold chan struct{}
}

func (h *heldRecorder) Write(b []byte) (int, error) {
	<-h.hold
	return h.ResponseRecorder.Write(b)
}

// TestQueuesAreBoundedInBytes: what waits for a client that does not read is bounded, however large
// each notification is; one alone may be of any size.
func TestQueuesAreBoundedInBytes(t *testing.T) {
	big := []byte(`"` + strings.Repeat("x", notifyBytes/4) + `"`)
	huge := []byte(`"` + strings.Repeat("x", 2*notifyBytes) + `"`)
	t.Run("http", func(t *testing.T) {
		w := &heldRecorder{ResponseRecorder: httptest.NewRecorder(), hold: make(chan struct{})}
		r := newResponder(w, nil, acceptable{json: true, stream: true})
		for range 100 {
			r.notify("n", big)
		}
		if n := len(r.queue); n > 4 {
			t.Errorf("%d are queued", n)
		}
		close(w.hold)
		r.finish(200, []byte(`{}`))
		if n := r.waiting.Load(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
	t.Run("http, one", func(t *testing.T) {
		w := httptest.NewRecorder()
		r := newResponder(w, nil, acceptable{json: true, stream: true})
		r.notify("n", huge)
		r.finish(200, []byte(`{}`))
		if w.Body.Len() < len(huge) {
			t.Errorf("%d bytes", w.Body.Len())
		}
	})
	t.Run("stdio", func(t *testing.T) {
		c := &stdioClient{g: makeGateway(t, parseConfig(t, nil), Options{}), out: make(chan []byte, 64)}
		n := &stdioNotifier{client: c}
		n.notify("n", huge)
		for range 100 {
			n.notify("n", big)
		}
		if len(c.out) != 1 {
			t.Errorf("%d are queued", len(c.out))
		}
	})
}

func TestStdioNotifierAfterTheAnswer(t *testing.T) {
	c := &stdioClient{g: makeGateway(t, parseConfig(t, nil), Options{}), out: make(chan []byte, 1)}
	n := &stdioNotifier{client: c}
	n.notify("a", nil)
	n.notify("dropped", nil) // nobody reads
	if got := string(<-c.out); got != `{"jsonrpc":"2.0","method":"a"}` {
		t.Errorf("%s", got)
	}
	n.close()
	n.notify("late", nil)
	if len(c.out) != 0 {
		t.Errorf("%s", <-c.out)
	}
}

// TestResponderStatus: a client that accepts nothing but a stream gets one, unless the answer has a
// status of its own, which a stream cannot carry.
func TestResponderStatus(t *testing.T) {
	for status, want := range map[int]string{200: "text/event-stream", 400: "application/json", 403: "application/json"} {
		w := httptest.NewRecorder()
		newResponder(w, nil, acceptable{stream: true}).finish(status, []byte(`{"jsonrpc":"2.0","id":1,"error":{}}`))
		if got := w.Header().Get("Content-Type"); w.Code != status || got != want {
			t.Errorf("%d comes as %d %s, want %s", status, w.Code, got, want)
		}
	}
}
