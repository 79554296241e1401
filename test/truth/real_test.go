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
	"sync"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// updateRate is the least time between two status writes, on both sides.
const updateRate = 30 * time.Millisecond

// request and response are the lines that cilium-ipam speaks.
type request struct {
	Do     string `json:"do"`
	Owner  string `json:"owner,omitempty"`
	IP     string `json:"ip,omitempty"`
	Family string `json:"family,omitempty"`
	Gate   string `json:"gate,omitempty"`
}

type response struct {
	Err       string   `json:"err"`
	V4        string   `json:"v4"`
	V6        string   `json:"v6"`
	Allocated []string `json:"allocated"`
	Ready     bool     `json:"ready"`
	Seen      string   `json:"seen"`
	Attempts  int      `json:"attempts"`
}

// real is a running cilium-ipam.
type real struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Scanner
	node string
	// kill ends it at once, as a crash would.
	kill func()
}

// binary is where cilium-ipam must be. It takes minutes to compile with a cold
// cache, so the test does not build it by itself.
func binary(t *testing.T) string {
	dir := os.Getenv("CPO_BIN_DIR")
	if dir == "" {
		dir = filepath.Join("..", "..", ".cache", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, "cilium-ipam"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no Cilium to compare with; build it with\n\tgo build -C test/truth/cilium-ipam -o %s .\n%v", path, err)
	}
	return path
}

// startReal starts a cilium-ipam for the node; the test's end kills it.
func startReal(t *testing.T, kubeconfig, node string) *real {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), "--kubeconfig", kubeconfig, "--node", node,
		"--rate", updateRate.String(), "--poll", "100ms")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	harness.Must(t, cmd.Start())
	r := &real{t: t, in: in, out: bufio.NewScanner(out), node: node}
	r.kill = sync.OnceFunc(func() {
		if cmd.Process.Kill() == nil {
			_ = cmd.Wait() // It says that it was killed.
		}
	})
	t.Cleanup(r.kill)
	return r
}

func (r *real) call(req request) response {
	r.t.Helper()
	line, err := json.Marshal(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(r.in, "%s\n", line); err != nil {
		r.t.Fatal(err)
	}
	if !r.out.Scan() {
		r.t.Fatalf("cilium-ipam of %s ended: %v", r.node, r.out.Err())
	}
	var resp response
	harness.Must(r.t, json.Unmarshal(r.out.Bytes(), &resp))
	return resp
}

func (r *real) next(owner string) (v4, v6 netip.Addr, err error) {
	return parsed(r.call(request{Do: "next", Owner: owner}))
}

func (r *real) infra(family agent.Family, owner string) (v4, v6 netip.Addr, err error) {
	return parsed(r.call(request{Do: "infra", Family: string(family), Owner: owner}))
}

// do makes a request about one address.
func (r *real) do(what string, addr netip.Addr, owner string) error {
	return kindOf(r.call(request{Do: what, IP: addr.String(), Owner: owner}).Err)
}

func (r *real) allocated() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, ip := range r.call(request{Do: "dump"}).Allocated {
		all[netip.MustParseAddr(ip)] = true
	}
	return all
}

func parsed(resp response) (v4, v6 netip.Addr, err error) {
	// An empty string parses to the zero address, with an error.
	v4, _ = netip.ParseAddr(resp.V4)
	v6, _ = netip.ParseAddr(resp.V6)
	return v4, v6, kindOf(resp.Err)
}
