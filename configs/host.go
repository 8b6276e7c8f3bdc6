package configs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

const maxIDLength = 32

var (
	idPattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	notInID   = regexp.MustCompile(`[^a-z0-9]+`)
)

// hostKeys are the names that desktop hosts give to the map of servers.
var hostKeys = []string{"mcpServers", "servers"}

// hostFile turns a desktop host's file into our own form, in place.
func (l *loader) hostFile(m map[string]any) {
	var found []string
	for _, key := range hostKeys {
		if _, ok := m[key]; ok {
			found = append(found, key)
		}
	}
	if len(found) == 0 {
		return
	}
	if _, ok := m["upstreams"]; ok {
		found = append(found, "upstreams")
	}
	key := found[0]
	entries, isMap := asMap(m[key])
	if key == "servers" && !isMap && m[key] != nil && len(found) == 1 {
		return // not a host's file; the key is reported as unknown
	}
	l.host = true
	value := m[key]
	for _, k := range hostKeys {
		delete(m, k)
	}
	if len(found) > 1 {
		l.problem("", "%s stand for the same thing; keep one of them", strings.Join(found, " and "))
		return
	}
	if !isMap {
		if value != nil {
			l.problem(key, "found %s, expected a map of servers by name", kindOf(value))
		}
		return
	}

	upstreams := make(map[string]any, len(entries))
	by := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		at := join(key, name)
		id := hostID(name)
		if id == "" {
			l.problem(at, "the name has no letter a-z or digit to make an id of")
			continue
		}
		if other, taken := by[id]; taken {
			l.problem(at, "has the same id, %s, as %s; rename one of them", id, join(key, other))
			continue
		}
		by[id] = name
		if id != name {
			l.warn(at, "the id is %s, since ids are lower-case letters, digits and single dashes, at most %d characters", id, maxIDLength)
		}
		upstreams[id] = l.hostEntry(at, entries[name])
		l.shownAs[join("upstreams", id)] = at
	}
	m["upstreams"] = upstreams
}

// hostEntry reads "enabled", which some hosts write where others write "disabled": to ignore it would start
// what the user has switched off.
func (l *loader) hostEntry(at string, entry any) any {
	m, _ := asMap(entry)
	enabled, isBool := m["enabled"].(bool)
	if _, both := m["disabled"]; !isBool || both {
		return entry
	}
	delete(m, "enabled")
	m["disabled"] = !enabled
	l.warn(join(at, "enabled"), "read as disabled: %t", !enabled)
	return m
}

// hostID is the id for a name in a host's file, or "" if nothing of the name can be used.
func hostID(name string) string {
	if idPattern.MatchString(name) && len(name) <= maxIDLength {
		return name
	}
	id := strings.Trim(notInID.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if len(id) > maxIDLength {
		id = strings.TrimRight(id[:maxIDLength], "-")
	}
	return id
}
