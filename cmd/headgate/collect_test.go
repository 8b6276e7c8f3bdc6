package main

import "testing"

func TestPacer(t *testing.T) {
	const mib = 1 << 20
	var p pacer
	cycles := uint64(3)
	step := func(what string, done, live uint64, want int) {
		t.Helper()
		cycles += done
		if got := p.next(cycles, live); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	step("the first look", 0, 4*mib, 0)
	step("a little work", busyCollections-1, 4*mib, 0)
	step("busy", busyCollections, 6*mib, 800)
	step("busy, the heap about the same", 3, 7*mib, 0)
	step("busy, the heap larger", 3, 24*mib, 200)
	step("busy, the heap so large that the usual pace is right", 3, 100*mib, 100)
	step("busy, next to no heap", 3, mib/4, 1600)
	for range quietRounds - 1 {
		step("quiet", 0, mib, 0)
	}
	step("quiet for long", 0, mib, usualPace)
	step("still quiet", 0, mib, 0)
	step("a little work again", 1, mib, 0)
	step("busy again", busyCollections, 12*mib, 400)
}

// TestPacerRests: memory is given back once after each time that there was something to collect.
func TestPacerRests(t *testing.T) {
	var p pacer
	given := 0
	cycles := uint64(0)
	for _, quiet := range []int{0, restRounds + 3, restRounds - 1, 2 * restRounds} {
		for range quiet {
			p.next(cycles, 1<<20)
			if p.rests() {
				given++
			}
		}
		cycles += 5
		p.next(cycles, 1<<20)
	}
	if given != 2 {
		t.Errorf("given back %d times", given)
	}
}

func TestSoftLimit(t *testing.T) {
	for text, want := range map[string]int64{
		"max\n": 0, "": 0, "0": 0, "-1": 0, "9223372036854771712\n": 0, "1000000000\n": 900_000_000,
	} {
		if got := softLimit(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := softLimit("536870912"); got < 480_000_000 || got >= 536_870_912 {
		t.Errorf("half a GiB: %d", got)
	}
}
