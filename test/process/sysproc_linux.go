package process

import "syscall"

// sysProcAttr gives a detached child a session of its own, another one a
// group of its own, so that Ctrl-C does not take etcd from under the API
// server, and the kernel's word that it dies with its parent.
func sysProcAttr(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
