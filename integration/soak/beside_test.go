package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mcptest"
)

// BenchmarkBesideHanging measures calls to a healthy upstream by turns alone and while eight calls hang at each of
// five others, which are given up after half a second and made anew. It reports the percentiles of both and their
// ratios, medians over the rounds; what else the machine does falls on both alike.
func BenchmarkBesideHanging(b *testing.B) {
	ledger := newLedger(1)
	ledger.deaf = true
	w := startWorld(b, ledger, []kind{
		{"http", mcptest.Modern}, {"http", mcptest.Legacy}, {"sse", mcptest.Legacy}, {"stdio", mcptest.Modern}, {"stdio", mcptest.Legacy},
		{"http", mcptest.Modern},
	}, `"breaker":{"failures":0}`) // an open breaker would leave nothing to hang
	var rounds [2][2][]float64 // alone and beside; p50 and p99
	for b.Loop() {
		for beside := range 2 {
			ctx, cancel := context.WithCancel(b.Context())
			var hanging sync.WaitGroup
			if beside == 1 {
				w.hang(ctx, b, &hanging)
			}
			took := w.callHealthy(ctx, b, "u5", 8, 100)
			cancel()
			hanging.Wait()
			slices.Sort(took)
			for i, at := range []int{len(took) / 2, len(took) * 99 / 100} {
				rounds[beside][i] = append(rounds[beside][i], float64(took[at].Microseconds()))
			}
		}
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	for i, name := range []string{"p50", "p99"} {
		alone, beside := median(rounds[0][i]), median(rounds[1][i])
		b.ReportMetric(alone, name+"-alone-µs")
		b.ReportMetric(beside, name+"-beside-µs")
		b.ReportMetric(beside/alone, name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// hang keeps eight calls in flight at each misbehaving upstream until ctx ends, and returns when they are.
func (w *world) hang(ctx context.Context, b *testing.B, hanging *sync.WaitGroup) {
	for _, s := range w.sides[:misbehaving] {
		for i := range 8 {
			hanging.Go(func() {
				h := newHTTP(ctx, &client{w: w, modern: true})
				defer h.leave()
				for ctx.Err() == nil {
					h.ask(ctx, "1", "tools/call", fmt.Sprintf(`"name":"%s_plain","arguments":{"fault":"hang","nonce":"u0-%d"}`, s.id, i))
				}
			})
		}
	}
	eventually(b, func() string {
		for _, u := range w.g.Status().Upstreams[:misbehaving] {
			if u.InFlight < 8 {
				return fmt.Sprintf("%d calls hang at %s", u.InFlight, u.ID)
			}
		}
		return ""
	})
}

// callHealthy makes n calls with each of some clients.
func (w *world) callHealthy(ctx context.Context, b *testing.B, id string, clients, n int) []time.Duration {
	took := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			h := newHTTP(ctx, &client{w: w, modern: true})
			defer h.leave()
			for range n {
				began := time.Now()
				if m := h.ask(ctx, "1", "tools/call", `"name":"`+id+`_plain","arguments":{"nonce":"u0-0"}`); m == nil || m.Result == nil || m.Result.IsError {
					b.Errorf("a call to the healthy upstream: %+v", m)
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	all.Wait()
	return slices.Concat(took...)
}
