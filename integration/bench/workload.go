package main

import (
	"fmt"
	"strconv"
)

// A workload is one kind of request at one concurrency.
type workload struct {
	name        string
	method      string
	tool        string // the server's own name; "" for a list
	catalogue   int    // tools that the server offers
	concurrency int
	requests    int // per round
}

// sizes are the tools of the server, by name, and the bytes of their text.
var sizes = map[string]int{"b200": 200, "k16": 16 << 10, "m1": 1 << 20}

func workloads(smoke bool) []workload {
	var all []workload
	add := func(name, method, tool string, catalogue, alone, together int) {
		for _, c := range []struct{ n, requests int }{{1, alone}, {32, together}} {
			if smoke {
				c.requests = min(c.requests, 200)
			}
			all = append(all, workload{name: fmt.Sprintf("%s c=%d", name, c.n), method: method, tool: tool,
				catalogue: catalogue, concurrency: c.n, requests: c.requests})
		}
	}
	add("call 200 B", "tools/call", "b200", 50, 4000, 20000)
	add("call 16 KiB", "tools/call", "k16", 50, 3000, 12000)
	add("call 1 MiB", "tools/call", "m1", 50, 150, 600)
	add("list 50", "tools/list", "", 50, 3000, 12000)
	add("list 500", "tools/list", "", 500, 600, 2400)
	return all
}

// request is the HTTP request of a workload, complete, as a client of the 2026-07-28 revision sends
// it. prefix stands before the tool's name.
func (w workload) request(host, path, prefix string) []byte {
	params, name := "", ""
	if w.tool != "" {
		params = `"name":"` + prefix + w.tool + `","arguments":{"query":"the level at the gate","limit":10},`
		name = "Mcp-Name: " + prefix + w.tool + "\r\n"
	}
	body := `{"jsonrpc":"2.0","id":7,"method":"` + w.method + `","params":{` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	return []byte("POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: " + w.method + "\r\n" +
		name + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}
