package truth

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// updateRate is the least time between two status writes, on both sides.
const updateRate = 30 * time.Millisecond

// real is a running cilium-ipam.
type real struct {
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
		t.Fatalf("no Cilium to compare with; build it with\n\tmake .cache/bin/cilium-ipam\n%v", err)
	}
	return path
}

// startReal starts a cilium-ipam in a mode, and kills it when the test ends.
func startReal(t *testing.T, mode string, args ...string) *real {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), append([]string{"--mode", mode}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	harness.Must(t, err)
	out, err := cmd.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, cmd.Start())
	r := &real{t: t, in: in, out: bufio.NewReader(out), args: cmd.Args}
	r.kill = sync.OnceFunc(func() {
		if cmd.Process.Kill() == nil {
			_ = cmd.Wait() // It reports that it was killed.
		}
	})
	t.Cleanup(r.kill)
	return r
}

// call makes it take a step.
func (r *real) call(req wire.Request) (resp wire.Response) {
	r.t.Helper()
	line, err := json.Marshal(req)
	harness.Must(r.t, err)
	_, err = fmt.Fprintf(r.in, "%s\n", line)
	harness.Must(r.t, err)
	line, err = r.out.ReadBytes('\n')
	if err != nil {
		r.t.Fatalf("%s ended: %v", strings.Join(r.args, " "), err)
	}
	harness.Must(r.t, json.Unmarshal(line, &resp))
	return resp
}

// readState returns the present state.
func (r *real) readState() wire.Response {
	r.t.Helper()
	return r.call(wire.Request{Do: "say"})
}

// next runs a CNI ADD, or allocates an address of one family quietly.
func (r *real) next(owner string, family agent.Family) (v4, v6 netip.Addr, err error) {
	resp := r.call(wire.Request{Do: "next", Owner: owner, Family: string(family), Quietly: true})
	for _, addr := range resp.Got {
		if addr.Is4() {
			v4 = addr
		} else {
			v6 = addr
		}
	}
	return v4, v6, kindOf(resp.Err)
}

// ask makes a request about one address.
func (r *real) ask(what string, addr netip.Addr, owner string) error {
	return kindOf(r.call(wire.Request{Do: what, IP: addr, Owner: owner}).Err)
}

func (r *real) allocated() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, ip := range r.readState().Allocated {
		all[netip.MustParseAddr(ip)] = true
	}
	return all
}
