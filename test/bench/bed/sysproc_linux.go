package bed

import "syscall"

// sysProcAttr gives a child a group of its own, so that Ctrl-C does not take the
// parts down in any order, and the kernel's word that it dies with its parent.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
