package integration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func priority(n int32) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) { p.Spec.Priority = n }
}

func zone(z string) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": z}}
	}
}

// change edits a pool.
func (e *env) change(name string, mod func(*v1alpha1.PodIPPool)) {
	e.TB.Helper()
	e.Eventually("edit of pool "+name, func() error {
		p := &v1alpha1.PodIPPool{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		mod(p)
		return e.Client.Update(e.Ctx, p)
	})
}

// condition waits until a pool's condition has that status and reason; "" is any.
func (e *env) condition(pool, kind string, status metav1.ConditionStatus, reason string) string {
	e.TB.Helper()
	var message string
	e.Eventually(fmt.Sprintf("pool %s is %s=%s for %s", pool, kind, status, reason), func() error {
		p := &v1alpha1.PodIPPool{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: pool}, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil || c.Status != status || reason != "" && c.Reason != reason || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("conditions are %v", p.Status.Conditions)
		}
		message = c.Message
		return nil
	})
	return message
}

// event waits for an event about an object.
func (e *env) event(name, reason string) {
	e.TB.Helper()
	e.eventSays(name, reason, "")
}

// eventSays waits for an event about an object whose note holds a text.
func (e *env) eventSays(name, reason, text string) {
	e.TB.Helper()
	e.Eventually("event "+reason+" on "+name+" "+text, func() error {
		list := &eventsv1.EventList{}
		if err := e.Client.List(e.Ctx, list); err != nil {
			return err
		}
		var seen []string
		for _, ev := range list.Items {
			if ev.Regarding.Name == name {
				if ev.Reason == reason && strings.Contains(ev.Note, text) {
					return nil
				}
				seen = append(seen, ev.Reason+": "+ev.Note)
			}
		}
		return fmt.Errorf("only %v", seen)
	})
}

func blockIn(b v1alpha1.PodIPBlock, cidr string) bool {
	return netip.MustParsePrefix(cidr).Contains(netip.MustParsePrefix(b.Spec.CIDR).Addr())
}

// blocksIn counts the blocks of a node in a CIDR.
func (e *env) blocksIn(node, cidr string) int {
	e.TB.Helper()
	return len(slices.DeleteFunc(e.Blocks(node), func(b v1alpha1.PodIPBlock) bool { return !blockIn(b, cidr) }))
}

func TestPoolsByZone(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("beijing", zone("beijing"), "100.162.224.0/24")
	e.pool("shanghai", zone("shanghai"), "100.200.0.0/24")
	e.node("b1", map[string]string{"zone": "beijing"})
	e.node("s1", map[string]string{"zone": "shanghai"})
	e.bareNode("elsewhere", map[string]string{"zone": "lhasa"})
	e.hasBlocks("b1", 1)
	e.hasBlocks("s1", 1)
	if b := e.Blocks("b1")[0]; !blockIn(b, "100.162.224.0/24") {
		t.Errorf("b1 has %s", b.Spec.CIDR)
	}
	if b := e.Blocks("s1")[0]; !blockIn(b, "100.200.0.0/24") {
		t.Errorf("s1 has %s", b.Spec.CIDR)
	}
	e.shortage("elsewhere", corev1.ConditionTrue)
	e.eventSays("elsewhere", event.ReasonNoPoolSelectsNode, "no PodIPPool selects this node")
	if _, err := e.ciliumNode("elsewhere"); !apierrors.IsNotFound(err) {
		t.Errorf("a node of no pool has a CiliumNode: %v", err)
	}
}

func TestExhaustedPoolSpillsAndRecovers(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("first", priority(10), "10.1.0.0/27")
	e.pool("second", nil, "10.2.0.0/27")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.condition("first", v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted)
	e.event("first", event.ReasonPoolExhausted)
	e.Pods("n1", "load", 45)
	e.running("load", 45)
	e.hasBlocks("n1", 2)
	e.condition("second", v1alpha1.PoolExhausted, metav1.ConditionTrue, poolcontroller.ReasonExhausted)

	e.Pods("n1", "more", 40) // 86 with the router, of 60
	e.shortage("n1", corev1.ConditionTrue)
	e.event("n1", event.ReasonPodAddressShortage)
	e.change("first", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.3.0.0/24"})
	})
	e.running("more", 40)
	e.shortage("n1", corev1.ConditionFalse)
	e.condition("first", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	e.event("first", event.ReasonPoolRecovered)
}

