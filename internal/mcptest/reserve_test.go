//go:build linux

package mcptest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestReserve: an address that is reserved is refused to those who connect, is there for who asks for it, again and
// again, and is not given to anybody else meanwhile.
func TestReserve(t *testing.T) {
	addr := Reserve(t)
	for range 3 {
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("somebody listens: %v %v", c, err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		_ = l.Close()
	}
	if other := Reserve(t); other == addr {
		t.Error("two have one address")
	}
	// Without the option that every listener of Go sets, the address is taken, as it is for whoever takes any.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another may have it: %v", err)
	}
}
