package mcptest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The two eras of the protocol, for [Server.Era].
const (
	Modern = "modern"
	Legacy = "legacy"
)

// The protocol versions that a Server speaks when [Server.Version] is empty.
const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

// Tool is one tool of a scripted server.
type Tool struct {
	// Def is the tool's definition as it stands in tools/list: any bytes.
	Def string
	// Name routes calls to this tool. Empty means the "name" in Def; set it
	// when Def has none or is broken.
	Name string
	// Call answers a call. Its Call counts as an execution before it runs.
	// Nil answers with the text "ok".
	//
	// Call runs on a goroutine of its own and must return soon after Ctx is
	// done. If it returns without an answer, the request has none: an empty
	// 200 over HTTP, a stream that ends if SSE had begun, silence on pipes.
	Call func(c *Call)
}

func (t Tool) name() string {
	if t.Name != "" {
		return t.Name
	}
	return stringMember(object([]byte(t.Def)), "name")
}

// Recorded is one thing that a Server received.
type Recorded struct {
	// Method is the JSON-RPC method. A bare HTTP request has its HTTP method
	// ("GET", "DELETE"), a response and what could not be parsed have none.
	Method string
	// Body is the raw message, nil for a bare HTTP request.
	Body []byte
	// Header is the HTTP request's header, nil on pipes.
	Header http.Header
}

// Server is the script of one upstream server. Set its fields before it is
// served; the methods may be used at any time and from any goroutine. One
// Server may be served over several transports at once.
type Server struct {
	// Name is the server's name in serverInfo, by default "scripted".
	Name string
	// Era is Modern or Legacy. Empty means Modern.
	Era string
	// Version is the only protocol version of a modern server, and the newest
	// of a legacy one.
	Version string
	// Tools is the catalogue at the start. See SetTools.
	Tools []Tool
	// PageSize splits tools/list into pages; 0 puts all on one.
	PageSize int
	// ListChanged declares the tools.listChanged capability.
	ListChanged bool
	// Instructions go into the answers to initialize and server/discover.
	Instructions string
	// Capabilities is a raw JSON object whose members replace the declared
	// capabilities one by one; null takes one away.
	Capabilities string
	// TTLMs is ttlMs of a modern server's lists, in milliseconds.
	TTLMs int64
	// CacheScope is cacheScope of a modern server's lists, by default "public".
	CacheScope string
	// ForceSSE answers every HTTP request by an event stream instead of JSON.
	ForceSSE bool
	// OnList takes over tools/list when it answers ok; rawResult goes out as
	// it is.
	OnList func(cursor string) (rawResult string, ok bool)
	// OnRequest looks at every request before it is validated or routed, and
	// answers true when it has dealt with it.
	OnRequest func(c *Call) bool
	// OnHTTP looks at every HTTP request, GET and DELETE included, before
	// anything else does, and answers true when it has dealt with it. The body
	// is already recorded and can be read again.
	OnHTTP func(w http.ResponseWriter, r *http.Request) bool
	// Methods adds methods, such as "resources/read", that a well-formed
	// request may use.
	Methods map[string]func(c *Call)
	// NoGET answers GET with 405, as a server without a notification stream.
	NoGET bool
	// Stateless makes a legacy HTTP server work without session ids.
	Stateless bool
	// SilentDiscover makes a legacy server leave unknown methods that come
	// before initialize without any answer.
	SilentDiscover bool
	// KeepAlive is the pause between comments on idle HTTP streams, by
	// default 15 seconds.
	KeepAlive time.Duration
	// Forgetful keeps nothing of what is received, for runs so long that memory would not hold it.
	Forgetful bool

	mu         sync.Mutex // guards all fields below
	started    bool       // Tools was copied to tools
	tools      []Tool
	recorded   []Recorded
	executions map[string]int
	cancelled  []string
	sessions   map[string]*peer // HTTP sessions by id
	nobody     *peer            // HTTP clients without a session
	streams    []*stream        // in the order they were opened
	changed    chan struct{}    // closed at the next change of any of the above
}

func (s *Server) modern() bool { return s.Era != Legacy }

func (s *Server) version() string {
	switch {
	case s.Version != "":
		return s.Version
	case s.modern():
		return modernVersion
	default:
		return legacyVersion
	}
}

// info is the raw serverInfo.
func (s *Server) info() string {
	name := s.Name
	if name == "" {
		name = "scripted"
	}
	return `{"name":` + quote(name) + `,"version":"1.0.0"}`
}

// capabilities is the raw object of declared capabilities.
func (s *Server) capabilities() string {
	tools := `{}`
	if s.ListChanged {
		tools = `{"listChanged":true}`
	}
	caps := map[string]json.RawMessage{"tools": json.RawMessage(tools)}
	for k, v := range object([]byte(s.Capabilities)) {
		caps[k] = v
		if string(v) == "null" {
			delete(caps, k)
		}
	}
	raw, _ := json.Marshal(caps)
	return string(raw)
}

