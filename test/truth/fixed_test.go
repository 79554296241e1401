package truth

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// An agent in kubernetes mode reads the same podCIDRs from its Node as the model and the
// operator, and allocates from them as the model does.
func TestFixedSameAnswers(t *testing.T) {
	real := startReal(t, wire.Kubernetes)
	random := rand.New(rand.NewPCG(1, 3))
	ready := 0
	for n := range 300 {
		f := &fixedLife{t: t, real: real, random: random, ipv6: random.IntN(2) == 0}
		node := f.node()
		if f.start(node) {
			ready++
			f.live(40)
		}
		if t.Failed() {
			t.Fatalf("of Node %d, %+v with annotations %v", n, node.Spec, node.Annotations)
		}
	}
	if ready < 30 {
		t.Errorf("%d of 300 agents start", ready)
	}
}

// fixedLife is one run of Cilium's agent and of two models: that of the simulator, and that of
// the simulated agents, which run IPv4 only.
type fixedLife struct {
	t      *testing.T
	real   *real
	random *rand.Rand
	ipv6   bool

	sim   hostscope.Agent
	stand multipool.Agent
}

func (f *fixedLife) pickOne(of ...string) string { return of[f.random.IntN(len(of))] }

// node returns a Node as the API server accepts it: at most one podCIDR of each family in its spec.
// Annotations may contain anything but a CIDR of another family, as Cilium creates a useless
// allocator from it.
func (f *fixedLife) node() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: map[string]string{}}}
	v4 := func() string { return f.pickOne("10.0.0.0/29", "10.0.0.9/29", "10.0.1.0/31", "10.0.2.7/32") }
	v6 := func() string { return f.pickOne("fd00::/125", "fd00::9/125", "fd00::10/127", "fd00::20/128") }
	switch f.random.IntN(8) {
	case 0:
		node.Spec.PodCIDRs = []string{v4()}
	case 1:
		node.Spec.PodCIDRs = []string{v6(), v4()}
	case 2:
		node.Spec.PodCIDR = v4()
	}
	if len(node.Spec.PodCIDRs) > 0 {
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	for family, names := range hostscope.Annotations {
		for _, name := range names {
			switch f.random.IntN(4) {
			case 0:
				node.Annotations[name] = f.pickOne("", "junk", "10.0.0.0", "10.0.0.0/33")
			case 1, 2:
				node.Annotations[name] = [2]string{v4(), v6()}[family]
			}
		}
	}
	return node
}

// start reports whether the agent starts: its Node has a podCIDR of each family.
func (f *fixedLife) start(node *corev1.Node) bool {
	text, err := json.Marshal(node)
	harness.Must(f.t, err)
	resp := f.real.call(wire.Request{Do: "start", K8sNode: text, IPv6: f.ipv6})
	var model, operator []string
	has := [2]bool{}
	for _, family := range ipalloc.Families() {
		if c, ok := hostscope.PodCIDR(node, family); ok {
			has[family] = true
			model = append(model, c.String())
			if family == ipalloc.IPv4 {
				f.stand.Sees([]netip.Prefix{c})
			}
			if family == ipalloc.IPv4 || f.ipv6 {
				f.sim.CIDRs = append(f.sim.CIDRs, c)
			}
		}
	}
	for _, c := range ciliumnode.Kubernetes.View(node).PodCIDRs {
		operator = append(operator, c.String())
	}
	if !slices.Equal(model, resp.PodCIDRs) || !slices.Equal(operator, resp.PodCIDRs) {
		f.t.Errorf("the model reads %v, the operator %v, Cilium's agent %v", model, operator, resp.PodCIDRs)
	}
	if starts := has[ipalloc.IPv4] && (has[ipalloc.IPv6] || !f.ipv6); starts != resp.Ready {
		f.t.Errorf("starts: the model %v, Cilium's agent %v", starts, resp.Ready)
	}
	return resp.Ready
}

func (f *fixedLife) live(steps int) {
	for range steps {
		if f.t.Failed() {
			return
		}
		addr := netip.MustParseAddr(f.pickOne("10.0.0.0", "10.0.0.1", "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.12", "10.0.1.0", "10.0.1.1",
			"10.0.2.7", "fd00::", "fd00::1", "fd00::7", "fd00::8", "fd00::10", "fd00::11", "fd00::20"))
		family := ipalloc.FamilyOf(addr)
		switch f.random.IntN(3) {
		case 0:
			f.next(family)
		case 1:
			f.compareModels("restore", addr, f.sim.Take(addr, "owner"), func() error { return f.stand.Restore(addr, "owner") })
		default:
			if family == ipalloc.IPv4 || f.ipv6 {
				f.sim.Release(addr)
				f.compareModels("release", addr, nil, func() error { f.stand.Release(addr); return nil })
			}
		}
	}
}

// next allocates any address: Cilium chooses.
func (f *fixedLife) next(family ipalloc.Family) {
	if family == ipalloc.IPv6 && !f.ipv6 {
		return
	}
	resp := f.real.call(wire.Request{Do: "next", Owner: "owner", Family: family.String()})
	free := f.sim.Free(family)
	took := took(resp)
	switch {
	case !took.IsValid() && len(free) > 0:
		f.t.Errorf("next %s: the model has %v free, Cilium's says %q", family, free, resp.Err)
		return
	case took.IsValid() && !slices.Contains(free, took):
		f.t.Errorf("next %s: Cilium's gives %s, the model has %v free", family, took, free)
		return
	}
	if family == ipalloc.IPv4 {
		lowest, standErr := f.stand.Allocate("owner")
		if (standErr == nil) != took.IsValid() {
			f.t.Errorf("next: the stand-in says %v, Cilium's %q", standErr, resp.Err)
		}
		f.stand.Release(lowest)
	}
	if took.IsValid() {
		_ = f.sim.Take(took, "owner") // It was free.
		if family == ipalloc.IPv4 {
			_ = f.stand.Restore(took, "owner")
		}
	}
	f.allocated(resp)
}

// compareModels compares the models' answer about one address with Cilium's.
func (f *fixedLife) compareModels(what string, addr netip.Addr, sim error, stand func() error) {
	resp := f.real.call(wire.Request{Do: what, IP: addr, Owner: "owner"})
	want := poolKindOf(resp.Err)
	if fmt.Sprint(sim) != fmt.Sprint(want) {
		f.t.Errorf("%s %s: the model says %v, Cilium's %q", what, addr, sim, resp.Err)
	}
	if addr.Is4() {
		if err := stand(); fmt.Sprint(err) != fmt.Sprint(want) {
			f.t.Errorf("%s %s: the stand-in says %v, Cilium's %q", what, addr, err, resp.Err)
		}
	}
	f.allocated(resp)
}

func (f *fixedLife) allocated(resp wire.Response) {
	var sim, v4 []string
	for addr := range f.sim.Taken {
		sim = append(sim, addr.String())
	}
	for addr := range f.stand.Live() {
		v4 = append(v4, addr.String())
	}
	slices.Sort(sim)
	slices.Sort(v4)
	realV4 := slices.DeleteFunc(slices.Clone(resp.Allocated), func(s string) bool { return strings.Contains(s, ":") })
	if !slices.Equal(sim, resp.Allocated) || !slices.Equal(v4, realV4) {
		f.t.Errorf("allocated: the model %v, the stand-in %v, Cilium's %v", sim, v4, resp.Allocated)
	}
}
