package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// The lines between which the results stand in a page.
const (
	markBegin = "<!-- bench -->\n"
	markEnd   = "<!-- /bench -->\n"
)

// insert puts the results into a page, in place of those that stand there.
func (r report) insert(file string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(page, []byte(markBegin))
	_, tail, closed := bytes.Cut(rest, []byte(markEnd))
	if !ok || !closed {
		return fmt.Errorf("%s lacks the lines %q and %q", file, strings.TrimSpace(markBegin), strings.TrimSpace(markEnd))
	}
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(markBegin)
	r.writeMarkdown(&b)
	b.WriteString(markEnd)
	b.Write(tail)
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func (r report) writeMarkdown(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s.\n\n", r.about())
	if len(r.Goals) > 0 {
		b.WriteString("| goal | found | |\n| --- | --- | --- |\n")
		for _, g := range r.Goals {
			fmt.Fprintf(b, "| %s | %s | %s |\n", g.Text, g.Found, g.verdict())
		}
		b.WriteString("\n")
	}
	if len(r.Rows) > 0 {
		b.WriteString("| workload | way | req/s | ± | p50 µs | p99 µs | CPU µs | allocs | alloc KiB | RSS MiB | req/s to direct | req/s to proxy | CPU to proxy |\n" +
			"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	}
	for i, x := range r.Rows {
		name := x.Workload
		if i > 0 && r.Rows[i-1].Workload == name {
			name = ""
		}
		fmt.Fprintf(b, "| %s | %s | %.0f | %.0f %% | %.0f | %.0f | %.0f | %.0f | %.1f | %.0f | %s | %s | %s |\n", name, x.Way, x.Throughput, x.Spread*100,
			x.P50, x.P99, x.CPU, x.Allocs, x.Bytes/1024, x.RSS, cell(x.ThroughputToDirect), cell(x.ThroughputToProxy), cell(x.CPUToProxy))
	}
	if len(r.Rows) > 0 {
		b.WriteString("\n")
	}
	if len(r.Footprints) > 0 {
		b.WriteString("| at rest | memory |\n| --- | --- |\n")
		for _, f := range r.Footprints {
			fmt.Fprintf(b, "| %s | %s |\n", f.Name, f)
		}
		b.WriteString("\n")
	}
}

func cell(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}
