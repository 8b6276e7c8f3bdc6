// Package integration holds the tests that look at Headgate from outside: the import rule, the
// README's commands, and, with the build tag integration, the built program between real servers and
// real clients. It holds tests only, and nothing imports it.
//
// The servers and the TypeScript clients come from npm/, pinned by its lock file; "make integration"
// installs them and runs the tests. The benchmark is the command in bench/.
package integration
