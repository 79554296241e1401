//go:build linux

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// killTimeout is the time for the kernel to end all processes in a box.
const killTimeout = 30 * time.Second

// A pid file has the pid and the start time of that process, so that another process which got
// the same pid later is never mistaken for the box.

func (s State) writePID(name string, pid int) error {
	began, err := beginning(pid)
	if err != nil {
		return fmt.Errorf("write the pid of %s: %w", name, err)
	}
	return os.WriteFile(s.pidFile(name), fmt.Appendf(nil, "%d %s\n", pid, began), 0o600)
}

// PID returns the machine's pid of a box's first process; 0 if the box does not run.
func (s State) PID(name string) int {
	data, err := os.ReadFile(s.pidFile(name))
	if err != nil {
		return 0
	}
	number, began, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	if now, err := beginning(pid); err != nil || now != began {
		return 0
	}
	return pid
}

// Names lists the boxes that were started and not killed, running or not.
func (s State) Names() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.pid"))
	if err != nil {
		return nil, err
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".pid")
	}
	return files, nil
}

// Kill ends all processes in the box and removes its files except its disk.
func (s State) Kill(name string) error {
	deadline := time.Now().Add(killTimeout)
	for pid := s.PID(name); pid != 0; pid = s.PID(name) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill %s: %w", name, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill %s: its first process %d still runs after %s", name, pid, killTimeout)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := s.removeGroup(name); err != nil {
		return err
	}
	if err := os.Remove(s.pidFile(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// KillAll ends all boxes and removes the folder of their cgroups.
func (s State) KillAll() error {
	names, err := s.Names()
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		failed = append(failed, s.Kill(name))
	}
	return errors.Join(append(failed, s.removeGroup(""))...)
}

// beginning returns the start time of a process that is not a zombie.
func beginning(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The program's name, in parentheses, may contain any character.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')'):]), " ")
	fields := strings.Fields(rest)
	const state, startTime = 0, 19 // fields 3 and 22 of proc(5)
	if len(fields) <= startTime {
		return "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return "", os.ErrProcessDone
	}
	return fields[startTime], nil
}
