// Package mcptest plays upstream MCP servers for tests.
//
// It owns scripted servers that can answer any bytes over real sockets and
// pipes: Streamable HTTP of both eras, the deprecated HTTP+SSE transport, and
// newline-delimited stdio, in process or as a child process. Messages are put
// together by hand, never by an SDK, so that a script can be as exact or as
// broken as its test needs.
//
// A script is a [Server]: its fields say what the server offers, [Tool.Call]
// and [Server.OnRequest] decide what goes back, and its methods report what
// arrived. Left alone, a Server keeps to its era's specification strictly, and
// turns down a client that does not.
//
// An [AuthServer] plays the authorization server beside them.
//
// The package imports the standard library only, and a library for tokens; its
// own tests also hold it against the SDK's client. Nothing but tests may import
// it.
package mcptest
