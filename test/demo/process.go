package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/process"
)

// stopTimeout is how long a process may take over SIGTERM before SIGKILL.
const stopTimeout = 10 * time.Second

// part is a program of the demo that runs beside it, with its output in
// dir/name.log and its pid in dir/name.pid. It holds a lock on the pid file for
// as long as it lives, so that a stale pid never gets a stranger killed.
type part struct {
	name, dir string
	handle    *os.Process
	stopped   chan struct{} // closed when it has ended
}

// start runs a binary. Unless detached, it ends with this process, however
// that ends (on Linux).
func start(dir, name string, detached bool, binary string, args ...string) (*part, error) {
	pidFile, err := os.OpenFile(filepath.Join(dir, name+".pid"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer pidFile.Close()
	if err := lock(pidFile, syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("start %s: one runs already in %s: %w", name, dir, err)
	}
	logFile, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer logFile.Close()
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{pidFile}
	stopped, err := process.Start(cmd, detached)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &part{name: name, dir: dir, handle: cmd.Process, stopped: stopped}
	if err := errors.Join(pidFile.Truncate(0), writePID(pidFile, p.handle.Pid)); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), p.end(syscall.SIGKILL))
	}
	return p, nil
}

// find finds what a detached start left running; nil where nothing runs.
func find(dir, name string) (*part, error) {
	pidFile, err := os.OpenFile(filepath.Join(dir, name+".pid"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	if err := lock(pidFile, syscall.LOCK_NB); err == nil {
		return nil, pidFile.Close()
	}
	data, err := io.ReadAll(pidFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find %s: %w", name, err), pidFile.Close())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find %s: %w", name, err), pidFile.Close())
	}
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find %s: %w", name, err), pidFile.Close())
	}
	p := &part{name: name, dir: dir, handle: handle, stopped: make(chan struct{})}
	go func() {
		_ = lock(pidFile, 0) // Granted when the process ends.
		pidFile.Close()
		close(p.stopped)
	}()
	return p, nil
}

// stop asks the process to end, and kills it when it takes too long. The nil
// process has ended.
func (p *part) stop() error {
	if p == nil {
		return nil
	}
	return p.end(syscall.SIGTERM)
}

// kill kills the process and waits until it is gone.
func (p *part) kill() error {
	if p == nil {
		return nil
	}
	return p.end(syscall.SIGKILL)
}

func (p *part) end(signal syscall.Signal) error {
	for _, s := range []syscall.Signal{signal, syscall.SIGKILL} {
		if p.ended() {
			break
		}
		if err := p.handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		select {
		case <-p.stopped:
		case <-time.After(stopTimeout):
		}
	}
	if !p.ended() {
		return fmt.Errorf("stop %s: pid %d does not die", p.name, p.handle.Pid)
	}
	if err := os.Remove(filepath.Join(p.dir, p.name+".pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

func (p *part) ended() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return false
	}
}

// logTail returns the last lines of the process's log.
func (p *part) logTail() string {
	const lines = 8
	data, err := os.ReadFile(filepath.Join(p.dir, p.name+".log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func writePID(f *os.File, pid int) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}

// lock takes an exclusive lock on f, waiting for it unless flags say LOCK_NB.
func lock(f *os.File, flags int) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|flags)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
