package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// burden is something that clients leave at Headgate's door while others call.
type burden struct {
	name string
	n    int
	// begin lays down one of it, on a connection that is kept. What it starts ends with ctx.
	begin func(ctx context.Context, c *conn, e endpoint) error
	every int // how many share a connection; 0 is one each
}

const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`

func httpRequest(method, host, session, accept, body string) []byte {
	if session != "" {
		session = "Mcp-Session-Id: " + session + "\r\n"
	}
	return fmt.Appendf(nil, "%s /mcp HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n%s",
		method, host, session, accept, len(body), body)
}

const anything = "application/json, text/event-stream"

func burdens(smoke bool) []burden {
	legacy := workload{place: plainPlace, legacy: true}
	all := []burden{
		{name: "idle connections", n: 10_000, begin: func(_ context.Context, c *conn, e endpoint) error {
			_, err := c.do(healthRequest(e.proc.addr), nil)
			return err
		}},
		{name: "idle legacy sessions", n: 5000, every: 50, begin: func(_ context.Context, c *conn, e endpoint) error {
			_, err := c.open(legacy, e, 0)
			return err
		}},
		{name: "streams that are never read", n: 2000, begin: func(_ context.Context, c *conn, e endpoint) error {
			id, err := c.open(legacy, e, 0)
			if err != nil {
				return err
			}
			_, err = c.Write(httpRequest("GET", e.proc.addr, id, "text/event-stream", ""))
			return err
		}},
		{name: "1 MiB answers that are never read", n: 100, begin: func(_ context.Context, c *conn, e endpoint) error {
			_, err := c.Write(workload{method: "tools/call", tool: "m1", place: plainPlace}.request(e, 0, ""))
			return err
		}},
		{name: "slow headers, a byte a second", n: 5000, begin: func(ctx context.Context, c *conn, _ endpoint) error {
			return c.drip(ctx, []byte("POST /mcp HTTP/1.1\r\nHost: "))
		}},
		{name: "slow bodies, a byte a second", n: 2000, begin: func(ctx context.Context, c *conn, e endpoint) error {
			req := httpRequest("POST", e.proc.addr, "", anything, ping)
			head := len(req) - len(ping)
			if _, err := c.Write(req[:head]); err != nil {
				return err
			}
			return c.drip(ctx, req[head:])
		}},
	}
	if smoke {
		for i := range all {
			all[i].n = 20
		}
	}
	return all
}

func healthRequest(host string) []byte {
	return fmt.Appendf(nil, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", host)
}

// drip sends a byte now and one each second, until ctx ends or nobody takes it.
func (c *conn) drip(ctx context.Context, b []byte) error {
	if _, err := c.Write(b[:1]); err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for _, next := range b[1:] {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if _, err := c.Write([]byte{next}); err != nil {
				return
			}
		}
	}()
	return nil
}

// resilience measures what each burden costs in memory, and what a client notices who calls meanwhile.
func resilience(ctx context.Context, o options) error {
	f, err := newFleet(ctx, o)
	if err != nil {
		return err
	}
	defer f.stop()
	f.environ = []string{"HEADGATE_OVERLOAD_CONNECTIONS=20000"}
	var files syscall.Rlimit // which the runtime has raised as far as it goes
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "burden\tnumber\tRSS before MiB\tRSS with MiB\tKiB each\tp50 µs\tp50 with\tp99 µs\tp99 with\t")
	for _, b := range burdens(o.smoke) {
		if b.every == 0 {
			b.n = min(b.n, int(files.Cur)-200)
		}
		if err := b.measure(ctx, f, tw); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return tw.Flush()
}

// measure has a fresh headgate carry a burden.
func (b burden) measure(ctx context.Context, f *fleet, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := f.headgate(ctx, bare, plainPlace)
	if err != nil {
		return err
	}
	l := workload{name: "call", method: "tools/call", tool: "b200", place: plainPlace, concurrency: 4}
	if _, err := once(ctx, l, e, f.o.time, nil); err != nil { // warm
		return err
	}
	before, err := once(ctx, l, e, f.o.time, nil)
	if err != nil {
		return err
	}
	conns, err := b.lay(ctx, e)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	if err != nil {
		return err
	}
	with, err := once(ctx, l, e, f.o.time, nil)
	if err != nil {
		return err
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", b.name, b.n, float64(before.rss)/(1<<20), float64(with.rss)/(1<<20),
		float64(with.rss-before.rss)/1024/float64(b.n), us(before.p50), us(with.p50), us(before.p99), us(with.p99))
	return nil
}

// lay lays the burden down, by several hands.
func (b burden) lay(ctx context.Context, e endpoint) ([]*conn, error) {
	var (
		mu    sync.Mutex // guards conns, first
		conns []*conn
		first error
		wg    sync.WaitGroup
	)
	const hands = 16
	share := max(b.every, 1)
	todo := make(chan int, b.n)
	for n := b.n; n > 0; n -= share {
		todo <- min(n, share)
	}
	close(todo)
	for range hands {
		wg.Go(func() {
			for n := range todo {
				c, err := dial(ctx, e.proc.addr)
				if err == nil {
					c.r = bufio.NewReaderSize(c, 4<<10)
					mu.Lock()
					conns = append(conns, c)
					mu.Unlock()
				}
				for ; err == nil && n > 0; n-- {
					err = b.begin(ctx, c, e)
				}
				if err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return slices.Clip(conns), first
}
