//go:build linux

package box

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Commands of this program that run as a box's first process.
const (
	commandJoin = "box-join"
	commandInit = "box-init"
)

// Files that are passed to the first process.
const (
	gateFile = 3 + iota
	leashFile
	listenerFile
)

// Start starts a box. After it creates the namespaces and before the first program runs, it
// calls connect with the pid, to set up a network. The listener, which may be nil, stays open
// in the box. The supervisor writes to log.
func (s State) Start(spec Spec, log string, listener *os.File, connect func(pid int) error) (err error) {
	if pid := s.PID(spec.Name); pid != 0 {
		return fmt.Errorf("%s runs already, as process %d", spec.Name, pid)
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	gateOut, gateIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gateIn.Close()
	defer gateOut.Close()
	leash, err := takeLeash()
	if err != nil {
		return err
	}
	cmd, err := command(spec, log, gateOut, leash, listener)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: new namespaces: %w", ErrCannot, err)
	}
	go func() { _ = cmd.Wait() }() // Otherwise it stays a zombie. Its log shows how it exited.
	defer func() {
		if err != nil {
			err = errors.Join(err, cmd.Process.Kill(), s.Kill(spec.Name))
		}
	}()
	if err := s.writePID(spec.Name, cmd.Process.Pid); err != nil {
		return err
	}
	if err := s.joinGroups(spec.Name, cmd.Process.Pid); err != nil {
		return err
	}
	if err := connect(cmd.Process.Pid); err != nil {
		return err
	}
	_, err = gateIn.Write([]byte{1})
	return err
}

func command(spec Spec, log string, gate, leash, listener *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, commandJoin, string(text))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{gate, leash}
	if listener != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, listener)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true, // Ctrl-C only stops the caller.
	}
	return cmd, nil
}

// leashPipe is open for writing in this process alone: the kernel closes it when this process
// ends.
var leashPipe struct{ out, in *os.File }

func takeLeash() (*os.File, error) {
	if leashPipe.out == nil {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		leashPipe.out, leashPipe.in = out, in
	}
	return leashPipe.out, nil
}