// shortage waits for the Node condition.
func (e *env) shortage(node string, status corev1.ConditionStatus) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("node %s has %s=%s", node, v1alpha1.NodeAddressShortage, status), func() error {
		n := &corev1.Node{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1alpha1.NodeAddressShortage && c.Status == status {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", n.Status.Conditions)
	})
}

func TestShortageTaint(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.ShortageTaint = "example.org/no-addresses"
	e.start(s)
	e.pool("tiny", nil, "10.1.0.0/27")
	e.node("n1", nil)
	e.Pods("n1", "load", 40)
	tainted := func(want bool) {
		t.Helper()
		e.Eventually(fmt.Sprintf("taint is %v", want), func() error {
			n := &corev1.Node{}
			if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
				return err
			}
			has := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.org/no-addresses" })
			if has != want {
				return fmt.Errorf("taints are %v", n.Spec.Taints)
			}
			return nil
		})
	}
	tainted(true)
	e.DeletePods("load", nil)
	tainted(false)
}

func TestCIDRSetToDrainIsReplacedFirst(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain })
	e.Eventually("replacements are there", func() error {
		if in := e.blocksIn("n1", "10.2.0.0/24"); in < 2 {
			return fmt.Errorf("%d blocks in the other range", in)
		}
		return nil
	})
	// Both have waited for a replacement before. The agent may not have reported yet
	// that the router's address is in this one.
	e.eventSays("n1", event.ReasonDrainWaits, "block 10.1.0.0/27 waits for AgentRestart ")
	e.eventSays("n1", event.ReasonDrainWaits, "block 10.1.0.32/27 waits for Pods default/load-n1-")
	e.DeletePods("load", nil)
	e.Eventually("only the router's block is left in the draining range", func() error {
		if in := e.blocksIn("n1", "10.1.0.0/24"); in > 1 {
			return fmt.Errorf("%d blocks are", in)
		}
		return nil
	})
	e.usedArePublished("n1")
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationAllocate })
	e.Eventually("a drain that is no longer requested ends", func() error {
		for _, b := range e.Blocks("n1") {
			if blockIn(b, "10.1.0.0/24") && len(b.Status.Conditions) > 0 {
				return fmt.Errorf("%s: %v", b.Name, b.Status.Conditions)
			}
		}
		return nil
	})
}

// A node keeps its blocks of a cordoned range, including those whose drain is undone;
// further blocks come from other ranges.
func TestCordonedCIDRGivesNoNewBlocks(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.IdleFor = time.Hour
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	set := func(policy v1alpha1.AllocationPolicy) {
		e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = policy })
	}
	// The block has a replacement and drains, until the agent's own address is gone.
	set(v1alpha1.AllocationDrain)
	e.Eventually("the first block drains", func() error { return e.draining("10.1.0.0-27", true) })
	set(v1alpha1.AllocationCordon)
	e.Eventually("the drain ends with the request for it", func() error { return e.draining("10.1.0.0-27", false) })
	e.Pods("n1", "load", 70)
	e.running("load", 70)
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
	set(v1alpha1.AllocationAllocate)
	e.Pods("n1", "more", 60)
	e.running("more", 60)
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

func TestBlockDeletedByHandDrains(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	router := ""
	cn := e.theCiliumNode("n1")
	for _, a := range cn.Spec.Addresses {
		if a.Type == "CiliumInternalIP" {
			router = a.IP
		}
	}
	var target v1alpha1.PodIPBlock
	for _, b := range e.Blocks("n1") {
		if !netip.MustParsePrefix(b.Spec.CIDR).Contains(netip.MustParseAddr(router)) {
			target = b
		}
	}
	e.Delete(&target)
	e.Eventually("the block drains, with a replacement", func() error {
		b := &v1alpha1.PodIPBlock{}
		if err := e.Client.Get(e.Ctx, client.ObjectKeyFromObject(&target), b); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockDraining) {
			return fmt.Errorf("conditions are %v", b.Status.Conditions)
		}
		if n := len(e.Blocks("n1")); n != 3 {
			return fmt.Errorf("%d blocks", n)
		}
		return nil
	})
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	e.Gone(&target)
}

func TestBlockMadeByHandIsPinned(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.Reclaim.Mode = v1alpha1.ReclaimNever }, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.192-27"},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.1.0.192/27", PoolName: "all", NodeName: "n1"},
	})
	e.hasBlocks("n1", 2)
	e.Eventually("it has the finalizer", func() error {
		b := &v1alpha1.PodIPBlock{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "10.1.0.192-27"}, b); err != nil {
			return err
		}
		if len(b.Finalizers) != 1 {
			return fmt.Errorf("finalizers are %v", b.Finalizers)
		}
		return nil
	})
}

