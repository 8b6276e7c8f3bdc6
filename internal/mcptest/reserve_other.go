//go:build !linux

package mcptest

import (
	"net"
	"testing"
)

// Reserve returns an address of this machine, host and port, that was free a moment ago. Elsewhere than on Linux
// nothing keeps others from it.
func Reserve(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}
