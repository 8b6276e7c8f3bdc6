package gateway

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/upstream"
)

const (
	// maxTalks bounds the calls that wait for clients to come back, and callerTalks those of one caller where
	// callers are told apart. Beyond it a server's question is not brought to its client.
	maxTalks    = 512
	callerTalks = 16
	// askPatience is how long a client may take to answer what a server asks.
	askPatience = 5 * time.Minute
	// askGather is how long the first of several questions waits for the others.
	askGather = 25 * time.Millisecond
	// maxQuestion bounds the params of one question, in bytes.
	maxQuestion = 4 << 20
)

// talks are the calls to legacy servers that outlive the request which began them, since what the server asks
// meanwhile is answered by another request of a modern client. It owns their goroutines.
type talks struct {
	patience time.Duration
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	all      map[string]*talk
	draining bool
	closed   bool
	// waiting counts those that no request attends, by caller.
	waiting tally
}

func newTalks() *talks { return &talks{patience: askPatience, all: make(map[string]*talk)} }

// start runs f for a talk; false when nothing is to be started any more.
func (ts *talks) start(k *talk, f func()) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return false
	}
	ts.all[k.id] = k
	ts.running.Go(f)
	return true
}

func (ts *talks) get(id string) *talk {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.all[id]
}

// drop forgets a talk that has been attended to its end.
func (ts *talks) drop(k *talk) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.all, k.id)
}

// park makes a talk wait without a request; false when there is no room for it.
func (ts *talks) park(k *talk, each int) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return !ts.draining && !ts.closed && ts.waiting.add(k.caller, maxTalks, each)
}

// unpark undoes park.
func (ts *talks) unpark(k *talk) { ts.waiting.remove(k.caller) }

// abandon ends a talk that nobody came back for, unless it has been taken up since the round.
func (ts *talks) abandon(k *talk, round int) {
	if !k.leave(round) {
		return
	}
	ts.unpark(k)
	ts.drop(k)
	k.cancel()
}

// drain ends the talks that wait: no request will come for them any more.
func (ts *talks) drain() {
	ts.mu.Lock()
	ts.draining = true
	all := make([]*talk, 0, len(ts.all))
	for _, k := range ts.all {
		all = append(all, k)
	}
	ts.mu.Unlock()
	for _, k := range all {
		ts.abandon(k, k.currentRound())
	}
}

func (ts *talks) isDraining() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.draining
}

// close ends every talk and waits for that.
func (ts *talks) close() {
	ts.drain()
	ts.mu.Lock()
	ts.closed = true
	for _, k := range ts.all {
		k.cancel()
	}
	ts.mu.Unlock()
	ts.running.Wait()
}

// talk is one such call. What it is bound to is fixed; a request attends it, or none does.
type talk struct {
	id     string
	caller string // key of the caller
	owner  string // the caller at its endpoint
	method string
	name   string // of what is called, as clients know it
	server string
	up     *upstream.Upstream

	cancel func()
	asked  chan struct{} // capacity 1: a question was added
	done   chan struct{} // closed when the call has ended; the next three are set then
	reply  *upstream.Reply
	err    error
	fault  any // what the call panicked with

	mu     sync.Mutex // guards the fields below
	x      *exchange  // the request that attends; nil while none does
	can    abilities  // of the client at its last request
	open   []*question
	made   int
	round  int
	timer  *time.Timer // runs while none attends
	closed bool        // abandoned, or questions are not brought to the client any more
}

// question is one of the server's that is open.
type question struct {
	upstream.Question
	key    string // in inputRequests
	answer chan upstream.Answer
}

func newTalk(x *exchange, to target) *talk {
	return &talk{
		id: rand.Text(), caller: x.caller.Key(), owner: x.owner(), method: x.method, name: to.name, server: to.up.ID(), up: to.up,
		asked: make(chan struct{}, 1), done: make(chan struct{}), x: x, can: abilitiesOf(x.capabilities),
	}
}

// put opens a question; ok is false when a is the answer.
func (k *talk) put(q upstream.Question) (o *question, a upstream.Answer, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a, refused := k.can.refuse(q); refused {
		return nil, a, false
	}
	if k.closed || len(q.Params) > maxQuestion {
		return nil, unanswered(q.Method), false
	}
	k.made++
	o = &question{Question: q, key: questionKey(k.made), answer: make(chan upstream.Answer, 1)}
	k.open = append(k.open, o)
	return o, a, true
}

// withdraw closes a question without an answer.
func (k *talk) withdraw(o *question) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = slices.DeleteFunc(k.open, func(other *question) bool { return other == o })
}

// decline answers every question that is open in the client's stead; with all, also those that come.
func (k *talk) decline(all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = k.closed || all
	for _, o := range k.open {
		o.answer <- unanswered(o.Method)
	}
	k.open = nil
}

// pause lets the request go that attends: the open questions are what it takes along. Without any, ok is false, and
// the request goes on attending.
func (k *talk) pause(limit time.Duration, over func(round int)) (open []*question, round int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.open) == 0 {
		return nil, 0, false
	}
	k.round++
	k.x = nil
	round = k.round
	k.timer = time.AfterFunc(limit, func() { over(round) })
	return slices.Clone(k.open), round, true
}

// attend makes a request the one that attends, if the talk waits in this round.
func (k *talk) attend(x *exchange, round int, answers map[string]upstream.Answer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.x != nil || k.closed || k.round != round {
		return false
	}
	k.timer.Stop()
	k.x = x
	if can := abilitiesOf(x.capabilities); can != nil {
		k.can = can
	}
	k.open = slices.DeleteFunc(k.open, func(o *question) bool {
		a, ok := answers[o.key]
		if ok {
			o.answer <- a
		}
		return ok
	})
	if len(k.open) > 0 {
		k.signal() // what is missing is asked for again
	}
	return true
}

// leave closes a talk that waits in this round.
func (k *talk) leave(round int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.x != nil || k.closed || k.round != round {
		return false
	}
	k.timer.Stop()
	k.closed = true
	return true
}

func (k *talk) signal() {
	select {
	case k.asked <- struct{}{}:
	default:
	}
}

func (k *talk) currentRound() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.round
}

func (k *talk) attending() *exchange {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.x
}
