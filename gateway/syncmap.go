package gateway

import "sync"

// syncMap is a map for several goroutines. The zero value is empty.
type syncMap[K comparable, V any] struct {
	mu  sync.Mutex // guards all
	all map[K]V
}

func (m *syncMap[K, V]) put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[K]V)
	}
	m.all[k] = v
}

// take removes and returns what stands under a key.
func (m *syncMap[K, V]) take(k K) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok = m.all[k]
	delete(m.all, k)
	return v, ok
}
