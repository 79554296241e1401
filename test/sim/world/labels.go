package world

import (
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ZoneLabel is the label by which pools select Nodes here.
const ZoneLabel = "topology.kubernetes.io/zone"

// Labels are those of Nodes by which pools select. They may arrive late, with or without a
// startup taint that says so, and users change them.
type Labels struct {
	// Zones are the possible values of a Node's label.
	Zones []string
	// Taint is the key of the startup taint.
	Taint string
}

// register sets a new Node's first labels and taints: one time in four its zone, and mostly the
// startup taint.
func (l *Labels) register(w *World, node *corev1.Node) {
	if l == nil {
		return
	}
	turn := w.pick(node.Name, uint64(len(w.api.history[KindNode])), 4)
	if turn != 3 {
		node.Spec.Taints = []corev1.Taint{{Key: l.Taint, Effect: corev1.TaintEffectNoSchedule}}
	}
	if turn == 2 {
		node.Labels[ZoneLabel] = l.Zones[0]
	}
}

// enableLabels enables the labels that a Node may get, and the removal of its taint.
func (u *users) enableLabels(m *machine) {
	if u.cfg.Labels == nil {
		return
	}
	node := u.api.Get(KindNode, m.name).(*corev1.Node)
	if len(node.Spec.Taints) > 0 {
		u.can(NodeLabel, m.name, "untaint")
	}
	for _, zone := range append(u.cfg.Labels.Zones, "") {
		if node.Labels[ZoneLabel] != zone {
			u.can(NodeLabel, m.name, "zone="+zone)
		}
	}
}

func (u *users) label(name, what string) {
	_, zone, labels := strings.Cut(what, "=")
	if !labels {
		u.untaint(name)
		return
	}
	node := u.api.Get(KindNode, name).DeepCopyObject().(*corev1.Node)
	if node.Labels[ZoneLabel] = zone; zone == "" {
		delete(node.Labels, ZoneLabel)
	}
	u.must(u.api.Update(node, false))
}

// untaint makes the labels of a Node final.
func (u *users) untaint(name string) {
	node := u.api.Get(KindNode, name).DeepCopyObject().(*corev1.Node)
	node.Spec.Taints = nil
	u.must(u.api.Update(node, false))
}

func selects(pool *v1alpha1.PodIPPool, of labels.Set) bool {
	if pool.Spec.NodeSelector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	return err == nil && s.Matches(of)
}

// knownNode returns a Node as an operator knows it, or nil.
func (o *Operator) knownNode(name string) *corev1.Node {
	node, _ := o.stream(KindNode.String()).cache[name].(*corev1.Node)
	return node
}

// awaitsLabels returns the UID of a Node that, as an operator knows, has a startup taint, late
// labels that can change its ruling pool, and neither a block nor an address; "": it is not
// such a Node, or has been one for five minutes.
func (o *Operator) awaitsLabels(name string) types.UID {
	node, ledger := o.knownNode(name), o.parts.Node.Cluster.Ledger
	if o.w.cfg.Labels == nil || node == nil || len(node.Spec.Taints) == 0 || len(ledger.NodeBlocks(name)) > 0 {
		return ""
	}
	overdue := !o.w.clock.now.Add(o.skew).Before(node.CreationTimestamp.Add(5 * time.Minute))
	if overdue || o.parts.Node.Cluster.Pools.RulingIsFinal(node.Labels) {
		return ""
	}
	named := func(v *ciliumnode.View) bool { return v != nil && !v.AssignsNone() }
	if last := ledger.LastCiliumNode(name); named(ledger.CiliumNode(name)) || last != nil && named(last) {
		return ""
	}
	return node.UID
}

// checkLabelled checks that no block is claimed for a Node with labels that the operator,
// throughout its reconcile, knew not to be final.
func (r *writeRules) checkLabelled(b *v1alpha1.PodIPBlock) {
	if r.cfg.Labels == nil {
		return
	}
	r.noteFirst(b)
	f, node := r.writer.current, b.Spec.NodeName
	if f.awaits != "" && f.awaits == r.writer.awaitsLabels(node) {
		r.violate(10, "block %s was claimed for node %s, whose startup taint %s says that its labels are not final", b.Name, node, r.cfg.Labels.Taint)
	}
}

// firstClaim records who claimed a block for a CiliumNode that no agent had read.
type firstClaim struct {
	by   *Operator
	runs int
	of   types.UID
}

// noteFirst records a claim. If the CiliumNode lists the block, it was torn away and is
// recreated.
func (r *writeRules) noteFirst(b *v1alpha1.PodIPBlock) {
	if r.lists(b) {
		return
	}
	if view := r.writer.parts.Node.Cluster.Ledger.CiliumNode(b.Spec.NodeName); view.NeverReadByAgent() {
		r.first[b.UID] = firstClaim{r.writer, r.writer.runs, view.UID}
	}
}

// isUnread reports whether no agent has written to a CiliumNode. The Node's addresses come from
// the operator; the agent's own are missing.
func isUnread(cn *ciliumv2.CiliumNode) bool {
	own := func(a ciliumv2.NodeAddress) bool { return a.Type == addressing.NodeCiliumInternalIP }
	return cn.Spec.BootID == "" && !slices.ContainsFunc(cn.Spec.Addresses, own) && len(cn.Status.IPAM.Used) == 0
}

// checkFirst checks that first blocks of a pool that does not rule the node leave if the ruling
// pool has a block for the node. Blocks that another process has claimed stay.
func (r *writeRules) checkFirst(m *machine) {
	cn := r.api.Get(KindCiliumNode, m.name)
	for _, v4 := range []bool{true, false} {
		_, ruling := r.space.policy(m.name, v4)
		pool, _ := r.api.Get(KindPool, ruling).(*v1alpha1.PodIPPool)
		others, given := r.firstBlocks(m.name, cn, ruling, v4)
		if pool == nil || r.space.freeOf(pool, v4) == 0 && (!given || r.hasPods(m.name)) {
			continue // its blocks may be too few for the node's pods
		}
		if len(others) > 0 {
			r.violate(10, "before agents start: node %s keeps its first blocks %v, none of which is in use or of pool %s, which rules it", m.name, others, ruling)
		}
	}
}

// firstBlocks returns the unused blocks of other pools that the leading operator has claimed
// for a node, and whether the node has a block of the ruling pool.
func (r *writeRules) firstBlocks(node string, cn client.Object, ruling string, v4 bool) (others []string, given bool) {
	for _, b := range r.Blocks() {
		cidr := cidrOf(b)
		if b.Spec.NodeName != node || phaseOf(b) != "" || cidr.Addr().Is4() != v4 {
			continue
		}
		if b.Spec.PoolName == ruling {
			given = true
			continue
		}
		claim := r.first[b.UID]
		ours := claim.by != nil && claim.by == r.processes.lease.holder && claim.runs == claim.by.runs
		if cn != nil && ours && claim.of == cn.GetUID() && !r.modeRules.podSays(cidr) {
			others = append(others, b.Name)
		}
	}
	return others, given
}

// movesOff reports whether a block drains because its pool does not select its node.
func movesOff(b *v1alpha1.PodIPBlock) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
	return phaseOf(b) == v1alpha1.BlockDraining && c.Reason == v1alpha1.ReasonNodeUnselected
}

