// Package leak finds in a text what must not leave the house, and masks it: stack traces, private host names and
// addresses, SQL, and known secrets.
//
// A filter works on error texts, where a part too much that is masked does little harm. It is a net under servers
// that are careless, not a wall against one that wants something out.
//
// The package may import the standard library and jsontext, and nothing else of this module.
package leak
