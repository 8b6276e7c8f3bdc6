// Package telemetry sets up what Headgate says about itself. It owns the form of the log; it imports
// the standard library only.
package telemetry
