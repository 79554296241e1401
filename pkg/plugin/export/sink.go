package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// commandLimit ends a program that hangs, because it would block all further writes.
const commandLimit = time.Minute

// sink is where prefixes go.
type sink struct {
	out, errOut io.Writer
	file        string   // empty: out
	command     []string // run after each write of the file
}

func (s *sink) put(ctx context.Context, content []byte) error {
	if s.file == "" {
		_, err := s.out.Write(content)
		return err
	}
	if err := replaceFile(s.file, content); err != nil {
		return err
	}
	if len(s.command) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Stdout, cmd.Stderr = s.out, s.errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--exec %s: %w", s.command[0], errors.Join(err, ctx.Err()))
	}
	return nil
}

// replaceFile replaces a file by a new one with its mode.
func replaceFile(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if old, err := os.Stat(path); err == nil {
		mode = old.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
