// Package authz knows who is calling and, once there are rules, what they may use.
//
// It holds the identity that every request carries through Headgate. It imports the standard library
// only, and never upstream, naming or gateway.
package authz
