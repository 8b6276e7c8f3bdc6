package upstream

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the child into a process group of its own and lets it die with Headgate.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
