package world

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
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
	node, ledger := o.knownNode(name), o.parts.Node.Ledger
	if o.w.cfg.Labels == nil || node == nil || len(node.Spec.Taints) == 0 || len(ledger.NodeBlocks(name)) > 0 {
		return ""
	}
	overdue := !o.w.clock.now.Add(o.skew).Before(node.CreationTimestamp.Add(5 * time.Minute))
	if overdue || o.parts.Node.Pools.RulingIsFinal(node.Labels) {
		return ""
	}
	named := func(v *ciliumnode.View) bool { return v != nil && len(v.Named())+len(v.NonCanonical) > 0 }
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
	if view := r.writer.parts.Node.Ledger.CiliumNode(b.Spec.NodeName); view.Untouched() {
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
	for _, b := range r.blocks() {
		cidr := netip.MustParsePrefix(b.Spec.CIDR)
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
