//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// ErrCannot means that this machine cannot run a box.
var ErrCannot = errors.New("this machine cannot run a real cluster")

// Check returns an error that wraps ErrCannot if this machine cannot run boxes with
// their disks in folder.
func Check(folder string, programs ...string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root", ErrCannot)
	}
	if err := process.TryBPF(); err != nil {
		return fmt.Errorf("%w: no BPF: %w", ErrCannot, err)
	}
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	unified := 0
	for _, h := range trees {
		if h.version == 2 {
			unified++
		}
	}
	if unified == 0 || len(trees) < 2 {
		return fmt.Errorf("%w: it needs cgroups of version 1, with those of version 2 beside them in /sys/fs/cgroup/unified;"+
			" version 2 alone was not tried", ErrCannot)
	}
	for _, copied := range Copied {
		if strings.HasPrefix(folder, copied+"/") {
			return fmt.Errorf("%w from %s: its nodes have private copies of %s, so keep the checkout elsewhere", ErrCannot, folder, copied)
		}
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %s is not installed", ErrCannot, name)
		}
	}
	return nil
}
