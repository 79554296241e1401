package bed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/process"
)

const (
	stopTimeout = 20 * time.Second
	// clockTicks of /proc/PID/stat per second; Linux has had no other value.
	clockTicks = 100
)

// Process is a contender that runs.
type Process struct {
	name, log string
	handle    *os.Process
	stopped   chan struct{}
	// Started is the moment just before it was started.
	Started time.Time
}

// spawn runs argv with its output in dir/name.log. It dies with this process.
func spawn(dir, name string, env []string, argv ...string) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, name+".log")}
	f, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = f, f
	p.Started = time.Now()
	if p.stopped, err = process.Start(cmd, false); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.handle = cmd.Process
	return p, nil
}

// Stop ends it, gracefully at first.
func (p *Process) Stop() error {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if p.Ended() {
			return nil
		}
		if err := p.handle.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		select {
		case <-p.stopped:
		case <-time.After(stopTimeout):
		}
	}
	if !p.Ended() {
		return fmt.Errorf("%s (pid %d) does not die", p.name, p.handle.Pid)
	}
	return nil
}

// Stopped is closed when it has ended.
func (p *Process) Stopped() <-chan struct{} { return p.stopped }

// Ended says whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return false
	}
}

// Says tells whether its log has all of texts.
func (p *Process) Says(texts ...string) (bool, error) {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return false, err
	}
	for _, text := range texts {
		if !bytes.Contains(data, []byte(text)) {
			return false, nil
		}
	}
	return true, nil
}

// Tail is the end of its log.
func (p *Process) Tail() string {
	const lines = 10
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Use is what a process has used so far.
type Use struct {
	CPU       time.Duration // user and system
	RSS, Peak int64         // bytes: now, and at most so far
}

// Use reads it from /proc.
func (p *Process) Use() (Use, error) { return useOf(p.handle.Pid) }

func useOf(pid int) (Use, error) {
	var u Use
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// Fields after the command in parentheses; utime and stime are 14 and 15 of all.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, i := range []int{11, 12} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
		u.CPU += time.Duration(ticks) * time.Second / clockTicks
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmHWM:":
			u.Peak = kb << 10
		case "VmRSS:":
			u.RSS = kb << 10
		}
	}
	return u, nil
}
