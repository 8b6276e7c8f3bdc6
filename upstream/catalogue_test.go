package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/headgate/headgate/internal/mcptest"
	"github.com/headgate/headgate/internal/wire"
)

func plain(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }

func (r *rig) rules() []string {
	var rules []string
	for _, f := range r.Catalogue().Findings {
		rules = append(rules, f.Rule)
	}
	return rules
}

func TestAllPagesAreRead(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		s := &mcptest.Server{Era: era, PageSize: 3, Instructions: "be nice"}
		for i := range 10 {
			s.Tools = append(s.Tools, tool("t"+strconv.Itoa(9-i), nil))
		}
		r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
		c := r.Catalogue()
		for i, got := range c.Tools {
			if want := plain("t" + strconv.Itoa(9-i)); string(got.Definition) != want {
				t.Errorf("tool %d is %s, want %s", i, got.Definition, want)
			}
		}
		if len(c.Tools) != 10 || s.Count("tools/list") != 4 || len(c.Findings) != 0 {
			t.Errorf("%d tools in %d requests, findings %v", len(c.Tools), s.Count("tools/list"), c.Findings)
		}
		if c.Instructions != "be nice" || !strings.Contains(string(c.ServerInfo), `"scripted"`) || !c.HasCapability("tools") || c.HasCapability("logging") {
			t.Errorf("catalogue %+v", c)
		}
	})
}

func TestListsThatNeverEnd(t *testing.T) {
	t.Parallel()
	page := 0
	for _, tt := range []struct {
		name  string
		list  func(cursor string) string
		tools int
		pages int
		rule  string
	}{
		{"repeated cursor", func(string) string { return `{"tools":[` + plain("a") + `],"nextCursor":"again"}` }, 1, 2, "cursor"},
		{"endless cursors", func(string) string {
			page++
			return `{"tools":[` + plain("t"+strconv.Itoa(page)) + `],"nextCursor":"` + strconv.Itoa(page) + `"}`
		}, maxPages, maxPages, "pages"},
		{"cursor not a string", func(string) string { return `{"tools":[` + plain("a") + `],"nextCursor":7}` }, 1, 1, "cursor"},
		{"empty cursor once", func(c string) string {
			if c == "" && page == 0 {
				page++
				return `{"tools":[` + plain("a") + `],"nextCursor":""}`
			}
			return `{"tools":[` + plain("b") + `],"nextCursor":null}`
		}, 2, 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			page = 0
			s := &mcptest.Server{Era: mcptest.Legacy, OnList: func(c string) (string, bool) { return tt.list(c), true }}
			r := up(t, settings(), piped(s))
			rules := strings.Join(slices.Compact(r.rules()), " ")
			if strings.Contains(rules, "duplicate_name") {
				rules = strings.TrimSpace(strings.Replace(rules, "duplicate_name", "", 1))
			}
			if n := len(r.Catalogue().Tools); n != tt.tools || s.Count("tools/list") != tt.pages || rules != tt.rule {
				t.Errorf("%d tools in %d pages, rules %q", n, s.Count("tools/list"), rules)
			}
		})
	}
}

// TestListThatTrickles: a list whose pages each come in time, and never end, is cut at the time limit of
// a whole list.
func TestListThatTrickles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		page := 0
		s := &mcptest.Server{Era: mcptest.Legacy, OnList: func(string) (string, bool) {
			time.Sleep(time.Second)
			page++
			return `{"tools":[` + plain("t"+strconv.Itoa(page)) + `],"nextCursor":"` + strconv.Itoa(page) + `"}`, true
		}}
		began := time.Now()
		o := piped(s)
		o.ListTimeout = 10500 * time.Millisecond
		r := up(t, settings(), o)
		if n, took := len(r.Catalogue().Tools), time.Since(began); n != 10 || took > 11*time.Second || strings.Join(r.rules(), " ") != "pages" {
			t.Errorf("%d tools after %v, rules %v", n, took, r.rules())
		}
	})
}

