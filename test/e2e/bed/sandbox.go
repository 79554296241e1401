//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// insideEnv marks the process that runs in the sandbox.
const insideEnv = "CPO_E2E_SANDBOX"

// ErrCannot means that this machine cannot run a bed at all.
var ErrCannot = errors.New("this machine cannot run real Cilium")

// Inside reports whether Sandbox started this process.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Sandbox runs this program again, with args, as the first process of new process, mount and
// network namespaces. Everything it starts dies with it, and it dies with this process or ctx.
// The error wraps ErrCannot if the kernel denies the namespaces.
func Sandbox(ctx context.Context, args ...string) error {
	// The parent-death signal comes when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: new namespaces: %w", ErrCannot, err)
	}
	return cmd.Wait()
}

// prepareMounts makes the mounts private and gives the sandbox its own /proc and an empty
// /run, which holds all state.
func prepareMounts() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// Check returns an error that wraps ErrCannot if this machine cannot run a bed. It needs
// root.
func Check(binDir string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root", ErrCannot)
	}
	if err := process.TryBPF(); err != nil {
		return fmt.Errorf("%w: no BPF: %w", ErrCannot, err)
	}
	for _, name := range []string{"ip", "iptables", "ipset", "nsenter", clang, "ccache"} {
		if _, err := lookPath(name); err != nil {
			return fmt.Errorf("%w: %w", ErrCannot, err)
		}
	}
	for _, name := range []string{agentName, cniName, "bpf", chartDir} {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			return fmt.Errorf("real Cilium is not built (make cilium): %w", err)
		}
	}
	return nil
}
