package main

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// TestPlantedViolationsAreFound breaks rules on purpose in each mode; the checker must find each
// violation.
func TestPlantedViolationsAreFound(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{})
	uncached, err := cluster.StartUncached(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []mode{crdMode, multiPoolMode, kubernetesMode} {
		t.Run(string(m), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c, err := startChecker(ctx, uncached, m, func() map[string][]netip.Addr { return nil })
			if err != nil {
				t.Fatal(err)
			}
			p := &planter{T: t, cfg: cluster.Config(), mode: m, check: c}
			cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 28)
			a, b := p.join("a"), p.join("b")
			block := crd.NewBlock(cidr, "p", a, "")
			block.Finalizers = nil
			p.must(p.clientAs(whole.OperatorWriter).Create(ctx, block))
			p.assign(whole.OperatorWriter, a, cidr)
			p.wantRules()
			p.assign(whole.OperatorWriter, b, cidr)
			p.wantRules(1)
			p.assign("another-writer", a)
			p.wantRules(1, 2)
		})
	}
}

// planter writes objects that break rules.
type planter struct {
	*testing.T
	cfg   *rest.Config
	mode  mode
	check *checker
}

func (p *planter) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// clientAs returns a client that writes as a field manager.
func (p *planter) clientAs(who string) client.Client {
	p.Helper()
	cfg := rest.CopyConfig(p.cfg)
	cfg.UserAgent = who
	c, err := newClient(cfg)
	p.must(err)
	return c
}

// join creates a Node and its CiliumNode.
func (p *planter) join(name string) string {
	p.Helper()
	meta := metav1.ObjectMeta{Name: string(p.mode) + "-" + name}
	p.must(p.clientAs("kubelet").Create(p.Context(), &corev1.Node{ObjectMeta: meta}))
	p.must(p.clientAs(whole.AgentWriter).Create(p.Context(), &ciliumv2.CiliumNode{ObjectMeta: meta}))
	return meta.Name
}

// assign assigns exactly these blocks to a node's agent.
func (p *planter) assign(who, node string, cidrs ...netip.Prefix) {
	p.Helper()
	c, key := p.clientAs(who), client.ObjectKey{Name: node}
	if p.mode == kubernetesMode {
		n := &corev1.Node{}
		p.must(c.Get(p.Context(), key, n))
		n.Annotations = map[string]string{}
		for _, cidr := range cidrs {
			n.Annotations["network.cilium.io/ipv4-pod-cidr"] = cidr.String()
		}
		p.must(c.Update(p.Context(), n))
		return
	}
	cn := &ciliumv2.CiliumNode{}
	p.must(c.Get(p.Context(), key, cn))
	spec := ipamtypes.IPAMSpec{}
	for _, cidr := range cidrs {
		if p.mode == multiPoolMode {
			spec.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: []iputil.Prefix{iputil.PrefixFrom(cidr)}}}
			continue
		}
		spec.PodCIDRs = append(spec.PodCIDRs, iputil.PrefixFrom(cidr))
		spec.Pool = ipamtypes.AllocationMap{cidr.Addr().String(): {}}
	}
	cn.Spec.IPAM = spec
	p.must(c.Update(p.Context(), cn))
}

// wantRules checks that exactly these rules were reported as broken.
func (p *planter) wantRules(want ...int) {
	p.Helper()
	p.must(p.check.rules.Sync(p.Context()))
	var found []int
	for _, v := range p.check.tell().violations {
		if v.Rule != 3 { // which others accompany in crd mode
			found = append(found, v.Rule)
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, want) {
		p.Fatalf("rules %v were seen broken, want %v: %v", found, want, p.check.tell().violations)
	}
}
