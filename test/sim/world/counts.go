package world

import (
	"maps"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Counts count actions, faults and writes.
type Counts struct {
	// Ops are the actions performed and Faults the faults that occurred, by name. Did are the
	// operators' writes: claim, publish, mark, remove, move (a fence in a Node for a block that
	// cools down), drain, undrain, cool down, give up.
	Ops, Faults, Did map[string]int
	// Marks is the number of addresses marked for release. Lost is the number of pods that were not
	// restored because their address was marked: the window of the agent's protocol
	// (docs/reliability.md); LossyRestarts is the number of restarts of agents with such a loss.
	// LostByHand is the number of pods that lost their address because of users' deletions.
	Marks, Lost, LossyRestarts, LostByHand int
	// Steps are all actions, including those on the way to rest; StepsOfCRD those in crd mode.
	// Modelled is the sum over them of the share of all addresses, on each pair of nodes, that
	// was held to the model of the address protocol.
	Steps, StepsOfCRD int
	Modelled          float64
}

func newCounts() Counts {
	return Counts{Ops: map[string]int{}, Faults: map[string]int{}, Did: map[string]int{}}
}

// did records an operator's write.
func (c *Counts) did(v Version) {
	switch v.Kind {
	case KindBlock:
		c.didBlock(v)
	case KindNode:
		c.didNode(v)
	case KindCiliumPool:
		switch {
		case v.New == nil:
			c.Did["delete a CiliumPodIPPool"]++
		case v.Old == nil:
			c.Did["make a CiliumPodIPPool"]++
		default:
			c.Did["mend a CiliumPodIPPool"]++
		}
	case KindCiliumNode:
		c.didPublish(v)
		c.didRetire(v)
		old, _ := v.Old.(*ciliumv2.CiliumNode)
		now, _ := v.New.(*ciliumv2.CiliumNode)
		switch {
		case now == nil:
			c.Did["delete a CiliumNode"]++
		case old == nil:
			c.Did["make a CiliumNode"]++
		case len(now.Spec.IPAM.Pool) > len(old.Spec.IPAM.Pool), len(allocatedIn(now)) > len(allocatedIn(old)):
			c.Did["publish"]++
		case len(now.Spec.IPAM.Pool) < len(old.Spec.IPAM.Pool):
			c.Did["remove"]++
		case len(now.Status.IPAM.ReleaseIPs) > len(old.Status.IPAM.ReleaseIPs):
			c.Did["mark"]++
		}
	}
}

func (c *Counts) didNode(v Version) {
	for f, what := range [2]string{ipalloc.IPv4: "offer", ipalloc.IPv6: "offer IPv6"} {
		if f := ipalloc.Family(f); offerOf(v.Old.(*corev1.Node), f) != offerOf(v.New.(*corev1.Node), f) {
			c.Did[what]++
		}
	}
	before, after := podCIDRsOf(v.Old), podCIDRsOf(v.New)
	c.didPublishIPv6(before, after)
	switch {
	case len(after) > len(before):
		c.Did["publish"]++
	case !maps.Equal(v.Old.GetAnnotations(), v.New.GetAnnotations()):
		c.Did["move"]++
	}
}

// didPublishIPv6 counts IPv6 blocks that are assigned to an agent as a whole.
func (c *Counts) didPublishIPv6(before, after []netip.Prefix) {
	for _, cidr := range after {
		if cidr.Addr().Is6() && !slices.Contains(before, cidr) {
			c.Did["publish IPv6"]++
		}
	}
}

// didRetire counts addresses of agents that operators have retired.
func (c *Counts) didRetire(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if old == nil || now == nil {
		return
	}
	for addr, state := range now.Status.IPAM.ReleaseIPs {
		if state == "released" && old.Status.IPAM.ReleaseIPs[addr] != state {
			c.Did["retire"]++
		}
	}
}

// didPublish counts new entries of Cilium pools other than the default.
func (c *Counts) didPublish(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if old == nil || now == nil {
		return
	}
	c.didPublishIPv6(allocatedIn(old), allocatedIn(now))
	before := listedIn(old)
	for _, l := range listedIn(now) {
		if l.pool != crd.DefaultCiliumPool && !slices.Contains(before, l) {
			c.Did["publish for another pool"]++
		}
	}
}

func (c *Counts) didBlock(v Version) {
	phase := func(obj client.Object) string {
		b, _ := obj.(*v1alpha1.PodIPBlock)
		return phaseOf(b)
	}
	switch was, is := phase(v.Old), phase(v.New); {
	case v.Old == nil:
		c.Did["claim"]++
	case v.New == nil:
		c.Did["give up"]++
	case was == is && closedIn(v.New) != closedIn(v.Old):
		c.Did["close"]++
	case was == is:
		if is := heldFor(v.New); is != "" && is != heldFor(v.Old) {
			c.Did[is]++
		}
	case is == v1alpha1.BlockDraining:
		c.Did["drain"]++
		if movesOff(v.New.(*v1alpha1.PodIPBlock)) {
			c.Did["move off"]++
		}
	case is == v1alpha1.BlockCoolingDown:
		c.Did["cool down"]++
	case is == "":
		c.Did["undrain"]++
	}
}

// closedIn returns the run of an agent that has closed a block, and since when; "": none.
func closedIn(obj client.Object) string {
	if b, _ := obj.(*v1alpha1.PodIPBlock); b != nil && b.Status.Closed != nil {
		return b.Status.Closed.Container + b.Status.Closed.Since.String()
	}
	return ""
}

// heldFor returns the reason why a block that should drain waits, as in "hold for WaitsForWindow";
// "": nothing.
func heldFor(obj client.Object) string {
	b := obj.(*v1alpha1.PodIPBlock)
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining); c != nil && c.Status == metav1.ConditionFalse {
		return "hold for " + c.Reason
	}
	return ""
}

// Add adds the counts of another world.
func (c *Counts) Add(other Counts) {
	if c.Ops == nil {
		*c = newCounts()
	}
	for _, pair := range [][2]map[string]int{{c.Ops, other.Ops}, {c.Faults, other.Faults}, {c.Did, other.Did}} {
		for name, n := range pair[1] {
			pair[0][name] += n
		}
	}
	c.Marks += other.Marks
	c.Lost += other.Lost
	c.LossyRestarts += other.LossyRestarts
	c.LostByHand += other.LostByHand
	c.Steps += other.Steps
	c.StepsOfCRD += other.StepsOfCRD
	c.Modelled += other.Modelled
}
