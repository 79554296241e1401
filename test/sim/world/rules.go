package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

func (w *World) violate(rule int, format string, args ...any) {
	if w.cfg.ModelAlone && rule != noStepOfModel {
		return
	}
	v := Violation{Rule: rule, Text: fmt.Sprintf(format, args...)}
	w.tracef("VIOLATION %s", v)
	w.Violations = append(w.Violations, v)
}

// stored checks each version that operators write against the rules. What others write is
// accepted.
func (w *World) stored(v Version) {
	if w.refinement != nil {
		w.refinement.stored(v)
	}
	if w.trace != nil {
		w.tracef("  stored %s", brief(v))
	}
	switch v.Kind {
	case KindNamespace, KindCiliumPool, KindServiceCIDR:
		w.storedBeside(v)
	default:
		w.judged(v)
	}
}

// judged checks a version of a kind that the rules are about.
func (w *World) judged(v Version) {
	change := invariant.Change{Kind: invariant.Kind(v.Kind.String()), Name: v.Key, Version: v.Version, Received: w.now, New: v.New}
	switch v.Kind {
	case KindCiliumNode:
		w.noteMarks(v)
		if !w.byMover {
			w.noteExcuses(v)
		}
	case KindBlock:
		delete(w.torn, v.Key)
		w.countAdopted(v)
		if v.New == nil {
			w.blockGone(v)
		}
	}
	if w.writer == nil {
		w.takeIn(v, change)
		return
	}
	if !w.ofTheHour(v) {
		w.wrote = w.now
		w.lasting++
	}
	w.Counts.did(v)
	w.holdShadow(v)
	if !w.writer.begun {
		w.violate(5, "%s %s was written before everything had been read", v.Kind, v.Key)
	}
	if w.besides(v) {
		w.judge.Take(change)
	} else {
		change.Unshown = w.writer.current.unshown
		for _, found := range w.judge.Step(change) {
			w.violate(found.Rule, "%s: %s", found.Subject, found.Text)
		}
	}
	w.holdByKind(v)
}

// holdByKind checks a write of an operator against the rules for its kind.
func (w *World) holdByKind(v Version) {
	switch v.Kind {
	case KindCiliumNode:
		w.holdCiliumNode(v)
		w.holdElsewhere(v)
		w.holdWhole(v)
	case KindBlock:
		w.noteForPods(v)
		w.holdBlock(v)
	case KindNode:
		w.holdFixed(v)
	}
}

// besides reports whether a block that overlaps another is created or deleted. The judge
// considers any claim of published addresses a fault; but of two blocks of different sizes, the
// later one may be created before its claimer can know of the other, and is deleted again
// unpublished. The rules here tell the two cases apart.
func (w *World) besides(v Version) bool {
	if v.Kind != KindBlock || v.Old != nil && v.New != nil {
		return false
	}
	b, _ := v.New.(*v1alpha1.PodIPBlock)
	if b == nil {
		b = v.Old.(*v1alpha1.PodIPBlock)
	}
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	return err == nil && w.overlapped(v.Key, cidr)
}

// takeIn accepts the writes of others. A block that was removed by force still belongs to its
// node as long as it is assigned to it: what an operator does before it sees the removal is no
// violation, unless another node gets the block.
func (w *World) takeIn(v Version, change invariant.Change) {
	if b, ok := v.Old.(*v1alpha1.PodIPBlock); ok && v.New == nil && w.lists(b) && !w.byMover {
		w.torn[v.Key] = tornBlock{b, change}
		return
	}
	w.judge.Take(change)
	if v.Kind != w.carrier() {
		return
	}
	for _, name := range sortedKeys(w.torn) {
		if t := w.torn[name]; !w.lists(t.block) {
			delete(w.torn, name)
			w.judge.Take(t.change)
		}
	}
}

// tornBlock is a block that was removed by force and not recreated yet.
type tornBlock struct {
	block  *v1alpha1.PodIPBlock
	change invariant.Change
}

// lists reports whether a block is assigned to its node.
func (w *World) lists(b *v1alpha1.PodIPBlock) bool {
	return slices.ContainsFunc(w.Assigned(b.Spec.NodeName), func(p netip.Prefix) bool { return p.String() == b.Spec.CIDR })
}

// holdCiliumNode compares what an operator wrote with what pods really have, and with what it
// knew.
func (w *World) holdCiliumNode(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	node, alive := w.api.Get(KindNode, v.Key).(*corev1.Node)
	switch {
	case now == nil && alive && ownedBy(old, node): // one of an older Node is garbage
		w.violate(2, "CiliumNode %s was deleted though its Node is there", v.Key)
	case now == nil || old == nil:
		return
	}
	if now == nil {
		return
	}
	w.holdPool(v.Key, old, now, alive)
	if alive {
		w.holdUnanswered(old, now)
		w.holdRouter(v.Key, w.poolOf(old), w.poolOf(now))
	}
	w.holdPublished(v.Key, old, now)
	w.holdWithheld(v.Key, old, now)
	w.holdMarks(v.Key, old, now)
}

