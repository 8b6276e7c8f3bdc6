// Command bench measures what Headgate adds to a call, to a list and to a connection.
//
// Several ways to the same minimal server are measured, each in a process of its own: straight to the
// server, through httputil.ReverseProxy, through a gateway of the SDK's server and client, and through
// the built headgate in several configurations. They are interleaved round by round in one run, so that
// what else the machine does falls on all of them; ratios are taken round by round, and their medians
// are reported. The load comes from raw keep-alive connections.
//
// With -resilience it measures what clients cost that hold connections, sessions and streams and do nothing
// with them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

type options struct {
	headgate   string
	against    string
	rounds     int
	time       time.Duration
	ways, only string
	json       string
	markdown   string
	cpuProfile string
	memProfile string
	smoke      bool
	burdens    bool

	names *regexp.Regexp // of only

	role, target string // of a process that this command starts of itself
}

func main() {
	var o options
	flag.StringVar(&o.headgate, "headgate", "bin/headgate", "the built headgate `FILE`")
	flag.StringVar(&o.against, "against", "", "also measure an earlier build of headgate, a `FILE`, as the way \"before\"")
	flag.IntVar(&o.rounds, "rounds", 5, "how often every measurement is made")
	flag.DurationVar(&o.time, "time", time.Second, "how long a measurement takes")
	flag.StringVar(&o.ways, "ways", "", "measure only these `WAYS`, with commas between: "+strings.Join(wayNames(), ", "))
	flag.StringVar(&o.only, "only", "", "run only the workloads whose name matches `REGEXP`")
	flag.StringVar(&o.json, "json", "", "also write the results as JSON to `FILE`; - is stdout, in place of the table")
	flag.StringVar(&o.markdown, "markdown", "", "also put the results into `FILE`, between its lines <!-- bench --> and <!-- /bench -->")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "", "after the rounds write a CPU profile of every way and workload measured to `DIR`")
	flag.StringVar(&o.memProfile, "memprofile", "", "after the rounds write a profile of allocations of every way and workload measured to `DIR`")
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
	if o.smoke {
		o.rounds, o.time = 1, 20*time.Millisecond
	}
	var err error
	if o.names, err = regexp.Compile(o.only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	loads, err := chosen(o)
	if err != nil {
		return err
	}
	kept := footprints[:0:0]
	for _, f := range footprints {
		if o.wants(f.name) {
			kept = append(kept, f)
		}
	}
	if len(loads)+len(kept) == 0 || o.rounds < 1 || o.time <= 0 {
		return errors.New("there is nothing to measure")
	}
	for _, dir := range []string{o.cpuProfile, o.memProfile} {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o750); err != nil {
				return err
			}
		}
	}
	all, err := measure(ctx, o, loads, kept)
	if err != nil {
		return err
	}
	return all.report(o)
}

// wants reports whether -only asks for a name.
func (o options) wants(name string) bool { return o.names.MatchString(name) }
