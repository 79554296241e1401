package world

import (
	"maps"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Counts count actions and writes.
type Counts struct {
	// Ops are the actions performed, by name, and Did the operators' writes: claim, publish, mark,
	// remove, retire, park, move (a fence in a Node for a block that cools down), drain, undrain,
	// cool down, give up, offer.
	Ops, Did map[string]int
	// Marks is the number of addresses marked for release. Lost is the number of pods that were not
	// restored because their address was marked: the window of the agent's protocol
	// (docs/reliability.md); LossyRestarts is the number of restarts of agents with such a loss.
	// LostByHand is the number of pods that lost their address because of users' deletions.
	Marks, Lost, LossyRestarts, LostByHand int
	// Steps are all actions, including those on the way to rest; Comparable those in crd and multi-pool
	// mode. Modelled is the sum over them of the share of all addresses or blocks, on each pair of
	// nodes, that was held to the model of the address protocol.
	Steps, Comparable int
	Modelled          float64
}

// NewCounts returns counts of nothing.
func NewCounts() Counts { return Counts{Ops: map[string]int{}, Did: map[string]int{}} }

// did records an operator's write.
func (c *Counts) did(v Version) {
	switch v.Kind {
	case KindBlock:
		c.didBlock(v)
	case KindNode:
		if len(podCIDRsOf(v.New)) > len(podCIDRsOf(v.Old)) {
			c.Did["publish"]++
		} else if !maps.Equal(v.Old.GetAnnotations(), v.New.GetAnnotations()) {
			c.Did["move"]++
		}
		offer := func(o client.Object) int { return offerOf(o.(*corev1.Node), ipalloc.IPv4, crd.DefaultCiliumPool) }
		if offer(v.Old) != offer(v.New) {
			c.Did["offer"]++
		}
	case KindCiliumPool, KindCiliumNode:
		switch {
		case v.New == nil:
			c.Did["delete a "+v.Kind.String()]++
		case v.Old == nil:
			c.Did["make a "+v.Kind.String()]++
		case v.Kind == KindCiliumNode:
			c.didCiliumNode(v.Old.(*ciliumv2.CiliumNode), v.New.(*ciliumv2.CiliumNode))
		}
	}
}

func (c *Counts) didCiliumNode(old, now *ciliumv2.CiliumNode) {
	for addr, state := range now.Status.IPAM.ReleaseIPs {
		if state == "released" && old.Status.IPAM.ReleaseIPs[addr] != state {
			c.Did["retire"]++
		}
	}
	if len(parkedIn(now)) > len(parkedIn(old)) {
		c.Did["park"]++
	}
	switch {
	case len(now.Spec.IPAM.Pool) > len(old.Spec.IPAM.Pool), len(allocatedIn(now)) > len(allocatedIn(old)):
		c.Did["publish"]++
	case len(now.Spec.IPAM.Pool) < len(old.Spec.IPAM.Pool):
		c.Did["remove"]++
	case len(now.Status.IPAM.ReleaseIPs) > len(old.Status.IPAM.ReleaseIPs):
		c.Did["mark"]++
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
	case was == is:
	case is == v1alpha1.BlockDraining:
		c.Did["drain"]++
	case is == v1alpha1.BlockCoolingDown:
		c.Did["cool down"]++
	default:
		c.Did["undrain"]++
	}
}

// Add adds the counts of another world.
func (c *Counts) Add(other Counts) {
	for name, n := range other.Ops {
		c.Ops[name] += n
	}
	for name, n := range other.Did {
		c.Did[name] += n
	}
	c.Marks += other.Marks
	c.Lost += other.Lost
	c.LossyRestarts += other.LossyRestarts
	c.LostByHand += other.LostByHand
	c.Steps += other.Steps
	c.Comparable += other.Comparable
	c.Modelled += other.Modelled
}
