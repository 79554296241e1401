//go:build linux

package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// clang compiles the datapath; Debian's clang-19 keeps it out of the PATH.
const (
	clang    = "clang"
	clangDir = "/usr/lib/llvm-19/bin"
)

func searchPath() string { return compilerDir + ":" + clangDir + ":" + os.Getenv("PATH") }

func lookPath(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath()) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// spawn runs a program until Stop, and appends its output to a log of that name.
func (b *Bed) spawn(name string, argv ...string) (*process.Process, error) {
	return b.spawnWith(syscall.SysProcAttr{}, name, argv...)
}

func (b *Bed) spawnWith(attr syscall.SysProcAttr, name string, argv ...string) (*process.Process, error) {
	p, err := process.Start(process.Command{
		Name: name, Dir: b.opts.Logs, Args: argv, Env: append(os.Environ(), "PATH="+searchPath()), Attr: attr,
	})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.procs = append(b.procs, p)
	b.mu.Unlock()
	return p, nil
}

// run runs a program until it exits; the error contains its output.
func run(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+searchPath())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
