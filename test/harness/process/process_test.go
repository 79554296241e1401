package process

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func sleeper(dir string, detached bool) Command {
	return Command{Name: "sleeper", Dir: dir, Args: []string{"/bin/sleep", "600"}, PIDFile: true, Detached: detached}
}

func TestStopKillsWhatIgnoresIt(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{
		Name: "deaf", Dir: t.TempDir(), Stdout: in, Args: []string{"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.Running() {
		t.Error("it still runs")
	}
}

func TestDetachedProcessIsFoundAgain(t *testing.T) {
	dir := t.TempDir()
	p, err := Start(sleeper(dir, true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if _, err := Start(sleeper(dir, true)); err == nil {
		t.Error("a second one started")
	}
	found, err := Find(dir, "sleeper")
	if err != nil || found == nil {
		t.Fatalf("found %v, %v", found, err)
	}
	if found.PID() != p.PID() {
		t.Errorf("found pid %d, want %d", found.PID(), p.PID())
	}
	if err := found.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	if again, err := Find(dir, "sleeper"); again != nil || err != nil {
		t.Errorf("found %v, %v after it stopped", again, err)
	}
}

func TestStalePIDFileIsIgnored(t *testing.T) {
	dir := t.TempDir()
	// Its pid is alive, but without the lock: a stranger has that pid now.
	if err := os.WriteFile(filepath.Join(dir, "sleeper.pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(dir, "sleeper"); found != nil || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}
