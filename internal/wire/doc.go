// Package wire owns the bytes of MCP messages: the JSON-RPC 2.0 envelope, a shallow view of JSON objects, the
// error codes, Server-Sent Events and line framing, and the coding of values in HTTP headers.
//
// The envelope is read strictly: member names match exactly, a name may stand once, and a name that another
// parser could take for a known one is refused, so that every reader of the same bytes sees the same message.
// What only passes through (params members, results, error data) is checked for syntax and depth and otherwise
// left as it is: values are slices of the caller's input, and they are written back verbatim.
//
// A caller must not change the input while a [Message] or an [Object] made from it is in use.
//
// The package may import the standard library and jsontext, and nothing else of this module.
package wire
