// Package upstream is one MCP server behind Headgate: it connects to it, keeps the connection, reads
// its catalogue and sends it calls.
//
// An [Upstream] is driven by one goroutine, [Upstream.Run], which alone connects, re-initialises and
// reads the catalogue, so that every repair of a hop is a single flight by construction. Calls run on
// the goroutines of their callers and see the current link through one pointer.
//
// Where sessions are not to be shared, the sessions of single callers are Upstreams of their own with a
// parent, whose Run starts and ends them and whose catalogue they serve.
//
// The package speaks both protocol eras over Streamable HTTP, the deprecated HTTP+SSE transport, the
// pipes of a child process, and in-process pipes. Messages are raw bytes: results and errors leave
// here as the server wrote them.
//
// It may import configs (its own settings) and internal packages, never gateway, naming or authz.
package upstream
