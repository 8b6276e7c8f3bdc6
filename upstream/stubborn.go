package upstream

import (
	"sync"
	"time"
)

// stubborn remembers the tools whose calls were refused as of a lost session although the session was new.
// The refusal is then the tool's own, and to open a session at every call of it would help nobody.
// The zero value is ready.
type stubborn struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

const (
	stubbornFor = time.Minute
	maxStubborn = 256
)

func (s *stubborn) add(tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil || len(s.until) >= maxStubborn {
		s.until = make(map[string]time.Time)
	}
	s.until[tool] = time.Now().Add(stubbornFor)
}

func (s *stubborn) has(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[tool])
}
