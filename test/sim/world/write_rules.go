package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// writeRules judge each write, and each address that an agent assigns or loses.
type writeRules struct {
	*World
	judge      *invariant.Judge
	wholeJudge *whole.Rules // nil: agents are assigned single addresses
	// writer is the operator of the write in progress, or nil; byMover: it is a write of kubectl
	// cilium-pool.
	writer  *Operator
	byMover bool
	// byNodeAgent: it is a write of this project's node agent.
	byNodeAgent bool
	excused     map[netip.Addr]excuse
	// left are the marks that an operator did not withdraw although it knew that the agent had
	// restarted, with their nodes by address.
	left  map[netip.Addr]string
	torn  map[string]tornBlock
	first map[types.UID]firstClaim // by block, while no agent has read its CiliumNode
	hours map[hourKey]hour         // the operators' writes for the hour alone
	stays *stays
}

func newWriteRules(w *World) *writeRules {
	return &writeRules{
		World: w, wholeJudge: newWholeJudge(w.cfg.Settings.Mode), judge: invariant.NewJudge(w.cfg.Settings.Defaults.Cooldown - 2*w.cfg.Skew),
		excused: map[netip.Addr]excuse{}, left: map[netip.Addr]string{},
		torn: map[string]tornBlock{}, first: map[types.UID]firstClaim{}, hours: map[hourKey]hour{}, stays: newStays(w),
	}
}

func (w *World) violate(rule int, format string, args ...any) {
	if w.cfg.ModelAlone && rule != noStepOfModel {
		return
	}
	v := Violation{Rule: rule, Text: fmt.Sprintf(format, args...)}
	w.tracef("VIOLATION %s", v)
	w.Violations = append(w.Violations, v)
}

// stored checks each version that operators write against the rules. It accepts others' writes.
func (r *writeRules) stored(v Version) {
	if r.refinement != nil {
		r.refinement.stored(v)
	}
	if r.trace != nil {
		r.tracef("  stored %s", brief(v))
	}
	if pin, ok := v.New.(*v1alpha1.PodIPPin); ok && v.Old == nil {
		r.stays.pinned(pin)
	}
	switch v.Kind {
	case KindNamespace, KindCiliumPool, KindServiceCIDR, KindPin:
		r.storedBeside(v)
	default:
		r.judged(v)
	}
}

// judged checks a version of a kind that the rules are about.
func (r *writeRules) judged(v Version) {
	change := invariant.Change{Kind: invariant.Kind(v.Kind.String()), Name: v.Key, Version: v.Version, Received: r.clock.now, Old: v.Old, New: v.New}
	switch v.Kind {
	case KindCiliumNode:
		r.dropLeft(v)
		if !r.byMover {
			r.noteExcuses(v)
		}
	case KindBlock:
		delete(r.torn, v.Key)
		if v.New == nil {
			r.blockGone(v)
		}
	}
	if r.byNodeAgent {
		r.seeNodeAgent(v, change)
		return
	}
	if r.writer == nil {
		r.takeIn(v, change)
		return
	}
	if !r.ofTheHour(v) {
		r.quiescence.wrote = r.clock.now
		r.quiescence.lasting++
	}
	r.Counts.did(v)
	r.checkShadow(v)
	if !r.writer.begun && !r.isFirst(v) {
		r.violate(5, "%s %s was written before everything had been read", v.Kind, v.Key)
	}
	change.Writer = whole.OperatorWriter
	var found []invariant.Violation
	if r.wholeJudge != nil && r.returnsUnseen(v) {
		r.wholeJudge.Take(change)
	} else if r.wholeJudge != nil {
		found = r.wholeJudge.Step(change)
	}
	if r.besides(v) {
		r.judge.Take(change)
	} else {
		change.Unshown = r.writer.current.unshown
		found = append(found, r.judge.Step(change)...)
	}
	for _, f := range found {
		r.violate(f.Rule, "%s: %s", f.Subject, f.Text)
	}
	r.checkByKind(v)
}

// isFirst reports whether a write brings a new node its first blocks: it needs no knowledge of pods.
func (r *writeRules) isFirst(v Version) bool {
	if !r.writer.claimable() || v.New == nil {
		return false
	}
	view := r.writer.parts.Node.Cluster.Mode.View
	switch v.Kind {
	case KindBlock:
		return v.Old == nil && !r.writer.current.assigned
	case r.carrier():
		return v.Old != nil && view(v.Old).AssignsNone() && !view(v.New).AssignsNone() && len(view(v.New).Release) == 0
	default:
		return false
	}
}

