package ledger

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func newTest() *Ledger {
	return New(time.Unix(0, 0), OK, "tool_error", "protocol_error", Cancelled, "timeout")
}

func fail(tool, text string, n int) Failure {
	return Failure{Tool: tool, Upstream: "u", Outcome: "tool_error", Text: text, Time: time.Unix(int64(n), 0)}
}

func TestCounts(t *testing.T) {
	l := newTest()
	for tool, outcomes := range map[string]string{
		"good": "ok ok ok", "bad": "tool_error tool_error", "mixed": "ok timeout cancelled ok ok", "odd": "no_such_outcome", "": "protocol_error",
	} {
		for o := range strings.FieldsSeq(outcomes) {
			l.Count(tool, "u", o)
		}
	}
	r := l.Report("")
	var got []string
	for _, tool := range r.Tools {
		got = append(got, fmt.Sprintf("%s %d/%d %.2f %v", tool.Name, tool.Failed, tool.Calls, tool.Rate, tool.Outcomes))
	}
	want := []string{
		"bad 2/2 1.00 map[tool_error:2]", "_UNKNOWN 1/1 1.00 map[protocol_error:1]", "mixed 1/5 0.25 map[cancelled:1 ok:3 timeout:1]",
		"odd 1/1 1.00 map[other:1]", "good 0/3 0.00 map[ok:3]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if r.Totals.Calls != 12 || r.Totals.Failed != 5 || r.Totals.Outcomes[OK] != 6 {
		t.Errorf("totals: %+v", r.Totals)
	}
	if one := l.Report("mixed"); len(one.Tools) != 1 || one.Totals.Calls != 5 {
		t.Errorf("of one tool: %+v", one)
	}
	if none := l.Report("none"); none.Tools == nil || len(none.Tools) != 0 {
		t.Errorf("of none: %+v", none)
	}
}

func TestLikeTextsFallTogether(t *testing.T) {
	l := newTest()
	for n := range 10 {
		f := fail("t", fmt.Sprintf(`No invoice "INV-%d" since 2020-01-0%d`, n, n%9+1), n)
		if n == 4 {
			f.TraceID = "trace4"
		}
		l.Count("t", "u", "tool_error")
		l.Note(f)
	}
	f := fail("t", "No invoice", 20)
	f.Outcome, f.Code = "protocol_error", -32000
	l.Note(f)
	texts := l.Report("").Tools[0].Texts
	want := Text{Outcome: "tool_error", Text: "No invoice <value> since <time>", Count: 10, First: time.Unix(0, 0), Last: time.Unix(9, 0), TraceID: "trace4"}
	if len(texts) != 2 || texts[0] != want || texts[1].Code != -32000 || texts[1].Count != 1 {
		t.Errorf("texts are %+v", texts)
	}
}

// TestFrequentTextsStay: whatever comes between, and however many there are, a text that makes up a tenth of all is
// kept and ranked first, also one that begins late.
func TestFrequentTextsStay(t *testing.T) {
	l := newTest()
	at := 0
	note := func(text string) {
		at++
		l.Count("t", "u", "tool_error")
		l.Note(fail("t", text, at))
	}
	for n := range 1000 {
		note("once: " + words(n))
		if n%10 == 0 {
			note("often from the beginning")
		}
		if n >= 500 && n%5 == 0 {
			note("often since later")
		}
	}
	r := l.Report("t").Tools[0]
	if len(r.Texts) != MaxTexts {
		t.Fatalf("%d texts", len(r.Texts))
	}
	for i, want := range []struct {
		text  string
		count int64
	}{{"often from the beginning", 100}, {"often since later", 100}} {
		found := false
		for _, text := range r.Texts[:2] {
			found = found || text.Text == want.text && text.Count == want.count
		}
		if !found {
			t.Errorf("%d: %q is not first with %d: %+v", i, want.text, want.count, r.Texts[:2])
		}
	}
	sum := r.OtherTexts
	for _, text := range r.Texts {
		sum += text.Count
	}
	if sum != r.Failed || r.OtherTexts == 0 {
		t.Errorf("texts and others are %d, failures %d", sum, r.Failed)
	}
}

