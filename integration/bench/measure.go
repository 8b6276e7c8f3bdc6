package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// The ways to the server, in the order in which they are compared.
const (
	direct   = "direct"
	proxied  = "reverse proxy"
	headgate = "headgate"
)

var ways = []string{direct, proxied, headgate}

// sample is one round of one workload on one way.
type sample struct {
	throughput float64 // requests a second
	p50, p99   time.Duration
	cpu        time.Duration // of the process under test, per request
	rss        int64         // of the process under test, in bytes, after the round
}

// result is everything that is known of one workload on one way.
type result struct {
	load    workload
	way     string
	samples []sample
	// Per request, over the pass that counts them; allocs is negative where the process cannot tell.
	allocs, bytes float64
}

// endpoint is where requests of one way go, and the process that is measured.
type endpoint struct {
	proc         *process
	path, prefix string
}

// measure starts everything, warms it up, runs the rounds and then the pass that counts allocations.
func measure(ctx context.Context, o options, loads []workload) ([]*result, error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f := &fleet{o: o, dir: dir}
	defer f.stop()

	srv, err := f.self("server", "", "")
	if err != nil {
		return nil, err
	}
	proxy, err := f.self("proxy", srv.addr, "")
	if err != nil {
		return nil, err
	}
	gates := map[int]*process{}
	for _, l := range loads {
		if gates[l.catalogue] == nil {
			if gates[l.catalogue], err = f.headgate(ctx, "http://"+srv.addr+serverPath(l.catalogue)); err != nil {
				return nil, err
			}
		}
	}
	at := func(way string, l workload) endpoint {
		switch way {
		case direct:
			return endpoint{srv, serverPath(l.catalogue), ""}
		case proxied:
			return endpoint{proxy, serverPath(l.catalogue), ""}
		}
		return endpoint{gates[l.catalogue], "/mcp", "up_"}
	}

	var results []*result
	for _, l := range loads {
		for _, way := range ways {
			results = append(results, &result{load: l, way: way, allocs: -1})
		}
	}
	for _, r := range results {
		if _, err := once(ctx, r.load, at(r.way, r.load), max(r.load.requests/10, 32)); err != nil {
			return nil, fmt.Errorf("warming up %s, %s: %w", r.load.name, r.way, err)
		}
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for i := range results {
			// Each round begins with another way, so that none always follows the same one.
			r := results[i/len(ways)*len(ways)+(i+round)%len(ways)]
			s, err := once(ctx, r.load, at(r.way, r.load), r.load.requests)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", r.load.name, r.way, err)
			}
			r.samples = append(r.samples, s)
		}
	}
	fmt.Fprintln(os.Stderr, "counting allocations")
	return results, countAllocations(ctx, f, results, at, srv.addr)
}

func once(ctx context.Context, l workload, e endpoint, n int) (sample, error) {
	before, err := e.proc.cpu()
	if err != nil {
		return sample{}, err
	}
	took, all, err := load(ctx, e.proc.addr, l.request(e.proc.addr, e.path, e.prefix), n, l.concurrency)
	if err != nil {
		return sample{}, err
	}
	after, err := e.proc.cpu()
	if err != nil {
		return sample{}, err
	}
	rss, err := e.proc.rss()
	if err != nil {
		return sample{}, err
	}
	slices.Sort(took)
	return sample{
		throughput: float64(len(took)) / all.Seconds(),
		p50:        took[len(took)/2],
		p99:        took[len(took)*99/100],
		cpu:        (after - before) / time.Duration(n),
		rss:        rss,
	}, nil
}

// countAllocations sends a part of the requests once more, to processes that can be asked.
func countAllocations(ctx context.Context, f *fleet, results []*result, at func(string, workload) endpoint, server string) error {
	gates := map[int]*process{}
	for _, r := range results {
		e := at(r.way, r.load)
		if r.way == headgate {
			var err error
			if gates[r.load.catalogue] == nil {
				profile := ""
				if len(gates) == 0 {
					profile = f.o.profile
				}
				if gates[r.load.catalogue], err = f.self("gateway", "http://"+server+serverPath(r.load.catalogue), profile); err != nil {
					return err
				}
			}
			e.proc = gates[r.load.catalogue]
		}
		n := max(r.load.requests/4, 32)
		if _, err := once(ctx, r.load, e, n); err != nil {
			return err
		}
		before, err := e.proc.memory()
		if err != nil {
			return err
		}
		if _, err := once(ctx, r.load, e, n); err != nil {
			return err
		}
		after, err := e.proc.memory()
		if err != nil {
			return err
		}
		r.allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
		r.bytes = float64(after.Bytes-before.Bytes) / float64(n)
	}
	return nil
}

func (p *process) memory() (m memory, err error) {
	if _, err := fmt.Fprintln(p.in, "memory"); err != nil {
		return m, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(line, &m)
}
