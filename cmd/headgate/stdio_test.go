package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

const (
	meta       = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	initialize = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
)

func TestStdioServesBothEras(t *testing.T) {
	in, say := io.Pipe()
	p := start(t, in, nil, "stdio")
	// A host asks at once; the demo's tools are there when the log says so.
	p.log.await(t, `"msg":"the server is up","upstream":"flights"`)
	p.log.await(t, `"msg":"the server is up","upstream":"ledger"`)

	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{`+meta+`}}`)
	p.out.await(t, `"id":"d","result":{`)
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"no_such_tool","arguments":{},`+meta+`}}`)
	p.out.await(t, `{"jsonrpc":"2.0","id":"c","error":{"code":-32602,"message":"Unknown tool: no_such_tool"}}`)

	fmt.Fprintln(say, initialize)
	p.out.await(t, `"id":"i","result":{"protocolVersion":"2025-11-25"`)
	fmt.Fprintln(say, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":"l","method":"ping"}`)
	p.out.await(t, `{"jsonrpc":"2.0","id":"l","result":{}}`)

	say.Close()
	if err := p.end(t); err != nil {
		t.Errorf("ended with %v", err)
	}
	for line := range strings.Lines(p.out.String()) {
		if !strings.HasPrefix(line, `{"jsonrpc":"2.0",`) {
			t.Errorf("stdout has a line that is no message: %q", line)
		}
	}
}

// A call that is in flight when the input ends may finish, but only within the drain time, and no
// process is left.
func TestStdioEndsWithItsInput(t *testing.T) {
	config, pids := childConfig(t, t.TempDir(), "drain: 50ms")
	in, say := io.Pipe()
	p := start(t, in, nil, "stdio", "-c", config)
	fmt.Fprintln(say, initialize)
	p.out.await(t, `"id":"i"`)
	for n, listed := 1, false; !listed; n++ {
		fmt.Fprintf(say, `{"jsonrpc":"2.0","id":"list %d","method":"tools/list"}`+"\n", n)
		listed = strings.Contains(p.out.await(t, fmt.Sprintf(`"id":"list %d"`, n)), `"name":"kid_slow"`)
		if !listed {
			p.log.await(t, `"msg":"the server is up"`)
		}
	}
	fmt.Fprintln(say, `{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"kid_slow","arguments":{"ms":600000},"_meta":{"progressToken":1}}}`)
	p.out.await(t, `"notifications/progress"`)
	say.Close()
	if err := p.end(t); err != nil {
		t.Errorf("ended with %v", err)
	}
	mustBeGone(t, pids...)
}

func TestStdioEndsWithASignal(t *testing.T) {
	in, say := io.Pipe()
	defer say.Close()
	p := start(t, in, nil, "stdio")
	fmt.Fprintln(say, initialize)
	p.out.await(t, `"id":"i"`)
	p.signal()
	_ = p.end(t)
	say.Close()
}
