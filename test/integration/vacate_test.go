package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// The first CIDR of a pool drains, including the block with the agent's own addresses. They stay in
// the pool, and their block with the node, until the agent restarts: then it takes others, and the
// CIDR is empty. No pod loses its address.
func TestVacate(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	a := e.node("n1", nil)
	e.ready(a)
	first := e.Blocks("n1")[0].Spec.CIDR
	e.drain("all", v1alpha1.AllocationDrain)
	e.retired("n1", first)
	e.eventSays("n1", event.ReasonDrainWaits, "block "+first+" waits for AgentRestart: ")
	e.blockSays(first, "the agent on node n1, which has addresses of its own in it, has restarted")
	e.Pods("n1", "load", 20)
	e.running("load", 20)

	// If the drain is no longer requested, it is undone, and the agent keeps its addresses.
	own := ownAddress(t, e, a)
	e.drain("all", v1alpha1.AllocationAllocate)
	e.eventuallyOn("no entry is left", "n1", func(cn *ciliumv2.CiliumNode) error {
		if len(cn.Status.IPAM.ReleaseIPs) > 0 {
			return fmt.Errorf("release-ips are %v", cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
	e.restart(a)
	if now := ownAddress(t, e, a); now != own {
		t.Errorf("the agent's address is %s after a restart, and was %s", now, own)
	}

	// It is requested again, and the agent restarts.
	e.drain("all", v1alpha1.AllocationDrain)
	e.retired("n1", first)
	e.restart(a)
	if now := ownAddress(t, e, a); netip.MustParsePrefix(first).Contains(now) {
		t.Errorf("the agent has taken %s again", now)
	}
	e.Eventually("nothing is left of the CIDR", func() error {
		if in := e.blocksIn("n1", "10.1.0.0/24"); in > 0 {
			return fmt.Errorf("%d blocks are", in)
		}
		return nil
	})
	if n := len(a.Endpoints()); n != 20 {
		t.Errorf("%d pods are left of 20", n)
	}
	e.usedArePublished("n1")
}

// drain sets the allocation policy of the first CIDR of a pool.
func (e *env) drain(pool string, policy v1alpha1.AllocationPolicy) {
	e.TB.Helper()
	e.change(pool, func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = policy })
}

// retired waits until only the agent's own addresses of a block are left in a node's pool, and
// these are retired.
func (e *env) retired(node, cidr string) {
	e.TB.Helper()
	e.eventuallyOn("the agent's own addresses are retired", node, func(cn *ciliumv2.CiliumNode) error {
		left := 0
		for key := range cn.Spec.IPAM.Pool {
			if !netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(key)) {
				continue
			}
			left++
			if cn.Status.IPAM.ReleaseIPs[key] != ipamoption.IPAMReleased {
				return fmt.Errorf("%s of %s is in the pool, with entry %q", key, cidr, cn.Status.IPAM.ReleaseIPs[key])
			}
		}
		if left == 0 {
			return fmt.Errorf("nothing of %s is left in the pool", cidr)
		}
		return nil
	})
}

// blockSays waits until the condition Draining of a block contains a text.
func (e *env) blockSays(cidr, text string) {
	e.TB.Helper()
	e.Eventually("block "+cidr+" says "+text, func() error {
		for _, b := range e.Blocks("n1") {
			if b.Spec.CIDR == cidr && strings.Contains(fmt.Sprint(b.Status.Conditions), text) {
				return nil
			}
		}
		return fmt.Errorf("blocks are %v", e.Blocks("n1"))
	})
}

// ownAddress returns the router's address of an agent that is ready.
func ownAddress(t *testing.T, e *env, a *agent.Agent) netip.Addr {
	t.Helper()
	e.ready(a)
	for addr, owner := range a.Addresses() {
		if owner == "router" {
			return addr
		}
	}
	t.Fatal("the agent has no address of its own")
	return netip.Addr{}
}
