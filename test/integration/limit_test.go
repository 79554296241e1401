package integration

import (
	"fmt"
	"net/netip"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// The only block of a node is as large as its limit. Once deleted, it is replaced, and
// keeps only the router's address.
func TestDrainAtAddressLimit(t *testing.T) {
	const limit = 30 // the addresses of a /27 block
	for name, c := range map[string]struct {
		maxAddresses, maxAllocate int
	}{
		"max-allocate":             {maxAddresses: 4096, maxAllocate: limit},
		"--max-addresses-per-node": {maxAddresses: limit},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := quick()
			s.Defaults.Policy.MaxAddresses = c.maxAddresses
			e.start(s)
			e.pool("all", nil, "10.1.0.0/24")
			a := e.node("n1", nil)
			e.ready(a)
			e.hasBlocks("n1", 1)
			e.eventuallyOn("max-allocate is written", "n1", func(cn *ciliumv2.CiliumNode) error {
				cn.Spec.IPAM.MaxAllocate = c.maxAllocate
				return e.Client.Update(e.Ctx, cn)
			})
			old := e.Blocks("n1")[0]
			e.Delete(&old)
			e.eventuallyOn("the replacement is published, and of the old block the router's address", "n1", func(cn *ciliumv2.CiliumNode) error {
				in, out := split(cn, old.Spec.CIDR)
				if in != 1 || out != limit-1 {
					return fmt.Errorf("%d addresses of the old block, %d of others", in, out)
				}
				return nil
			})
			e.usedArePublished("n1")
		})
	}
}

// split counts the addresses of a pool inside and outside a CIDR.
func split(cn *ciliumv2.CiliumNode, cidr string) (in, out int) {
	for key := range cn.Spec.IPAM.Pool {
		if netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(key)) {
			in++
		}
	}
	return in, len(cn.Spec.IPAM.Pool) - in
}

// A node has its maximum number of blocks, with 80 of 90 addresses in use, more than the
// threshold. A deleted block is replaced by one, and drains.
func TestDrainAtMaxBlocks(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.MaxBlocks = 3
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	agent := e.node("n1", nil)
	e.ready(agent)
	e.Pods("n1", "load", 79)
	e.running("load", 79)
	e.hasBlocks("n1", 3)

	own := map[netip.Addr]bool{}
	names := map[string]netip.Addr{}
	for addr, owner := range agent.Addresses() {
		own[addr] = owner == "router"
		names[owner] = addr
	}
	var old v1alpha1.PodIPBlock
	for _, b := range e.Blocks("n1") {
		holdsRouter := false
		for addr, router := range own {
			holdsRouter = holdsRouter || router && netip.MustParsePrefix(b.Spec.CIDR).Contains(addr)
		}
		if !holdsRouter {
			old = b
		}
	}
	e.Delete(&old)
	e.Eventually("the block drains", func() error {
		if err := e.Client.Get(e.Ctx, client.ObjectKeyFromObject(&old), &old); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(old.Status.Conditions, v1alpha1.BlockDraining) {
			return fmt.Errorf("its conditions are %v", old.Status.Conditions)
		}
		return nil
	})
	e.DeletePods("load", func(name string) bool {
		return !netip.MustParsePrefix(old.Spec.CIDR).Contains(names["default/"+name])
	})
	e.hasBlocks("n1", 3)
	e.usedArePublished("n1")
}
