package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/quick"
)

// digest is written out once more so that the tests pin the published recipe, not the code.
func digest(server, name string) string {
	sum := sha256.Sum256(append(append([]byte(server), 0), name...))
	return hex.EncodeToString(sum[:])[:8]
}

func TestExposed(t *testing.T) {
	long := strings.Repeat("n", 50)
	tests := []struct {
		name                 string
		rules                Rules
		server, prefix, tool string
		want                 string
		changed              bool
	}{
		{"N01 20 character id and 50 character tool", Rules{}, "abcdefghij-abcdefghi", "abcdefghij-abcdefghi", long,
			"abcdefghij-abcdefghi_" + long[:18] + "_" + digest("abcdefghij-abcdefghi", long), true},
		{"N02 exactly the default budget", Rules{}, "a", "a", strings.Repeat("x", 46), "a_" + strings.Repeat("x", 46), false},
		{"N02 one over the default budget", Rules{}, "a", "a", strings.Repeat("x", 47),
			"a_" + strings.Repeat("x", 37) + "_" + digest("a", strings.Repeat("x", 47)), true},
		{"N04 leading underscore is fine behind a prefix", Rules{}, "s", "s", "_5thing", "s__5thing", false},
		{"N04 leading underscore is what hosts accept", Rules{}, "s", "", "_5thing", "_5thing", false},
		{"N04 leading dash", Rules{}, "s", "", "-x", "_x_" + digest("s", "-x"), true},
		{"N04 leading dash of a prefix", Rules{}, "s", "-p", "x", "_p_x_" + digest("s", "x"), true},
		{"N04 dash inside", Rules{}, "s", "s", "-x", "s_-x", false},
		{"N05 dot", Rules{}, "cal", "cal", "calendar.read", "cal_calendar_read_" + digest("cal", "calendar.read"), true},
		{"N05 slash", Rules{}, "cal", "cal", "a/b", "cal_a_b_" + digest("cal", "a/b"), true},
		{"N05 space", Rules{}, "cal", "cal", "New Tool", "cal_New_Tool_" + digest("cal", "New Tool"), true},
		{"N05 one underscore for a character of many bytes", Rules{}, "cal", "cal", "größe", "cal_gr__e_" + digest("cal", "größe"), true},
		{"N05 one underscore for each byte that is no UTF-8", Rules{}, "cal", "cal", "a\xff\xfe", "cal_a___" + digest("cal", "a\xff\xfe"), true},
		{"N05 dot of the name stays illegal with the dot as separator", Rules{Separator: "."}, "cal", "cal", "a.b",
			"cal.a_b_" + digest("cal", "a.b"), true},
		{"dot as separator", Rules{Separator: "."}, "cal", "cal", "read", "cal.read", false},
		{"dot in a bare name", Rules{Separator: "."}, "cal", "", "a.b", "a_b_" + digest("cal", "a.b"), true},
		{"two underscores", Rules{Separator: "__"}, "cal", "cal", "read", "cal__read", false},
		{"N10 plain", Rules{}, "github", "github", "search_code", "github_search_code", false},
		{"N11 prefix other than the id", Rules{}, "github", "gh", "search_code", "gh_search_code", false},
		{"N11 bare", Rules{}, "github", "", "search_code", "search_code", false},
		{"N14 200 character prefix", Rules{}, "s", strings.Repeat("p", 200), "t", strings.Repeat("p", 39) + "_" + digest("s", "t"), true},
		{"N14 prefix with a space", Rules{}, "s", "a b", "t", "a_b_t_" + digest("s", "t"), true},
		{"empty name", Rules{}, "s", "s", "", "s__" + digest("s", ""), true},
		{"empty bare name", Rules{}, "s", "", "", "_" + digest("s", ""), true},
		{"budget 128", Rules{MaxLength: 128}, "s", "s", strings.Repeat("x", 126), "s_" + strings.Repeat("x", 126), false},
		{"budget above the limit", Rules{MaxLength: 500}, "s", "", strings.Repeat("x", 129),
			strings.Repeat("x", 119) + "_" + digest("s", strings.Repeat("x", 129)), true},
		{"budget below the limit", Rules{MaxLength: -3}, "s", "", "xy", digest("s", "xy")[:1], true},
		{"budget 10", Rules{MaxLength: 10}, "s", "s", "longish-name", "s_" + digest("s", "longish-name"), true},
		{"budget 9", Rules{MaxLength: 9}, "s", "s", "longish-name", "_" + digest("s", "longish-name"), true},
		{"budget 8", Rules{MaxLength: 8}, "s", "s", "longish-name", digest("s", "longish-name"), true},
		{"budget 1", Rules{MaxLength: 1}, "s", "s", "longish-name", digest("s", "longish-name")[:1], true},
		{"budget 3 and a name that fits", Rules{MaxLength: 3}, "s", "s", "t", "s_t", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, changed := tt.rules.Exposed(tt.server, tt.prefix, tt.tool)
			if got != tt.want || changed != tt.changed {
				t.Errorf("Exposed = %q, %t, want %q, %t", got, changed, tt.want, tt.changed)
			}
		})
	}
}