func TestOneBadToolCostsOneTool(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Tools: []mcptest.Tool{
		tool("first", nil),
		{Def: `{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/gone"}}}}`},
		{Def: `7`, Name: "-"},
		{Def: `{"name":"first","inputSchema":{"type":"object"},"description":"another"}`},
		{Def: `{"name":"repaired"}`},
		tool("last", nil),
	}}
	r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
	var names []string
	for _, got := range r.Catalogue().Tools {
		names = append(names, got.Name)
	}
	if got := strings.Join(names, " "); got != "first repaired last" {
		t.Errorf("tools %s", got)
	}
	var found []string
	for _, f := range r.Catalogue().Findings {
		found = append(found, f.Server+" "+f.Tool+" "+f.Rule)
		if !r.logged("rule=" + f.Rule) {
			t.Errorf("%v is not in the log", f)
		}
	}
	if got := strings.Join(found, ", "); got != "srv bad schema_ref, srv #3 definition, srv first duplicate_name, srv repaired input_schema_missing" {
		t.Errorf("findings %s", got)
	}
	if string(r.Catalogue().Tool("first").Definition) != plain("first") {
		t.Error("the second of the same name is served")
	}
}

func TestServerWithoutLists(t *testing.T) {
	t.Parallel()
	bothEras(t, func(t *testing.T, era string) {
		t.Run("advertised, but unknown", func(t *testing.T) {
			s := &mcptest.Server{Era: era, OnRequest: func(c *mcptest.Call) bool {
				if c.Method != "tools/list" {
					return false
				}
				c.Error(`{"code":-32601,"message":"Method not found"}`)
				return true
			}}
			r := up(t, settings(), piped(s))
			if got := r.rules(); len(got) != 1 || got[0] != "capability" {
				t.Errorf("findings %v", got)
			}
		})
		t.Run("not advertised", func(t *testing.T) {
			s := &mcptest.Server{Era: era, Capabilities: `{"tools":null}`}
			r := up(t, settings(), piped(s))
			if s.Count("tools/list") != 0 || len(r.Catalogue().Tools) != 0 {
				t.Error("tools/list was asked")
			}
		})
	})
}

func TestListThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, result := range []string{`{}`, `{"tools":null}`, `{"tools":{}}`, `[]`, `null`, `{"tools":[],"tools":[]}`} {
		t.Run(result, func(t *testing.T) {
			s := &mcptest.Server{Era: mcptest.Legacy, OnList: func(string) (string, bool) { return result, true }}
			r := run(t, settings(), piped(s))
			r.await("a failure", func() bool { return r.Status().State == Down })
			if got := r.Status(); !strings.Contains(got.Error, "tools/list") || r.Catalogue() != nil {
				t.Errorf("status %+v", got)
			}
		})
	}
}

// A server whose list breaks keeps the tools that it had, keeps the calls in flight, and is connected
// again, since some only recover by that.
func TestListThatBreaksLater(t *testing.T) {
	t.Parallel()
	broken := make(chan struct{})
	inCall, finish := make(chan struct{}), make(chan struct{})
	s := &mcptest.Server{Era: mcptest.Legacy, ListChanged: true}
	s.Tools = []mcptest.Tool{tool("wait", func(c *mcptest.Call) {
		close(inCall)
		<-finish
		c.Text("done")
	})}
	initialized := 0
	s.OnRequest = func(c *mcptest.Call) bool {
		if c.Method == "initialize" {
			initialized = s.Count("initialize")
		}
		select {
		case <-broken:
			if c.Method == "tools/list" && initialized == 1 {
				c.Error(`{"code":-32603,"message":"lost my mind"}`)
				return true
			}
		default:
		}
		return false
	}
	r := up(t, httpAt(s.StartHTTP(t).URL), Options{})
	answer := make(chan error, 1)
	go func() {
		_, err := r.call("wait", `{}`)
		answer <- err
	}()
	<-inCall
	close(broken)
	s.NotifyToolsChanged()
	awaitAt(t, s, "a new session", func() bool { return s.Count("initialize") == 2 })
	if r.Catalogue().Tool("wait") == nil {
		t.Error("the tools are gone")
	}
	if s.Count("DELETE") != 0 {
		t.Error("the session of a call in flight was deleted")
	}
	close(finish)
	if err := <-answer; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	r.awaitUp()
}

func TestTTL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pages []string
		want  time.Duration
	}{
		{[]string{`5000`}, 5 * time.Second},
		{[]string{`60000`, `2000`, `9000`}, 2 * time.Second},
		{[]string{`0`}, 0},
		{[]string{`-1`}, 0},
		{[]string{`9223372036854775807`}, 24 * time.Hour},
		{[]string{`"5000"`, `null`, `1.5`}, -1},
	} {
		c := &Catalogue{TTL: -1}
		for _, ms := range tt.pages {
			page, err := wire.ParseObject(jsontext.Value(`{"ttlMs":` + ms + `}`))
			if err != nil {
				t.Fatal(err)
			}
			limitTTL(&c.TTL, page)
		}
		if c.TTL != tt.want {
			t.Errorf("%v: %v, want %v", tt.pages, c.TTL, tt.want)
		}
	}
	u := New(settings(), Options{Refresh: time.Hour})
	for ttl, want := range map[time.Duration]time.Duration{-1: time.Hour, 0: minRefresh, time.Second: minRefresh, 2 * time.Minute: 2 * time.Minute} {
		none := List{TTL: -1}
		u.catalogue.Store(&Catalogue{TTL: ttl, Prompts: none, Resources: none, Templates: none})
		if got := u.refreshAfter(); got < want || got > want+want/10+1 {
			t.Errorf("ttl %v: read again after %v", ttl, got)
		}
	}
}

