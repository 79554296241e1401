package controlplane_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestDiesWithItsStarter(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	harness.Must(t, err)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	harness.Must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "started <nil>\n" {
		t.Errorf("the starter said %q, %v", line, err)
	}
	harness.Must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	harness.Eventually(t, "both processes end", func() error {
		running, err := controlplane.RunningIn(dir)
		if err == nil && len(running) > 0 {
			err = fmt.Errorf("%v run", running)
		}
		return err
	})
}