// TestKnownDigest pins a name in full: it must be the same in every version, since allow-lists contain it.
func TestKnownDigest(t *testing.T) {
	const want = "cal_calendar_read_2b645a7d"
	if got, _ := (Rules{}).Exposed("cal", "cal", "calendar.read"); got != want {
		t.Errorf("Exposed = %q, want %q", got, want)
	}
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name     string
		items    []Item
		exposed  []string // server/name=exposed in order
		withheld []string // server/name<server/name, with ! for a duplicate
	}{
		{"nothing", nil, nil, nil},
		{"N06 N07 look-alike prefixes", []Item{{"my-db", "my_db", "execute_sql"}, {"db", "db", "execute_sql"}},
			[]string{"db/execute_sql=db_execute_sql", "my-db/execute_sql=my_db_execute_sql"}, nil},
		{"N08 joins that meet", []Item{{"a2", "a_", "_x"}, {"a1", "a", "__x"}},
			[]string{"a1/__x=a___x"}, []string{"a2/_x<a1/__x"}},
		{"N08 sanitised names of one server stay apart", []Item{{"a", "a", "a.b"}, {"a", "a", "a_b"}},
			[]string{"a/a_b=a_a_b", "a/a.b=a_a_b_" + digest("a", "a.b")}, nil},
		{"bare names that meet", []Item{{"b", "", "read"}, {"a", "", "read"}, {"c", "", "read"}},
			[]string{"a/read=read"}, []string{"b/read<a/read", "c/read<a/read"}},
		{"a name made to look shortened", []Item{{"b", "", "x_y_" + digest("a", "x.y")}, {"a", "", "x.y"}},
			[]string{"a/x.y=x_y_" + digest("a", "x.y")}, []string{"b/x_y_" + digest("a", "x.y") + "<a/x.y"}},
		{"same name twice", []Item{{"a", "a", "t"}, {"a", "a", "t"}},
			[]string{"a/t=a_t"}, []string{"a/t<a/t!"}},
		{"same name twice where another has it", []Item{{"b", "", "t"}, {"b", "", "t"}, {"a", "", "t"}},
			[]string{"a/t=t"}, []string{"b/t<a/t", "b/t<a/t!"}},
		{"bytewise order", []Item{{"a", "", "b"}, {"a", "", "B"}, {"a", "", "_"}, {"a", "", "0"}, {"a", "", "a-"}, {"a", "", "a"}},
			[]string{"a/0=0", "a/B=B", "a/_=_", "a/a=a", "a/a-=a-", "a/b=b"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := Rules{}.Build(tt.items)
			var exposed, withheld []string
			for _, e := range table.Entries {
				exposed = append(exposed, e.Server+"/"+e.Name+"="+e.Exposed)
				if tt.items[e.Index] != e.Item {
					t.Errorf("entry %q has index %d of another item", e.Exposed, e.Index)
				}
				if plain, changed := (Rules{}).Exposed(e.Server, e.Prefix, e.Name); plain != e.Exposed || changed != e.Changed {
					t.Errorf("entry %q, %t differs from Exposed %q, %t", e.Exposed, e.Changed, plain, changed)
				}
			}
			for _, w := range table.Withheld {
				s := w.Server + "/" + w.Name + "<" + w.By.Server + "/" + w.By.Name
				if w.Duplicate {
					s += "!"
				}
				withheld = append(withheld, s)
				if tt.items[w.Index] != w.Item {
					t.Errorf("withheld %q has index %d of another item", w.Exposed, w.Index)
				}
			}
			if !slices.Equal(exposed, tt.exposed) {
				t.Errorf("entries:\n got %q\nwant %q", exposed, tt.exposed)
			}
			if !slices.Equal(withheld, tt.withheld) {
				t.Errorf("withheld:\n got %q\nwant %q", withheld, tt.withheld)
			}
		})
	}
}

func TestFirstOfIdenticalPairsCounts(t *testing.T) {
	items := []Item{{"a", "p", "t"}, {"a", "q", "t"}}
	table := Rules{}.Build(items)
	if len(table.Entries) != 1 || table.Entries[0].Exposed != "p_t" || table.Entries[0].Index != 0 {
		t.Errorf("entries = %+v, want p_t of item 0 alone", table.Entries)
	}
	if len(table.Withheld) != 1 || table.Withheld[0].Index != 1 || !table.Withheld[0].Duplicate || table.Withheld[0].By != items[0] {
		t.Errorf("withheld = %+v, want item 1 as a duplicate of item 0", table.Withheld)
	}
}

var hostPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// checkName fails unless exposed is a name that hosts accept under the rules.
func checkName(t *testing.T, r Rules, prefix, exposed string) {
	t.Helper()
	if len(exposed) > r.maxLength() {
		t.Errorf("%q is longer than %d", exposed, r.maxLength())
	}
	plain := exposed
	if r.separator() == "." && prefix != "" {
		plain = strings.Replace(plain, ".", "_", 1)
	}
	if !hostPattern.MatchString(plain) {
		t.Errorf("%q has characters that hosts refuse", exposed)
	}
	if exposed[0] == '-' {
		t.Errorf("%q starts with a dash", exposed)
	}
}

func rulesFrom(seed uint8, length uint8) Rules {
	return Rules{Separator: []string{"", "_", "__", "."}[seed%4], MaxLength: int(length) % 129}
}

func TestExposedProperties(t *testing.T) {
	property := func(seed, length uint8, server, prefix, name string) bool {
		r := rulesFrom(seed, length)
		exposed, changed := r.Exposed(server, prefix, name)
		checkName(t, r, prefix, exposed)
		again, _ := r.Exposed(server, prefix, name)
		plain := name
		if prefix != "" {
			plain = prefix + r.separator() + name
		}
		return exposed == again && (changed || exposed == plain)
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}

// someItems draws from a small alphabet, so that collisions and duplicates are common.
func someItems(r *rand.Rand, servers []string) []Item {
	pick := func(from string, most int) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = from[r.IntN(len(from))]
		}
		return string(b)
	}
	prefixes := map[string]string{}
	for _, s := range servers {
		prefixes[s] = pick("a_", 2)
	}
	items := make([]Item, r.IntN(40))
	for i := range items {
		s := servers[r.IntN(len(servers))]
		items[i] = Item{Server: s, Prefix: prefixes[s], Name: pick("a_.", 5)}
	}
	return items
}

func names(t Table) map[Item]string {
	m := map[Item]string{}
	for _, e := range t.Entries {
		m[e.Item] = e.Exposed
	}
	return m
}

func TestBuildProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		rules := rulesFrom(uint8(r.Uint32()), uint8(r.Uint32()))
		items := someItems(r, []string{"a", "b", "c"})
		table := rules.Build(items)

		if got := len(table.Entries) + len(table.Withheld); got != len(items) {
			t.Fatalf("%d items became %d", len(items), got)
		}
		seen := map[string]Item{}
		for i, e := range table.Entries {
			checkName(t, rules, e.Prefix, e.Exposed)
			if other, twice := seen[e.Exposed]; twice {
				t.Fatalf("%+v and %+v share %q", other, e.Item, e.Exposed)
			}
			seen[e.Exposed] = e.Item
			if i > 0 && table.Entries[i-1].Exposed >= e.Exposed {
				t.Fatalf("%q stands before %q", table.Entries[i-1].Exposed, e.Exposed)
			}
		}
		for _, w := range table.Withheld {
			if owner, ok := seen[w.Exposed]; !ok || owner != w.By {
				t.Fatalf("%+v is withheld for %+v, but %+v has the name", w.Item, w.By, owner)
			}
		}

		shuffled := slices.Clone(items)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again := rules.Build(shuffled)
		for i := range again.Entries {
			again.Entries[i].Index = table.Entries[i].Index
		}
		if !slices.Equal(table.Entries, again.Entries) {
			t.Fatalf("order of items counts:\n%+v\n%+v", table.Entries, again.Entries)
		}

		before := names(table)
		more := rules.Build(append(slices.Clone(items), someItems(r, []string{"0", "bb", "d"})...))
		for item, exposed := range names(more) {
			if was, ok := before[item]; ok && was != exposed {
				t.Fatalf("%+v was %q and became %q when servers were added", item, was, exposed)
			}
		}
		for _, w := range more.Withheld {
			if was, ok := before[w.Item]; ok && was != w.Exposed {
				t.Fatalf("%+v was %q and became %q when servers were added", w.Item, was, w.Exposed)
			}
		}
	}
}

func FuzzExposed(f *testing.F) {
	f.Add(uint8(0), uint8(0), "github", "github", "search_code")
	f.Add(uint8(3), uint8(20), "cal", "cal", "calendar.read")
	f.Add(uint8(2), uint8(5), "s", "", "\xff\x00é")
	f.Add(uint8(1), uint8(9), "s", "-", "")
	f.Fuzz(func(t *testing.T, seed, length uint8, server, prefix, name string) {
		r := rulesFrom(seed, length)
		exposed, changed := r.Exposed(server, prefix, name)
		checkName(t, r, prefix, exposed)
		if changed && r.maxLength() > 8 && !strings.HasSuffix(exposed, "_"+digest(server, name)) {
			t.Errorf("changed name %q does not end in the digest", exposed)
		}
		if again, _ := r.Exposed(server, prefix, name); again != exposed {
			t.Errorf("%q and then %q", exposed, again)
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	var items []Item
	for _, s := range []string{"files", "github", "calendar"} {
		for i := range 100 {
			items = append(items, Item{Server: s, Prefix: s, Name: "tool_number_" + strings.Repeat("x", i%50)})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		Rules{}.Build(items)
	}
}
