// Package authz knows who is calling and what they may use.
//
// An Authenticator makes a Caller out of a request's credentials. A Policy decides what a caller sees and may use;
// a Limiter, how much of it. All three are made of the plain data of configs; the policy and the authenticator are
// immutable, so that a new configuration gets new ones.
//
// It may import configs and internal packages, and never upstream, naming or gateway.
package authz
