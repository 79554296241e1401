package node

import (
	"slices"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// zoned is a pool for nodes with a label; it outranks others.
func zoned(ranges ...string) *v1alpha1.PodIPPool {
	z := fixtures.PodIPPool("z", 1, ranges...)
	z.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "z"}}
	z.Spec.Priority = 10
	return z
}

// starts is an agent that takes over the CiliumNode, with a router's address, and answers
// marks.
func starts(router string) func(*ciliumv2.CiliumNode) {
	return func(cn *ciliumv2.CiliumNode) {
		cn.Spec.BootID = "b"
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: router}}
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{router: {Owner: "router"}}
		for ip, is := range cn.Status.IPAM.ReleaseIPs {
			if is == "marked-for-release" {
				cn.Status.IPAM.ReleaseIPs[ip] = "ready-for-release"
			}
		}
	}
}

func labelled(n *corev1.Node) { n.Labels = map[string]string{"zone": "z"} }

func (b *bed) poolsOf() []string {
	b.T.Helper()
	var names []string
	for _, k := range b.Blocks() {
		if k.Phase == ipalloc.InService && !slices.Contains(names, k.Pool) {
			names = append(names, k.Pool)
		}
	}
	slices.Sort(names)
	return names
}

func TestFirstBlocksAreReplaced(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/28"))
	b.settle()
	if got := b.poolsOf(); !slices.Equal(got, []string{"p"}) {
		t.Fatalf("blocks in service are of pools %v, want p", got)
	}
	first := b.Blocks()
	b.changeNode(labelled)
	b.settle()
	if got := b.poolsOf(); !slices.Equal(got, []string{"z"}) {
		t.Fatalf("blocks in service are of pools %v, want z: %+v", got, b.Blocks())
	}
	v := b.CiliumNode()
	for _, k := range first {
		if is := b.block(k.CIDR.String()); is.Phase != ipalloc.Draining || is.Reason != expand.PoolChanged {
			t.Errorf("block %s is %v (%s)", k.CIDR, is.Phase, is.Reason)
		}
		for _, addr := range v.PublishedIn(k.CIDR) {
			if v.Release[addr] != expand.Marked {
				t.Errorf("%s is %q: an agent that starts now may take it", addr, v.Release[addr])
			}
		}
		if len(v.PublishedIn(k.CIDR)) == 0 {
			t.Errorf("addresses of %s have left the pool, and no agent has agreed", k.CIDR)
		}
	}
	b.Check("before the agent starts")
	b.restart() // marks stand over a change of leaders
	b.settle()
	if left := b.CiliumNode().Release; len(left) != 4 {
		t.Errorf("release entries are %v after a restart", left)
	}

	b.agentIs(starts("10.1.0.1"))
	b.settle()
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), b.Clock.Now())
	for range 5 {
		b.settleAfter(10 * time.Minute)
	}
	if slices.ContainsFunc(b.Blocks(), func(k crd.Block) bool { return k.Pool == "p" }) || len(b.CiliumNode().Release) > 0 {
		t.Errorf("blocks %+v, release %v; want nothing of p left", b.Blocks(), b.CiliumNode().Release)
	}
	b.Check("at the end")
}

// If a pool has a block, but not enough of them for the node's pods, the node gets that one. Its
// first blocks stay in service beside it, and no write is tried over and over.
func TestFirstBlocksServeBesideThePoolThatRules(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), zoned("10.1.0.0/30"))
	b.pods(5)
	b.settle()
	b.changeNode(labelled)
	b.settle()
	if got := b.poolsOf(); !slices.Equal(got, []string{"p", "z"}) {
		t.Errorf("blocks in service are of pools %v, want p and z", got)
	}
	if got := b.CiliumNode().PublishedIn(fixtures.Prefix("10.1.0.0/30")); len(got) == 0 {
		t.Error("the block of z is not published")
	}
	if n := b.r.memory.of("n").conflicts; n > 0 {
		t.Errorf("%d races lost once settled", n)
	}
	b.Check("settled")
}

// A node with first blocks of another pool waits for a block of the pool that rules it.
func TestFirstBlocksWaitForThePoolThatRules(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/30"))
	b.r.Ledger.Upsert(fixtures.Block("10.1.0.0/30", "z", "m", 1))
	b.settle()
	b.changeNode(labelled)
	b.settle()
	if got := b.poolsOf(); !slices.Equal(got, []string{"p"}) {
		t.Fatalf("blocks in service are of pools %v, want p", got)
	}
	if woken := b.r.Awaiting.Wake(ipalloc.IPv4, []string{"z"}); !slices.Equal(woken, []string{"n"}) {
		t.Errorf("a block of z that comes free wakes %v, want n", woken)
	}
}

// Addresses that may be in use stay.
func TestFirstBlocksStay(t *testing.T) {
	tests := map[string]struct {
		z       []string
		between func(*bed) // after the node has joined
	}{
		"the agent was faster":                  {[]string{"10.1.0.0/28"}, func(b *bed) { b.agentIs(starts("10.0.0.1")) }},
		"an agent has only looked":              {[]string{"10.1.0.0/28"}, func(b *bed) { b.agentIs(func(cn *ciliumv2.CiliumNode) { cn.Spec.BootID = "b" }) }},
		"an agent's container has been started": {[]string{"10.1.0.0/28"}, func(b *bed) { b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", false)), fixtures.Noon()) }},
		"another process may have claimed them": {[]string{"10.1.0.0/28"}, func(b *bed) { b.restart() }},
		"the new pool has no block":             {nil, func(*bed) {}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			z := zoned(test.z...)
			if test.z == nil {
				z = zoned("10.1.0.0/28")
				z.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
			}
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), z)
			b.settle()
			before := b.Blocks()
			test.between(b)
			b.changeNode(labelled)
			b.settle()
			for _, k := range before {
				if is := b.block(k.CIDR.String()); is.Phase != ipalloc.InService {
					t.Errorf("block %s is %v (%s)", k.CIDR, is.Phase, is.Reason)
				}
			}
			if left := b.CiliumNode().Release; len(left) > 0 {
				t.Errorf("release entries are %v", left)
			}
		})
	}
	t.Run("the agent starts before they are marked", func(t *testing.T) {
		b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/28"))
		b.settle()
		b.changeNode(labelled)
		b.once("patch CiliumNode status", func() {
			b.agentIs(starts("10.0.0.1"))
		})
		b.settle()
		if held := b.block("10.0.0.0/30"); held.Phase != ipalloc.InService {
			t.Errorf("block %s is %v (%s) though the agent has its own address there", held.CIDR, held.Phase, held.Reason)
		}
		if left := b.CiliumNode().Release; len(left) > 0 {
			t.Errorf("release entries are %v", left)
		}
		b.Check("at the end")
	})
	t.Run("the label goes again", func(t *testing.T) {
		b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/28"))
		b.settle()
		b.changeNode(labelled)
		b.settle()
		b.changeNode(func(n *corev1.Node) { n.Labels = nil })
		b.settle()
		if got := b.poolsOf(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("blocks in service are of pools %v, want p", got)
		}
		b.Check("at the end")
	})
}