// SetTools replaces the catalogue. It does not notify anyone.
func (s *Server) SetTools(t []Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools, s.started = slices.Clone(t), true
}

func (s *Server) catalogue() []Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.tools, s.started = slices.Clone(s.Tools), true
	}
	return s.tools
}

func (s *Server) tool(name string) (Tool, bool) {
	tools := s.catalogue()
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.name() == name })
	if i < 0 {
		return Tool{}, false
	}
	return tools[i], true
}

// NotifyToolsChanged sends notifications/tools/list_changed to every client
// that can hear it: on the newest GET stream of each legacy session, on every
// modern subscription that asked for it, on pipes and HTTP+SSE streams. It
// returns when the bytes are written.
func (s *Server) NotifyToolsChanged() {
	s.Broadcast("notifications/tools/list_changed", "")
}

// Broadcast sends any notification the way NotifyToolsChanged does. A modern
// subscription gets it only if its filter names it; rawParams is a JSON object
// or empty.
func (s *Server) Broadcast(method, rawParams string) {
	s.mu.Lock()
	newest := map[*peer]*stream{}
	var targets []*stream
	for _, st := range s.streams {
		if st.listenID == "" {
			newest[st.peer] = st
		}
	}
	for _, st := range s.streams {
		if st.listenID != "" && st.wants(method) || newest[st.peer] == st {
			targets = append(targets, st)
		}
	}
	s.mu.Unlock()
	for _, st := range targets {
		params := rawParams
		if st.listenID != "" {
			params = withMeta(rawParams, subscriptionKey, st.listenID)
		}
		st.send(notification(method, params))
	}
}

// Streams says how many notification streams are open: GET streams of legacy
// sessions, modern subscriptions, HTTP+SSE streams, initialised pipes.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// EndStreams ends every open notification stream. With graceful, a modern
// subscription gets its completion result first. Pipes stay open.
func (s *Server) EndStreams(graceful bool) {
	s.mu.Lock()
	open := slices.Clone(s.streams)
	s.mu.Unlock()
	for _, st := range open {
		if graceful && st.listenID != "" {
			st.send(response(st.listenID, `{"resultType":"complete","_meta":{`+quote(subscriptionKey)+`:`+st.listenID+`}}`))
		}
		if st.end != nil {
			st.end()
		}
	}
}

// Requests returns everything received so far, in order.
func (s *Server) Requests() []Recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recorded)
}

// Count says how many recorded requests and notifications have the method.
func (s *Server) Count(method string) int {
	n := 0
	for _, r := range s.Requests() {
		if r.Method == method {
			n++
		}
	}
	return n
}

// Executions says how many calls of the tool have started.
func (s *Server) Executions(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executions[tool]
}

// Cancelled returns the raw request ids of the notifications/cancelled
// received so far.
func (s *Server) Cancelled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.cancelled)
}

// Forget drops all HTTP sessions and ends their streams, as a restarted
// process would.
func (s *Server) Forget() {
	s.mu.Lock()
	old := s.sessions
	s.sessions = nil
	var ends []func()
	for _, st := range s.streams {
		if old[st.peer.id] == st.peer && st.end != nil {
			ends = append(ends, st.end)
		}
	}
	s.touch()
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// Sessions says how many HTTP sessions are alive.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Await returns nil once cond is true. It looks again whenever the Server
// received something, started a tool, or opened or closed a stream or a
// session. It returns the context's error if that ends first.
func (s *Server) Await(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// touch wakes Await. The caller holds mu.
func (s *Server) touch() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *Server) record(r Recorded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Forgetful {
		s.recorded = append(s.recorded, r)
	}
	s.touch()
}

// stream is one way to send notifications to a client.
type stream struct {
	peer     *peer
	listenID string // raw id of the subscriptions/listen request; empty when not one
	filter   map[string]json.RawMessage
	send     func(msg []byte)
	end      func() // nil on pipes
}

// filterName maps a notification to the member of a subscription's filter
// that asks for it (2026-07-28, Subscriptions, Notification Filter).
func filterName(method string) string {
	switch method {
	case "notifications/tools/list_changed":
		return "toolsListChanged"
	case "notifications/prompts/list_changed":
		return "promptsListChanged"
	case "notifications/resources/list_changed":
		return "resourcesListChanged"
	case "notifications/resources/updated":
		return "resourceSubscriptions"
	}
	return ""
}

func (st *stream) wants(method string) bool {
	v := strings.TrimSpace(string(st.filter[filterName(method)]))
	return v != "" && v != "false" && v != "null"
}

// open adds a stream and returns how to take it away.
func (s *Server) open(st *stream) (closed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, st)
	s.touch()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(o *stream) bool { return o == st })
		s.touch()
	}
}
