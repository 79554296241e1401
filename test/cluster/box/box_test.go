//go:build linux

package box

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestMain(m *testing.M) {
	Main(os.Args) // The test binary is the first process of the boxes here.
	os.Exit(m.Run())
}

// state returns a State with its own cgroups; it skips the test where cgroups are unavailable.
func state(t *testing.T) State {
	t.Helper()
	dir := t.TempDir()
	if err := Check(dir); errors.Is(err, ErrCannot) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	s := State{Dir: filepath.Join(dir, "boxes"), Group: "cilium-pool-test-" + strings.ReplaceAll(filepath.Base(dir), "/", "")}
	s.Group += "-" + filepath.Base(filepath.Dir(dir))
	t.Cleanup(func() {
		if err := s.KillAll(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func sleeper(t *testing.T, s State, disk, script string) {
	t.Helper()
	dir := t.TempDir()
	spec := Spec{Name: "one", Disk: disk, Services: []Service{{Name: "sh", Argv: []string{"/bin/sh", "-c", script}, Log: filepath.Join(dir, "log")}}}
	log := filepath.Join(dir, "box.log")
	harness.Must(t, s.Start(spec, log, nil, func(int) error { return nil }))
	t.Cleanup(func() {
		if data, err := os.ReadFile(log); t.Failed() {
			t.Logf("the box says: %s %v", data, err)
		}
	})
}

// eventually waits until done is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	harness.Eventually(t, what, func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
}

// A box has its own processes, and its end leaves neither these nor cgroups behind.
func TestKillLeavesNothing(t *testing.T) {
	s := state(t)
	sleeper(t, s, "", "sleep 1000 & sleep 1000")
	var pids []int
	eventually(t, "the first process of the box, its shell and two sleeps run", func() bool {
		var err error
		pids, err = s.PIDs("one")
		return err == nil && len(pids) == 4
	})
	out, err := s.Run(t.Context(), "one", "sh", "-c", "hostname; echo /proc/[0-9]*")
	if err != nil || !strings.HasPrefix(out, "one\n") || strings.Count(out, "/proc/") != len(pids)+1 {
		t.Fatalf("the box says %q, %v; want its own hostname, and its own %d processes and this shell", out, err, len(pids))
	}
	harness.Must(t, s.Kill("one"))
	for _, pid := range pids {
		if _, err := beginning(pid); err == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	trees, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range trees {
		if _, err := os.Stat(h.path(s.Group, "one")); err == nil {
			t.Errorf("%s is still there", h.path(s.Group, "one"))
		}
	}
	if s.PID("one") != 0 {
		t.Error("it runs, says its pid file")
	}
}

// A box with a disk writes to that disk alone, and sees its own cgroups as the root.
func TestDiskIsItsOwn(t *testing.T) {
	s := state(t)
	disk := t.TempDir()
	done := filepath.Join(t.TempDir(), "done")
	sleeper(t, s, disk, "touch /etc/of-the-box /var/lib/kubelet/of-the-box; cat /proc/sys/kernel/panic >"+done+".panic;"+
		" wc -l </sys/fs/cgroup/memory/cgroup.procs >"+done+"; sleep 1000")
	eventually(t, "the box has written its files", func() bool {
		data, err := os.ReadFile(done)
		return err == nil && strings.TrimSpace(string(data)) != ""
	})
	for _, path := range []string{"etc.upper/of-the-box", "kubelet/of-the-box"} {
		if _, err := os.Stat(filepath.Join(disk, path)); err != nil {
			t.Errorf("not on the box's disk: %v", err)
		}
	}
	if _, err := os.Stat("/etc/of-the-box"); err == nil {
		t.Error("the box wrote to the machine's /etc")
	}
	panicSetting, err := os.ReadFile(done + ".panic")
	if err != nil || strings.TrimSpace(string(panicSetting)) != shielded["kernel/panic"] {
		t.Errorf("the box reads kernel.panic as %q (%v), want %s", panicSetting, err, shielded["kernel/panic"])
	}
	count, err := os.ReadFile(done)
	if err != nil || len(strings.TrimSpace(string(count))) > 1 {
		t.Errorf("the box sees %s processes in its root cgroup (%v), want its own few", count, err)
	}
}

// A service that exits is restarted.
func TestServicesRunAgain(t *testing.T) {
	s := state(t)
	file := filepath.Join(t.TempDir(), "runs")
	sleeper(t, s, "", "echo run >> "+file+"; sleep 0.1")
	eventually(t, "the service ran twice", func() bool {
		data, _ := os.ReadFile(file)
		return strings.Count(string(data), "run") >= 2
	})
}

// A pid that another process has now is not treated as the box's.
func TestStrangersPIDIsNotTaken(t *testing.T) {
	s := State{Dir: t.TempDir(), Group: "cilium-pool-test-none"}
	cmd := exec.Command("sleep", "1000")
	harness.Must(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	harness.Must(t, s.writePID("one", cmd.Process.Pid))
	if got := s.PID("one"); got != cmd.Process.Pid {
		t.Fatalf("pid is %d, want %d", got, cmd.Process.Pid)
	}
	data, err := os.ReadFile(s.pidFile("one"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(data), " ")
	harness.Must(t, os.WriteFile(s.pidFile("one"), []byte(pid+" 1\n"), 0o600))
	if got := s.PID("one"); got != 0 {
		t.Errorf("the pid of another process is taken: %d", got)
	}
	harness.Must(t, s.Kill("one"))
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the stranger was killed: %v", err)
	}
}
