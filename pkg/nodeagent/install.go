package nodeagent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Install copies the CNI plugin into the directory of the node's CNI plugins, unless it is there. It replaces another version
// as a whole, so an ADD in between runs either. It stays when the node agent is removed: until Cilium's agent has written
// another CNI configuration, pods cannot start or end without it.
func Install(plugin, dir string) error {
	want, err := os.ReadFile(plugin)
	if err != nil {
		return fmt.Errorf("reading the CNI plugin: %w", err)
	}
	target := filepath.Join(dir, filepath.Base(plugin))
	has, err := os.ReadFile(target)
	if err == nil && bytes.Equal(has, want) {
		return nil
	}
	if err := replace(target, want); err != nil {
		return fmt.Errorf("installing the CNI plugin: %w", err)
	}
	return nil
}

// replace writes an executable file under another name, which container runtimes do not look for, and renames it.
func replace(target string, content []byte) error {
	draft := filepath.Join(filepath.Dir(target), "."+filepath.Base(target))
	file, err := os.OpenFile(draft, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer os.Remove(draft) // its part of a full disk, too
	_, err = file.Write(content)
	if err := errors.Join(err, file.Chmod(0o755), file.Sync(), file.Close()); err != nil { // whatever the umask
		return err
	}
	return os.Rename(draft, target)
}
