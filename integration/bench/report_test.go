package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// made is a result with samples that take so many microseconds of CPU and answer so many requests a second.
func made(name, way string, cpu ...float64) *result {
	r := &result{load: workload{name: name}, way: way}
	for _, c := range cpu {
		r.samples = append(r.samples, sample{requests: 1, throughput: 1e6 / c, cpu: time.Duration(c * 1e3), p50: time.Duration(c * 1e3), allocs: c})
	}
	return r
}

func TestRatiosAreOfTheSameRound(t *testing.T) {
	// The machine was three times as slow in the second round, for both.
	all := &results{loads: []*result{made("call 200 B c=32", proxied, 100, 300, 100), made("call 200 B c=32", full, 140, 420, 150)}}
	rows := all.rows()
	if got := rows[1].CPUToProxy; got != 1.4 {
		t.Errorf("CPU to the proxy's is %v", got)
	}
	if rows[1].CPU != 150 || rows[0].CPUToProxy != 1 || rows[1].ThroughputToDirect != 0 {
		t.Errorf("rows %+v", rows)
	}
	goals := all.goals()
	if len(goals) != 2 || !goals[0].Met || !goals[1].Met || goals[0].Found != "1.40" || goals[1].Found != "0.71" {
		t.Errorf("goals %+v", goals)
	}
	all.loads[1] = made("call 200 B c=32", full, 160, 480, 140)
	if goals := all.goals(); goals[0].Met || goals[1].Met {
		t.Errorf("goals %+v", goals)
	}
}

// What a proxy adds to the duration of a call, and not the whole of it, is what Headgate is held to.
func TestAddedDuration(t *testing.T) {
	all := &results{loads: []*result{made("call 200 B c=1", direct, 30), made("call 200 B c=1", proxied, 130), made("call 200 B c=1", full, 190)}}
	goals := all.goals()
	if len(goals) != 1 || goals[0].Found != "1.60" || goals[0].Met {
		t.Errorf("goals %+v", goals)
	}
}

func TestInsert(t *testing.T) {
	all := &results{loads: []*result{made("call 200 B c=32", proxied, 100), made("call 200 B c=32", full, 140)}}
	r := report{Rounds: 1, Rows: all.rows(), Goals: all.goals(), Footprints: []footing{{Name: "idle", RSS: 27.5}}}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+markBegin+"old\n"+markEnd+"behind\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var first string
	for range 2 { // putting it in again replaces it
		if err := r.insert(page); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(b)
		}
		if string(b) != first {
			t.Errorf("the second time the page is %s", b)
		}
	}
	for _, want := range []string{"before\n" + markBegin, markEnd + "behind\n", "| call 200 B c=32 | proxy |", "|  | full |", "| 1.40 | met |", "| idle | 27.5 MiB resident |"} {
		if !strings.Contains(first, want) {
			t.Errorf("the page lacks %q: %s", want, first)
		}
	}
	if strings.Contains(first, "old") {
		t.Error("what stood there is left")
	}
	if err := os.WriteFile(page, []byte("no lines\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.insert(page); err == nil {
		t.Error("a page without the lines was taken")
	}
}

func TestChosen(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     options
		loads int
		ways  string
		err   bool
	}{
		{"one workload, every way", options{only: `^call 200 B c=32$`}, 1, "direct proxy sdk bare full traced-1 traced-100", false},
		{"two ways", options{only: `^call 200 B c=32$`, ways: "full,proxy"}, 1, "proxy full", false},
		{"another build", options{only: `^call 200 B c=32$`, ways: "full,before", against: "x"}, 1, "full before", false},
		{"no build to compare with", options{only: `^call 200 B c=32$`, ways: "before"}, 0, "", false},
		{"an unknown way", options{ways: "envoy"}, 0, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.names = regexp.MustCompile(tt.o.only)
			loads, err := chosen(tt.o)
			if len(loads) != tt.loads || (err != nil) != tt.err {
				t.Fatalf("%d workloads, %v", len(loads), err)
			}
			if len(loads) > 0 && strings.Join(loads[0].ways, " ") != tt.ways {
				t.Errorf("ways %v", loads[0].ways)
			}
		})
	}
}
