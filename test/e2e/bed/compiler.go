//go:build linux

package bed

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed clang.sh
var clangScript []byte

// compilerDir is where agents find the compiler of their datapath, in the sandbox's
// own /run.
const compilerDir = "/run/compiler"

// installCompiler installs a clang there that caches its results.
func installCompiler() error {
	if err := os.MkdirAll(compilerDir, 0o755); err != nil {
		return fmt.Errorf("install the compiler: %w", err)
	}
	if err := os.WriteFile(filepath.Join(compilerDir, clang), clangScript, 0o755); err != nil {
		return fmt.Errorf("install the compiler: %w", err)
	}
	return nil
}
