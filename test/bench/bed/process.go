package bed

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	stopTimeout = 20 * time.Second
	// clockTicks per second in /proc/PID/stat; Linux has never had another value.
	clockTicks = 100
)

// Process is a running contender.
type Process struct {
	*process.Process
	// Started is the time just before it was started.
	Started time.Time
	pid     int
}

// spawn runs argv with its output in dir/name.log. The process dies with this one.
func spawn(dir, name string, argv ...string) (*Process, error) {
	// Says must not read the log of an earlier process.
	if err := os.Remove(process.LogPath(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	started := time.Now()
	p, err := process.Start(process.Command{Name: name, Dir: dir, WorkDir: dir, Env: environment(), Args: argv})
	if err != nil {
		return nil, err
	}
	return &Process{Process: p, Started: started, pid: p.PID()}, nil
}

// environment returns this process's environment without variables that tune Go programs:
// contenders run with Go's defaults, or with their own settings.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"}, name)
	})
}

// Stop ends the process, gracefully at first.
func (p *Process) Stop() error { return p.Process.Stop(stopTimeout) }

// Says reports whether the process's log contains all of texts.
func (p *Process) Says(texts ...string) bool {
	log := p.Log()
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(log, text) })
}

// Use is the resource usage of a process so far.
type Use struct {
	CPU       time.Duration // user and system
	RSS, Peak int64         // bytes: current and peak
}

// Use reads the usage of the process from /proc.
func (p *Process) Use() (Use, error) { return useOf(p.pid) }

func useOf(pid int) (Use, error) {
	var u Use
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// Fields after the command in parentheses; utime and stime are fields 14 and 15 of the
	// whole line.
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
