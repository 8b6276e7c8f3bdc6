package configs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"time"
)

const redacted = "***"

// Redacted returns the configuration as maps, lists and strings under the keys of the file, for printing. The
// values of headers and env, digests of keys, user and query values in URLs, and everything that came from
// ${env:…} or ${file:…} are "***". The caller owns the result.
func (c *Config) Redacted() any {
	out := redactFields(configFields, c, c.hidden, false)
	upstreams := make(map[string]any, len(c.Upstreams))
	for id, u := range c.Upstreams {
		upstreams[id] = u.redacted()
	}
	out["upstreams"] = upstreams
	if c.Auth != nil {
		out["auth"] = c.Auth.redacted(c.hidden)
	}
	if c.Teams != nil {
		teams := make(map[string]any, len(c.Teams))
		for name, t := range c.Teams {
			teams[name] = t.redacted()
		}
		out["teams"] = teams
	}
	if len(c.TeamErrors) > 0 {
		lines := make([]string, len(c.TeamErrors))
		for i, p := range c.TeamErrors {
			lines[i] = p.String()
		}
		out["team_errors"] = lines
	}
	if len(c.Warnings) > 0 {
		out["warnings"] = append([]string(nil), c.Warnings...)
	}
	return out
}

func (u *Upstream) redacted() any {
	out := redactFields(upstreamFields, u, u.hidden, true)
	out["prefix"] = u.Prefix
	if u.hidden["prefix"] {
		out["prefix"] = redacted
	}
	if len(u.Guidance) > 0 {
		guidance := make([]any, len(u.Guidance))
		for i := range u.Guidance {
			guidance[i] = redactFields(guidanceFields, &u.Guidance[i], under(u.hidden, index("guidance", i)), true)
		}
		out["guidance"] = guidance
	}
	var unused []string
	switch u.Type {
	case TypeStdio:
		unused = httpOnly
	case TypeHTTP, TypeSSE:
		unused = stdioOnly
	}
	for _, key := range unused {
		delete(out, key)
	}
	return out
}

func (a *Auth) redacted(hidden map[string]bool) any {
	out := map[string]any{}
	if len(a.APIKeys) > 0 {
		keys := make([]any, len(a.APIKeys))
		for i := range a.APIKeys {
			keys[i] = redactFields(apiKeyFields, &a.APIKeys[i], under(hidden, index("auth.api_keys", i)), true)
		}
		out["api_keys"] = keys
	}
	if len(a.JWT) > 0 {
		issuers := make([]any, len(a.JWT))
		for i := range a.JWT {
			mine := under(hidden, index("auth.jwt", i))
			if i == 0 {
				maps.Copy(mine, under(hidden, "auth.jwt")) // a single issuer need not be in a list
			}
			issuers[i] = redactFields(jwtFields, &a.JWT[i], mine, true)
		}
		out["jwt"] = issuers
	}
	return out
}

func (t *Team) redacted() any {
	out := redactFields(teamFields, t, t.hidden, true)
	if len(t.OwnUpstreams) > 0 {
		own := make(map[string]any, len(t.OwnUpstreams))
		for id, u := range t.OwnUpstreams {
			own[id] = u.redacted()
		}
		out["own_upstreams"] = own
	}
	if len(t.Rules) > 0 {
		rules := make([]any, len(t.Rules))
		for i := range t.Rules {
			rules[i] = redactFields(ruleFields, &t.Rules[i], under(t.hidden, index("rules", i)), true)
		}
		out["rules"] = rules
	}
	limits := redactFields(limitFields, &t.Limits, under(t.hidden, "limits"), true)
	if t.Limits.PerCaller != nil {
		limits["per_caller"] = redactFields(limitFields, t.Limits.PerCaller, under(t.hidden, "limits.per_caller"), true)
	}
	if len(t.Limits.PerTool) > 0 {
		perTool := make(map[string]any, len(t.Limits.PerTool))
		for glob, m := range t.Limits.PerTool {
			perTool[glob] = redactFields(limitFields, &m, under(t.hidden, join("limits.per_tool", glob)), true)
		}
		limits["per_tool"] = perTool
	}
	if len(limits) > 0 {
		out["limits"] = limits
	}
	return out
}

// under gives the paths below base, relative to it.
func under(hidden map[string]bool, base string) map[string]bool {
	out := map[string]bool{}
	for p := range hidden {
		if rest, ok := strings.CutPrefix(p, base+"."); ok {
			out[rest] = true
		}
	}
	return out
}

func redactFields[T any](fields []field[T], from *T, hidden map[string]bool, skipEmpty bool) map[string]any {
	out := map[string]any{}
	for _, f := range fields {
		v, empty := printable(f.name, f.at(from), hidden, f.secret, f.url)
		if skipEmpty && empty {
			continue
		}
		m, key := out, f.name
		if section, rest, ok := strings.Cut(f.name, "."); ok {
			sub, _ := out[section].(map[string]any)
			if sub == nil {
				sub = map[string]any{}
				out[section] = sub
			}
			m, key = sub, rest
		}
		m[key] = v
	}
	return out
}

func printable(path string, at any, hidden map[string]bool, secret, isURL bool) (v any, empty bool) {
	if hidden[path] {
		return redacted, false
	}
	switch p := at.(type) {
	case *string:
		if isURL {
			return redactURL(*p), *p == ""
		}
		if secret && *p != "" {
			return redacted, false
		}
		return *p, *p == ""
	case *bool:
		return *p, false
	case *int:
		return *p, *p == 0
	case *int64:
		return formatSize(*p), false
	case *time.Duration:
		return formatDuration(*p), false
	case *slog.Level:
		return strings.ToLower(p.String()), false
	case *[]string:
		out := make([]string, len(*p))
		for i, s := range *p {
			if out[i] = s; hidden[index(path, i)] {
				out[i] = redacted
			}
		}
		return out, len(out) == 0
	case *map[string]string:
		out := make(map[string]string, len(*p))
		for k, s := range *p {
			if out[k] = s; secret || hidden[join(path, k)] {
				out[k] = redacted
			}
		}
		return out, len(out) == 0
	}
	return redacted, false
}

// redactURL keeps what is needed to recognise the endpoint.
func redactURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return redacted
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString(redacted + "@")
	}
	b.WriteString(u.Host + u.EscapedPath())
	if u.RawQuery != "" {
		b.WriteByte('?')
		for i, pair := range strings.Split(u.RawQuery, "&") {
			if i > 0 {
				b.WriteByte('&')
			}
			if name, _, ok := strings.Cut(pair, "="); ok {
				b.WriteString(name + "=")
			}
			b.WriteString(redacted)
		}
	}
	return b.String()
}

// String prints the redacted form as JSON.
func (c *Config) String() string { return asJSON(c.Redacted()) }

// GoString is String, so that %#v shows no secrets either.
func (c *Config) GoString() string { return c.String() }

// LogValue logs the redacted form.
func (c *Config) LogValue() slog.Value { return slog.AnyValue(c.Redacted()) }

// MarshalJSON writes the redacted form.
func (c *Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.Redacted()) }

// String prints the redacted form as JSON.
func (u *Upstream) String() string { return asJSON(u.redacted()) }

// GoString is String, so that %#v shows no secrets either.
func (u *Upstream) GoString() string { return u.String() }

// LogValue logs the redacted form.
func (u *Upstream) LogValue() slog.Value { return slog.AnyValue(u.redacted()) }

// MarshalJSON writes the redacted form.
func (u *Upstream) MarshalJSON() ([]byte, error) { return json.Marshal(u.redacted()) }

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("unprintable: %v", err)
	}
	return string(b)
}
