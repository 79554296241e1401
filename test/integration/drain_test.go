package integration

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

func TestCIDRSetToDrainIsReplacedFirst(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.load("n1", "load", 40)
	e.hasBlocks("n1", 2)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain })
	e.awaitBlocks("replacements are there", "n1", 2, many, inCIDR("10.2.0.0/24"))
	// Both have waited for a replacement before. The agent may not have reported yet that this
	// block contains the router's address.
	e.eventSays("n1", event.ReasonDrainWaits, "block 10.1.0.0/27 waits for AgentRestart: ")
	e.eventSays("n1", event.ReasonDrainWaits, "block 10.1.0.32/27 waits for Pods: pods default/load-n1-")
	e.DeletePods("load", nil)
	e.awaitBlocks("only the router's block is left in the draining range", "n1", 0, 1, inCIDR("10.1.0.0/24"))
	e.usedArePublished("n1")
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationAllocate })
	e.awaitBlocks("a drain that is no longer requested ends", "n1", 0, 0, func(b v1alpha1.PodIPBlock) bool {
		return blockIn(b, "10.1.0.0/24") && b.Status.Phase != v1alpha1.PhaseInService
	})
}

// A range that nodes hold is not taken out of a pool by a slip. Outside of the pool's window it drains
// and is then taken out: the drain waits for the window, and nothing is claimed for it until then.
func TestRangeTakenOutOutsideOfTheWindow(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.load("n1", "load", 10)
	takeOut := func(p *v1alpha1.PodIPPool) error {
		p.Spec.IPv4.CIDRs = p.Spec.IPv4.CIDRs[1:]
		return e.Client.Update(e.Ctx, p)
	}
	e.eventuallyPool("the pool counts the block, and its range stays", "all", func(p *v1alpha1.PodIPPool) error {
		if p.Status.IPv4 == nil || len(p.Status.IPv4.CIDRs) != 1 {
			return fmt.Errorf("blocks are held of %v", p.Status.IPv4)
		}
		err := takeOut(p)
		if apierrors.IsConflict(err) { // the operator has written its status meanwhile
			return err
		}
		if !apierrors.IsInvalid(err) {
			t.Errorf("a range that a node holds is taken out: %v", err)
		}
		return nil
	})
	away := time.Now().UTC().Add(12 * time.Hour)
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{{Schedule: fmt.Sprintf("%d %d * * *", away.Minute(), away.Hour()), Duration: "1h"}}
		p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
	})
	e.eventuallyPool("a range that drains is taken out", "all", takeOut)
	e.condition("all", v1alpha1.PoolWindow, metav1.ConditionFalse, poolcontroller.ReasonWindowClosed)
	e.awaitBlocks("the drain waits", "n1", 1, 1, func(b v1alpha1.PodIPBlock) bool {
		c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonCIDRDraining && b.Status.WaitsFor != nil && b.Status.WaitsFor.Reason == "Window"
	})
	e.hasBlocks("n1", 1)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Maintenance = v1alpha1.Maintenance{} })
	e.awaitBlocks("a replacement is there", "n1", 1, many, inCIDR("10.2.0.0/24"))
	e.running("load", 10)
	e.DeletePods("load", nil)
	e.awaitBlocks("only the router's block is left of the range", "n1", 0, 1, inCIDR("10.1.0.0/24"))
	e.usedArePublished("n1")
}

// A node keeps its blocks of a cordoned range, including blocks with an undone drain; further
// blocks come from other ranges.
func TestCordonedCIDRGivesNoNewBlocks(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.IdleFor = time.Hour
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	// The block has a replacement, and drains until the agent's own address is gone.
	e.drain("all", v1alpha1.AllocationDrain)
	e.Eventually("the first block drains", func() error { return e.draining("10.1.0.0-27", true) })
	e.drain("all", v1alpha1.AllocationCordon)
	e.Eventually("the drain ends with the request for it", func() error { return e.draining("10.1.0.0-27", false) })
	e.load("n1", "load", 70)
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	for _, b := range e.Blocks("") {
		if blockIn(b, "10.1.0.0/24") && b.Name != "10.1.0.0-27" {
			t.Errorf("block %s was claimed for %s from a cordoned range", b.Name, b.Spec.NodeName)
		}
	}
	if err := e.draining("10.1.0.0-27", false); err != nil {
		t.Error(err)
	}
	e.drain("all", v1alpha1.AllocationAllocate)
	e.load("n1", "more", 60)
	if !slices.ContainsFunc(e.Blocks("n1"), func(b v1alpha1.PodIPBlock) bool {
		return blockIn(b, "10.1.0.0/24") && b.Name != "10.1.0.0-27"
	}) {
		t.Error("nothing was claimed from the range after Allocate")
	}
}

