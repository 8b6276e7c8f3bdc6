package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
)

// countedConn is a connection to a server that knows whether anything was written to it, and that
// writes nothing once the server has closed its side. A request on an idle connection that ended in
// the meantime has then surely not been sent, and goes out on a new one.
type countedConn struct {
	net.Conn
	raw    syscall.RawConn // of Conn; nil where it has none
	writes atomic.Int64
}

func newCountedConn(conn net.Conn) *countedConn {
	c := &countedConn{Conn: conn}
	if sc, ok := conn.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn() // an error is of a connection that has been closed
	}
	return c
}

var errEnded = errors.New("the server closed the connection before anything was sent")

func (c *countedConn) Write(p []byte) (int, error) {
	if c.raw != nil && ended(c.raw) {
		return 0, errEnded
	}
	c.writes.Add(1)
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		c.writes.Add(-1) // the server had closed it after all
	}
	return n, err
}

// sendTrace follows one HTTP request on its way out.
type sendTrace struct {
	conn    *countedConn
	before  int64 // writes to conn when the request got it
	got     bool  // there was a connection
	reused  bool
	shared  bool   // other requests use conn at the same time
	onConn  func() // a request can have been sent from here on
	onReply func() // the first byte of an answer is there
}

// begin makes the trace one of a new try.
func (s *sendTrace) begin() {
	s.conn, s.before, s.got, s.reused, s.shared = nil, 0, false, false, false
}

func (s *sendTrace) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotFirstResponseByte: s.onReply, GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
			s.shared = secure.ConnectionState().NegotiatedProtocol == "h2"
		}
		s.got, s.reused = true, info.Reused
		if s.conn, _ = c.(*countedConn); s.conn != nil {
			s.before = s.conn.writes.Load()
		}
		if s.onConn != nil {
			s.onConn()
		}
	}}
}

// sent reports whether a byte of the request can have reached the server.
func (s *sendTrace) sent() bool {
	return s.got && (s.conn == nil || s.conn.writes.Load() != s.before)
}

// unsent reports that nothing of a request that has failed was sent or will be. A connection of HTTP/1.1 is closed
// before a request on it ends without an answer; one of HTTP/2 may still carry it.
func (s *sendTrace) unsent() bool { return !s.sent() && !s.shared }
