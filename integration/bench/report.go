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
// workload on another way; above 1 means more of the thing.
type row struct {
	Workload string `json:"workload"`
	Way      string `json:"way"`
	Rounds   int    `json:"rounds"`
	Requests int    `json:"requests_per_round"`

	Throughput float64 `json:"requests_per_second"`
	Spread     float64 `json:"spread"` // of the throughput: (greatest - least) / median
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	CPU        float64 `json:"cpu_us_per_request"` // mean; the clock ticks are coarse
	RSS        float64 `json:"rss_mib"`
	Allocs     float64 `json:"allocs_per_request"`
	Bytes      float64 `json:"allocated_bytes_per_request"`

	ThroughputToDirect float64 `json:"throughput_to_direct"`
	ThroughputToProxy  float64 `json:"throughput_to_proxy"`
	P50ToProxy         float64 `json:"p50_to_proxy"`
	CPUToProxy         float64 `json:"cpu_to_proxy"`
	AllocsToProxy      float64 `json:"allocs_to_proxy"`
}

func rows(results []*result) []row {
	var all []row
	for _, r := range results {
		throughput := values(r.samples, func(s sample) float64 { return s.throughput })
		us := func(f func(sample) time.Duration) []float64 {
			return values(r.samples, func(s sample) float64 { return float64(f(s).Nanoseconds()) / 1e3 })
		}
		all = append(all, row{
			Workload: r.load.name, Way: r.way, Rounds: len(r.samples), Requests: r.load.requests,
			Throughput: median(throughput),
			Spread:     (slices.Max(throughput) - slices.Min(throughput)) / median(throughput),
			P50:        median(us(func(s sample) time.Duration { return s.p50 })),
			P99:        median(us(func(s sample) time.Duration { return s.p99 })),
			CPU:        mean(us(func(s sample) time.Duration { return s.cpu })),
			RSS:        median(values(r.samples, func(s sample) float64 { return float64(s.rss) / (1 << 20) })),
			Allocs:     r.allocs,
			Bytes:      r.bytes,
		})
	}
	for i := range all {
		base := all[i/len(ways)*len(ways):]
		d, p := base[slices.Index(ways, direct)], base[slices.Index(ways, proxied)]
		all[i].ThroughputToDirect = ratio(all[i].Throughput, d.Throughput)
		all[i].ThroughputToProxy = ratio(all[i].Throughput, p.Throughput)
		all[i].P50ToProxy = ratio(all[i].P50, p.P50)
		all[i].CPUToProxy = ratio(all[i].CPU, p.CPU)
		all[i].AllocsToProxy = ratio(all[i].Allocs, p.Allocs)
	}
	return all
}

func report(o options, results []*result) error {
	all := rows(results)
	if o.json != "" {
		if err := writeJSON(o.json, all); err != nil {
			return err
		}
		if o.json == "-" {
			return nil
		}
	}
	return writeTable(os.Stdout, all)
}

func writeTable(w io.Writer, all []row) error {
	fmt.Fprintf(w, "%s %s/%s, %d CPUs; medians over %d rounds\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), all[0].Rounds)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "workload\tway\treq/s\t±\tp50 µs\tp99 µs\tCPU µs\tRSS MiB\tallocs\talloc KiB\treq/s to direct\treq/s to proxy\tCPU to proxy\tallocs to proxy\t")
	for _, r := range all {
		fmt.Fprintf(tw, "%s\t%s\t%.0f\t%.0f%%\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t\n",
			r.Workload, r.Way, r.Throughput, r.Spread*100, r.P50, r.P99, r.CPU, r.RSS, r.Allocs, r.Bytes/1024,
			r.ThroughputToDirect, r.ThroughputToProxy, r.CPUToProxy, r.AllocsToProxy)
	}
	return tw.Flush()
}

func writeJSON(name string, all []row) error {
	f := os.Stdout
	if name != "-" {
		var err error
		if f, err = os.Create(name); err != nil {
			return err
		}
		defer f.Close()
	}
	enc := json.NewEncoder(f)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Go   string `json:"go"`
		CPUs int    `json:"cpus"`
		Rows []row  `json:"rows"`
	}{runtime.Version(), runtime.NumCPU(), all})
}

func values(samples []sample, f func(sample) float64) []float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, f(s))
	}
	return all
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
