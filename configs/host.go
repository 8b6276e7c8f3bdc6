package configs

import (
	"fmt"
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
var hostKeys = []string{"mcpServers", "servers", "context_servers"}

// hostEntryKeys are keys of entries in hosts' files that look like misspelt ones of ours and are not.
var hostEntryKeys = map[string]bool{"version": true}

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
		if ref := l.unresolved(entries[name]); ref != "" {
			// A variable of the host's own, or one that is not set here: one server less, not no server.
			l.warn(at, "left out, since %s has no value here", ref)
			continue
		}
		upstreams[id] = l.hostEntry(at, entries[name])
		l.shownAs[join("upstreams", id)] = at
	}
	m["upstreams"] = upstreams
}

// reference is what expand takes for a reference, or for a "$" that is none.
var reference = regexp.MustCompile(`\$\$|\$\{([^}]*)\}`)

// unresolved returns the first reference in an entry that has no value, or "".
func (l *loader) unresolved(v any) string {
	switch v := v.(type) {
	case string:
		for _, m := range reference.FindAllStringSubmatch(v, -1) {
			name, _, hasDefault := strings.Cut(strings.TrimPrefix(m[1], "env:"), ":-")
			_, isSet := l.environ[name]
			if m[0] == "$$" || isSet || hasDefault && envName.MatchString(name) || strings.HasPrefix(m[1], "file:") {
				continue
			}
			return m[0]
		}
	case []any:
		for _, e := range v {
			if ref := l.unresolved(e); ref != "" {
				return ref
			}
		}
	default:
		m, _ := asMap(v)
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if ref := l.unresolved(m[key]); ref != "" {
				return ref
			}
		}
	}
	return ""
}

// hostEntry brings what only some hosts write into the common form.
func (l *loader) hostEntry(at string, entry any) any {
	m, isMap := asMap(entry)
	if !isMap {
		return entry
	}
	read := func(key, as string) { l.warn(join(at, key), "read as %s", as) }
	// To ignore it would start what the user has switched off.
	if enabled, isBool := m["enabled"].(bool); isBool && m["disabled"] == nil {
		delete(m, "enabled")
		m["disabled"] = !enabled
		read("enabled", fmt.Sprintf("disabled: %t", !enabled))
	}
	for _, key := range []string{"httpUrl", "serverUrl"} {
		if address, isText := m[key].(string); isText && m["command"] == nil {
			delete(m, key)
			m["url"] = address // where both stand, url is the older transport's
			read(key, "url")
		}
	}
	// Keys that hosts have too, with another meaning.
	_, trusted := m["trust"].(bool)
	login, isMap := asMap(m["oauth"])
	for key, theirs := range map[string]bool{"trust": trusted, "oauth": isMap && login["grant"] == nil} {
		if theirs {
			delete(m, key)
			l.warn(join(at, key), "ignored, since it means nothing to Headgate")
		}
	}
	if command, isMap := asMap(m["command"]); isMap {
		delete(m, "command")
		for from, to := range map[string]string{"path": "command", "args": "args", "env": "env"} {
			if v, ok := command[from]; ok && m[to] == nil {
				m[to] = v
			}
		}
	}
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
