//go:build linux

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Copied are the folders that a box with a disk copies for itself. They include /usr/lib
// because containerd creates /usr/lib/modules, which Cilium's chart mounts.
var Copied = []string{"/etc", "/opt", "/var", "/usr/lib"}

// bound are folders that a box with a disk keeps on that disk itself: an overlay cannot hold
// the overlays of containers.
var bound = map[string]string{
	"/var/lib/containerd": "containerd",
	"/var/lib/kubelet":    "kubelet",
}

// shielded are settings of the whole machine that kubelet changes unless they already have the
// wanted values. A box reads the values that kubelet wants from its own files.
var shielded = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// prepareMounts makes the box's mounts private, and turns a box with a disk into a machine.
func prepareMounts(disk string) error {
	// Uses the machine's own /proc and /sys.
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	if err := mountAll([]mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", 0, ""},
	}); err != nil || disk == "" {
		return err
	}
	if err := mountAll([]mount{
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"bpf", "/sys/fs/bpf", "bpf", 0, ""},
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		{"tmpfs", cgroupRoot, "tmpfs", 0, "mode=755"},
	}); err != nil {
		return err
	}
	// Cilium reads them at this path; a kernel may lack them.
	_ = unix.Mount("debugfs", "/sys/kernel/debug", "debugfs", 0, "")
	_ = unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, "")
	if err := mountGroups(trees); err != nil {
		return err
	}
	if err := mountDisk(disk); err != nil {
		return err
	}
	if err := shield("/run/shielded"); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	// Other containers must see the mounts of the agent's container.
	return mountAll([]mount{{"", "/", "", unix.MS_REC | unix.MS_SHARED, ""}})
}

// mountGroups mounts the hierarchies again: in the new namespace their roots are
// the folders of the box.
func mountGroups(trees []hierarchy) error {
	for _, h := range trees {
		kind := "cgroup"
		if h.version == 2 {
			kind = "cgroup2"
		}
		if err := os.Mkdir(h.path(), 0o755); err != nil {
			return err
		}
		if err := mountAll([]mount{{kind, h.path(), kind, 0, h.options}}); err != nil {
			return err
		}
	}
	return nil
}

func mountDisk(disk string) error {
	for _, folder := range Copied {
		base := filepath.Join(disk, strings.ReplaceAll(folder[1:], "/", "-"))
		upper, work := base+".upper", base+".work"
		for _, dir := range []string{upper, work} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)
		if err := mountAll([]mount{{"overlay", folder, "overlay", 0, data}}); err != nil {
			return err
		}
	}
	for target, name := range bound {
		for _, dir := range []string{target, filepath.Join(disk, name)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := mountAll([]mount{{filepath.Join(disk, name), target, "", unix.MS_BIND, ""}}); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/usr/lib/modules", "/run/lock", "/etc/cni/net.d", "/opt/cni/bin"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// shield covers settings of the machine with files.
func shield(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, value := range shielded {
		file := filepath.Join(folder, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("shield %s: %w", name, err)
		}
	}
	return nil
}
