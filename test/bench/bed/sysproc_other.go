//go:build !linux

package bed

import "syscall"

// sysProcAttr gives a child a group of its own. What is read from /proc is
// there on Linux only, so no benchmark runs elsewhere.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