// words spells a number in letters, so that masking leaves it.
func words(n int) string {
	var b strings.Builder
	for _, d := range fmt.Sprint(n) {
		b.WriteString([]string{"zero ", "one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine "}[d-'0'])
	}
	return strings.TrimSpace(b.String())
}

// TestBounds: 100,000 calls to random names of many upstreams, some of them with random texts, leave no more than the bounds allow,
// and an upstream that invents names takes no place from another.
func TestBounds(t *testing.T) {
	l := newTest()
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 100_000 {
		f := fail(fmt.Sprintf("tool-%d", rng.IntN(50_000)), words(rng.IntN(1e6)), n)
		if n%2 == 0 {
			f.Upstream = fmt.Sprintf("up-%d", rng.IntN(10))
		}
		l.Count(f.Tool, f.Upstream, "tool_error")
		if n%50 == 0 {
			if n%1000 == 0 {
				f.Text += strings.Repeat(" long", 200)
			}
			l.Note(f)
		}
		if n == 1000 {
			l.Count("mine", "mine", OK)
		}
	}
	r := l.Report("")
	if r.Totals.Calls != 100_001 {
		t.Errorf("%d calls were counted", r.Totals.Calls)
	}
	ofOne := map[string]int{}
	for _, tool := range r.Tools {
		ofOne[tool.Upstream]++
		if len(tool.Texts) > MaxTexts {
			t.Errorf("%s has %d texts", tool.Name, len(tool.Texts))
		}
		for _, text := range tool.Texts {
			if len(text.Text) > MaxText {
				t.Errorf("a text of %d bytes", len(text.Text))
			}
		}
	}
	if len(r.Tools) > MaxTools+2 || len(r.Tools) < MaxTools || ofOne["u"] > MaxToolsOfOne {
		t.Errorf("%d tools, %d of one upstream", len(r.Tools), ofOne["u"])
	}
	if other := l.Report(Other).Tools; len(other) != 1 || len(other[0].Texts) != MaxTexts {
		t.Errorf("other: %+v", other)
	}
	if mine := l.Report("mine").Tools; len(mine) != 1 || mine[0].Outcomes[OK] != 1 {
		t.Errorf("mine: %+v", mine)
	}
}

func TestTextsTurnedOff(t *testing.T) {
	l := newTest()
	l.Count("t", "u", "tool_error")
	l.Note(fail("t", "before", 1))
	l.KeepTexts(false)
	l.Note(fail("t", "while off", 2))
	if r := l.Report(""); r.Texts || len(r.Tools[0].Texts) != 0 || r.Tools[0].OtherTexts != 0 || r.Tools[0].Failed != 1 {
		t.Errorf("off: %+v", r)
	}
	l.KeepTexts(true)
	l.Note(fail("t", "after", 3))
	if r := l.Report(""); !r.Texts || len(r.Tools[0].Texts) != 1 || r.Tools[0].Texts[0].Text != "after" {
		t.Errorf("on again: %+v", r)
	}
}

func TestConcurrently(t *testing.T) {
	l := newTest()
	var wg sync.WaitGroup
	const workers, each = 8, 500
	for w := range workers {
		wg.Go(func() {
			for n := range each {
				tool := fmt.Sprintf("tool-%d", n%50)
				l.Count(tool, "u", "tool_error")
				l.Note(fail(tool, "text "+words(n%40), n))
				if n%100 == 0 {
					l.Report("")
					l.KeepTexts(w != 0)
				}
			}
		})
	}
	wg.Wait()
	if got := l.Report("").Totals.Calls; got != workers*each {
		t.Errorf("%d calls were counted, want %d", got, workers*each)
	}
}

// BenchmarkCount is what a call that succeeds costs: no allocation.
func BenchmarkCount(b *testing.B) {
	l := newTest()
	for n := range 1000 {
		l.Count(fmt.Sprintf("tool-%d", n), fmt.Sprintf("up-%d", n%10), OK)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Count("tool-7", "up-7", OK)
	}
}

// TestCountAllocatesNothing holds the benchmark's word.
func TestCountAllocatesNothing(t *testing.T) {
	l := newTest()
	l.Count("t", "u", OK)
	if n := testing.AllocsPerRun(100, func() { l.Count("t", "u", OK) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
