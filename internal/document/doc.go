// Package document reads the JSON documents that authorization servers and resource servers publish of themselves.
// It imports nothing but the standard library.
package document
