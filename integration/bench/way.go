package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// way is one way from the client to the server.
type way struct {
	name string
	// For headgate: whether callers, teams, limits and the log of requests are on, and the share of
	// requests that is traced; "" for no tracing.
	full   bool
	traced string
}

// The ways that others are compared with.
const (
	direct   = "direct"
	proxied  = "proxy"
	sdk      = "sdk"
	bare     = "bare"
	full     = "full"
	traced1  = "traced-1"
	tracedAl = "traced-100"
	before   = "before"
)

var ways = []way{
	{name: direct},           // the server itself
	{name: proxied},          // httputil.ReverseProxy
	{name: sdk},              // the SDK's server and client
	{name: bare},             // headgate with an upstream and nothing else
	{name: full, full: true}, // headgate with API keys, teams, limits, metrics and a line of log for each request
	{name: traced1, full: true, traced: "0.01"},
	{name: tracedAl, full: true, traced: "1"},
	{name: before, full: true}, // full with another build, to see what a change does
}

func wayNames() (names []string) {
	for _, w := range ways {
		names = append(names, w.name)
	}
	return names
}

// place is what stands behind a way: a process of headgate or of the SDK's gateway belongs to one of them.
type place struct {
	tools     int  // that each upstream offers
	upstreams int  // all of them the one server
	teams     int  // each with a caller of its own and a view of its own
	stdio     bool // the server is a child process
}

// prefix is what stands before the tools' names of the n-th upstream.
func prefix(upstream int) string { return fmt.Sprintf("up%d_", upstream) }

// key is the API key of a team's caller.
func key(team int) string { return fmt.Sprintf("hg_bench_%d", team) }

// config is the configuration of headgate in front of a server.
func (w way) config(p place, server, exe string) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0")
	line("upstreams:")
	var ids []string
	for i := range p.upstreams {
		id := strings.TrimSuffix(prefix(i), "_")
		ids = append(ids, id)
		if p.stdio {
			line("  %s: {command: %q, args: [-role, stdio, -target, %q]}", id, exe, fmt.Sprint(p.tools))
		} else {
			line("  %s: {type: http, url: %q}", id, "http://"+server+serverPath(p.tools))
		}
	}
	if !w.full {
		line("log: {level: info, format: json}")
		return []byte(b.String())
	}
	line("log: {level: info, format: json}") // a line for each call
	line("overload: {caller_sessions: 100000, caller_streams: 100000}")
	line("auth:\n  api_keys:")
	for i := range p.teams {
		sum := sha256.Sum256([]byte(key(i)))
		line("    - {name: key%d, sha256: %q, subject: caller%d, teams: [team%d]}", i, hex.EncodeToString(sum[:]), i, i)
	}
	line("teams:")
	for i := range p.teams {
		line("  team%d:", i)
		line("    upstreams: [%s]", strings.Join(ids, ", "))
		line("    rules:")
		line(`      - {allow: ["*"], when: 'tool.annotations.readOnlyHint || "write" in caller.scopes'}`)
		line(`      - {deny: ["*_delete_*", "*_tool_%d"]}`, i+8) // so that no two teams have the same list
		line("    limits:")
		line("      calls_per_minute: 1000000000\n      concurrent: 100000")
		line("      per_caller: {calls_per_minute: 1000000000, concurrent: 100000}")
		line(`      per_tool: {"*_b200": {calls_per_minute: 1000000000}}`)
	}
	return []byte(b.String())
}

// environ is the environment of headgate: what this command was started with, but for telemetry.
func (w way) environ(environ []string, collector string) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, "OTEL_") || strings.HasPrefix(kv, "HEADGATE_")
	})
	out = append(out, "HEADGATE_DEBUG_LISTEN=127.0.0.1:0")
	if w.traced != "" {
		out = append(out, "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://"+collector, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG="+w.traced)
	}
	return out
}
