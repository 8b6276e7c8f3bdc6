package upstream

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/headgate/headgate/internal/failure"
)

// slots is the cap on the calls that are in flight at one server. Calls beyond it wait for their turn,
// first come, first served, for a bounded time and in bounded number.
type slots struct {
	places   *semaphore.Weighted // nil: there is no cap
	patience time.Duration
	longest  int64 // calls that may wait
	waiting  atomic.Int64
}

// queueFactor is how many calls may wait for each that may be in flight: with more, the last of them
// would only wait for its patience to run out.
const queueFactor = 16

func newSlots(concurrent int, patience time.Duration) *slots {
	if concurrent == 0 {
		return &slots{}
	}
	return &slots{places: semaphore.NewWeighted(int64(concurrent)), patience: patience, longest: int64(concurrent) * queueFactor}
}

// take waits for a place; the returned function gives it back, and waited says that there was none at
// once. The error is a *failure.Failure, or ctx's.
func (s *slots) take(ctx context.Context, server string) (release func(), waited bool, err error) {
	if s.places == nil {
		return func() {}, false, nil
	}
	release = func() { s.places.Release(1) }
	if s.places.TryAcquire(1) {
		return release, false, nil
	}
	defer s.waiting.Add(-1)
	full := &failure.Failure{Server: server, Reason: failure.Overloaded, Outcome: failure.NotStarted, Cause: errQueue}
	if s.waiting.Add(1) > s.longest {
		return nil, false, full
	}
	queue, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if s.places.Acquire(queue, 1) == nil {
		return release, true, nil
	}
	if ctx.Err() != nil {
		return nil, true, ctx.Err()
	}
	return nil, true, full
}
