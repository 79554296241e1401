//go:build !linux

package main

import "syscall"

// sysProcAttr keeps Ctrl-C from a child. Only Linux ends it with its parent.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
