package mcptest

import (
	"encoding/json"
	"strconv"
	"strings"
)

// serve answers one request that its transport has let through.
func (s *Server) serve(c *Call) {
	if s.modern() {
		s.serveModern(c)
	} else {
		s.serveLegacy(c)
	}
}

// notified takes one notification.
func (s *Server) notified(p *peer, m message) {
	switch m.method {
	case "notifications/initialized":
		if p != nil {
			p.reached(2)
		}
	case "notifications/cancelled":
		id := string(object(m.params)["requestId"])
		s.mu.Lock()
		if !s.Forgetful {
			s.cancelled = append(s.cancelled, id)
		}
		s.touch()
		s.mu.Unlock()
		if p != nil {
			p.cancel(id)
		}
	}
}

// serveModern answers by the 2026-07-28 revision.
func (s *Server) serveModern(c *Call) {
	if status, rawError := s.checkModern(c); rawError != "" {
		c.out.reply(status, errorResponse(c.ID, rawError))
		return
	}
	switch c.Method {
	case "server/discover":
		c.Result(`{"resultType":"complete","supportedVersions":[` + quote(s.version()) + `],"capabilities":` + s.capabilities() +
			s.instructions() + `,"_meta":{` + quote(metaPrefix+"serverInfo") + `:` + s.info() + `}` + s.cacheHints() + `}`)
	case "subscriptions/listen":
		s.listen(c)
	default:
		s.common(c)
	}
}

// serveLegacy answers by the revisions up to 2025-11-25.
func (s *Server) serveLegacy(c *Call) {
	if c.Method == "initialize" {
		c.peer.reached(1)
		c.Result(`{"protocolVersion":` + quote(s.negotiate(c)) + `,"capabilities":` + s.capabilities() +
			`,"serverInfo":` + s.info() + s.instructions() + `}`)
		return
	}
	if c.Method == "ping" {
		c.Result(`{}`)
		return
	}
	stateless := s.Stateless && c.Header != nil
	if state := c.peer.state(); state < 2 && !stateless {
		if s.SilentDiscover && state == 0 && !s.knows(c.Method) {
			<-c.Ctx.Done()
			return
		}
		if s.knows(c.Method) {
			c.Error(rpcError(codeInvalidParams, "request before initialization was complete", ""))
			return
		}
	}
	if c.Method == "logging/setLevel" {
		c.Result(`{}`)
		return
	}
	s.common(c)
}

// negotiate picks the version to answer initialize with: the client's if it is
// not newer than the server's (versions are dates), else the server's.
func (s *Server) negotiate(c *Call) string {
	asked := stringMember(object(c.Params), "protocolVersion")
	if asked != "" && asked < s.version() {
		return asked
	}
	return s.version()
}

func (s *Server) knows(method string) bool {
	_, extra := s.Methods[method]
	return extra || method == "tools/list" || method == "tools/call" || method == "logging/setLevel" && !s.modern()
}

// common answers the methods that both eras share.
func (s *Server) common(c *Call) {
	if h, ok := s.Methods[c.Method]; ok {
		h(c)
		return
	}
	switch c.Method {
	case "tools/list":
		s.list(c)
	case "tools/call":
		s.call(c)
	default:
		status := 200
		if s.modern() {
			status = 404
		}
		c.out.reply(status, errorResponse(c.ID, rpcError(codeMethodNotFound, "Method not found", "")))
	}
}

func (s *Server) list(c *Call) {
	cursor := stringMember(object(c.Params), "cursor")
	if s.OnList != nil {
		if raw, ok := s.OnList(cursor); ok {
			c.Result(raw)
			return
		}
	}
	tools := s.catalogue()
	from := 0
	if cursor != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(cursor, "page:"))
		if err != nil || !strings.HasPrefix(cursor, "page:") || n < 0 || n > len(tools) {
			c.Error(rpcError(codeInvalidParams, "Invalid cursor", ""))
			return
		}
		from = n
	}
	to := len(tools)
	if s.PageSize > 0 {
		to = min(to, from+s.PageSize)
	}
	defs := make([]string, 0, to-from)
	for _, t := range tools[from:to] {
		defs = append(defs, t.Def)
	}
	raw := `{"tools":[` + strings.Join(defs, ",") + `]`
	if to < len(tools) {
		raw += `,"nextCursor":"page:` + strconv.Itoa(to) + `"`
	}
	if s.modern() {
		raw += `,"resultType":"complete"` + s.cacheHints()
	}
	c.Result(raw + `}`)
}

func (s *Server) call(c *Call) {
	name := c.ToolName()
	t, ok := s.tool(name)
	if !ok {
		c.Error(rpcError(codeInvalidParams, "Unknown tool: "+name, ""))
		return
	}
	s.mu.Lock()
	if s.executions == nil {
		s.executions = map[string]int{}
	}
	s.executions[name]++
	s.touch()
	s.mu.Unlock()
	if t.Call == nil {
		c.Text("ok")
		return
	}
	t.Call(c)
}

// listen keeps a subscription open until its client or the server ends it
// (2026-07-28, Subscriptions).
func (s *Server) listen(c *Call) {
	asked := object(object(c.Params)["notifications"])
	if asked == nil {
		c.out.reply(400, errorResponse(c.ID, rpcError(codeInvalidParams, "notifications is required", "")))
		return
	}
	tools := object(object([]byte(s.capabilities()))["tools"])
	if string(tools["listChanged"]) != "true" {
		delete(asked, "toolsListChanged")
	}
	granted, _ := json.Marshal(asked)
	// The stream is open before it is acknowledged, so that a client that has
	// read the acknowledgement misses nothing; the gate keeps the order.
	gate := newGate(c.out.send)
	ended := make(chan struct{})
	closed := s.open(&stream{peer: c.peer, listenID: c.ID, filter: asked, send: gate.send, end: onceClose(ended)})
	defer closed()
	gate.open(notification("notifications/subscriptions/acknowledged",
		withMeta(`{"notifications":`+string(granted)+`}`, subscriptionKey, c.ID)))
	s.idle(c.Ctx.Done(), ended, c.out)
}

func (s *Server) instructions() string {
	if s.Instructions == "" {
		return ""
	}
	return `,"instructions":` + quote(s.Instructions)
}

func (s *Server) cacheHints() string {
	scope := s.CacheScope
	if scope == "" {
		scope = "public"
	}
	return `,"ttlMs":` + strconv.FormatInt(s.TTLMs, 10) + `,"cacheScope":` + quote(scope)
}