// draining returns an error unless the block drains for that reason.
func (e *env) draining(block string, want bool) error {
	b := &v1alpha1.PodIPBlock{}
	if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: block}, b); err != nil {
		return err
	}
	if got := meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockDraining); got != want {
		return fmt.Errorf("%s drains: %v, want %v", block, got, want)
	}
	return nil
}

// A drain requested in a block's spec can be undone; a deleted block drains as well.
func TestBlockDrains(t *testing.T) {
	for name, begin := range map[string]func(*env, *v1alpha1.PodIPBlock){
		"deleted": func(e *env, b *v1alpha1.PodIPBlock) { e.Delete(b) },
		"by its spec": func(e *env, b *v1alpha1.PodIPBlock) {
			set := func(drain bool) {
				was := b.DeepCopy()
				b.Spec.Drain = &drain
				e.Must(e.Client.Patch(e.Ctx, b, client.MergeFrom(was)))
				e.Eventually("the drain follows", func() error { return e.draining(b.Name, drain) })
			}
			set(true)
			set(false)
			set(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newServed(t)
			e.node("n1", nil)
			e.load("n1", "load", 40)
			e.hasBlocks("n1", 2)
			target := e.blockWithoutRouter("n1")
			begin(e, target)
			e.Eventually("the block drains, with a replacement", func() error {
				if n := len(e.Blocks("n1")); n != 3 {
					return fmt.Errorf("%d blocks", n)
				}
				return e.draining(target.Name, true)
			})
			e.usedArePublished("n1")
			e.DeletePods("load", nil)
			e.Gone(target)
		})
	}
}

// A drain that is taken back while its block cools down: the block serves again.
func TestDrainTakenBackInCooldown(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Cooldown = time.Hour
	s.Defaults.Policy.ReclaimDisabled = true
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.load("n1", "load", 40)
	e.hasBlocks("n1", 2)
	target := e.blockWithoutRouter("n1")
	e.DeletePods("load", nil)
	for _, want := range []v1alpha1.BlockPhase{v1alpha1.PhaseCoolingDown, v1alpha1.PhaseInService} {
		was := target.DeepCopy()
		target.Spec.Drain = new(want == v1alpha1.PhaseCoolingDown)
		e.Must(e.Client.Patch(e.Ctx, target, client.MergeFrom(was)))
		e.Eventually("the block is "+string(want), func() error {
			e.Must(e.Client.Get(e.Ctx, client.ObjectKeyFromObject(target), target))
			if target.Status.Phase != want {
				return fmt.Errorf("it is %s", target.Status.Phase)
			}
			return nil
		})
	}
	e.usedArePublished("n1")
}

func (e *env) blockWithoutRouter(node string) *v1alpha1.PodIPBlock {
	e.TB.Helper()
	cn := e.readCiliumNode(node)
	router := slices.IndexFunc(cn.Spec.Addresses, func(a ciliumv2.NodeAddress) bool { return a.Type == "CiliumInternalIP" })
	blocks := e.Blocks(node)
	i := slices.IndexFunc(blocks, func(b v1alpha1.PodIPBlock) bool {
		return !netip.MustParsePrefix(b.Spec.CIDR).Contains(netip.MustParseAddr(cn.Spec.Addresses[router].IP))
	})
	return &blocks[i]
}

func TestDeletedPoolWaitsForItsBlocks(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	p := e.pool("old", priority(10), "10.1.0.0/24")
	e.pool("new", nil, "10.2.0.0/24")
	a := e.node("n1", nil)
	e.ready(a)
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	e.Delete(p)
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonDeleting, "n1")
	e.awaitBlocks("a replacement from the other pool", "n1", 1, many, ofPool("new"))
	e.usedArePublished("n1")
	// The router's address keeps the old block until the node is deleted.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	e.Delete(n)
	e.Gone(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
}

