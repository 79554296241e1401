//go:build linux

package box

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	// removeTimeout is the time that the kernel may keep a cgroup folder busy after its last
	// process.
	removeTimeout = 10 * time.Second
)

// hierarchy is one mounted tree of cgroups.
type hierarchy struct {
	name    string // of its folder below /sys/fs/cgroup
	version int
	options string // to mount it again
}

func (h hierarchy) path(parts ...string) string {
	return filepath.Join(append([]string{cgroupRoot, h.name}, parts...)...)
}

// hierarchies returns the hierarchies mounted on this machine. A machine with only the
// unified hierarchy, as most new ones have, has none below /sys/fs/cgroup.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var found []hierarchy
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || filepath.Dir(fields[1]) != cgroupRoot {
			continue
		}
		h := hierarchy{name: filepath.Base(fields[1])}
		switch fields[2] {
		case "cgroup":
			h.version, h.options = 1, controllers(fields[3])
		case "cgroup2":
			h.version = 2
		default:
			continue
		}
		found = append(found, h)
	}
	return found, nil
}

// controllers returns the mount options that identify a hierarchy.
func controllers(options string) string {
	general := []string{"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "noatime", "xattr", "clone_children"}
	var out []string
	for option := range strings.SplitSeq(options, ",") {
		switch {
		case slices.Contains(general, option), strings.HasPrefix(option, "release_agent="):
		case strings.HasPrefix(option, "name="):
			out = append(out, "none", option)
		default:
			out = append(out, option)
		}
	}
	return strings.Join(out, ",")
}

// joinGroups moves a process into folders of the box's name in all hierarchies.
func (s State) joinGroups(name string, pid int) error {
	all, err := hierarchies()
	if err != nil {
		return fmt.Errorf("cgroups of %s: %w", name, err)
	}
	for _, h := range all {
		for _, folder := range []string{h.path(s.Group), h.path(s.Group, name)} {
			if err := makeGroup(folder); err != nil {
				return fmt.Errorf("cgroups of %s: %w", name, err)
			}
		}
		if err := os.WriteFile(h.path(s.Group, name, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("cgroups of %s: %w", name, err)
		}
	}
	return nil
}

func makeGroup(folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A new cpuset has no processors and no memory, and so accepts no process.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
		if err != nil {
			continue // It is not the hierarchy of cpusets.
		}
		if err := os.WriteFile(filepath.Join(folder, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeGroup removes the folders of one box, or of all boxes if name is empty.
func (s State) removeGroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var failed []error
	for _, h := range all {
		failed = append(failed, removeTree(h.path(s.Group, name)))
	}
	return errors.Join(failed...)
}

// removeTree removes cgroup folders, the innermost first. The files in them go with them.
func removeTree(root string) error {
	deadline := time.Now().Add(removeTimeout)
	for {
		var folders []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return nil // It was removed meanwhile.
		})
		if err != nil {
			return err
		}
		slices.Reverse(folders)
		var last error
		for _, folder := range folders {
			if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = err
			}
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// PIDs returns the processes of a box and of containers in it, with the machine's pids.
func (s State) PIDs(name string) ([]int, error) {
	var pids []int
	root := filepath.Join(cgroupRoot, "memory", s.Group, name)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return nil // A container's cgroup may be removed meanwhile.
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil // Likewise.
		}
		for field := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			pids = append(pids, pid)
		}
		return nil
	})
	return pids, err
}
