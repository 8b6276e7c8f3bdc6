// Package demo owns the two embedded servers that Headgate serves when it has
// no configuration: flights and ledger.
//
// They show what a client sees of well-made upstreams: typed and structured
// results, truthful annotations, progress, cancellation, and failures that a
// model can act on. Every fault in a call's arguments is a result with isError
// whose text says what is wrong, what is valid and what to do next; none is a
// protocol error. Nothing leaves the process, and all data is made up.
//
// The package may import the standard library and the MCP SDK. It imports no
// other package of this module.
package demo
