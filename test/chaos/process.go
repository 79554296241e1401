package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// endTimeout is how long a killed process may take to be gone.
const endTimeout = 20 * time.Second

// process runs beside this one, and ends with it.
type process struct {
	name    string
	cmd     *exec.Cmd
	stopped chan struct{} // closed when it has ended
}

// start runs a binary.
func start(name string, stdout, stderr io.Writer, binary string, args ...string) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = sysProcAttr()
	p := &process{name: name, cmd: cmd, stopped: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel ends the child when the thread that made it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(p.stopped)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// openLog opens the log of a part of the run for more.
func openLog(dir, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// kill kills the process and waits until it is gone. The nil process is.
func (p *process) kill() error {
	if p == nil {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.stopped:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("%s (pid %d) does not die", p.name, p.cmd.Process.Pid)
	}
}
