package nodeipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// writeDraft writes an owner into a file of its own, synced, and returns its path.
func (s *Store) writeDraft(owner Owner) (string, error) {
	content, err := json.Marshal(owner)
	if err != nil {
		return "", err
	}
	return s.writeSynced(content)
}

// writeSynced writes a new file with a name of its own, and syncs it.
func (s *Store) writeSynced(content []byte) (string, error) {
	file, err := os.CreateTemp(s.dir, draftPattern)
	if err != nil {
		return "", fmt.Errorf("writing to the store of addresses: %w", err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		s.removeDraft(file.Name())
		return "", fmt.Errorf("writing to the store of addresses: %w", err)
	}
	return file.Name(), nil
}

const draftPattern = "draft-*"

// removeDraft removes a draft. One that stays is harmless until RemoveDrafts removes it.
func (s *Store) removeDraft(path string) { _ = os.Remove(path) }

// RemoveDrafts removes drafts that killed processes left, if they are older than an hour.
func (s *Store) RemoveDrafts() {
	drafts, err := filepath.Glob(s.path(draftPattern))
	if err != nil {
		return
	}
	for _, draft := range drafts {
		if info, err := os.Stat(draft); err == nil && time.Since(info.ModTime()) > time.Hour {
			s.removeDraft(draft)
		}
	}
}

// syncAddresses makes links and removals of addresses outlive a crash of the machine.
func (s *Store) syncAddresses() error { return syncDir(s.path("addresses")) }

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing the store of addresses: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("syncing the store of addresses: %w", err)
	}
	return nil
}

// LockAgent waits until no other node agent works on the store. The lock ends with the process.
func (s *Store) LockAgent(ctx context.Context) (err error) {
	s.agentLock, err = s.lock(ctx, "agent.lock")
	return err
}

// locked runs change while no other process changes the store.
func (s *Store) locked(ctx context.Context, change func() error) error {
	file, err := s.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer file.Close() // unlocks
	return change()
}

// lock locks a file until it is closed, in the order of the calls. The kernel closes the files of a process that dies.
func (s *Store) lock(ctx context.Context, name string) (*os.File, error) {
	file, err := os.OpenFile(s.path(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the store of addresses: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- flock(file) }()
	select {
	case err := <-done:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", file.Name(), err), file.Close())
		}
		return file, nil
	case <-ctx.Done():
		go func() {
			_ = errors.Join(<-done, file.Close())
		}()
		return nil, fmt.Errorf("another process holds the lock %s: %w", file.Name(), ctx.Err())
	}
}

func flock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
