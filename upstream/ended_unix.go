//go:build unix

package upstream

import "syscall"

// ended reports whether the other side has closed the connection, without reading from it.
func ended(c syscall.RawConn) bool {
	gone := false
	// Control, since a Read would wait for the reader that is blocked on this connection.
	err := c.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = n == 0 && err == nil || err == syscall.ECONNRESET
	})
	return err == nil && gone
}