// TestOverlappingBlockIsNeverPublished: the checker judges each version of both
// CiliumNodes meanwhile, so that nothing of the block is published or listed for a moment.
func TestOverlappingBlockIsNeverPublished(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.node("n2", nil)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 1)
	before := map[string]*ciliumv2.CiliumNode{"n1": e.theCiliumNode("n1"), "n2": e.theCiliumNode("n2")}
	made := e.breaks(1, "PodIPBlock 10.1.0.0-25", "made for node n2 while")
	gone := e.breaks(1, "PodIPBlock 10.1.0.0-25", "deleted while")
	e.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.0-25"},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.1.0.0/25", PoolName: "all", NodeName: "n2"},
	})
	made()
	e.event("10.1.0.0-25", event.ReasonBlockConflict)
	e.Pods("n2", "load", 40) // more than its block holds
	e.Gone(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.0-25"}})
	gone()
	e.running("load", 40)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 2)
	for name, cn := range before {
		after := e.theCiliumNode(name)
		if after.UID != cn.UID || !slices.Equal(after.Spec.IPAM.PodCIDRs[:1], cn.Spec.IPAM.PodCIDRs) {
			t.Errorf("podCIDRs of %s are %v, and were %v", name, after.Spec.IPAM.PodCIDRs, cn.Spec.IPAM.PodCIDRs)
		}
	}
}

func TestDeletedPoolWaitsForItsBlocks(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	p := e.pool("old", priority(10), "10.1.0.0/24")
	e.pool("new", nil, "10.2.0.0/24")
	a := e.node("n1", nil)
	e.Must(a.WaitReady(e.Ctx))
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	e.Delete(p)
	if m := e.condition("old", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonDeleting); !strings.Contains(m, "n1") {
		t.Errorf("the message names no node: %s", m)
	}
	e.Eventually("a replacement from the other pool", func() error {
		for _, b := range e.Blocks("n1") {
			if b.Spec.PoolName == "new" {
				return nil
			}
		}
		return fmt.Errorf("none")
	})
	e.usedArePublished("n1")
	// The router's address keeps the old block until the node goes.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	e.Delete(n)
	e.Gone(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
}

func TestOverlappingPools(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("older", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("younger", priority(10), "10.1.0.0/16", "10.9.0.0/26")
	if m := e.condition("younger", v1alpha1.PoolOverlapping, metav1.ConditionTrue, poolcontroller.ReasonOverlapping); !strings.Contains(m, "older") {
		t.Errorf("the message names no winner: %s", m)
	}
	e.event("younger", event.ReasonPoolOverlapping)
	e.condition("older", v1alpha1.PoolOverlapping, metav1.ConditionFalse, poolcontroller.ReasonSeparate)
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	if b := e.Blocks("n2")[0]; !blockIn(b, "10.9.0.0/26") {
		t.Errorf("n2 has %s, want one from the range that does not overlap", b.Spec.CIDR)
	}
}

func TestReservedOverAddressesInUse(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.Pods("n1", "load", 10)
	e.running("load", 10)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Reserved = []v1alpha1.ReservedCIDR{{CIDR: "10.1.0.0/28"}} })
	reserved := netip.MustParsePrefix("10.1.0.0/28")
	onlyUsed := func() error {
		cn, err := e.ciliumNode("n1")
		if err != nil {
			return err
		}
		used := e.held("n1")
		for key := range cn.Spec.IPAM.Pool {
			addr := netip.MustParseAddr(key)
			if _, inUse := used[addr]; reserved.Contains(addr) && !inUse {
				return fmt.Errorf("%s is still published", addr)
			}
		}
		return nil
	}
	e.Eventually("unused reserved addresses leave", onlyUsed)
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	e.Eventually("the rest follows its pods", onlyUsed)
}

func TestEdgeOfABlockNoLongerAllowed(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.AllowFirstIP, p.Spec.IPv4.AllowLastIP = true, true }, "10.1.0.0/27")
	e.node("n1", nil)
	e.Pods("n1", "load", 31) // with the router all of it, edges and all
	e.running("load", 31)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.AllowFirstIP, p.Spec.IPv4.AllowLastIP = false, false })
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.2.0.0/24"})
	})
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	router := e.held("n1")
	e.eventuallyOn("the first and last address leave once unused", "n1", func(cn *ciliumv2.CiliumNode) error {
		for _, edge := range []string{"10.1.0.0", "10.1.0.31"} {
			_, published := cn.Spec.IPAM.Pool[edge]
			if _, used := router[netip.MustParseAddr(edge)]; published && !used {
				return fmt.Errorf("%s is still published", edge)
			}
		}
		return nil
	})
}

