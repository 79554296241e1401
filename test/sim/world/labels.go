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

// register gives a new Node what its kubelet or a cloud sets at once: one time in four its
// zone, and mostly the startup taint.
func (l *Labels) register(w *World, node *corev1.Node) {
	if l == nil {
		return
	}
	turn := w.pick(node.Name, uint64(len(w.api.history[KindNode])), 4)
	if turn != 3 {
		node.Spec.Taints = []corev1.Taint{{Key: l.Taint, Effect: corev1.TaintEffectNoSchedule}}
		w.Counts.Did["Node with a startup taint"]++
	}
	if turn == 2 {
		node.Labels[ZoneLabel] = l.Zones[0]
	}
}

// enableLabels enables the labels that a Node may get, and the removal of its taint.
func (w *World) enableLabels(m *machine) {
	if w.cfg.Labels == nil {
		return
	}
	node := w.api.Get(KindNode, m.name).(*corev1.Node)
	if len(node.Spec.Taints) > 0 {
		w.can(NodeLabel, m.name, "untaint")
	}
	for _, zone := range append(w.cfg.Labels.Zones, "") {
		if node.Labels[ZoneLabel] != zone {
			w.can(NodeLabel, m.name, "zone="+zone)
		}
	}
}

func (w *World) label(name, what string) {
	_, zone, labels := strings.Cut(what, "=")
	if !labels {
		w.untaint(name)
		return
	}
	node := w.api.Get(KindNode, name).DeepCopyObject().(*corev1.Node)
	if node.Labels[ZoneLabel] = zone; zone == "" {
		delete(node.Labels, ZoneLabel)
	}
	w.must(w.api.Update(node, false))
}

// untaint makes the labels of a Node final.
func (w *World) untaint(name string) {
	node := w.api.Get(KindNode, name).DeepCopyObject().(*corev1.Node)
	node.Spec.Taints = nil
	w.must(w.api.Update(node, false))
}

func (w *World) labelsOf(node string) labels.Set {
	if obj := w.api.Get(KindNode, node); obj != nil {
		return obj.GetLabels()
	}
	return nil
}

