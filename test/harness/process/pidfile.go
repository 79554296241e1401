package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The child inherits the open pid file, and the lock on it. So a stale pid
// never gets a stranger killed, and no two processes share a folder.

func pidPath(dir, name string) string { return filepath.Join(dir, name+".pid") }

// claimPIDFile opens and locks the pid file; it fails while the process runs.
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
