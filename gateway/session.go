package gateway

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// sessionSweep is how often idle sessions are looked for.
const sessionSweep = 15 * time.Second

// session is a legacy client's conversation (2025-11-25, basic/transports, "Session Management").
// It belongs to the subject that opened it.
type session struct {
	id       string
	subject  string
	used     atomic.Int64 // unix nanoseconds of the last request
	logLevel atomic.Pointer[string]
	version  atomic.Pointer[string] // negotiated
	began    time.Time
	asked    inquiries // of Headgate's, on behalf of servers
	ended    chan struct{}
	end      func()
	updates  *updates // of the resources that the client has subscribed to

	mu       sync.Mutex // guards the fields below
	inflight map[wire.ID]map[int]context.CancelFunc
	begun    int // requests so far
	running  int
	stream   context.CancelFunc // ends the GET stream that stands; nil for none
	streamNo int
}

func newSession(subject string) *session {
	s := &session{id: rand.Text() + rand.Text(), subject: subject, ended: make(chan struct{}), updates: newUpdates(), began: time.Now()}
	s.end = sync.OnceFunc(func() {
		close(s.ended)
		s.updates.close()
	})
	s.touch()
	return s
}

func (s *session) touch() { s.used.Store(time.Now().UnixNano()) }

// name tells the session from others; it is "" for nil.
func (s *session) name() string {
	if s == nil {
		return ""
	}
	return s.id
}

// level returns the least level of log messages that the client asked for, or "".
func (s *session) level() string {
	if l := s.logLevel.Load(); l != nil {
		return *l
	}
	return ""
}

// spoken returns the protocol version that was negotiated, or "".
func (s *session) spoken() string {
	if v := s.version.Load(); v != nil {
		return *v
	}
	return ""
}

// begin registers a request for cancellation; the returned function ends the registration. Clients
// exist that use one id for several requests at a time, so an id may stand for more than one.
func (s *session) begin(id wire.ID, cancel context.CancelFunc) (finish func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inflight == nil {
		s.inflight = make(map[wire.ID]map[int]context.CancelFunc)
	}
	if s.inflight[id] == nil {
		s.inflight[id] = make(map[int]context.CancelFunc)
	}
	s.begun++
	n := s.begun
	s.inflight[id][n] = cancel
	s.running++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		s.touch()
		delete(s.inflight[id], n)
		if len(s.inflight[id]) == 0 {
			delete(s.inflight, id)
		}
	}
}

// cancel ends the requests with an id.
func (s *session) cancel(id wire.ID) {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.inflight[id]))
	s.mu.Unlock()
	for _, cancel := range list {
		cancel()
	}
}

// openStream makes cancel the end of the session's one GET stream; a stream that stood is ended, so
// that a client which lost its connection gets its stream back.
func (s *session) openStream(cancel context.CancelFunc) (closed func()) {
	s.mu.Lock()
	old := s.stream
	s.stream = cancel
	s.streamNo++
	no := s.streamNo
	s.mu.Unlock()
	if old != nil {
		old()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touch()
		if s.streamNo == no {
			s.stream = nil
		}
	}
}

func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Unix(0, s.used.Load()), s.running == 0 && s.stream == nil
}

// sessions are the sessions that stand, by id.
type sessions struct {
	over func(*session) // is told of every session that ends

	mu  sync.Mutex // guards all
	all map[string]*session
	// held counts them, by owner
	held tally
}

func newSessions(over func(*session)) *sessions {
	return &sessions{over: over, all: make(map[string]*session)}
}

// open adds a session; false when there are most in all already, or each of its owner's.
func (ss *sessions) open(s *session, most, each int) bool {
	if !ss.held.add(s.subject, most, each) {
		return false
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.all[s.id] = s
	return true
}

// get returns the session with an id if it belongs to the subject. An id that belongs to somebody
// else is as unknown as one that never was.
func (ss *sessions) get(id, subject string) *session {
	ss.mu.Lock()
	s := ss.all[id]
	ss.mu.Unlock()
	if s == nil || s.subject != subject {
		return nil
	}
	s.touch()
	return s
}

func (ss *sessions) close(s *session) {
	ss.mu.Lock()
	_, stood := ss.all[s.id]
	delete(ss.all, s.id)
	ss.mu.Unlock()
	s.end()
	if stood {
		ss.held.remove(s.subject)
		ss.over(s)
	}
}

// sweep ends the sessions that have been idle for longer than limit. A session with a request or a
// stream is not idle.
func (ss *sessions) sweep(limit time.Duration) {
	ss.mu.Lock()
	var old []*session
	for _, s := range ss.all {
		if since, idle := s.idleSince(); idle && time.Since(since) > limit {
			old = append(old, s)
		}
	}
	ss.mu.Unlock()
	for _, s := range old {
		ss.close(s)
	}
}

func (ss *sessions) count() int { return ss.held.count() }

func (ss *sessions) closeAll() {
	ss.mu.Lock()
	all := ss.all
	ss.all = make(map[string]*session)
	ss.mu.Unlock()
	for _, s := range all {
		ss.held.remove(s.subject)
		s.end()
		ss.over(s)
	}
}
