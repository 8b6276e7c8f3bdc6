// Package gateway is Headgate itself: the merged catalogue, the routing of every request, the failure
// table, and the two downstream transports.
//
// A request reads one immutable [snapshot], which one goroutine rebuilds whenever an upstream or the
// configuration changes. The request path takes no lock, builds nothing and sends nothing but the
// one request to the upstream that owns what is called.
//
// It imports upstream, naming, authz, configs and internal packages; only cmd imports it.
package gateway
