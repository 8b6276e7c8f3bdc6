package main

import (
	"context"
	"fmt"
	"time"
)

// A footprint is what a process that does nothing takes.
type footprint struct {
	name    string
	place   place
	held    int  // legacy sessions that stand
	streams bool // each with its GET stream, on a connection of its own
}

// footing is a footprint that was measured.
type footing struct {
	Name string  `json:"name"`
	RSS  float64 `json:"rss_mib"` // as the system counts it, nothing collected by force
	// Of each session, against the same process without any, after garbage was given back.
	Each    float64 `json:"rss_kib_each,omitempty"`
	Runtime float64 `json:"heap_and_stacks_kib_each,omitempty"`
	Held    int     `json:"held,omitempty"`
}

var footprints = []footprint{
	{name: "idle, 10 upstreams of 100 tools", place: place{tools: 100, upstreams: 10, teams: 1}},
	{name: "idle legacy sessions", place: plainPlace, held: 5000},
	{name: "idle legacy sessions with a GET stream", place: plainPlace, held: 2000, streams: true},
}

func (k footprint) measure(ctx context.Context, f *fleet) (footing, error) {
	got := footing{Name: k.name, Held: k.held}
	// A process of its own: one that has served loads keeps memory for more of them.
	e, err := f.headgate(ctx, full, k.place)
	if err != nil {
		return got, err
	}
	// Reading the catalogues has left garbage; what a process comes to at rest shows after a while.
	rest := 8 * time.Second
	if f.o.smoke {
		rest, k.held = 0, min(k.held, 50)
		got.Held = k.held
	}
	time.Sleep(rest)
	rss, err := e.proc.rss()
	if err != nil {
		return got, err
	}
	got.RSS = float64(rss) / (1 << 20)
	if k.held == 0 {
		return got, nil
	}
	l := workload{place: k.place, legacy: true}
	// One session first, so that what the first of all costs is counted with the process.
	hold, err := k.hold(ctx, l, e, 1)
	defer func() {
		for _, c := range hold {
			c.Close()
		}
	}()
	if err != nil {
		return got, err
	}
	before, rss, err := settled(ctx, e.proc)
	if err != nil {
		return got, err
	}
	more, err := k.hold(ctx, l, e, k.held)
	hold = append(hold, more...)
	if err != nil {
		return got, err
	}
	time.Sleep(rest) // for the connections on which sessions were opened
	after, then, err := settled(ctx, e.proc)
	if err != nil {
		return got, err
	}
	got.Each = float64(then-rss) / float64(k.held) / 1024
	got.Runtime = float64(after-before) / float64(k.held) / 1024
	return got, nil
}

// settled is the heap with the stacks, and the resident memory, after a collection.
func settled(ctx context.Context, p *process) (runtime, rss int64, err error) {
	m, err := p.memory(ctx, true)
	if err != nil {
		return 0, 0, err
	}
	rss, err = p.rss()
	return int64(m.Heap + m.Stacks), rss, err
}

// hold opens n sessions, and returns the connections that have to stay open for them.
func (k footprint) hold(ctx context.Context, l workload, e endpoint, n int) (held []*conn, err error) {
	opener, err := dial(ctx, e.proc.addr)
	if err != nil {
		return nil, err
	}
	defer opener.Close()
	for i := range n {
		session, err := opener.open(l, e, i)
		if err != nil {
			return held, err
		}
		if !k.streams {
			continue
		}
		c, err := dial(ctx, e.proc.addr)
		if err != nil {
			return held, err
		}
		held = append(held, c)
		request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\n\r\n",
			e.path, e.proc.addr, key(i%l.place.teams), session)
		if _, err := c.Write([]byte(request)); err != nil {
			return held, err
		}
		status, err := c.line()
		if err != nil {
			return held, err
		}
		if string(status) != "HTTP/1.1 200 OK" {
			return held, fmt.Errorf("a stream was answered with %s", status)
		}
	}
	return held, nil
}