// newWholeJudge returns the rules for agents that are assigned whole blocks; nil: they are not.
func newWholeJudge(mode ciliumnode.Mode) *whole.Rules {
	switch mode {
	case ciliumnode.MultiPool:
		return whole.New(whole.InPools())
	case ciliumnode.DelegatedPlugin:
		return whole.New(whole.ByNodeAgent())
	case ciliumnode.Kubernetes:
		return whole.New(whole.OnNode())
	}
	return nil
}

// checkByKind checks a write of an operator against the rules for its kind.
func (r *writeRules) checkByKind(v Version) {
	switch v.Kind {
	case KindCiliumNode:
		r.checkCiliumNode(v)
		r.migration.checkElsewhere(v)
		r.modeRules.checkWhole(v)
	case KindBlock:
		r.checkBlock(v)
	case KindNode:
		r.modeRules.checkFixed(v)
	}
}

// besides reports whether a block that overlaps another is created or deleted. The judge
// considers any claim of published addresses a fault; but of two blocks of different sizes, the
// later one may be created before its claimer can know of the other, and is deleted again
// unpublished. The rules here tell the two cases apart.
func (r *writeRules) besides(v Version) bool {
	if v.Kind != KindBlock || v.Old != nil && v.New != nil {
		return false
	}
	b, _ := v.New.(*v1alpha1.PodIPBlock)
	if b == nil {
		b = v.Old.(*v1alpha1.PodIPBlock)
	}
	return r.overlapped(v.Key, cidrOf(b))
}

// takeIn accepts the writes of others. A block that was removed by force still belongs to its node
// as long as it is assigned to it: an operator's writes before it sees the removal are no
// violation, unless another node gets the block.
func (r *writeRules) takeIn(v Version, change invariant.Change) {
	if r.wholeJudge != nil {
		r.wholeJudge.Take(change)
	}
	if b, ok := v.Old.(*v1alpha1.PodIPBlock); ok && v.New == nil && r.lists(b) && !r.byMover {
		r.torn[v.Key] = tornBlock{b, change}
		return
	}
	r.judge.Take(change)
	if v.Kind != r.carrier() {
		return
	}
	for _, name := range sortedKeys(r.torn) {
		if t := r.torn[name]; !r.lists(t.block) {
			delete(r.torn, name)
			r.judge.Take(t.change)
		}
	}
}

// tornBlock is a block that was removed by force and not recreated yet.
type tornBlock struct {
	block  *v1alpha1.PodIPBlock
	change invariant.Change
}

// checkCiliumNode compares an operator's write with the pods' real addresses, and with its
// knowledge.
func (r *writeRules) checkCiliumNode(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	node, alive := r.api.Get(KindNode, v.Key).(*corev1.Node)
	switch {
	case now == nil && alive && ownedBy(old, node): // one of an older Node is garbage
		r.violate(2, "CiliumNode %s was deleted though its Node is there", v.Key)
		return
	case now == nil || old == nil:
		return
	}
	r.checkPool(v.Key, old, now, alive)
	if alive {
		r.checkUnanswered(old, now)
		r.checkRouter(v.Key, r.poolOf(old), r.poolOf(now))
	}
	r.checkPublished(v.Key, old, now)
	r.checkWithheld(v.Key, old, now)
	r.checkMarks(v.Key, old, now)
}

// checkPool checks that no pod's address left its node's pool or entered another node's.
func (r *writeRules) checkPool(node string, old, now *ciliumv2.CiliumNode, alive bool) {
	before, after := r.poolOf(old), r.poolOf(now)
	for _, m := range r.machines {
		for slot, e := range m.endpoints {
			for _, addr := range e.addrs() {
				key := addr.String()
				_, was := before[key]
				_, is := after[key]
				switch {
				case e.forfeited:
				case m.name != node && is && !was:
					r.violate(1, "%s, which pod %s on node %s has, was put into the pool of node %s", key, slot, m.name, node)
				case m.name == node && was && !is && alive:
					r.violate(2, "%s, which pod %s has, was taken out of the pool of node %s", key, slot, m.name)
				}
			}
		}
	}
}