// holdPool checks that no pod's address left its node's pool or entered another node's.
func (w *World) holdPool(node string, old, now *ciliumv2.CiliumNode, alive bool) {
	before, after := w.poolOf(old), w.poolOf(now)
	for _, m := range w.machines {
		for slot, e := range m.endpoints {
			for _, addr := range e.addrs() {
				key := addr.String()
				_, was := before[key]
				_, is := after[key]
				switch {
				case e.forfeited:
				case m.name != node && is && !was:
					w.violate(1, "%s, which pod %s on node %s has, was put into the pool of node %s", key, slot, m.name, node)
				case m.name == node && was && !is && alive:
					w.violate(2, "%s, which pod %s has, was taken out of the pool of node %s", key, slot, m.name)
				}
			}
		}
	}
}

// holdPublished checks that no address is published while it has a release entry, because its
// agent would not use it, and none in a block that turned out, when read live, to be another
// object than the one decided on.
func (w *World) holdPublished(node string, old, now *ciliumv2.CiliumNode) {
	for key := range now.Spec.IPAM.Pool {
		addr, err := netip.ParseAddr(key)
		if _, was := old.Spec.IPAM.Pool[key]; err != nil || was {
			continue
		}
		if state, stands := old.Status.IPAM.ReleaseIPs[key]; stands {
			w.violate(2, "%s of node %s was published while its release entry says %s", key, node, state)
		}
		if f := w.writer.current; f != nil && slices.ContainsFunc(f.others, func(name string) bool { return w.blockContains(name, addr) }) {
			w.violate(4, "%s of node %s was published of a block that is another object than the one decided on", key, node)
		}
	}
}

func (w *World) blockContains(name string, addr netip.Addr) bool {
	b, ok := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !ok {
		return false
	}
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	return err == nil && cidr.Contains(addr)
}

// holdBlock checks a claim: it comes only after everything has been read, and its addresses are
// free.
func (w *World) holdBlock(v Version) {
	switch {
	case v.New == nil:
		w.holdGivenUp(v)
	case v.Old != nil:
		w.holdBegin(v)
		w.holdMoves(v)
	default:
		w.holdUnpublished(v.Key, v.New.(*v1alpha1.PodIPBlock), "claimed")
		w.holdUnassigned(v.New.(*v1alpha1.PodIPBlock), "claimed")
		w.holdUnknown(v.New.(*v1alpha1.PodIPBlock), "claimed")
		w.holdClaimElsewhere(v.New.(*v1alpha1.PodIPBlock))
		w.holdLabelled(v.New.(*v1alpha1.PodIPBlock))
		w.holdNotCluster(v.New.(*v1alpha1.PodIPBlock))
		w.holdOneNeed(v)
		w.holdFamily(v.New.(*v1alpha1.PodIPBlock))
	}
}

// holdGivenUp checks that a released block has cooled down for as long as its reason requires,
// and that none of it is published.
func (w *World) holdGivenUp(v Version) {
	b := v.Old.(*v1alpha1.PodIPBlock)
	cooling := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockCoolingDown)
	if cooling == nil {
		w.violate(1, "block %s was given up without having cooled down", v.Key)
		return
	}
	must := w.cfg.Settings.Defaults.Cooldown
	if cooling.Reason != v1alpha1.ReasonNodeGone {
		w.holdUnknown(b, "given up")
	}
	if cooling.Reason == v1alpha1.ReasonNodeGone { // its machine may run on
		must = w.cfg.Settings.Defaults.NodeGoneCooldown
	}
	if rested := w.now.Sub(cooling.LastTransitionTime.Time); rested < must-2*w.cfg.Skew {
		w.violate(1, "block %s was given up %s after it cooled down as %s, which must be %s", v.Key, rested, cooling.Reason, must)
	}
	if !w.returnsUnseen(b, cooling.Reason) {
		w.holdUnpublished(v.Key, b, "given up")
	}
	w.holdFenced(v, b)
	w.holdUnassigned(b, "given up")
}

// returnsUnseen reports whether a block's cooldown after its Node was gone is over, and its
// agent has returned with the block since the operator last looked: two objects cannot be read
// and deleted atomically (docs/reliability.md).
func (w *World) returnsUnseen(b *v1alpha1.PodIPBlock, why string) bool {
	f := w.writer.current
	return w.whole() && why == v1alpha1.ReasonNodeGone && f != nil && f.name == b.Spec.NodeName && f.foundNone
}

