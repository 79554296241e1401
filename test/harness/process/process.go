// Package process runs the programs that tests, the demo, chaos and the
// benchmark start beside themselves.
package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// killTimeout is the longest time for the kernel to end a killed process.
const killTimeout = 20 * time.Second

// Command describes a process to start.
type Command struct {
	// Name is the name in errors, of the log and of the pid file.
	Name string
	// Dir holds the log NAME.log, with all output appended, and the pid file NAME.pid.
	Dir string
	// Args are the program and its arguments.
	Args []string
	// Stdout and Stderr receive the output instead of the log.
	Stdout, Stderr io.Writer
	// Env and WorkDir replace this process's own.
	Env     []string
	WorkDir string
	// PIDFile keeps the pid file locked for as long as the process lives, so
	// that no second one starts in Dir and Find finds this one. Prepare runs
	// under the lock, before the start.
	PIDFile bool
	Prepare func() error
	// Detached processes outlive this one. All others end with it, however it
	// ends (on Linux), and Ctrl-C does not reach them.
	Detached bool
	// Attr adds to the attributes of the process.
	Attr syscall.SysProcAttr
}

// Process is a process that was started. The nil Process has ended.
type Process struct {
	name, dir string
	pidFile   bool
	handle    *os.Process
	ended     chan struct{} // closed when it has ended
	err       error         // of exec.Cmd.Wait, once ended is closed
}

// Start starts a process and reaps it once it ends.
func Start(c Command) (_ *Process, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start %s: %w", c.Name, err)
		}
	}()
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = c.Env, c.WorkDir, attributes(c.Attr, c.Detached)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	if c.Stdout == nil || c.Stderr == nil {
		log, err := os.OpenFile(LogPath(c.Dir, c.Name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = cmp.Or(c.Stdout, io.Writer(log)), cmp.Or(c.Stderr, io.Writer(log))
	}
	p := &Process{name: c.Name, dir: c.Dir, pidFile: c.PIDFile, ended: make(chan struct{})}
	if !c.PIDFile {
		if err := p.start(cmd); err != nil {
			return nil, err
		}
		return p, nil
	}
	pidFile, err := claimPIDFile(c.Dir, c.Name)
	if err != nil {
		return nil, err
	}
	defer pidFile.Close()
	if c.Prepare != nil {
		if err := c.Prepare(); err != nil {
			return nil, err
		}
	}
	cmd.ExtraFiles = []*os.File{pidFile}
	if err := p.start(cmd); err != nil {
		return nil, err
	}
	if err := writePID(pidFile, p.PID()); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

func (p *Process) start(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		// The parent-death signal comes when the thread that forked ends, so
		// that thread is kept until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.handle = cmd.Process
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	return <-started
}

// Find finds the detached process with a pid file that runs in dir; nil where
// none does. Find itself never sees how it ends: Err is nil.
func Find(dir, name string) (*Process, error) {
	pidFile, err := os.OpenFile(pidPath(dir, name), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	if err := lock(pidFile, syscall.LOCK_NB); err == nil {
		return nil, pidFile.Close()
	}
	handle, err := readPID(pidFile)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find %s: %w", name, err), pidFile.Close())
	}
	p := &Process{name: name, dir: dir, pidFile: true, handle: handle, ended: make(chan struct{})}
	go func() {
		_ = lock(pidFile, 0) // Granted when the process ends.
		pidFile.Close()
		close(p.ended)
	}()
	return p, nil
}

// Name is the name of its Command.
func (p *Process) Name() string { return p.name }

// PID is 0 where the process has ended.
func (p *Process) PID() int {
	if !p.Running() {
		return 0
	}
	return p.handle.Pid
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool { return p != nil && !p.wait(0) }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err waits until the process has ended and returns the error of exec.Cmd.Wait.
func (p *Process) Err() error {
	<-p.ended
	return p.err
}

// wait reports whether the process ended within d.
func (p *Process) wait(d time.Duration) bool {
	select {
	case <-p.ended:
		return true
	default:
	}
	if d == 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// Signal sends a signal; a process that has ended needs none.
func (p *Process) Signal(s os.Signal) error {
	if err := p.handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Stop sends SIGTERM, and kills the process where that takes longer than grace.
func (p *Process) Stop(grace time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if p.wait(grace) {
		return p.removePID()
	}
	return p.Kill()
}

// Kill sends SIGKILL and waits until the process is gone.
func (p *Process) Kill() error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.wait(killTimeout) {
		return fmt.Errorf("%s (pid %d) does not die", p.name, p.handle.Pid)
	}
	return p.removePID()
}

func (p *Process) removePID() error {
	if !p.pidFile {
		return nil
	}
	if err := os.Remove(pidPath(p.dir, p.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

// LogPath is where a process without writers of its own logs.
func LogPath(dir, name string) string { return filepath.Join(dir, name+".log") }

// Log is the process's log so far, or the reason why that cannot be read.
func (p *Process) Log() string {
	data, err := os.ReadFile(LogPath(p.dir, p.name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// LogTail is the end of Log.
func (p *Process) LogTail() string {
	const lines = 12
	all := bytes.Split(bytes.TrimSpace([]byte(p.Log())), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