// checkPublished checks that no address is published in a block that turned out, when read live,
// to be another object than the one decided on.
func (r *writeRules) checkPublished(node string, old, now *ciliumv2.CiliumNode) {
	f := r.writer.current
	if f == nil {
		return
	}
	for addr := range addresses(now.Spec.IPAM.Pool) {
		_, was := old.Spec.IPAM.Pool[addr.String()]
		if !was && slices.ContainsFunc(r.Blocks(), func(b *v1alpha1.PodIPBlock) bool { return contains(f.others, b.Name) && cidrOf(b).Contains(addr) }) {
			r.violate(4, "%s of node %s was published of a block that is another object than the one decided on", addr, node)
		}
	}
}

// checkBlock checks a claim: it comes only after everything has been read, and its addresses are
// free.
func (r *writeRules) checkBlock(v Version) {
	switch {
	case v.New == nil:
		r.checkGivenUp(v)
	case v.Old != nil:
		r.checkMoves(v)
	default:
		b := v.New.(*v1alpha1.PodIPBlock)
		r.checkUnpublished(v.Key, b, "claimed")
		r.etcd.checkClaim(b)
		r.modeRules.checkUnassigned(b, "claimed")
		r.modeRules.checkUnknown(b, "claimed")
		r.migration.checkClaimElsewhere(b)
		r.checkLabelled(b)
		r.checkNotCluster(b)
		r.checkOneNeed(b)
		r.checkFamily(b)
	}
}

// checkGivenUp checks that a released block has cooled down for as long as its reason requires,
// and that none of it is published.
func (r *writeRules) checkGivenUp(v Version) {
	b := v.Old.(*v1alpha1.PodIPBlock)
	cooling := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockCoolingDown)
	if cooling == nil {
		r.violate(1, "block %s was given up without having cooled down", v.Key)
		return
	}
	must := r.cfg.Settings.Defaults.Cooldown
	if cooling.Reason != v1alpha1.ReasonNodeGone {
		r.modeRules.checkUnknown(b, "given up")
	}
	if cooling.Reason == v1alpha1.ReasonNodeGone { // its machine may run on
		must = r.cfg.Settings.Defaults.NodeGoneCooldown
	}
	if rested := r.clock.now.Sub(cooling.LastTransitionTime.Time); rested < must-2*r.cfg.Skew {
		r.violate(1, "block %s was given up %s after it cooled down as %s, which must be %s", v.Key, rested, cooling.Reason, must)
	}
	if !r.returnsUnseen(v) {
		r.checkUnpublished(v.Key, b, "given up")
	}
	r.checkFenced(v, b)
	r.modeRules.checkUnassigned(b, "given up")
}

// returnsUnseen reports whether a block's cooldown after its Node was gone is over, and its
// agent has returned with the block since the operator last looked: two objects cannot be read
// and deleted atomically (docs/reliability.md).
func (r *writeRules) returnsUnseen(v Version) bool {
	b, ok := v.Old.(*v1alpha1.PodIPBlock)
	if !ok || v.New != nil || !r.whole() {
		return false
	}
	cooling, f := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockCoolingDown), r.writer.current
	return cooling != nil && cooling.Reason == v1alpha1.ReasonNodeGone && f != nil && f.name == b.Spec.NodeName && f.foundNone
}

// checkFenced checks that the object that assigns blocks to an agent has changed since a block
// began to cool down, so that an older patch of it has lost.
func (r *writeRules) checkFenced(v Version, b *v1alpha1.PodIPBlock) {
	carrier := r.api.Get(r.carrier(), b.Spec.NodeName)
	if carrier == nil {
		return
	}
	var since uint64
	for _, at := range slices.Backward(r.api.history[KindBlock]) {
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
		r.violate(4, "block %s was given up though what tells node %s its blocks has not changed since it began to cool down", v.Key, b.Spec.NodeName)
	}
}

// checkUnpublished checks that none of a block's addresses is published, except in other blocks
// of the node that publishes them.
func (r *writeRules) checkUnpublished(name string, b *v1alpha1.PodIPBlock, how string) {
	for _, cn := range list[ciliumv2.CiliumNode](r.api, KindCiliumNode) {
		for addr := range addresses(r.poolOf(cn)) {
			if cidrOf(b).Contains(addr) && !r.inBlockOf(cn.Name, addr) {
				r.violate(1, "block %s of node %s was %s while %s is in the pool of node %s", name, b.Spec.NodeName, how, addr, cn.Name)
			}
		}
	}
}

// checkShadow checks that an operator in shadow mode does not write to nodes or blocks.
func (r *writeRules) checkShadow(v Version) {
	if r.writer.settings.Shadow && v.Kind != KindPool {
		r.violate(10, "%s %s was written by an operator in shadow", v.Kind, v.Key)
	}
}
