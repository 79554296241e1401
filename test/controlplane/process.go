package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/process"
)

// killTimeout is how long the kernel may take to end a killed process.
const killTimeout = 10 * time.Second

// part is one running program. The nil *part has ended.
type part struct {
	name    string
	dir     string
	handle  *os.Process
	stopped chan struct{} // closed when it has ended
}

func logPath(dir, name string) string { return filepath.Join(dir, name+".log") }

// startProcess runs a part in the state folder, its output appended to its
// log. A file called stale is removed first.
func (c *Cluster) startProcess(name string, args []string, stale string) (*part, error) {
	dir := c.dir
	pidFile, err := claimPIDFile(dir, name)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer pidFile.Close()
	if stale != "" {
		if err := os.Remove(filepath.Join(dir, stale)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
	}
	logFile, err := os.OpenFile(logPath(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer logFile.Close()

	cmd := exec.Command(filepath.Join(c.opts.BinDir, name), args...)
	cmd.Dir = dir
	cmd.Env = environment(os.Environ())
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{pidFile}

	stopped, err := process.Start(cmd, c.opts.Detached)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &part{name: name, dir: dir, handle: cmd.Process, stopped: stopped}
	if err := writePID(pidFile, p.pid()); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	c.logf("%s started, pid %d, log %s", name, p.pid(), logPath(dir, name))
	return p, nil
}

// stop asks the process to end, and kills it when it takes longer than grace.
func (p *part) stop(grace time.Duration) error {
	if !p.running() {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if p.wait(grace) {
		return p.removePID()
	}
	return p.kill()
}

// kill kills the process and waits until it is gone.
func (p *part) kill() error {
	if !p.running() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.wait(killTimeout) {
		return fmt.Errorf("%s (pid %d) does not die", p.name, p.handle.Pid)
	}
	return p.removePID()
}

// pid is 0 where the process has ended.
func (p *part) pid() int {
	if !p.running() {
		return 0
	}
	return p.handle.Pid
}

func (p *part) running() bool { return p != nil && !p.wait(0) }

// wait tells whether the process ended within d.
func (p *part) wait(d time.Duration) bool {
	select {
	case <-p.stopped:
		return true
	default:
	}
	if d == 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.stopped:
		return true
	case <-timer.C:
		return false
	}
}

func (p *part) signal(s os.Signal) error {
	if err := p.handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

// died is the error for a process that ended by itself.
func (p *part) died() error {
	return fmt.Errorf("%s ended by itself; its log ends:\n%s", p.name, logTail(p.dir, p.name))
}

// logTail returns the last lines of a part's log.
func logTail(dir, name string) string {
	const lines = 12
	data, err := os.ReadFile(logPath(dir, name))
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// environment is ours without what etcd would take for flags.
func environment(env []string) []string {
	kept := make([]string, 0, len(env))
	for _, v := range env {
		if !strings.HasPrefix(v, "ETCD_") {
			kept = append(kept, v)
		}
	}
	return kept
}
