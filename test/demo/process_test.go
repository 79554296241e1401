package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProcessEndsAsAsked(t *testing.T) {
	for name, end := range map[string]func(*part) error{
		"stop": (*part).stop,
		"kill": (*part).kill,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p, err := start(dir, "sleeper", false, "/bin/sleep", "600")
			if err != nil {
				t.Fatal(err)
			}
			if err := end(p); err != nil {
				t.Fatal(err)
			}
			if !p.ended() {
				t.Error("it still runs")
			}
			if _, err := os.Stat(filepath.Join(dir, "sleeper.pid")); !os.IsNotExist(err) {
				t.Errorf("its pid file is left: %v", err)
			}
		})
	}
}

func TestDetachedProcessIsFoundAgain(t *testing.T) {
	dir := t.TempDir()
	p, err := start(dir, "sleeper", true, "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.kill() })
	if _, err := start(dir, "sleeper", true, "/bin/sleep", "600"); err == nil {
		t.Error("a second one started")
	}
	found, err := find(dir, "sleeper")
	if err != nil || found == nil {
		t.Fatalf("found %v, %v", found, err)
	}
	if found.handle.Pid != p.handle.Pid {
		t.Errorf("found pid %d, want %d", found.handle.Pid, p.handle.Pid)
	}
	if err := found.stop(); err != nil {
		t.Fatal(err)
	}
	if again, err := find(dir, "sleeper"); again != nil || err != nil {
		t.Errorf("found %v, %v after it stopped", again, err)
	}
}

func TestStalePIDFileIsNobody(t *testing.T) {
	dir := t.TempDir()
	// Its pid is alive, but nobody holds the lock: some stranger has it now.
	if err := os.WriteFile(filepath.Join(dir, "sleeper.pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := find(dir, "sleeper"); found != nil || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestProcessThatCannotStart(t *testing.T) {
	if _, err := start(t.TempDir(), "nothing", false, "/nonexistent/binary"); err == nil {
		t.Error("no error")
	}
}

func TestEvenly(t *testing.T) {
	tests := map[string]struct {
		of, count int
		want      []int
	}{
		"none":  {of: 10, count: 0},
		"some":  {of: 10, count: 3, want: []int{0, 3, 6}},
		"all":   {of: 3, count: 3, want: []int{0, 1, 2}},
		"empty": {of: 0, count: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []int
			kept := evenly(test.of, test.count)
			for i := range test.of {
				if kept[i] {
					got = append(got, i)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"1 address": plural(1, "address"), "2 addresses": plural(2, "address"), "0 blocks": plural(0, "block"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
