// Package oauth gets access tokens from authorization servers: for Headgate itself by client credentials
// (RFC 6749, section 4.4), and for its callers by token exchange (RFC 8693). It keeps them until shortly
// before they expire, finds the token endpoint by the metadata of the protected resource where the
// configuration does not name it (RFC 9728, RFC 8414), and dials no private address that it has learned from
// somebody else. No error of this package holds anything that a server said.
package oauth
