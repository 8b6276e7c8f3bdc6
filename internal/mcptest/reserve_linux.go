package mcptest

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Reserve returns an address of this machine, host and port, that the system gives to nobody else until the test
// ends. Whoever asks for this very address may listen on it, in this process or in another; while nobody does,
// connections are refused.
func Reserve(t testing.TB) (addr string) {
	t.Helper()
	fail := func(what string, err error) {
		if err != nil {
			t.Fatalf("reserving a port: %v", os.NewSyscallError(what, err))
		}
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	fail("socket", err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	// A bound socket that does not listen keeps the port from those who take any, and not from those who reuse it.
	fail("setsockopt", syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	fail("bind", syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(fd)
	fail("getsockname", err)
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
