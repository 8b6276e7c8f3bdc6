package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// row is a result in the form in which it is reported: medians over the rounds. Ratios are to the same
// workload on another way, taken round by round; above 1 means more of the thing.
type row struct {
	Workload string `json:"workload"`
	Way      string `json:"way"`
	Rounds   int    `json:"rounds"`
	Requests int    `json:"requests_per_round"` // the least

	Throughput float64 `json:"requests_per_second"`
	Spread     float64 `json:"spread"` // of the throughput: (greatest - least) / median
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	CPU        float64 `json:"cpu_us_per_request"`
	RSS        float64 `json:"rss_mib"`
	Allocs     float64 `json:"allocs_per_request"`
	Bytes      float64 `json:"allocated_bytes_per_request"`

	ThroughputToDirect float64 `json:"throughput_to_direct,omitempty"`
	ThroughputToProxy  float64 `json:"throughput_to_proxy,omitempty"`
	ToProxySpread      float64 `json:"throughput_to_proxy_spread,omitempty"`
	P50ToProxy         float64 `json:"p50_to_proxy,omitempty"`
	CPUToProxy         float64 `json:"cpu_to_proxy,omitempty"`
	AllocsToProxy      float64 `json:"allocs_to_proxy,omitempty"`

	ThroughputToBefore float64 `json:"throughput_to_before,omitempty"`
	CPUToBefore        float64 `json:"cpu_to_before,omitempty"`
}

// The quantities of a sample, as they are reported.
var (
	throughput = func(s sample) float64 { return s.throughput }
	p50        = func(s sample) float64 { return micro(s.p50) }
	p99        = func(s sample) float64 { return micro(s.p99) }
	cpu        = func(s sample) float64 { return micro(s.cpu) }
	rss        = func(s sample) float64 { return float64(s.rss) / (1 << 20) }
	allocs     = func(s sample) float64 { return s.allocs }
	allocated  = func(s sample) float64 { return s.bytes }
)

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func (all *results) find(workload, way string) *result {
	for _, r := range all.loads {
		if r.load.name == workload && r.way == way {
			return r
		}
	}
	return nil
}

func (all *results) rows() []row {
	var out []row
	for _, r := range all.loads {
		t := values(r.samples, throughput)
		w := row{
			Workload: r.load.name, Way: r.way, Rounds: len(r.samples),
			Requests:   int(slices.Min(values(r.samples, func(s sample) float64 { return float64(s.requests) }))),
			Throughput: median(t),
			Spread:     spread(t),
			P50:        median(values(r.samples, p50)),
			P99:        median(values(r.samples, p99)),
			CPU:        median(values(r.samples, cpu)),
			RSS:        median(values(r.samples, rss)),
			Allocs:     median(values(r.samples, allocs)),
			Bytes:      median(values(r.samples, allocated)),
		}
		if d := all.find(r.load.name, direct); d != nil {
			w.ThroughputToDirect = median(ratios(r, d, throughput))
		}
		if p := all.find(r.load.name, proxied); p != nil {
			to := ratios(r, p, throughput)
			w.ThroughputToProxy, w.ToProxySpread = median(to), spread(to)
			w.P50ToProxy = median(ratios(r, p, p50))
			w.CPUToProxy = median(ratios(r, p, cpu))
			w.AllocsToProxy = median(ratios(r, p, allocs))
		}
		if b := all.find(r.load.name, before); b != nil && r.way == full {
			w.ThroughputToBefore, w.CPUToBefore = median(ratios(r, b, throughput)), median(ratios(r, b, cpu))
		}
		out = append(out, w)
	}
	return out
}

// report is everything that is told of a run.
type report struct {
	Go         string    `json:"go"`
	System     string    `json:"system"`
	CPUs       int       `json:"cpus"`
	Rounds     int       `json:"rounds"`
	Seconds    float64   `json:"seconds_per_measurement"`
	Rows       []row     `json:"rows"`
	Footprints []footing `json:"footprints"`
	Goals      []goal    `json:"goals"`
}

func (all *results) report(o options) error {
	r := report{Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Rounds: o.rounds, Seconds: o.time.Seconds(),
		Rows: all.rows(), Footprints: all.footprints, Goals: all.goals()}
	if o.smoke {
		r.Goals = nil // so few requests tell nothing
	}
	if o.markdown != "" {
		if err := r.insert(o.markdown); err != nil {
			return err
		}
	}
	if o.json == "-" {
		return r.writeJSON(os.Stdout)
	}
	if o.json != "" {
		f, err := os.Create(o.json)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := r.writeJSON(f); err != nil {
			return err
		}
	}
	return r.writeText(os.Stdout)
}

func (r report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r report) about() string {
	return fmt.Sprintf("%s %s, %d CPUs; medians over %d rounds of %g s", r.Go, r.System, r.CPUs, r.Rounds, r.Seconds)
}

func (r report) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%s\n\n", r.about())
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	if len(r.Rows) > 0 {
		fmt.Fprintln(tw, "workload\tway\treq/s\t±\tp50 µs\tp99 µs\tCPU µs\tRSS MiB\tallocs\talloc KiB\treq/s to direct\treq/s to proxy\t±\tp50 to proxy\tCPU to proxy\tallocs to proxy\t")
	}
	for _, x := range r.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%.0f\t%.0f%%\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t%.1f\t%.2f\t%.2f\t%.0f%%\t%.2f\t%.2f\t%.2f\t\n",
			x.Workload, x.Way, x.Throughput, x.Spread*100, x.P50, x.P99, x.CPU, x.RSS, x.Allocs, x.Bytes/1024,
			x.ThroughputToDirect, x.ThroughputToProxy, x.ToProxySpread*100, x.P50ToProxy, x.CPUToProxy, x.AllocsToProxy)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, x := range r.Rows {
		if x.CPUToBefore != 0 {
			fmt.Fprintf(w, "\n%s, to before: throughput %.2f, CPU per request %.2f", x.Workload, x.ThroughputToBefore, x.CPUToBefore)
		}
	}
	for _, f := range r.Footprints {
		fmt.Fprintf(w, "\n%s: %s", f.Name, f)
	}
	fmt.Fprintln(w)
	for _, g := range r.Goals {
		fmt.Fprintf(w, "\n%-7s %s: %s", g.verdict(), g.Text, g.Found)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func (f footing) String() string {
	if f.Held == 0 {
		return fmt.Sprintf("%.1f MiB resident", f.RSS)
	}
	return fmt.Sprintf("%.1f KiB of heap and stacks each, %.1f KiB resident (%d of them)", f.Runtime, f.Each, f.Held)
}

func values(samples []sample, f func(sample) float64) []float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, f(s))
	}
	return all
}

// ratios are those of a quantity, round by round.
func ratios(a, b *result, f func(sample) float64) []float64 {
	var all []float64
	for i := range a.samples {
		if to := f(b.samples[i]); to != 0 {
			all = append(all, f(a.samples[i])/to)
		}
	}
	return all
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// spread is how far values lie apart: (greatest - least) / median.
func spread(v []float64) float64 {
	m := median(v)
	if m == 0 {
		return 0
	}
	return (slices.Max(v) - slices.Min(v)) / m
}
