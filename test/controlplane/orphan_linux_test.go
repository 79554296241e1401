package controlplane_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

func TestDiesWithItsStarter(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "started <nil>\n" {
		t.Errorf("the starter said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "both processes end", func(context.Context) (bool, error) {
		running, err := controlplane.RunningIn(dir)
		return len(running) == 0, err
	})
}
