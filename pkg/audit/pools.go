package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

const (
	// reasonInvalid is the Ready reason of a pool with a spec that the operator rejects.
	reasonInvalid = "Invalid"
	// reasonOtherSize is the reason of CiliumPodIPPoolReady that harms only where Cilium announces pools by BGP.
	reasonOtherSize = "OtherSize"
)

// poolCheck checks one pool.
type poolCheck struct {
	index *index
	*findings

	obj  *v1alpha1.PodIPPool
	pool *crd.Pool
}

// about begins a finding about the pool; subject may be invalid.
func (c *poolCheck) about(subject netip.Prefix) Finding {
	return Finding{Object: poolObject(c.obj.Name), Subject: subject}
}

func (c *poolCheck) check() {
	before := len(c.found)
	c.status()
	c.selector()
	c.ranges()
	c.ready(c.found[before:])
	keys := crd.KubeletLabels(c.obj.Spec.NodeSelector)
	if len(keys) > 0 && c.obj.Annotations[v1alpha1.TrustedLabelsAnnotation] != "true" {
		c.add(PoolChosenByKubelet, c.about(netip.Prefix{}), "its nodeSelector uses %s, which a kubelet may set on its own Node", strings.Join(keys, ", "))
	}
}

// selector reports a selector that picks no Node, unless the pool phases out.
func (c *poolCheck) selector() {
	nodes := c.index.snapshot.Nodes
	if len(nodes) == 0 || c.pool.Selector.Empty() || c.pool.Deleting || !mayClaimFrom(c.pool) || c.pool.CountSelected(nodes) > 0 {
		return
	}
	c.add(PoolSelectsNoNode, c.about(netip.Prefix{}), "its nodeSelector picks none of %s: %s", suggest.Count(len(nodes), "Node"), c.pool.SelectsNone(nodes))
}

