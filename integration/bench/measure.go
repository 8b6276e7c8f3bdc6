package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sample is one round of one workload on one way. All but the times are of the process under test.
type sample struct {
	requests   int
	throughput float64 // requests a second
	p50, p99   time.Duration
	cpu        time.Duration // per request
	rss        int64         // bytes, after the round
	allocs     float64       // objects per request
	bytes      float64       // allocated, per request
}

// result is everything that is known of one workload on one way.
type result struct {
	load    workload
	way     string
	samples []sample
}

// results are those of a run.
type results struct {
	loads      []*result
	footprints []footing
}

// endpoint is where requests of one way go, and the process that is measured.
type endpoint struct {
	proc     *process
	path     string
	legacy   string // path for legacy clients; "" is the same
	prefixed bool   // tools have the prefix of their upstream
	keyed    bool   // requests need an API key
}

// measure starts everything and runs the rounds.
func measure(ctx context.Context, o options, loads []workload, kinds []footprint) (*results, error) {
	f, err := newFleet(ctx, o)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	all := &results{}
	groups := make([][]*result, len(loads))
	for i, l := range loads {
		for _, name := range l.ways {
			e, err := f.endpoint(ctx, name, l.place)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", l.name, name, err)
			}
			r := &result{load: l, way: name}
			// What is measured is the steady state: pools are filled, connections stand.
			if _, err := once(ctx, l, e, o.time/4, nil); err != nil {
				return nil, fmt.Errorf("warming up %s, %s: %w", l.name, name, err)
			}
			groups[i] = append(groups[i], r)
			all.loads = append(all.loads, r)
		}
	}
	for round := range o.rounds {
		if len(loads) > 0 {
			fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		}
		for _, g := range groups {
			for i := range g {
				// Each round begins with another way, so that none always follows the same one.
				r := g[(i+round)%len(g)]
				e, err := f.endpoint(ctx, r.way, r.load.place)
				if err != nil {
					return nil, err
				}
				s, err := once(ctx, r.load, e, o.time, nil)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", r.load.name, r.way, err)
				}
				r.samples = append(r.samples, s)
			}
		}
	}
	for _, r := range all.loads {
		if err := f.profile(ctx, o, r); err != nil {
			return nil, err
		}
	}
	for _, k := range kinds {
		fmt.Fprintln(os.Stderr, k.name)
		got, err := k.measure(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		all.footprints = append(all.footprints, got)
	}
	return all, nil
}

// once runs one workload for a while. during, if not nil, runs beside it and is waited for.
func once(ctx context.Context, l workload, e endpoint, d time.Duration, during func() error) (sample, error) {
	c, err := connect(ctx, l, e)
	if err != nil {
		return sample{}, err
	}
	defer c.close()
	m, err := e.proc.memory(ctx, false)
	if err != nil {
		return sample{}, err
	}
	before, err := e.proc.cpu()
	if err != nil {
		return sample{}, err
	}
	beside := make(chan error, 1)
	go func() {
		if during == nil {
			beside <- nil
			return
		}
		beside <- during()
	}()
	took, all, err := c.run(d)
	if other := <-beside; err == nil {
		err = other
	}
	if err != nil {
		return sample{}, err
	}
	if len(took) == 0 {
		return sample{}, fmt.Errorf("nothing was answered within %v", d)
	}
	after, err := e.proc.cpu()
	if err != nil {
		return sample{}, err
	}
	rss, err := e.proc.rss()
	if err != nil {
		return sample{}, err
	}
	n, err := e.proc.memory(ctx, false)
	if err != nil {
		return sample{}, err
	}
	slices.Sort(took)
	return sample{
		requests:   len(took),
		throughput: float64(len(took)) / all.Seconds(),
		p50:        took[len(took)/2],
		p99:        took[len(took)*99/100],
		cpu:        (after - before) / time.Duration(len(took)),
		rss:        rss,
		allocs:     float64(n.Mallocs-m.Mallocs) / float64(len(took)),
		bytes:      float64(n.Allocated-m.Allocated) / float64(len(took)),
	}, nil
}

// profile runs a workload once more for the profiles that are asked for.
func (f *fleet) profile(ctx context.Context, o options, r *result) error {
	for _, p := range []struct{ dir, kind, name string }{{o.cpuProfile, "profile", "cpu"}, {o.memProfile, "allocs", "mem"}} {
		if p.dir == "" {
			continue
		}
		e, err := f.endpoint(ctx, r.way, r.load.place)
		if err != nil {
			return err
		}
		const seconds = 5
		file := filepath.Join(p.dir, strings.NewReplacer(" ", "-", ",", "", "=", "").Replace(r.way+"."+r.load.name)+"."+p.name+".pprof")
		fmt.Fprintln(os.Stderr, file)
		_, err = once(ctx, r.load, e, seconds*time.Second, func() error {
			return save(ctx, fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", e.proc.debug, p.kind, seconds-1), file)
		})
		if err != nil {
			return fmt.Errorf("profiling %s, %s: %w", r.load.name, r.way, err)
		}
	}
	return nil
}

func save(ctx context.Context, from, file string) error {
	b, err := get(ctx, from)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

func get(ctx context.Context, from string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: HTTP %d: %.200s", from, resp.StatusCode, b)
	}
	return b, err
}
