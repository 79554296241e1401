//go:build !linux

package process

import "syscall"

// attributes puts a detached process into a session of its own, and any other into a group of its
// own. Only Linux ends a process with its parent.
func attributes(a syscall.SysProcAttr, detached bool) *syscall.SysProcAttr {
	a.Setsid, a.Setpgid = detached, !detached
	return &a
}
