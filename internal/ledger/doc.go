// Package ledger keeps count of what became of the calls of each tool, and of the texts with which they
// fail: the most frequent ones, masked so that like ones fall together. All of it lives in memory, within
// fixed bounds. The package imports the standard library only.
package ledger
