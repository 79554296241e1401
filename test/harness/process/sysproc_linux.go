package process

import "syscall"

// attributes gives a detached process a session of its own, and any other a
// group of its own, so that Ctrl-C does not take etcd from under the API server.
// The kernel kills the latter when its parent dies.
func attributes(a syscall.SysProcAttr, detached bool) *syscall.SysProcAttr {
	a.Setsid, a.Setpgid = detached, !detached
	if !detached {
		a.Pdeathsig = syscall.SIGKILL
	}
	return &a
}
