//go:build linux

package box

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// searchPath is the search path of the machine's programs.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Main runs a box's first process if the arguments are a box's, and then does not return. A
// main function calls it first.
func Main(args []string) {
	if len(args) != 3 {
		return
	}
	var err error
	switch args[1] {
	case commandJoin:
		err = join(args[0], args[2])
	case commandInit:
		err = live(args[2])
	default:
		return
	}
	fmt.Fprintln(os.Stderr, "box:", err)
	os.Exit(1)
}

// join waits until the box has cgroups and a network, enters a cgroup namespace rooted in the
// box's own folder, and continues as init. In a process with many threads only the calling
// thread enters it; exec leaves no other thread.
func join(self, spec string) error {
	gate := os.NewFile(gateFile, "gate")
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return fmt.Errorf("the process that started the box is gone: %w", err)
	}
	gate.Close()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("new namespace of cgroups: %w", err)
	}
	return syscall.Exec("/proc/self/exe", []string{self, commandInit, spec}, os.Environ())
}

// live runs as the box's first process, until it is killed.
func live(text string) error {
	var spec Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	leash := os.NewFile(leashFile, "leash")
	unix.CloseOnExec(leashFile)
	if spec.Leashed {
		go func() {
			_, _ = leash.Read(make([]byte, 1))
			fmt.Fprintln(os.Stderr, "box: the process that started the box is gone")
			os.Exit(1)
		}()
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	if err := prepareMounts(spec.Disk); err != nil {
		return err
	}
	if spec.ForwardTo != "" {
		unix.CloseOnExec(listenerFile)
		listener, err := net.FileListener(os.NewFile(listenerFile, "listener"))
		if err != nil {
			return fmt.Errorf("forward to %s: %w", spec.ForwardTo, err)
		}
		go forward(listener, spec.ForwardTo)
	}
	s := supervisor{hold: spec.Hold, path: spec.Programs + ":" + searchPath, running: map[int]Service{}}
	go s.startAll(spec.Services)
	return s.reap()
}

// forward connects clients of the listener, which is in the machine's own network, to an
// address in the box.
func forward(listener net.Listener, address string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "box: forward:", err)
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer to.Close()
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}
