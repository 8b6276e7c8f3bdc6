// Command bench measures what Headgate adds to a call and to a list.
//
// Three ways to the same minimal server are measured, each in a process of its own: straight to the
// server, through httputil.ReverseProxy, and through the built headgate. They are interleaved round by
// round in one run, so that what else the machine does falls on all of them, and the medians over the
// rounds are compared. The load comes from raw keep-alive connections.
//
// With -resilience it measures what clients cost that hold connections, sessions and streams and do nothing
// with them.
//
// Allocations are counted in a pass of its own, in which the same handlers run inside this command and
// can be asked for their runtime.MemStats; with -profile that pass also writes CPU and heap profiles
// of the gateway.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

type options struct {
	headgate string
	rounds   int
	only     string
	json     string
	profile  string
	smoke    bool
	burdens  bool

	role, target string // of a process that this command starts of itself
}

func main() {
	var o options
	flag.StringVar(&o.headgate, "headgate", "bin/headgate", "the built headgate `FILE`")
	flag.IntVar(&o.rounds, "rounds", 5, "how often every measurement is made")
	flag.StringVar(&o.only, "only", "", "run only the workloads whose name contains `TEXT`")
	flag.StringVar(&o.json, "json", "", "also write the results as JSON to `FILE`; - is stdout, in place of the table")
	flag.StringVar(&o.profile, "profile", "", "write profiles of the gateway to `DIR`")
	flag.BoolVar(&o.smoke, "smoke", os.Getenv("BENCH_SMOKE") != "", "a few requests of each kind, to see that everything works (also BENCH_SMOKE=1)")
	flag.BoolVar(&o.burdens, "resilience", false, "measure instead what idle and slow clients cost, and what others notice of them")
	flag.StringVar(&o.role, "role", "", "internal: what a process of the benchmark does")
	flag.StringVar(&o.target, "target", "", "internal: the address behind it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.role != "" {
		return play(ctx, o)
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if _, err := os.Stat(o.headgate); err != nil {
		return fmt.Errorf("the program to measure is missing, make build makes it: %w", err)
	}
	if o.burdens {
		return resilience(ctx, o)
	}
	loads := workloads(o.smoke)
	if o.smoke {
		o.rounds = 1
	}
	if o.only != "" {
		kept := loads[:0]
		for _, l := range loads {
			if strings.Contains(l.name, o.only) {
				kept = append(kept, l)
			}
		}
		loads = kept
	}
	if len(loads) == 0 || o.rounds < 1 {
		return errors.New("there is nothing to measure")
	}
	if o.profile != "" {
		dir, err := filepath.Abs(o.profile)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		o.profile = dir
	}
	results, err := measure(ctx, o, loads)
	if err != nil {
		return err
	}
	return report(o, results)
}
