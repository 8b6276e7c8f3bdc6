// Package configs owns the configuration: its types and defaults, reading it from files, environment and flags,
// checking it, printing it without secrets, and watching its files.
//
// Values come from four places, later ones win: defaults, the file (YAML, JSON or TOML by its name),
// HEADGATE_* variables, overrides (flags). Decoding is strict: an unknown key, a value of the wrong type and a
// key that is part of the contract but not implemented are errors, and all errors are reported at once. Which
// keys exist is written down once, in schema.go.
//
// Teams may have files of their own, named by include. At a reload the faults of such a file cost its own team the
// change and nobody else anything: see Options.Previous.
//
// A file of a desktop host (a top-level mcpServers or servers map) is read as it is; what had to be ignored or
// changed is in Config.Warnings.
//
// The package imports nothing of this module. Its types are plain data that every other package may use.
package configs
