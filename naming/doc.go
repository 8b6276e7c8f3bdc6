// Package naming owns the names under which tools and prompts of many upstreams are exposed to clients.
//
// It joins prefix, separator and the upstream's own name, replaces what hosts refuse, shortens what is too
// long, and settles collisions. An exposed name depends on the server id, the prefix, the upstream's own name
// and the [Rules] alone, so that adding a server never renames another server's tools. The way back is always
// the [Table]; nothing ever splits an exposed name.
//
// Everything here is a pure function. The package imports the standard library only.
package naming
