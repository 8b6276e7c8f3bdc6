//go:build integration

package integration

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// readable says of one server what npm/reads.mjs has to know.
type readable struct {
	ID     string `json:"id"`
	Prefix string `json:"prefix"`
	Alias  string `json:"alias"`
}

// reading is what a client was given of prompts, resources, templates, completion and subscriptions.
type reading struct {
	Version string
	Servers map[string]map[string]any
}

// TestRealReaders has both versions of the TypeScript SDK read the everything server directly and through Headgate,
// where it stands three times, on three transports. What they are given is the same, with the names mapped back.
func TestRealReaders(t *testing.T) {
	w := newWorld(t)
	p := startHeadgate(t, w.config)
	behind := []readable{
		{"everything", "everything_", ""}, // the first one in order has the plain URIs
		{"old", "old_", "headgate://old/"},
		{"web", "web_", "headgate://web/"},
	}

	direct := map[string]map[string]any{}
	for _, driver := range []string{"client-v1.mjs", "client-v2.mjs"} {
		for _, target := range [][]string{w.servers["everything"], {w.webURL}} {
			got := runReads(t, []readable{{ID: "own"}}, driver, append([]string{"legacy"}, target...)...).Servers["own"]
			for _, what := range []string{"prompts", "resources", "templates", "completed", "got", "contents", "updates"} {
				if v := reflect.ValueOf(got[what]); v.Kind() != reflect.Map && v.Kind() != reflect.Slice || v.Len() == 0 {
					t.Fatalf("%s at %q is given no %s: %v", driver, target, what, got[what])
				}
			}
			if heard, _ := got["updates"].([]any); len(heard) != 1 {
				t.Errorf("%s at %q hears of %v, and watches one", driver, target, heard)
			}
			if known, again := direct[driver]; again && !reflect.DeepEqual(got, known) {
				t.Errorf("%s: the server says other things over HTTP: %s", driver, difference(got, known))
			}
			direct[driver] = got
		}
	}

	for _, c := range nodeClients {
		for transport, target := range map[string][]string{
			"http":  {p.endpoint},
			"stdio": {binary, "stdio", "--config", w.config},
		} {
			t.Run(c.driver+"/"+c.mode+"/"+transport, func(t *testing.T) {
				got := runReads(t, behind, c.driver, append([]string{c.mode}, target...)...)
				if got.Version != c.version {
					t.Errorf("it speaks %q, want %q", got.Version, c.version)
				}
				for _, s := range behind {
					server, want := got.Servers[s.ID], maps.Clone(direct[c.driver])
					// Of what is not there the versions say different things; version 2 of the SDK calls both of them -32602
					// where the error names the URI.
					missing, _ := server["missing"].(map[string]any)
					text, _ := missing["message"].(string)
					codes := []any{-32002.0}
					if c.version == "2026-07-28" {
						codes = []any{-32602.0}
					} else if c.driver == "client-v2.mjs" {
						codes = append(codes, -32602.0)
					}
					if !slices.Contains(codes, missing["code"]) || !strings.Contains(strings.ToLower(text), "not found") {
						t.Errorf("%s: what is not there: %v", s.ID, missing)
					}
					delete(server, "missing")
					delete(want, "missing")
					if !reflect.DeepEqual(server, want) {
						t.Errorf("%s says other things through Headgate: %s", s.ID, difference(server, want))
					}
				}
			})
		}
	}
	p.stop(t)
}

// runReads has one of the programs in npm/ read servers. The time of day and the hints of modern versions are taken
// out of what it is given.
func runReads(t *testing.T, servers []readable, driver string, args ...string) (got reading) {
	t.Helper()
	list, err := json.Marshal(servers)
	if err != nil {
		t.Fatal(err)
	}
	out := runNode(t, []string{"SERVERS=" + string(list)}, driver, append([]string{"reads"}, args...)...)
	if err := json.Unmarshal([]byte(withoutTime(string(out))), &got); err != nil {
		t.Fatalf("%s: %v: %s", driver, err, out)
	}
	for _, s := range got.Servers {
		for _, member := range []string{"got", "contents"} {
			results, _ := s[member].(map[string]any)
			for _, r := range results {
				if result, ok := r.(map[string]any); ok {
					delete(result, "ttlMs")
					delete(result, "cacheScope")
				}
			}
		}
	}
	return got
}

// difference are the members of two objects that are not the same.
func difference(got, want map[string]any) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if reflect.DeepEqual(got[key], want[key]) {
			continue
		}
		g, _ := json.Marshal(got[key])
		w, _ := json.Marshal(want[key])
		b.WriteString("\n" + key + ":\n got " + string(g) + "\nwant " + string(w))
	}
	return b.String()
}
