// Package audit writes an append-only file of lines: readable by its owner alone, rotated by size, and with
// an answer to the question whether a line has been written. It knows nothing of what the lines say. The
// package imports the standard library only.
package audit
