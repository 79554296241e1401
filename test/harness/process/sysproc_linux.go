package process

import "syscall"

// attributes puts a detached process into a session of its own, and any other into a group of its
// own, so that Ctrl-C does not take etcd from under the API server. The kernel kills the latter
// when its parent dies.
func attributes(a syscall.SysProcAttr, detached bool) *syscall.SysProcAttr {
	a.Setsid, a.Setpgid = detached, !detached
	if !detached {
		a.Pdeathsig = syscall.SIGKILL
	}
	return &a
}
