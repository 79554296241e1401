package main

import "syscall"

// sysProcAttr keeps Ctrl-C from a child, and lets it die with its parent.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
