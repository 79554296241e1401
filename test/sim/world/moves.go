package world

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// mustMove reports whether a block's pool no longer selects its node and drains such blocks,
// and another pool serves the node.
func (w *World) mustMove(b *v1alpha1.PodIPBlock, pool *crd.Pool) bool {
	node, ok := w.api.Get(KindNode, b.Spec.NodeName).(*corev1.Node)
	if !ok || !pool.DrainUnselected || w.whole() || w.fixed() || w.selects(w.api.Get(KindPool, pool.Name).(*v1alpha1.PodIPPool), node.Name) {
		return false
	}
	_, ruling := w.policy(node.Name, netip.MustParsePrefix(b.Spec.CIDR).Addr().Is4())
	return ruling != "" && len(node.Spec.Taints) == 0
}

// movesOff reports whether a block drains because its pool does not select its node.
func movesOff(b *v1alpha1.PodIPBlock) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
	return phaseOf(b) == v1alpha1.BlockDraining && c.Reason == v1alpha1.ReasonNodeUnselected
}

// othersMove reports whether as many other nodes as allowed are moving off the pool of a block.
// Those that find no replacement keep their places.
func (w *World) othersMove(b *v1alpha1.PodIPBlock) bool {
	obj, ok := w.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return false
	}
	if pool, _ := crd.PoolFrom(obj, w.cfg.Settings.Defaults); !w.mustMove(b, pool) {
		return false
	}
	others := map[string]bool{}
	for _, name := range w.api.Keys(KindBlock) {
		o := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if o.Spec.NodeName == b.Spec.NodeName || o.Spec.PoolName != b.Spec.PoolName {
			continue
		}
		if movesOff(o) || phaseOf(o) == "" && w.asked(o) && w.room(o.Spec.NodeName) == 0 {
			others[o.Spec.NodeName] = true
		}
	}
	return len(others) >= maxMoves(obj)
}

// enableSelectors enables making the selectors of pools invalid, and valid again.
func (w *World) enableSelectors() {
	for _, pool := range w.cfg.Pools {
		if pool.Spec.UnselectedNodes.Mode == v1alpha1.UnselectedNodesDrain {
			w.canIf(PoolEdits, PoolEdit, people, "selector="+pool.Name)
		}
	}
}

// editSelector makes a valid selector invalid, in a way that no rule of the CRD has rejected,
// and an invalid one valid.
func (w *World) editSelector(name string) {
	pool := w.api.Get(KindPool, name).(*v1alpha1.PodIPPool).DeepCopy()
	if readable(pool) {
		w.Counts.Faults["selector that cannot be read"]++
		pool.Spec.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: ZoneLabel, Operator: "Is", Values: []string{name}}}
	} else {
		pool.Spec.NodeSelector.MatchExpressions = nil
	}
	w.must(w.api.Update(pool, false))
}

func readable(pool *v1alpha1.PodIPPool) bool {
	_, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	return err == nil
}

// repairSelectors makes all selectors valid.
func (w *World) repairSelectors() {
	for _, name := range w.api.Keys(KindPool) {
		if !readable(w.api.Get(KindPool, name).(*v1alpha1.PodIPPool)) {
			w.editSelector(name)
		}
	}
}

func maxMoves(pool *v1alpha1.PodIPPool) int {
	if n := pool.Spec.UnselectedNodes.MaxConcurrent; n != nil {
		return int(*n)
	}
	return 1
}

// holdMoves checks a block that begins to drain because its pool does not select its node: that
// the operator knew so, and that no more of the nodes that this process allowed are moving off
// the pool than may at a time.
func (w *World) holdMoves(v Version) {
	old, _ := v.Old.(*v1alpha1.PodIPBlock)
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	if old == nil || now == nil || phaseOf(old) != "" || !movesOff(now) {
		return
	}
	o, node := w.writer, now.Spec.NodeName
	pool, ok := w.api.Get(KindPool, now.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return
	}
	if o.current.stays[pool.Name] && o.stays(node)[pool.Name] {
		w.violate(10, "block %s began to leave node %s, which pool %s selects, or whose labels are not final", v.Key, node, pool.Name)
	}
	if o.moves == nil {
		o.moves = map[types.UID]string{}
	}
	others := o.movingBeside(node, pool.Name)
	o.moves[now.UID] = node
	if len(others) >= maxMoves(pool) {
		w.violate(10, "node %s began to move off pool %s while %v did, and %d may at a time", node, pool.Name, sortedKeys(others), maxMoves(pool))
	}
}

// movingBeside returns the other nodes that this process allowed to move off a pool and that,
// as it knows, are still moving.
func (o *Operator) movingBeside(node, pool string) map[string]bool {
	others := map[string]bool{}
	for _, name := range o.w.api.Keys(KindBlock) {
		b := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if by := o.moves[b.UID]; by != "" && by != node && b.Spec.PoolName == pool && o.knowsMove(b) {
			others[by] = true
		}
	}
	return others
}

// stays returns the pools that select a Node, as an operator knows: all of them while the
// Node's labels are not final.
func (o *Operator) stays(name string) map[string]bool {
	node := o.knownNode(name)
	if o.w.cfg.Labels == nil || node == nil {
		return nil
	}
	stays := map[string]bool{}
	for _, pool := range o.w.cfg.Pools {
		stays[pool.Name] = len(node.Spec.Taints) > 0 || selects(pool, node.Labels)
	}
	return stays
}

// knowsMove reports whether a process knows that a block drains because its pool does not
// select its node.
func (o *Operator) knowsMove(b *v1alpha1.PodIPBlock) bool {
	known, ok := o.parts.Node.Ledger.Block(netip.MustParsePrefix(b.Spec.CIDR))
	return ok && known.UID == b.UID && known.Phase == ipalloc.Draining && known.Reason == expand.NodeUnselected
}
