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
	"sync/atomic"
	"time"
)

// load sends a request n times over as many keep-alive connections as concurrency says, each of which
// waits for its answer, and returns how long each answer took and how long all took. Every answer must
// be a 200 with a result, of the size of the first.
func load(ctx context.Context, addr string, request []byte, n, concurrency int) ([]time.Duration, time.Duration, error) {
	conns := make([]*conn, concurrency)
	for i := range conns {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, 0, err
		}
		defer c.Close()
		conns[i] = c
	}
	// The first answer is looked at; it also warms the path up.
	body, err := conns[0].first(request)
	if err != nil {
		return nil, 0, err
	}
	var (
		left  atomic.Int64
		wg    sync.WaitGroup
		took  = make([][]time.Duration, concurrency)
		fails = make([]error, concurrency)
	)
	left.Store(int64(n))
	began := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			took[i] = make([]time.Duration, 0, n/concurrency*2)
			for left.Add(-1) >= 0 {
				start := time.Now()
				size, err := c.do(request, nil)
				if err == nil && size != len(body) {
					err = fmt.Errorf("an answer of %d bytes, the first had %d", size, len(body))
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

// conn is one keep-alive connection.
type conn struct {
	net.Conn
	r *bufio.Reader
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

func (c *conn) first(request []byte) ([]byte, error) {
	var body bytes.Buffer
	if _, err := c.do(request, &body); err != nil {
		return nil, err
	}
	if b := body.Bytes(); !bytes.Contains(b[:min(len(b), 256)], []byte(`"result":{`)) || bytes.Contains(b, []byte(`"isError":true`)) {
		return nil, fmt.Errorf("the answer has no good result: %.300s", b)
	}
	return body.Bytes(), nil
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
	ok := bytes.HasPrefix(status, []byte("HTTP/1.1 200 "))
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
