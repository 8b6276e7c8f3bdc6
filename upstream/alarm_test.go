package upstream

import (
	"testing"
	"time"
)

// handAlarm is the time limit of a call that ends when the test says so, and not before.
type handAlarm struct {
	d    time.Duration      // that it was set to at first
	ring func()             // what it does when the time is over
	set  chan time.Duration // what it was set to later
}

func (a *handAlarm) Stop() bool { return true }

func (a *handAlarm) Reset(d time.Duration) bool {
	a.set <- d
	return true
}

// byHand lets the test end the time of each call of the rig that begins from now on.
func (r *rig) byHand() <-chan *handAlarm {
	alarms := make(chan *handAlarm, 16)
	r.alarm = func(d time.Duration, f func()) alarm {
		a := &handAlarm{d, f, make(chan time.Duration, 64)}
		alarms <- a
		return a
	}
	return alarms
}

// inBackground makes a call; the channel has how it failed.
func (r *rig) inBackground(c *Call) <-chan error {
	failed := make(chan error, 1)
	go func() {
		_, err := r.Call(r.t.Context(), c)
		failed <- err
	}()
	return failed
}

// wantSet checks how an alarm was set after its beginning: each time to at most d, and to nearly as much.
func (a *handAlarm) wantSet(t *testing.T, times int, d time.Duration) {
	t.Helper()
	if len(a.set) != times {
		t.Errorf("the time was counted anew %d times, want %d", len(a.set), times)
	}
	for range len(a.set) {
		if got := <-a.set; got > d || got < d/2 {
			t.Errorf("the time counted anew is %v, want %v", got, d)
		}
	}
}
