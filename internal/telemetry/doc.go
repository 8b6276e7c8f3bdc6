// Package telemetry sets up what Headgate says about itself: the log and its levels by package, and traces and
// metrics by OpenTelemetry. It owns every name that a span, an attribute or a metric has, the reading of trace
// context from requests, and the bounds on what signals may hold. It imports OpenTelemetry, the Prometheus client
// and internal/wire, and no other package of Headgate.
//
// What became of a request is decided by those who know, and is handed over as an [Operation]. Everything takes a
// nil [Telemetry] for one that says nothing.
package telemetry
