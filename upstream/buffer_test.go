package upstream

import "testing"

func TestBuffersBySize(t *testing.T) {
	var bs buffers
	for _, n := range []int64{0, 1, lentLeast, lentMost + 1} {
		if b := bs.take(n); b != nil {
			t.Errorf("%d bytes are lent", n)
		}
	}
	for n := int64(lentLeast + 1); n <= lentMost; n += 1021 {
		b := bs.take(n)
		if have := int64(cap(b.b)); have < n || have > n+n/4+1 {
			t.Fatalf("a buffer for %d bytes has %d", n, have)
		}
		b.release()
	}
	if b := bs.take(lentMost); cap(b.b) != lentMost {
		t.Errorf("the largest has %d bytes", cap(b.b))
	}
	if b := (*buffers)(nil).take(lentMost); b != nil {
		t.Error("nobody lends")
	}
}

func TestReplyRelease(t *testing.T) {
	var bs buffers
	r := &Reply{buffer: bs.take(lentMost)}
	r.Result = append(r.buffer.b, "{}"...)
	r.Release()
	if r.Result != nil || r.buffer != nil {
		t.Errorf("a reply that was released still has %s", r.Result)
	}
	r.Release() // nothing is left to give back
	kept := &Reply{Result: []byte("{}"), buffer: bs.take(lentMost)}
	kept.Keep()
	if kept.Release(); kept.buffer != nil {
		t.Error("a reply that is kept has a buffer to give back")
	}
}
