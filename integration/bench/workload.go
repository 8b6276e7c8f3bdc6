package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A workload is one kind of request at one concurrency.
type workload struct {
	name        string
	method      string
	tool        string // the server's own name; "" for a list
	place       place
	concurrency int
	legacy      bool // the client opens a session of 2025-11-25
	stream      bool // the client accepts only event streams
	progress    bool // the client wants to hear of progress
	gzip        bool // the client accepts compressed answers
	ways        []string
}

// sizes are the tools of the server, by name, and the bytes of their text. The tool "progress" speaks five times
// of its progress first.
var sizes = map[string]int{"b200": 200, "k16": 16 << 10, "m1": 1 << 20, "progress": 200}

var (
	plainPlace = place{tools: 50, upstreams: 1, teams: 1}
	gateways   = []string{direct, proxied, bare, full}
	growth     = []string{proxied, full} // what is measured to see how it grows
)

// workloads are all there are.
func workloads() []workload {
	var all []workload
	add := func(w workload) {
		if w.place == (place{}) {
			w.place = plainPlace
		}
		if w.method == "" {
			w.method = "tools/call"
		}
		if w.ways == nil {
			w.ways = wayNames()
		}
		if slices.Contains(w.ways, full) && !slices.Contains(w.ways, before) {
			w.ways = append(slices.Clip(w.ways), before)
		}
		w.name += fmt.Sprintf(" c=%d", w.concurrency)
		all = append(all, w)
	}
	for _, c := range []int{1, 32, 256} {
		add(workload{name: "call 200 B", tool: "b200", concurrency: c})
	}
	for _, c := range []int{1, 32, 256} {
		add(workload{name: "call 16 KiB", tool: "k16", concurrency: c})
	}
	for _, c := range []int{1, 32, 256} {
		add(workload{name: "call 1 MiB", tool: "m1", concurrency: c})
	}
	add(workload{name: "legacy call 200 B", tool: "b200", concurrency: 32, legacy: true})
	add(workload{name: "SSE call 200 B", tool: "b200", concurrency: 32, stream: true, ways: gateways})
	add(workload{name: "SSE call 1 MiB", tool: "m1", concurrency: 32, stream: true, ways: gateways})
	add(workload{name: "legacy SSE call 200 B", tool: "b200", concurrency: 32, legacy: true, stream: true, ways: gateways})
	add(workload{name: "progress", tool: "progress", concurrency: 32, progress: true, ways: gateways})
	add(workload{name: "stdio call 200 B", tool: "b200", concurrency: 32, place: place{tools: 50, upstreams: 1, teams: 1, stdio: true},
		ways: []string{direct, proxied, sdk, bare, full}})
	for _, n := range []int{50, 500, 10_000} {
		add(workload{name: fmt.Sprintf("list %d", n), method: "tools/list", concurrency: 32, place: place{tools: n, upstreams: 1, teams: 1},
			ways: []string{direct, proxied, sdk, bare, full}})
		add(workload{name: fmt.Sprintf("list %d, 20 views", n), method: "tools/list", concurrency: 32, place: place{tools: n, upstreams: 1, teams: 20},
			ways: []string{direct, full}})
	}
	add(workload{name: "list 500, gzip", method: "tools/list", concurrency: 32, place: place{tools: 500, upstreams: 1, teams: 1}, gzip: true,
		ways: []string{bare, full}})
	for _, n := range []int{1, 10, 100} {
		add(workload{name: fmt.Sprintf("%d upstreams, call 200 B", n), tool: "b200", concurrency: 32, place: place{tools: 50, upstreams: n, teams: 1}, ways: growth})
	}
	for _, n := range []int{10, 1000, 10_000} {
		add(workload{name: fmt.Sprintf("%d tools, call 200 B", n), tool: "b200", concurrency: 32, place: place{tools: n, upstreams: 1, teams: 1}, ways: growth})
	}
	for _, n := range []int{1, 100} {
		add(workload{name: fmt.Sprintf("%d teams, call 200 B", n), tool: "b200", concurrency: 32, place: place{tools: 50, upstreams: 1, teams: n}, ways: growth})
	}
	return all
}

// chosen are the workloads, with their ways, that the options ask for.
func chosen(o options) ([]workload, error) {
	wanted := wayNames()
	if o.ways != "" {
		wanted = strings.Split(o.ways, ",")
		for _, name := range wanted {
			if !slices.Contains(wayNames(), name) {
				return nil, fmt.Errorf("there is no way %q; the ways are %s", name, strings.Join(wayNames(), ", "))
			}
		}
	}
	var out []workload
	for _, l := range workloads() {
		l.ways = slices.DeleteFunc(slices.Clone(l.ways), func(name string) bool {
			return !slices.Contains(wanted, name) || name == before && o.against == ""
		})
		if o.smoke {
			l.concurrency = min(l.concurrency, 4)
		}
		if len(l.ways) > 0 && o.wants(l.name) {
			out = append(out, l)
		}
	}
	return out, nil
}

// request is the HTTP request of one of the connections of a workload, complete. It goes to one of the
// upstreams and comes from the caller of one of the teams, in turn. session is a legacy client's.
func (w workload) request(e endpoint, conn int, session string) []byte {
	params, name := "", ""
	if w.tool != "" {
		name = w.tool
		if e.prefixed {
			name = prefix(conn%w.place.upstreams) + name
		}
		params = `"name":"` + name + `","arguments":{"query":"the level at the gate","limit":10},`
	}
	meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	if w.legacy {
		meta = `"client":"bench"`
	}
	if w.progress {
		meta += `,"progressToken":"p1"`
	}
	var h []string
	if w.legacy {
		h = append(h, "Mcp-Protocol-Version: 2025-11-25")
		if session != "" {
			h = append(h, "Mcp-Session-Id: "+session)
		}
	} else {
		h = append(h, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: "+w.method)
		if name != "" {
			h = append(h, "Mcp-Name: "+name)
		}
	}
	if w.gzip {
		h = append(h, "Accept-Encoding: gzip")
	}
	body := `{"jsonrpc":"2.0","id":7,"method":"` + w.method + `","params":{` + params + `"_meta":{` + meta + `}}}`
	return e.post(w, conn, body, h...)
}

// post makes an HTTP request of a message.
func (e endpoint) post(w workload, conn int, body string, more ...string) []byte {
	path := e.path
	if w.legacy && e.legacy != "" {
		path = e.legacy
	}
	accept := "application/json, text/event-stream"
	if w.stream {
		accept = "text/event-stream"
	}
	h := append([]string{"POST " + path + " HTTP/1.1", "Host: " + e.proc.addr, "Content-Type: application/json", "Accept: " + accept}, more...)
	if e.keyed {
		h = append(h, "Authorization: Bearer "+key(conn%w.place.teams))
	}
	h = append(h, "Content-Length: "+strconv.Itoa(len(body)))
	return []byte(strings.Join(h, "\r\n") + "\r\n\r\n" + body)
}

// handshake are the two messages with which a legacy client opens a session.
const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initiated  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)
