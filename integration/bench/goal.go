package main

import "fmt"

// goal is one of those that Headgate is held to, and what was found. A goal is left out where its workloads were
// not measured.
type goal struct {
	Text  string  `json:"text"`
	Found string  `json:"found"`
	Value float64 `json:"value"`
	Met   bool    `json:"met"`
}

func (g goal) verdict() string {
	if g.Met {
		return "met"
	}
	return "missed"
}

// goals are all that the results say something about.
func (all *results) goals() (out []goal) {
	atMost := func(text string, limit, value float64, format string) {
		out = append(out, goal{fmt.Sprintf(text, limit), fmt.Sprintf(format, value), value, value <= limit})
	}
	atLeast := func(text string, limit, value float64, format string) {
		out = append(out, goal{fmt.Sprintf(text, limit), fmt.Sprintf(format, value), value, value >= limit})
	}
	pair := func(workload, of, to string, f func(a, b *result)) {
		if a, b := all.find(workload, of), all.find(workload, to); a != nil && b != nil {
			f(a, b)
		}
	}
	for _, size := range []string{"200 B", "16 KiB", "1 MiB"} {
		pair("call "+size+" c=32", full, proxied, func(a, b *result) {
			atMost("call "+size+" c=32, CPU per request to the proxy's, at most %g", 1.5, median(ratios(a, b, cpu)), "%.2f")
			atLeast("call "+size+" c=32, throughput to the proxy's, at least %g", 0.7, median(ratios(a, b, throughput)), "%.2f")
		})
		pair("call "+size+" c=32", full, sdk, func(a, b *result) {
			atLeast("call "+size+" c=32, throughput to that of the SDK's gateway, at least %g", 6, median(ratios(a, b, throughput)), "%.1f")
		})
		if d := all.find("call "+size+" c=1", direct); d != nil {
			pair("call "+size+" c=1", full, proxied, func(a, b *result) {
				var added []float64
				for i := range a.samples {
					if proxy := p50(b.samples[i]) - p50(d.samples[i]); proxy > 0 {
						added = append(added, (p50(a.samples[i])-p50(d.samples[i]))/proxy)
					}
				}
				atMost("call "+size+" c=1, added p50 to what the proxy adds, at most %g", 1.5, median(added), "%.2f")
			})
		}
		pair("call "+size+" c=32", traced1, full, func(a, b *result) {
			atLeast("call "+size+" c=32, throughput traced at 1 %% to untraced, at least %g", 0.95, median(ratios(a, b, throughput)), "%.2f")
		})
	}
	pair("list 500 c=32", full, direct, func(a, b *result) {
		atLeast("list of 500, throughput to that of a handler which writes the same bytes, at least %g", 0.8, median(ratios(a, b, throughput)), "%.2f")
	})
	for _, kind := range []struct {
		format string
		from   int
		to     []int
	}{{"%d tools, call 200 B c=32", 10, []int{1000, 10_000}}, {"%d upstreams, call 200 B c=32", 1, []int{10, 100}}, {"%d teams, call 200 B c=32", 1, []int{100}}} {
		for _, n := range kind.to {
			few, many := fmt.Sprintf(kind.format, kind.from), fmt.Sprintf(kind.format, n)
			a, b := all.find(many, full), all.find(few, full)
			if a != nil && b != nil {
				// Allocations tell what the code does more of; the rest is what caches make of it.
				atMost(many+", CPU per request to that of "+few+", at most %g", 1.15, median(ratios(a, b, cpu)), "%.2f")
				atMost(many+", allocations per request to those of "+few+", at most %g", 1.02, median(ratios(a, b, allocs)), "%.3f")
			}
		}
	}
	for _, f := range all.footprints {
		switch {
		case f.Held == 0:
			atMost(f.Name+", MiB resident, at most %g", 30, f.RSS, "%.1f")
		case f.Name == footprints[1].name:
			atMost(f.Name+", KiB resident each, at most %g", 12, f.Each, "%.1f")
		}
	}
	return out
}
