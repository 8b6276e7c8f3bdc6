package upstream

import (
	"context"
	"sync"
	"time"
)

// background runs short sends that nobody waits for: cancellations, and answers to a server's own
// requests. Their number and their time are bounded; one too many is dropped.
type background struct {
	wg sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	running int
	closed  bool
	ctx     context.Context
	cancel  context.CancelFunc
}

const (
	backgroundSends   = 64
	backgroundTimeout = 5 * time.Second
)

// run starts f; false when it is one too many.
func (b *background) run(f func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.running == backgroundSends {
		return false
	}
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithCancel(context.Background())
	}
	b.running++
	base := b.ctx
	b.wg.Go(func() {
		ctx, cancel := context.WithTimeout(base, backgroundTimeout)
		defer cancel()
		f(ctx)
		b.mu.Lock()
		b.running--
		b.mu.Unlock()
	})
	return true
}

// close ends what runs and waits for it.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	if b.cancel != nil {
		b.cancel()
	}
	b.mu.Unlock()
	b.wg.Wait()
}