func (w *World) selects(pool *v1alpha1.PodIPPool, node string) bool {
	return selects(pool, w.labelsOf(node))
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

func (o *Operator) knownLabels(name string) labels.Set {
	if node := o.knownNode(name); node != nil {
		return node.Labels
	}
	return nil
}

// awaitsLabels returns the UID of a Node that, as an operator knows, has a startup taint, late
// labels that can change its ruling pool, and neither a block nor an address; "": it is not
// such a Node, or has been one for five minutes.
func (o *Operator) awaitsLabels(name string) types.UID {
	node, ledger := o.knownNode(name), o.parts.Node.Ledger
	if o.w.cfg.Labels == nil || node == nil || len(node.Spec.Taints) == 0 || len(ledger.NodeBlocks(name)) > 0 {
		return ""
	}
	overdue := !o.w.now.Add(o.skew).Before(node.CreationTimestamp.Add(5 * time.Minute))
	if overdue || o.parts.Node.Pools.RulingIsFinal(node.Labels) {
		return ""
	}
	named := func(v *ciliumnode.View) bool { return v != nil && len(v.Named())+len(v.NonCanonical) > 0 }
	if last := ledger.LastCiliumNode(name); named(ledger.CiliumNode(name)) || last != nil && named(last.View()) {
		return ""
	}
	return node.UID
}

// holdLabelled checks that no block is claimed for a Node whose labels the operator knew,
// throughout its reconcile, not to be final.
func (w *World) holdLabelled(b *v1alpha1.PodIPBlock) {
	if w.cfg.Labels == nil {
		return
	}
	w.noteFirst(b)
	f, node := w.writer.current, b.Spec.NodeName
	if f.awaits != "" && f.awaits == w.writer.awaitsLabels(node) {
		w.violate(10, "block %s was claimed for node %s, whose startup taint %s says that its labels are not final", b.Name, node, w.cfg.Labels.Taint)
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
func (w *World) noteFirst(b *v1alpha1.PodIPBlock) {
	if w.lists(b) {
		return
	}
	if view := w.writer.parts.Node.Ledger.CiliumNode(b.Spec.NodeName); view.Untouched() {
		w.first[b.UID] = firstClaim{w.writer, w.writer.runs, view.UID}
	}
}

// replaceFirst comes to rest before agents start that have never run on their Nodes, and checks
// that these have first blocks of the pools that rule them.
func (w *World) replaceFirst() bool {
	if w.cfg.Labels == nil || w.whole() || w.fixed() || w.cfg.Settings.Shadow {
		return true
	}
	var fresh []*machine
	for _, m := range w.machines {
		if m.held = w.isFresh(m); m.held {
			fresh = append(fresh, m)
		}
	}
	if len(fresh) == 0 {
		return true
	}
	if !w.Calm(w.restWithin()) && len(w.Violations) == 0 {
		w.violate(9, "before agents start: no rest within %d actions", w.restWithin())
	}
	for _, m := range fresh {
		if m.held = false; len(w.Violations) == 0 && w.isFresh(m) {
			w.holdFirst(m)
		}
	}
	return len(w.Violations) == 0
}

// isFresh reports whether no trace of an agent was ever seen on a Node.
func (w *World) isFresh(m *machine) bool {
	cn, exists := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	return m.phase == down && w.api.Get(KindNode, m.name) != nil && w.api.Get(KindPod, m.podOf("agent")) == nil &&
		(!exists || isUnread(cn))
}

// isUnread reports whether no agent has written to a CiliumNode. The Node's addresses come from
// the operator; the agent's own are missing.
func isUnread(cn *ciliumv2.CiliumNode) bool {
	own := func(a ciliumv2.NodeAddress) bool { return a.Type == addressing.NodeCiliumInternalIP }
	return cn.Spec.BootID == "" && !slices.ContainsFunc(cn.Spec.Addresses, own) && len(cn.Status.IPAM.Used) == 0
}

// holdFirst checks that first blocks of a pool that does not rule the node leave if the ruling
// pool has a block for the node. Blocks that another process has claimed stay.
func (w *World) holdFirst(m *machine) {
	cn := w.api.Get(KindCiliumNode, m.name)
	for _, v4 := range []bool{true, false} {
		_, ruling := w.policy(m.name, v4)
		pool, _ := w.api.Get(KindPool, ruling).(*v1alpha1.PodIPPool)
		others, given := w.firstBlocks(m.name, cn, ruling, v4)
		if pool == nil || w.freeOf(pool, v4) == 0 && (!given || w.hasPods(m.name)) {
			continue // what it has given may be too little for the node's pods
		}
		if len(others) > 0 {
			w.violate(10, "before agents start: node %s keeps its first blocks %v, none of which is in use or of pool %s, which rules it", m.name, others, ruling)
		}
		if given {
			w.Counts.Did["first block of the pool that rules"]++
		}
	}
}

// firstBlocks returns the unused blocks of other pools that the leading operator has claimed
// for a node, and whether the node has a block of the ruling pool.
func (w *World) firstBlocks(node string, cn client.Object, ruling string, v4 bool) (others []string, given bool) {
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		cidr := netip.MustParsePrefix(b.Spec.CIDR)
		if b.Spec.NodeName != node || phaseOf(b) != "" || cidr.Addr().Is4() != v4 {
			continue
		}
		if b.Spec.PoolName == ruling {
			given = true
			continue
		}
		claim := w.first[b.UID]
		ours := claim.by != nil && claim.by == w.lease.holder && claim.runs == claim.by.runs
		if cn != nil && ours && claim.of == cn.GetUID() && !w.podSays(cidr) {
			others = append(others, name)
		}
	}
	return others, given
}

// hasPods reports whether any pod but the agent's is bound to a node.
func (w *World) hasPods(node string) bool {
	for _, key := range w.api.Keys(KindPod) {
		if w.api.Get(KindPod, key).(*corev1.Pod).Spec.NodeName == node && key != w.machine(node).podOf("agent") {
			return true
		}
	}
	return false
}