// Without announcements the list is read again from time to time.
func TestListIsReadAgain(t *testing.T) {
	t.Parallel()
	s := &mcptest.Server{Era: mcptest.Legacy, Tools: mcptest.Builtin("echo")}
	opts := piped(s)
	opts.Refresh = 20 * time.Millisecond
	r := up(t, settings(), opts)
	s.SetTools([]mcptest.Tool{tool("new", nil)})
	r.awaitTool("new")
	if r.Catalogue().Tool("echo") != nil {
		t.Error("the old tool is still there")
	}
}

func TestHostileLists(t *testing.T) {
	t.Parallel()
	t.Run("many tools", func(t *testing.T) {
		s := &mcptest.Server{}
		for i := range maxTools + 5 {
			s.Tools = append(s.Tools, tool(fmt.Sprint("t", i), nil))
		}
		r := up(t, settings(), piped(s))
		if n := len(r.Catalogue().Tools); n != maxTools || strings.Join(r.rules(), " ") != "tools" {
			t.Errorf("%d tools, rules %v", n, r.rules())
		}
	})
	t.Run("many bad tools", func(t *testing.T) {
		s := &mcptest.Server{OnList: func(string) (string, bool) {
			return `{"tools":[` + strings.TrimSuffix(strings.Repeat(`{},`, maxTools+5), ",") + `],"resultType":"complete"}`, true
		}}
		r := up(t, settings(), piped(s))
		if n := len(r.Catalogue().Findings); n != maxTools+1 {
			t.Errorf("%d findings", n)
		}
		if n := strings.Count(r.log.String(), "msg=finding"); n > 100 {
			t.Errorf("%d findings were logged", n)
		}
	})
	t.Run("large definitions", func(t *testing.T) {
		list := readingTools("x", &Catalogue{})
		text := strings.Repeat("x", 1<<20)
		taken := 0
		for list.take(jsontext.Value(`{"name":"t` + strconv.Itoa(taken) + `","description":"` + text + `"}`)) {
			taken++
		}
		if taken != maxBytes>>20-1 {
			t.Errorf("%d tools of 1 MiB were taken", taken)
		}
	})
	t.Run("page above max_answer", func(t *testing.T) {
		cfg := settings()
		cfg.MaxAnswer = 4096
		s := &mcptest.Server{Tools: []mcptest.Tool{tool(strings.Repeat("x", 5000), nil)}}
		for _, over := range []string{"pipes", "http"} {
			opts := Options{}
			if over == "pipes" {
				opts = piped(s)
			} else {
				cfg.URL = s.StartHTTP(t).URL
			}
			r := run(t, cfg, opts)
			r.await("a failure", func() bool { return r.Status().State == Down })
			if got := r.Status().Error; !strings.Contains(got, "bad_upstream_answer") {
				t.Errorf("%s: %s", over, got)
			}
		}
	})
}

func TestCatalogueEquality(t *testing.T) {
	t.Parallel()
	a := &Catalogue{Tools: []Tool{{Name: "x", Definition: jsontext.Value(`{}`)}}}
	for name, b := range map[string]*Catalogue{
		"nil":        nil,
		"definition": {Tools: []Tool{{Name: "x", Definition: jsontext.Value(`{ }`)}}},
		"finding":    {Tools: a.Tools, Findings: []Finding{{Rule: "r"}}},
		"era":        {Tools: a.Tools, Era: Modern},
		"ttl":        {Tools: a.Tools, TTL: 1},
	} {
		if a.equal(b) {
			t.Errorf("%s makes no difference", name)
		}
	}
	if !a.equal(&Catalogue{Tools: slices.Clone(a.Tools)}) {
		t.Error("a copy differs")
	}
	if (*Catalogue)(nil).Tool("x") != nil {
		t.Error("a tool of nothing")
	}
}
