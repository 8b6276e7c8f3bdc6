// Package soak holds the tests that take their time: a soak of many clients and upstreams of which some
// misbehave, signals to the real program with calls in flight, and what healthy upstreams lose while others
// hang. It holds tests only, and nothing imports it.
//
// "make soak" runs the soak for ten minutes, SOAK=1h make soak for an hour; docs/resilience.md says what it
// shows.
package soak