// phaseOf returns the condition of a block that is True; "": it is in service.
func phaseOf(b *v1alpha1.PodIPBlock) string {
	for _, c := range []string{v1alpha1.BlockCoolingDown, v1alpha1.BlockDraining} {
		if b != nil && meta.IsStatusConditionTrue(b.Status.Conditions, c) {
			return c
		}
	}
	return ""
}

func maxMoves(pool *v1alpha1.PodIPPool) int {
	if n := pool.Spec.UnselectedNodes.MaxConcurrent; n != nil {
		return int(*n)
	}
	return 1
}

// movingBeside returns the other nodes that this process allowed to move off a pool and that,
// as it knows, are still moving.
func (o *Operator) movingBeside(node, pool string) map[string]bool {
	others := map[string]bool{}
	for _, b := range o.w.Blocks() {
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
	known, ok := o.parts.Node.Cluster.Ledger.Block(cidrOf(b))
	return ok && known.UID == b.UID && known.Phase == ipalloc.Draining && known.Reason == expand.NodeUnselected
}

// checkMoves checks a block that begins to drain because its pool does not select its node: that
// the operator knew so, and that no more of the nodes that this process allowed are moving off
// the pool than may at a time.
func (r *writeRules) checkMoves(v Version) {
	old, _ := v.Old.(*v1alpha1.PodIPBlock)
	now, _ := v.New.(*v1alpha1.PodIPBlock)
	if old == nil || now == nil || phaseOf(old) != "" || !movesOff(now) {
		return
	}
	o, node := r.writer, now.Spec.NodeName
	pool, ok := r.api.Get(KindPool, now.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return
	}
	if o.current.stays[pool.Name] && o.stays(node)[pool.Name] {
		r.violate(10, "block %s began to leave node %s, which pool %s selects, or whose labels are not final", v.Key, node, pool.Name)
	}
	if o.moves == nil {
		o.moves = map[types.UID]string{}
	}
	others := o.movingBeside(node, pool.Name)
	o.moves[now.UID] = node
	if len(others) >= maxMoves(pool) {
		r.violate(10, "node %s began to move off pool %s while %v did, and %d may at a time", node, pool.Name, sortedKeys(others), maxMoves(pool))
	}
}
