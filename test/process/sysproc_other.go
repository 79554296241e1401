//go:build !linux

package process

import "syscall"

// sysProcAttr gives a detached child a session of its own, another one a
// group of its own. Only Linux ends a child with its parent.
func sysProcAttr(detached bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: detached, Setpgid: !detached}
}
