//go:build !linux

package process

import "syscall"

// attributes gives a detached process a session of its own, and any other a
// group of its own. Only Linux ends a process with its parent.
func attributes(a syscall.SysProcAttr, detached bool) *syscall.SysProcAttr {
	a.Setsid, a.Setpgid = detached, !detached
	return &a
}
