package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// clients are the keep-alive connections of one workload to one endpoint, each with its own request.
type clients struct {
	conns    []*conn
	requests [][]byte
	sizes    []int // of the first answer to each, which every other must have
}

// connect opens as many connections as the concurrency of a workload says, and sends each its first request. The
// answer to that is looked at; it also warms the path up.
func connect(ctx context.Context, l workload, e endpoint) (_ *clients, err error) {
	c := &clients{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	for i := range l.concurrency {
		conn, err := dial(ctx, e.proc.addr)
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
		session := ""
		if l.legacy {
			if session, err = conn.open(l, e, i); err != nil {
				return nil, fmt.Errorf("opening a session: %w", err)
			}
		}
		request := l.request(e, i, session)
		body, err := conn.first(request, l)
		if err != nil {
			return nil, err
		}
		c.requests = append(c.requests, request)
		c.sizes = append(c.sizes, len(body))
	}
	return c, nil
}

// run sends requests for a while; each connection waits for its answer. It returns how long each answer took, and
// how long all took.
func (c *clients) run(d time.Duration) ([]time.Duration, time.Duration, error) {
	var (
		wg    sync.WaitGroup
		took  = make([][]time.Duration, len(c.conns))
		fails = make([]error, len(c.conns))
		began = time.Now()
		end   = began.Add(d)
	)
	for i, conn := range c.conns {
		wg.Go(func() {
			for {
				start := time.Now()
				if start.After(end) {
					return
				}
				size, err := conn.do(c.requests[i], nil)
				if err == nil && size != c.sizes[i] {
					err = fmt.Errorf("an answer of %d bytes, the first had %d", size, c.sizes[i])
				}
				if err != nil {
					fails[i] = err
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	all := time.Since(began)
	var flat []time.Duration
	for _, t := range took {
		flat = append(flat, t...)
	}
	return flat, all, errors.Join(fails...)
}

func (c *clients) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// conn is one keep-alive connection.
type conn struct {
	net.Conn
	r       *bufio.Reader
	session string // Mcp-Session-Id of the last answer
}

func dial(ctx context.Context, addr string) (*conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return nil, err
	}
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

// open opens a session and returns its id.
func (c *conn) open(l workload, e endpoint, n int) (string, error) {
	if _, err := c.do(e.post(l, n, initialize), nil); err != nil {
		return "", err
	}
	session := c.session
	_, err := c.do(e.post(l, n, initiated, "Mcp-Protocol-Version: 2025-11-25", "Mcp-Session-Id: "+session), nil)
	return session, err
}

func (c *conn) first(request []byte, l workload) ([]byte, error) {
	var body bytes.Buffer
	if _, err := c.do(request, &body); err != nil {
		return nil, err
	}
	b := body.Bytes()
	if l.gzip && bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	if !bytes.Contains(b, []byte(`"result":{`)) || bytes.Contains(b, []byte(`"isError":true`)) {
		return nil, fmt.Errorf("the answer has no good result: %.300s", b)
	}
	if n := bytes.Count(b, []byte("notifications/progress")); l.progress && n != progressSteps {
		return nil, fmt.Errorf("%d notifications of progress, want %d: %.300s", n, progressSteps, b)
	}
	return b, nil
}

// do sends one request and reads the answer's body to its end, into body if that is not nil.
func (c *conn) do(request []byte, body io.Writer) (int, error) {
	if body == nil {
		body = io.Discard
	}
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	status, err := c.line()
	if err != nil {
		return 0, err
	}
	ok := bytes.HasPrefix(status, []byte("HTTP/1.1 20"))
	said := string(status)
	length, chunked := int64(0), false
	for {
		line, err := c.line()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("Mcp-Session-Id")):
			c.session = string(value)
		}
	}
	if !ok {
		text := make([]byte, min(length, 300))
		_, _ = io.ReadFull(c.r, text)
		return 0, fmt.Errorf("the answer is %s: %s", said, text)
	}
	if !chunked {
		n, err := io.CopyN(body, c.r, length)
		return int(n), err
	}
	return c.chunks(body)
}

func (c *conn) chunks(body io.Writer) (int, error) {
	for total := 0; ; {
		line, err := c.line()
		if err != nil {
			return 0, err
		}
		size, err := strconv.ParseInt(string(line), 16, 64)
		if err != nil {
			return 0, err
		}
		if _, err := io.CopyN(body, c.r, size); err != nil {
			return 0, err
		}
		if _, err := c.line(); err != nil {
			return 0, err
		}
		if size == 0 {
			return total, nil
		}
		total += int(size)
	}
}

// line reads one line, without its end; it is valid until the next read.
func (c *conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}
