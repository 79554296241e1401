package truth

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// updateRate is the least time between two status writes, on both sides.
const updateRate = 30 * time.Millisecond

// request and response are the lines of cilium-ipam.
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

// real is a cilium-ipam in crd mode.
type real struct{ *process }

// startReal starts a cilium-ipam for the node, and kills it when the test ends.
func startReal(t *testing.T, kubeconfig, node string) *real {
	t.Helper()
	return &real{process: startProcess(t, "--kubeconfig", kubeconfig, "--node", node,
		"--rate", updateRate.String(), "--poll", "100ms")}
}

func (r *real) call(req request) response {
	r.t.Helper()
	var resp response
	r.exchange(req, &resp)
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
