package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const binDirEnv = "CPO_BIN_DIR"

// binDir returns the folder of the binaries, and checks that they exist.
func binDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(binDirEnv)
	}
	if dir == "" {
		dir = filepath.Join(harness.Root(), ".cache", "bin")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find control plane: %w", err)
	}
	for _, name := range []string{etcdName, apiServerName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("no %s to start: run 'make controlplane', or set %s: %w", name, binDirEnv, err)
		}
	}
	return dir, nil
}