// status checks the spec and the operator's report on it.
func (c *poolCheck) status() {
	pool := c.about(netip.Prefix{})
	ready := meta.FindStatusCondition(c.obj.Status.Conditions, v1alpha1.PoolReady)
	stale := ready == nil || c.obj.Status.ObservedGeneration < c.obj.Generation
	if err := c.index.cluster.Pools.Invalid(c.obj.Name); err != nil {
		c.add(PoolInvalid, pool, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	} else if !stale && ready.Status == metav1.ConditionFalse && ready.Reason == reasonInvalid {
		c.add(PoolInvalid, pool, "%s", ready.Message)
	}
	if stale {
		c.add(PoolStatusStale, pool, "its spec is of generation %d, its status of %d", c.obj.Generation, c.obj.Status.ObservedGeneration)
	}
	full := meta.FindStatusCondition(c.obj.Status.Conditions, v1alpha1.PoolExhausted)
	if !stale && full != nil && full.Status == metav1.ConditionTrue && !c.pool.Deleting && mayClaimFrom(c.pool) {
		c.add(PoolExhausted, pool, "%s%s", c.waitingWords(), full.Message)
		if w := c.index.waiting[c.obj.Name]; w != nil {
			w.reported = true
		}
	}
	if !stale {
		c.ciliumPool()
		c.families()
	}
}

// families reports that agents run only one of the pool's families.
func (c *poolCheck) families() {
	served := meta.FindStatusCondition(c.obj.Status.Conditions, v1alpha1.PoolFamiliesServed)
	if served != nil && served.Status == metav1.ConditionFalse {
		c.add(PoolFamilyNotRun, c.about(netip.Prefix{}), "%s", served.Message)
	}
}

// ready reports a pool that is not Ready, unless a finding about it says why.
func (c *poolCheck) ready(found []Finding) {
	ready := meta.FindStatusCondition(c.obj.Status.Conditions, v1alpha1.PoolReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || slices.ContainsFunc(found, func(f Finding) bool {
		return f.Reason == PoolInvalid || f.Reason == PoolStatusStale || f.Reason == PoolsOverlap || f.Reason == PoolExhausted
	}) {
		return
	}
	c.add(PoolNotReady, c.about(netip.Prefix{}), "%s: %s", ready.Reason, ready.Message)
}

// waitingWords begins the message about a full pool with the number of nodes that wait for a block of it; "": none.
func (c *poolCheck) waitingWords() string {
	w := c.index.waiting[c.obj.Name]
	if w == nil {
		return ""
	}
	return fmt.Sprintf("pods on %s wait for %s: ", suggest.Count(w.nodes, "Node"), suggest.Plural(w.addresses, "address", "addresses"))
}

// ciliumPool checks the operator's report on the CiliumPodIPPool.
func (c *poolCheck) ciliumPool() {
	fit := meta.FindStatusCondition(c.obj.Status.Conditions, v1alpha1.PoolCiliumPool)
	if fit == nil || fit.Status != metav1.ConditionFalse {
		return
	}
	snapshot := c.index.snapshot
	announced := slices.ContainsFunc(snapshot.Nodes, func(node corev1.Node) bool {
		return snapshot.CiliumConfig.Setting(node.Labels, "enable-bgp-control-plane") == "true"
	})
	if fit.Reason == reasonOtherSize && !announced {
		return
	}
	c.add(CiliumPodIPPoolUnfit, c.about(netip.Prefix{}), "%s", fit.Message)
}

// ranges reports ranges that are unused because another pool contains them, that agents masquerade,
// that may be other people's, and the addresses of nodes and Services in them.
func (c *poolCheck) ranges() {
	for _, r := range c.pool.AllRanges() {
		if r.YieldsTo != "" {
			f := c.about(r.CIDR)
			f.Others = []Object{poolObject(r.YieldsTo)}
			f.Note = "overlaps " + r.Overlap.String()
			c.add(PoolsOverlap, f, "assigns nothing, as PodIPPool %s does", r.YieldsTo)
		}
	}
	for _, m := range c.index.snapshot.CiliumConfig.Masqueraded(c.pool) {
		for _, cidr := range m.CIDRs {
			c.add(PoolMasqueraded, c.about(cidr), "%s", m.Message)
		}
	}
	if c.obj.Annotations[v1alpha1.OwnRangesAnnotation] != "true" {
		for _, cidr := range c.pool.PublicRanges() {
			c.add(PoolRangePublic, c.about(cidr), "neither private nor shared address space")
		}
	}
	c.excluded()
	for _, family := range ipalloc.Families() {
		sums, _ := c.pool.FullCut(family)
		for _, r := range c.index.snapshot.Neighbors.InAll(sums.Ranges) {
			if ipalloc.Covered(r.CIDR, c.pool.Skipped(family)) {
				continue
			}
			f := c.about(r.CIDR)
			f.Note = "of " + r.By.String()
			c.add(PoolCoversCluster, f, "the operator does not withhold this address: pods can get it, too")
		}
	}
	for _, r := range c.index.cluster.Ledger.Exclusions.SharedWith(c.pool) {
		f := c.about(r.CIDR)
		f.Note = "of " + r.By.String()
		c.add(PoolCoversCluster, f, "objects ask for more than a quarter of the blocks of a CIDR: pods can get this address, too")
	}
}

// excluded reports the addresses of nodes and Services that the operator withholds from pods.
func (c *poolCheck) excluded() {
	message := "no pod gets these addresses of nodes or Services"
	observed := isObserved(c.obj)
	if observed {
		message = "a pod can get one of these addresses of nodes or Services"
	} else if c.pool.WholeBlocks {
		message = "no node gets a block with one of these addresses of nodes or Services"
	}
	for _, r := range c.index.cluster.Ledger.Exclusions.ExcludedFrom(c.pool) {
		f := c.about(r.CIDR)
		f.Note = "of " + r.By.String()
		if blocks := c.index.cluster.Ledger.HeldIn(r.CIDR); observed && len(blocks) > 0 && !r.Asked() {
			f.Object = nodeObject(blocks[0].Owner.Node)
			c.add(ClusterAddressRouted, f, "has %s, and other nodes route it there", blocks[0].CIDR)
			continue
		}
		c.add(PoolCoversCluster, f, "%s", message)
	}
}

// isObserved reports whether a pool describes ranges of another IPAM.
func isObserved(pool *v1alpha1.PodIPPool) bool {
	ready := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolReady)
	return ready != nil && ready.Reason == clusterread.ReasonObserved
}

// mayClaimFrom reports whether blocks may be claimed from the pool.
func mayClaimFrom(pool *crd.Pool) bool {
	families := ipalloc.Families()
	return slices.ContainsFunc(families[:], func(f ipalloc.Family) bool {
		_, ok := pool.Cut(f)
		return ok
	})
}

// checkCilium checks how agents are configured, and whether there are agents at all.
func checkCilium(x *index, found *findings) {
	s := x.snapshot
	finding := Finding{Object: Object{Kind: "ConfigMap", Namespace: x.settings.AgentNamespace, Name: ciliumconfig.Name}}
	modes, _ := x.cluster.OtherModes(s.Nodes)
	for _, o := range modes {
		found.add(CiliumModeDiffers, finding, "%s", o.Describe(s.Mode))
	}
	if s.Mode.RoutesByCiliumNode() && s.CiliumConfig.LosesRoutes() {
		found.add(KVStoreWithoutRoutes, finding, "%s", ciliumconfig.LosingRoutes)
	}
	blocks := 0
	for i := range x.allBlocks {
		if n := x.byName[x.allBlocks[i].Node]; n != nil && n.obj != nil && !n.optedOut {
			blocks++
		}
	}
	if blocks > 0 && !x.anyAgent {
		found.add(NoAgentsFound, Finding{Object: Object{Kind: "DaemonSet", Name: "cilium"}}, "Nodes hold %d blocks, and no pod of an agent was found", blocks)
	}
}