// A pool that is phased out reports the number of blocks left, and finally that it can be deleted.
// It is never reported as exhausted.
func TestPoolPhasedOut(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("old", priority(10), "10.1.0.0/27")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("new", nil, "10.2.0.0/24")
	e.condition("new", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	drain := func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain }
	e.change("new", drain) // so that no pool can take over the node
	e.condition("new", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonEmpty)
	e.change("old", drain)
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonPhasingOut, "left: 1, on n1")
	e.condition("old", v1alpha1.PoolExhausted, metav1.ConditionFalse, poolcontroller.ReasonPhasingOut)
	e.eventSays("n1", event.ReasonPodAddressShortage, "no pool that serves this node")
	e.change("new", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationAllocate })
	e.awaitBlocks("node n1 holds a block of pool new", "n1", 1, many, ofPool("new"))
	// The addresses of the pool's agent stay until the Node is deleted.
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonEmpty)
	e.event("old", event.ReasonPoolEmpty)
}

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
	blockSays(e, first, "the agent on node n1, which has addresses of its own in it, has restarted")
	e.load("n1", "load", 20)

	// If the drain is no longer requested, it is undone, and the agent keeps its addresses.
	own := ownAddress(t, e, a)
	e.drain("all", v1alpha1.AllocationAllocate)
	e.onNode("no entry is left", "n1", func(cn *ciliumv2.CiliumNode) bool { return len(cn.Status.IPAM.ReleaseIPs) == 0 })
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
	e.awaitBlocks("nothing is left of the CIDR", "n1", 0, 0, inCIDR("10.1.0.0/24"))
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
func blockSays(e *env, cidr, text string) {
	e.TB.Helper()
	e.awaitBlocks("block "+cidr+" says "+text, "n1", 1, 1, func(b v1alpha1.PodIPBlock) bool {
		return b.Spec.CIDR == cidr && strings.Contains(fmt.Sprint(b.Status.Conditions), text)
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

// kubectl describe of a pool, a block and a Node says how they are, why, and how they came there.
func TestDescribeTellsTheStory(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/26")
	e.node("n1", nil)
	e.load("n1", "load", 40)
	e.hasBlocks("n1", 2)
	b := e.blockWithoutRouter("n1")
	was := b.DeepCopy()
	b.Spec.Drain = new(true)
	e.Must(e.Client.Patch(e.Ctx, b, client.MergeFrom(was)))
	e.Pods("n1", "more", 40)
	e.shortage("n1", corev1.ConditionTrue)
	claimed := "Normal BlockClaimed AGE cilium-pool-operator block " + b.Spec.CIDR + " of pool all on node n1: claimed, as the node wants "
	for object, want := range map[string][]string{
		"podippool/all": {
			"Message: pods wait on n1, and no pool that selects these nodes has a free block: see the condition Exhausted Observed Generation: 1 Reason: NodesShort Status: False Type: Ready",
			"Reason: NoFreeBlock Status: True Type: Exhausted",
			"Blocks: Assignable: 2 Cooling Down: 0 Draining: 0 Free: 0 Held: 2 In Service: 2",
			"Addresses: Assignable: 60 Cooling Down: 0 Draining: 0 Free: 0 Held: 60 In Service: 60 Used: ", "Held Percent: 100",
			"Warning PoolExhausted AGE cilium-pool-operator no free block left for ipv4",
			"Warning PodAddressShortage AGE cilium-pool-operator pods wait on n1, and no pool",
		},
		"podipblock/" + b.Name: {
			"Message: it must leave its node, and has not begun to Observed Generation: 2 Reason: DrainRequested Status: False Type: Draining",
			"Waits For: Message: a replacement: give a pool of n1 free blocks, or raise the limit of its blocks Reason: Replacement",
		},
		"node/n1": {
			"PoolsExhausted ipv4: no pool that serves this node (all) has a free block",
			claimed,
			"Normal DrainWaits AGE cilium-pool-operator block " + b.Spec.CIDR + " waits for Replacement: ",
		},
	} {
		e.Eventually("describe "+object, func() error {
			got := strings.Join(strings.Fields(e.kubectl("describe", object)), " ")
			got = regexp.MustCompile(` [0-9ms]+( \(x\d+ over [0-9ms]+\))? cilium-pool-operator `).ReplaceAllString(got, " AGE cilium-pool-operator ")
			i := slices.IndexFunc(want, func(text string) bool { return !strings.Contains(got, text) })
			if i < 0 {
				return nil
			}
			return fmt.Errorf("no %q in %s", want[i], got)
		})
	}
}
