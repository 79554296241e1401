package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/process"
)

// endTimeout is how long a killed process may take to be gone.
const endTimeout = 20 * time.Second

// part runs beside this one, and ends with it.
type part struct {
	name    string
	cmd     *exec.Cmd
	stopped chan struct{} // closed when it has ended
}

// start runs a binary.
func start(name string, stdout, stderr io.Writer, binary string, args ...string) (*part, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	stopped, err := process.Start(cmd, false)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &part{name: name, cmd: cmd, stopped: stopped}, nil
}

// openLog opens the log of a part of the run for more.
func openLog(dir, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

func (p *part) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// kill kills the process and waits until it is gone. The nil process is.
func (p *part) kill() error {
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