func TestPause(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.Paused = true }, "10.1.0.0/24")
	e.pool("other", priority(-1), "10.2.0.0/24")
	e.pool("probe", func(p *v1alpha1.PodIPPool) { zone("probe")(p); priority(1)(p) }, "10.3.0.0/24")
	e.bareNode("n1", nil)
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonPaused)
	if got := e.Blocks(""); len(got) != 0 {
		t.Errorf("blocks were claimed on a node of a paused pool: %v", got)
	}
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} })
	e.bareNode("probe", map[string]string{"zone": "probe"})
	e.hasBlocks("probe", 1) // by now the operator has seen that
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Paused = false })
	e.bareNode("n2", nil)
	e.hasBlocks("n2", 1)
	if got := e.Blocks("n1"); len(got) != 0 {
		t.Errorf("blocks were claimed on a paused node: %v", got)
	}
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = nil })
	e.hasBlocks("n1", 1)
}

// A threshold that contradicts the operator's flags is reported, and stops no node:
// neither in a pool that served before, nor after a restart with other flags.
func TestWrongThresholdStopsNoNode(t *testing.T) {
	e := newEnv(t)
	op := e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	// 40 is below the default of reclaim, which this object does not state.
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Expand.ThresholdPercent = ptr.To[int32](40) })
	if m := e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid); !strings.Contains(m, "spec.reclaim.thresholdPercent") {
		t.Errorf("the message names no field: %s", m)
	}
	e.event("all", event.ReasonPoolInvalid)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	op.stop()
	s := quick()
	s.Defaults.Policy.ReclaimPercent = 60
	e.start(s)
	e.Pods("n1", "more", 40)
	e.running("more", 40)
}

// A new pool that outranks the others, but whose spec is invalid, takes no addresses
// from any node.
func TestNewInvalidPoolFreezesNoNode(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("good", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("strict", func(p *v1alpha1.PodIPPool) {
		p.Spec.Priority, p.Spec.Reclaim.ThresholdPercent = 10, ptr.To[int32](85)
	}, "10.2.0.0/24")
	e.condition("strict", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid)
	// Another pool assigns all CIDRs of this one.
	e.pool("closed", priority(20), "10.1.0.0/25")
	e.condition("closed", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonOverlapping)
	e.Pods("n1", "load", 60)
	e.running("load", 60)
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	for _, b := range e.Blocks("") {
		if b.Spec.PoolName == "closed" {
			t.Errorf("block %s is of pool closed", b.Spec.CIDR)
		}
	}
}

// A paused node reports that its pods lack addresses, until they have them.
func TestPausedNodeReportsShortage(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} })
	e.Pods("n1", "load", 60)
	e.shortage("n1", corev1.ConditionTrue)
	e.eventSays("n1", event.ReasonPodAddressShortage, "the Node is paused")
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = nil })
	e.running("load", 60)
	e.shortage("n1", corev1.ConditionFalse)
}

// A pool that is phased out reports how many blocks are left, and finally that it can
// be deleted. It is never reported as exhausted.
func TestPoolPhasedOut(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("old", priority(10), "10.1.0.0/27")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.pool("new", nil, "10.2.0.0/24")
	e.condition("new", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	drain := func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain }
	e.change("new", drain) // so that nothing can take the node over
	e.condition("new", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonEmpty)
	e.change("old", drain)
	m := e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonPhasingOut)
	if !strings.Contains(m, "left: 1, on n1") {
		t.Errorf("the message says %q", m)
	}
	e.condition("old", v1alpha1.PoolExhausted, metav1.ConditionFalse, poolcontroller.ReasonPhasingOut)
	e.eventSays("n1", event.ReasonPodAddressShortage, "no pool that serves this node")
	e.change("new", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationAllocate })
	e.Eventually("node n1 holds a block of pool new", func() error {
		for _, b := range e.Blocks("n1") {
			if b.Spec.PoolName == "new" {
				return nil
			}
		}
		return fmt.Errorf("blocks are %v", e.Blocks("n1"))
	})
	// The addresses of its agent stay until the Node is deleted.
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	e.condition("old", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonEmpty)
	e.event("old", event.ReasonPoolEmpty)
}
