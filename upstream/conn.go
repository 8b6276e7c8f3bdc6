package upstream

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// countedConn is a connection to a server that knows whether anything was written to it, and that
// writes nothing once the server has closed its side. A request on an idle connection that ended in
// the meantime has then surely not been sent, and goes out on a new one.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

var errEnded = errors.New("the server closed the connection before anything was sent")

func (c *countedConn) Write(p []byte) (int, error) {
	if ended(c.Conn) {
		return 0, errEnded
	}
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// sendTrace follows one HTTP request on its way out.
type sendTrace struct {
	conn    *countedConn
	before  int64 // writes to conn when the request got it
	got     bool  // there was a connection
	reused  bool
	onConn  func() // a request can have been sent from here on
	onReply func() // the first byte of an answer is there
}

// begin makes the trace one of a new try.
func (s *sendTrace) begin() { s.conn, s.before, s.got, s.reused = nil, 0, false, false }

func (s *sendTrace) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotFirstResponseByte: s.onReply, GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
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
