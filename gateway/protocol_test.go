package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// sectionOf says in which section of docs/protocol.md the messages of a union of the schema stand.
var sectionOf = map[string]string{
	"ClientRequest":      "Requests of clients",
	"ServerRequest":      "Requests of servers",
	"InputRequest":       "Requests of servers",
	"ClientNotification": "Notifications of clients",
	"ServerNotification": "Notifications of servers",
}

// schemaMethods returns the methods of a protocol version, by section.
func schemaMethods(t *testing.T, version string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/schema/" + version + ".json")
	if err != nil {
		t.Fatal(err)
	}
	type ref struct {
		Ref string `json:"$ref"`
	}
	type definition struct {
		ref
		AnyOf      []ref
		Properties struct {
			Method struct{ Const string }
		}
	}
	var schema struct {
		Definitions map[string]definition
		Defs        map[string]definition `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatalf("%s: %v", version, err)
	}
	all := schema.Defs
	if all == nil {
		all = schema.Definitions
	}
	methods, placed := map[string][]string{}, map[string]bool{}
	for union, section := range sectionOf {
		members := []definition{all[union]} // a union of one is that one
		for _, r := range append(all[union].AnyOf, all[union].ref) {
			members = append(members, all[r.Ref[strings.LastIndexByte(r.Ref, '/')+1:]])
		}
		for _, d := range members {
			if method := d.Properties.Method.Const; method != "" {
				methods[section] = append(methods[section], method)
				placed[method] = true
			}
		}
	}
	for name, d := range all {
		if method := d.Properties.Method.Const; method != "" && !placed[method] {
			t.Errorf("%s: %s, %s, is in no union of the schema", version, name, method)
		}
	}
	return methods
}

// TestProtocolPage holds docs/protocol.md against the schemas: every method of every version stands in its section with
// the versions that it has, and no other.
func TestProtocolPage(t *testing.T) {
	want := map[string][]string{} // versions, oldest first
	versions := slices.Sorted(slices.Values(supportedVersions()))
	for _, version := range versions {
		for section, methods := range schemaMethods(t, version) {
			slices.Sort(methods)
			for _, method := range slices.Compact(methods) {
				key := section + ": " + method
				want[key] = append(want[key], version)
			}
		}
	}
	if len(want) < 40 {
		t.Fatalf("the schemas have only %d methods", len(want))
	}
	page, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	got, section := map[string]string{}, ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		method, ok := strings.CutPrefix(line, "| `")
		if !ok {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		method, _, _ = strings.Cut(method, "`")
		key := section + ": " + method
		if _, twice := got[key]; twice {
			t.Errorf("%s stands there twice", key)
		}
		if len(cells) != 5 || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("%s: a row has 5 cells with something in each: %s", key, line)
			continue
		}
		got[key] = strings.TrimSpace(cells[1])
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		has := want[key]
		text := has[0]
		if len(has) > 1 {
			text = fmt.Sprintf("%s to %s", has[0], has[len(has)-1])
		}
		if first := slices.Index(versions, has[0]); !slices.Equal(versions[first:first+len(has)], has) {
			t.Errorf("%s is not in a range of versions but in %q; this test has no notation for that", key, has)
		}
		if got[key] != text {
			t.Errorf("%s: the page says %q of its versions, the schemas %q", key, got[key], text)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s is in no schema", key)
		}
	}
}
