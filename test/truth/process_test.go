package truth

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// process is a running cilium-ipam.
type process struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	args []string
	// kill kills it at once, as a crash would.
	kill func()
}

// binary returns the path where cilium-ipam must be. It takes minutes to compile with a cold
// cache, so the test does not build it.
func binary(t *testing.T) string {
	dir := os.Getenv("CPO_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", ".cache", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, "cilium-ipam"))
	harness.Must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no Cilium to compare with; build it with\n\tgo build -C test/truth/cilium-ipam -o %s .\n%v", path, err)
	}
	return path
}

// startProcess starts a cilium-ipam, and kills it when the test ends.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	harness.Must(t, err)
	out, err := cmd.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, cmd.Start())
	p := &process{t: t, in: in, out: bufio.NewReader(out), args: args}
	p.kill = sync.OnceFunc(func() {
		if cmd.Process.Kill() == nil {
			_ = cmd.Wait() // It reports that it was killed.
		}
	})
	t.Cleanup(p.kill)
	return p
}

// exchange sends a request, and reads the response.
func (p *process) exchange(req, resp any) {
	p.t.Helper()
	line, err := json.Marshal(req)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(p.in, "%s\n", line); err != nil {
		p.t.Fatal(err)
	}
	line, err = p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("cilium-ipam %s ended: %v", strings.Join(p.args, " "), err)
	}
	harness.Must(p.t, json.Unmarshal(line, resp))
}
