package controlplane

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A part's pid file is locked for as long as the part lives: the child
// inherits the open file, and the lock with it. So a stale pid never gets a
// stranger killed, and no two processes share a folder.

func pidPath(dir, name string) string { return filepath.Join(dir, name+".pid") }

// claimPIDFile opens and locks the pid file; it fails while the part runs.
func claimPIDFile(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(pidPath(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f, syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("one runs already in %s", dir), f.Close())
	}
	return f, nil
}

// findProcess finds what startProcess left running; nil where nothing runs.
func findProcess(dir, name string) (*part, error) {
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
	p := &part{name: name, dir: dir, handle: handle, stopped: make(chan struct{})}
	go func() {
		_ = lock(pidFile, 0) // Granted when the process ends.
		pidFile.Close()
		close(p.stopped)
	}()
	return p, nil
}

func (p *part) removePID() error {
	if err := os.Remove(pidPath(p.dir, p.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	return nil
}

func writePID(f *os.File, pid int) error {
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0); err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	return nil
}

func readPID(f *os.File) (*os.Process, error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
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
