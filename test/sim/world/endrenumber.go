package world

import (
	"net/netip"
	"slices"
	"strings"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// endRenumbering continues a renumbering from wherever chance left it: it is aborted, or the
// range is finally replaced. Whatever was killed on the way, the same commands lead there.
// Windows that never open are opened.
func (w *World) endRenumbering() bool {
	r := w.cfg.Renumbering
	if r == nil {
		return true
	}
	defer w.endFaults()()
	w.pass(0) // who has lost the lead sees it
	w.mover.die()
	w.openAll()
	if w.pick("abort", 1, 3) > 0 {
		return w.replaceRange()
	}
	for _, command := range []string{onward, backward} {
		if !w.abortRenumber(command) {
			return false
		}
	}
	return true
}

// renumbered returns the pool whose range is replaced.
func (w *World) renumbered() *v1alpha1.PodIPPool {
	pool, _ := w.api.Get(KindPool, w.cfg.Pools[0].Name).(*v1alpha1.PodIPPool)
	return pool
}

// abortRenumber returns a range to service that is being replaced, if there is one.
func (w *World) abortRenumber(command string) bool {
	from, _ := w.cfg.Renumbering.ranges(command)
	if entry, has := rangeOf(w.renumbered(), from); !has || entry.AllocationPolicy != v1alpha1.AllocationDrain {
		return true
	}
	for range 3 {
		said := w.kubectl(Renumber, abortThat+command)
		if len(w.Violations) > 0 {
			return false
		}
		if strings.Contains(said, "has been modified") { // by an operator
			continue
		}
		if entry, has := rangeOf(w.renumbered(), from); w.mover.code != 0 || !has || !allocates(entry) {
			w.violate(10, "renumber %s ended with %d, and %s does not serve: %s", abortThat+command, w.mover.code, from, said)
			return false
		}
		w.Counts.Did["abort a renumber"]++
		w.Calm(w.restWithin())
		w.holdServesAgain(from)
		return len(w.Violations) == 0
	}
	w.violate(10, "renumber %s conflicts again and again", abortThat+command)
	return false
}

// holdServesAgain checks that no block of a range still drains because the range once did.
func (w *World) holdServesAgain(cidr netip.Prefix) {
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonCIDRDraining && cidr.Overlaps(netip.MustParsePrefix(b.Spec.CIDR)) && !w.isAsked(b) {
			w.violate(10, "block %s still drains, and renumber was aborted: %s serves", name, cidr)
		}
	}
}

// replaceRange lets the command finish. Where its output asks users to act, they do.
func (w *World) replaceRange() bool {
	r := w.cfg.Renumbering
	if pool := w.renumbered().DeepCopy(); !hasRange(pool, r.From) && !hasRange(pool, r.To) {
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: r.From.String()}) // which people took out
		w.must(w.api.Update(pool, false))
	}
	said := ""
	for range 8 {
		said = w.kubectl(Renumber, onward)
		switch {
		case len(w.Violations) > 0:
			return false
		case w.mover.code == 0:
			w.holdReplaced()
			return len(w.Violations) == 0
		case w.mover.code != 3:
			w.violate(10, "renumber ended with %d: %s", w.mover.code, said)
			return false
		}
		w.doAsRenumberSays()
		w.Calm(w.restWithin())
	}
	w.violate(10, "renumber does not come to its end: %s", said)
	return false
}

func hasRange(pool *v1alpha1.PodIPPool, cidr netip.Prefix) bool {
	_, ok := rangeOf(pool, cidr)
	return ok
}

// doAsRenumberSays does what is left to users: pods without a controller are deleted, agents
// that kept their own addresses restart, and what no block explains is removed by hand.
func (w *World) doAsRenumberSays() {
	from := w.cfg.Renumbering.From
	for _, m := range w.machines {
		for _, slot := range w.slots {
			if pod := m.podObject(slot); pod != nil && pod.DeletionTimestamp == nil && statusIn(pod, from) {
				m.deletePod(slot)
			}
		}
		if m.phase == serving && slices.ContainsFunc(m.routers(), from.Contains) {
			m.crash()
		}
		w.disown(m, from)
	}
}

// disown removes from a CiliumNode what it names of a range if neither a block nor the machine
// explains it.
func (w *World) disown(m *machine, cidr netip.Prefix) {
	cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	if !ok || slices.ContainsFunc(w.api.Keys(KindBlock), func(name string) bool {
		return cidr.Overlaps(netip.MustParsePrefix(w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).Spec.CIDR))
	}) {
		return
	}
	overlaps := func(p iputil.Prefix) bool { return p.Overlaps(cidr) }
	if len(namedIn(cn, cidr)) == 0 && !slices.ContainsFunc(cn.Spec.IPAM.PodCIDRs, overlaps) {
		return
	}
	if w.refinement != nil { // the model has no people
		w.refinement.leaveNode(w.refinement.number(m.name))
	}
	cn = cn.DeepCopy()
	cn.Spec.IPAM.PodCIDRs = slices.DeleteFunc(cn.Spec.IPAM.PodCIDRs, overlaps)
	for _, key := range namedIn(cn, cidr) {
		if addr, err := netip.ParseAddr(key); err == nil && !m.has(addr) {
			delete(cn.Spec.IPAM.Pool, key)
		}
	}
	w.must(w.api.Update(cn, false))
	cn = w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode).DeepCopy()
	for _, key := range namedIn(cn, cidr) {
		delete(cn.Status.IPAM.ReleaseIPs, key)
	}
	w.must(w.api.Update(cn, true))
}

// holdReplaced checks that nothing is left of the range.
func (w *World) holdReplaced() {
	r := w.cfg.Renumbering
	if hasRange(w.renumbered(), r.From) {
		w.violate(10, "%s was replaced, and the pool has %v", r.From, w.renumbered().Spec.IPv4.CIDRs)
	}
	for _, name := range w.api.Keys(KindBlock) {
		if b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock); r.From.Overlaps(netip.MustParsePrefix(b.Spec.CIDR)) {
			w.violate(10, "%s was replaced, and node %s has block %s", r.From, b.Spec.NodeName, name)
		}
	}
	for _, m := range w.machines {
		if cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode); ok && len(namedIn(cn, r.From)) > 0 {
			w.violate(10, "%s was replaced, and CiliumNode %s names %v", r.From, m.name, namedIn(cn, r.From))
		}
	}
}
