package process

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// TryBPF makes the smallest map there is, and returns why this process may not.
func TryBPF() error {
	const mapCreate, arrayMap = 0, 2
	attr := [32]uint32{arrayMap, 4, 4, 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, mapCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}
