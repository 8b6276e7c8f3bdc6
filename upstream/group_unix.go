//go:build unix

package upstream

import (
	"os/exec"
	"syscall"
)

// signalGroup signals every process of the child's group.
func signalGroup(cmd *exec.Cmd, kill bool) {
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	// The group outlives its leader while it has members; an empty one answers ESRCH, which is the aim.
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}