// holdFenced checks that the object that assigns blocks to an agent has changed since a block
// began to cool down, so that an older patch of it has lost.
func (w *World) holdFenced(v Version, b *v1alpha1.PodIPBlock) {
	carrier := w.api.Get(w.carrier(), b.Spec.NodeName)
	if carrier == nil {
		return
	}
	var since uint64
	for _, at := range slices.Backward(w.api.history[KindBlock]) {
		now, ok := at.New.(*v1alpha1.PodIPBlock)
		switch {
		case at.Key != v.Key || at.Version == v.Version:
			continue
		case ok && now.UID == b.UID && phaseOf(now) == v1alpha1.BlockCoolingDown:
			since = at.Version
			continue
		}
		break
	}
	if version, err := strconv.ParseUint(carrier.GetResourceVersion(), 10, 64); err == nil && version < since {
		w.violate(4, "block %s was given up though what tells node %s its blocks has not changed since it began to cool down", v.Key, b.Spec.NodeName)
	}
}

// holdUnpublished checks that none of a block's addresses is published, except in other blocks
// of the node that publishes them.
func (w *World) holdUnpublished(name string, b *v1alpha1.PodIPBlock, how string) {
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	if err != nil {
		return
	}
	for _, m := range w.machines {
		cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		if !ok {
			continue
		}
		for key := range w.poolOf(cn) {
			if addr, err := netip.ParseAddr(key); err == nil && cidr.Contains(addr) && !w.inBlockOf(m.name, addr) {
				w.violate(1, "block %s of node %s was %s while %s is in the pool of node %s", name, b.Spec.NodeName, how, key, m.name)
			}
		}
	}
}

// blockGone checks that no pod loses its block. The block of a Node that is gone may be deleted
// along with its pods' addresses, even if the machine runs on.
func (w *World) blockGone(v Version) {
	b := v.Old.(*v1alpha1.PodIPBlock)
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	m := w.machine(b.Spec.NodeName)
	if err != nil || m == nil {
		return
	}
	alive := w.api.Get(KindNode, m.name) != nil
	for _, c := range b.Status.Conditions {
		// The Node may be back just when the time is over.
		alive = alive && c.Reason != v1alpha1.ReasonNodeGone
	}
	if !alive && m.isLeftWith(cidr) {
		m.lostNode()
	}
	for slot, e := range m.endpoints {
		for _, addr := range e.addrs() {
			switch {
			case !cidr.Contains(addr) || e.forfeited || w.inBlockOf(m.name, addr):
			case !alive:
				e.forfeited = true
			case w.writer != nil:
				w.violate(1, "block %s was given up though pod %s on node %s has %s", v.Key, slot, m.name, addr)
			}
		}
	}
}

// isLeftWith reports whether the agent of a machine runs with a whole block that is released
// because its Node was gone. Only in kubernetes mode may another Node, which already has an
// agent, have the block too.
func (m *machine) isLeftWith(cidr netip.Prefix) bool {
	if m.whole != nil && m.w.whole() {
		_, behind := m.nextSeen() // it may see the block listed yet
		return behind || slices.ContainsFunc(m.whole.CIDRs(), cidr.Overlaps)
	}
	node := m.w.api.Get(KindNode, m.name)
	return m.w.fixed() && m.old != nil && slices.Contains(m.old.CIDRs, cidr) && (node == nil || node.GetUID() != m.node)
}

// allocated is called for each address that an agent assigns to a pod.
func (w *World) allocated(m *machine, e *endpoint) {
	for _, addr := range e.addrs() {
		w.happened(addr, "A")
		// The agent has not seen yet that its Node, and with it its block, was gone.
		e.forfeited = e.forfeited || w.excused[addr].holds(m) && !w.inBlockOf(m.name, addr)
	}
	if e.forfeited {
		return
	}
	for _, other := range w.machines {
		for slot, o := range other.endpoints {
			for _, addr := range e.addrs() {
				if o != e && !o.forfeited && contains(o.addrs(), addr) {
					w.violate(1, "%s was given to %s on node %s while pod %s on node %s has it", addr, e.owner(), m.name, slot, other.name)
				}
			}
		}
	}
}

// lost is called for each pod that an agent did not restore.
func (w *World) lost(m *machine, e *endpoint, addr netip.Addr, err error) {
	w.dropped[string(e.pod.GetUID())] = err
	switch {
	case e.forfeited, w.excused[addr].holds(m):
		w.Counts.LostByHand++
	case m.lostParked(addr):
	case m.isOfAnotherPool(e, addr):
		w.Counts.LostByHand++
	case releasing(err) && w.left[addr] == m.name:
		w.violate(2, "%s of node %s could not restore %s, as an operator that knew of the restart had left its mark", e.owner(), m.name, addr)
	case releasing(err):
		w.Counts.Lost++
		w.tracef("LOST %s of %s on node %s: %v", addr, e.owner(), m.name, err)
	default:
		w.violate(2, "%s of node %s could not restore %s: %v", e.owner(), m.name, addr, err)
	}
}

func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return "error"
}
