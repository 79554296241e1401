//go:build linux

package bed

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const threadNetns = "/proc/thread-self/ns/net"

// newNetns creates a network namespace that lives as long as the file is open.
func newNetns() (*os.File, error) {
	var file *os.File
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		var err error
		file, err = os.Open(threadNetns)
		return err
	})
	return file, err
}

// inNetns calls f on a thread that is in the namespace: sockets created there stay there.
func inNetns(ns *os.File, f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// onThread calls f on its own thread, which ends afterwards.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine.
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
