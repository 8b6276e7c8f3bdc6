package main

import (
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/headgate/headgate/internal/telemetry"
)

// debugVariable is the loopback address on which serve tells of its runtime: profiles and memory. It is no key of
// the configuration, since nothing that is deployed should have it set.
const debugVariable = "HEADGATE_DEBUG_LISTEN"

// debugServer is the server of debugVariable, or nil when that is not set.
func (e *env) debugServer(log *slog.Logger) (*server, error) {
	addr := e.variable(debugVariable)
	if addr == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s: %q is not a loopback address with a port, such as 127.0.0.1:6060", debugVariable, addr)
	}
	l, err := listenOn(debugVariable, addr)
	if err != nil {
		return nil, err
	}
	log.Warn("profiles are served to everybody on this machine", "debug", "http://"+l.Addr().String()+"/debug/pprof/")
	return newServer(l, telemetry.Profiles(), log), nil
}

// variable is the value of an environment variable, or "".
func (e *env) variable(name string) string {
	for _, kv := range e.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
