package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// This file sets the pace of the garbage collector, unless GOGC says it. The live heap of a Headgate is small, a few
// MiB for a few hundred tools, and what calls allocate is short-lived: with the usual pace, a collection for as much
// garbage as there is live heap, a busy one collects many times a second. Waiting for 48 MiB of garbage instead took
// 7 to 13 % off the CPU of every kind of call, and as much off the 99th percentile.

const (
	// roomForGarbage is how much garbage a busy process collects at a time, in bytes, if its live heap is not larger.
	roomForGarbage = 48 << 20
	// busyCollections in paceEvery make a process busy, and quietRounds without any make it quiet: load comes in bursts, and
	// the next one is to find the pace of the last. Memory is given back earlier, after restRounds.
	busyCollections = 8
	paceEvery       = 2 * time.Second
	restRounds      = 15
	quietRounds     = 300
	usualPace       = 100
)

// paceCollections adapts the pace of collections to the load until ctx ends.
func (e *env) paceCollections(ctx context.Context) {
	if e.variable("GOGC") != "" {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(usualPace))
	sample := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	var p pacer
	t := time.NewTicker(paceEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		metrics.Read(sample)
		if next := p.next(sample[0].Value.Uint64(), sample[1].Value.Uint64()); next != 0 {
			debug.SetGCPercent(next)
		}
		if p.rests() {
			debug.FreeOSMemory()
		}
	}
}

// pacer decides on the pace.
type pacer struct {
	cycles  uint64
	quiet   int
	percent int // 0 is usualPace
}

// next takes the number of collections so far and the live heap after the last. It returns the percentage of garbage
// from now on, or 0 for no change.
func (p *pacer) next(cycles, live uint64) int {
	done := cycles - p.cycles
	p.cycles = cycles
	if done > 0 {
		p.quiet = 0
	} else if p.quiet++; p.quiet == quietRounds && p.percent != 0 {
		p.percent = 0
		return usualPace
	}
	if done < busyCollections && p.percent == 0 {
		return 0
	}
	want := int(min(max(roomForGarbage*100/max(live, 1), usualPace), 1600))
	// A setting stops the world for a moment, and is not worth it for a little.
	if p.percent != 0 && (done == 0 || want < p.percent*5/4 && want > p.percent*3/4) {
		return 0
	}
	p.percent = want
	return want
}

// rests reports that nothing has been collected for a while, once for each time.
func (p *pacer) rests() bool { return p.quiet == restRounds }

// memoryLimits are the files in which Linux tells of the limit of a container.
var memoryLimits = [...]string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// limitMemory has the collector keep below the container's limit, unless GOMEMLIMIT says what to keep below.
func (e *env) limitMemory() {
	if e.variable("GOMEMLIMIT") != "" {
		return
	}
	for _, file := range memoryLimits {
		if b, err := os.ReadFile(file); err == nil {
			if limit := softLimit(string(b)); limit > 0 {
				debug.SetMemoryLimit(limit)
				return
			}
		}
	}
}

// softLimit is nine tenths of a container's limit, or 0 where there is none: the rest is for what the collector does
// not count.
func softLimit(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/2 { // "max", or the number that older kernels write for it
		return 0
	}
	return n / 10 * 9
}
