package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The plugin is replaced as a whole, whatever a killed process left, and only if it differs.
func TestInstall(t *testing.T) {
	for name, test := range map[string]struct {
		has, left string // in the directory, under both names
		replaces  bool
	}{
		"none":             {replaces: true},
		"another version":  {has: "an older plugin, and longer", replaces: true},
		"the same":         {has: "plugin"},
		"a killed install": {has: "an older plugin", left: "half of a plugin, and much longer than one", replaces: true},
	} {
		t.Run(name, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), "cilium-pool-ipam")
			dir := t.TempDir()
			target := filepath.Join(dir, "cilium-pool-ipam")
			files := map[string]string{source: "plugin", target: test.has, filepath.Join(dir, ".cilium-pool-ipam"): test.left}
			for path, content := range files {
				if content == "" {
					continue
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before, _ := os.Stat(target)
			if err := Install(source, dir); err != nil {
				t.Fatal(err)
			}
			after, err := os.Stat(target)
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(target)
			if err != nil || string(content) != "plugin" {
				t.Errorf("installed %q, error %v", content, err)
			}
			if replaced := !os.SameFile(before, after); replaced != test.replaces {
				t.Errorf("replaced: %t, want %t", replaced, test.replaces)
			}
			if test.replaces && after.Mode().Perm() != 0o755 {
				t.Errorf("its mode is %s", after.Mode())
			}
		})
	}
}

func TestInstallFails(t *testing.T) {
	source := filepath.Join(t.TempDir(), "cilium-pool-ipam")
	if err := Install(source, t.TempDir()); err == nil || !strings.Contains(err.Error(), "reading the CNI plugin") {
		t.Errorf("without a plugin: %v", err)
	}
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Install(source, filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "installing the CNI plugin") {
		t.Errorf("without a directory: %v", err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "cilium-pool-ipam"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := Install(source, dir)
	entries, readErr := os.ReadDir(dir)
	if err == nil || readErr != nil || len(entries) != 1 {
		t.Errorf("onto a directory: error %v, left %v, %v", err, entries, readErr)
	}
}
