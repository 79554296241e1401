package audit

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// reasonInvalid is the Ready reason of a pool with a spec that the operator rejects.
const reasonInvalid = "Invalid"

// pools checks pools, and whether there are agents at all.
func (c *check) pools(s *Snapshot) {
	for _, name := range slices.Sorted(maps.Keys(c.poolByName)) {
		obj, pool := c.specOf[name], c.poolByName[name]
		ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolReady)
		stale := ready == nil || obj.Status.ObservedGeneration < obj.Generation
		switch {
		case c.unsound[name] != nil:
			c.found(PoolInvalid, poolObject(name), "%s", strings.ReplaceAll(c.unsound[name].Error(), "\n", "; "))
		case !stale && ready.Status == metav1.ConditionFalse && ready.Reason == reasonInvalid:
			c.found(PoolInvalid, poolObject(name), "%s", ready.Message)
		}
		if stale {
			c.found(PoolStatusStale, poolObject(name), "its spec is of generation %d, its status of %d", obj.Generation, obj.Status.ObservedGeneration)
		}
		full := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolExhausted)
		if !stale && full != nil && full.Status == metav1.ConditionTrue && !pool.Deleting && givesOut(pool) {
			c.found(PoolExhausted, poolObject(name), "%s", full.Message)
		}
		c.closed(pool)
		c.covers(pool)
		c.masqueraded(s, pool)
		c.selects(obj)
		c.public(obj, pool)
	}
	c.ciliumConfig(s)
	c.noAgents()
}

// noAgents reports that Nodes hold blocks, and none has an agent.
func (c *check) noAgents() {
	held := 0
	for i := range c.blocks {
		if n := c.byName[c.blocks[i].Node]; n != nil && n.obj != nil && !n.optedOut {
			held++
		}
	}
	if held > 0 && !c.anyAgent {
		c.found(NoAgentsFound, Object{Kind: "DaemonSet", Name: "cilium"}, "Nodes hold %d blocks, and no pod of an agent was found", held)
	}
}

// closed reports the CIDRs that are unused because another pool contains them.
func (c *check) closed(pool *crd.Pool) {
	for _, r := range pool.AllRanges() {
		if r.ClosedBy != "" {
			c.add(Finding{Reason: PoolsOverlap, Object: poolObject(pool.Name), Others: []Object{poolObject(r.ClosedBy)}, Subject: r.CIDR,
				Note: "overlaps " + r.Overlap.String(), Says: "assigns nothing, as PodIPPool " + r.ClosedBy + " does"})
		}
	}
}

// masqueraded reports the ranges of a pool that agents masquerade.
func (c *check) masqueraded(s *Snapshot, pool *crd.Pool) {
	for _, m := range s.CiliumConfig.Masqueraded(pool) {
		for _, cidr := range m.CIDRs {
			c.add(Finding{Reason: PoolMasqueraded, Object: poolObject(pool.Name), Subject: cidr, Says: m.Says})
		}
	}
}

// ciliumConfig checks how agents are configured.
func (c *check) ciliumConfig(s *Snapshot) {
	about := Object{Kind: "ConfigMap", Namespace: c.CiliumNamespace, Name: ciliumconfig.Name}
	others, _ := c.cluster.OtherModes(s.Nodes)
	for _, o := range others {
		c.found(CiliumModeDiffers, about, "%s", o.Says(s.Mode))
	}
	if s.Mode.String() == string(ciliumnode.CRD) && s.CiliumConfig.LosesRoutes() {
		c.found(KVStoreWithoutRoutes, about, "%s", ciliumconfig.LosingRoutes)
	}
}

// selects checks the labels that a pool selects nodes by.
func (c *check) selects(obj *v1alpha1.PodIPPool) {
	keys := crd.KubeletLabels(obj.Spec.NodeSelector)
	if len(keys) == 0 || obj.Annotations[v1alpha1.TrustedLabelsAnnotation] == "true" {
		return
	}
	c.found(PoolChosenByKubelet, poolObject(obj.Name), "its nodeSelector uses %s, which a kubelet may set on its own Node", strings.Join(keys, ", "))
}

// public reports ranges that may be other people's.
func (c *check) public(obj *v1alpha1.PodIPPool, pool *crd.Pool) {
	if obj.Annotations[v1alpha1.OwnRangesAnnotation] == "true" {
		return
	}
	for _, cidr := range pool.PublicRanges() {
		c.add(Finding{Reason: PoolRangePublic, Object: poolObject(pool.Name), Subject: cidr, Says: "neither private nor shared address space"})
	}
}

// givesOut reports whether blocks may be claimed from the pool.
func givesOut(pool *crd.Pool) bool {
	families := ipalloc.Families()
	return slices.ContainsFunc(families[:], func(f ipalloc.Family) bool {
		_, ok := pool.Cut(f)
		return ok
	})
}
