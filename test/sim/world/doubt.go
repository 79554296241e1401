package world

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// doubt is a claim that was carried out, and its answer lost.
type doubt struct {
	node string
	cidr netip.Prefix
	uid  types.UID
}

// unheard notes that the block just created is one that its claimer may or may
// not have.
func (o *Operator) unheard(name string) {
	b, ok := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	if o.doubts == nil {
		o.doubts = map[string]doubt{}
	}
	delete(o.w.first, b.UID) // for all it knows, it was there before
	o.doubts[name] = doubt{b.Spec.NodeName, netip.MustParsePrefix(b.Spec.CIDR), b.UID}
	o.w.Counts.Faults["claim in doubt"]++
}

// learn drops the doubts that the operator no longer has, or whose block is gone.
func (o *Operator) learn() {
	for name, d := range o.doubts {
		known, held := o.parts.Node.Ledger.Block(d.cidr)
		now := o.w.api.Get(KindBlock, name)
		if held && known.UID == d.uid || now == nil || now.GetUID() != d.uid {
			delete(o.doubts, name)
		}
	}
}

// holdOneNeed checks that an operator does not claim a second block for a need
// for which it may have claimed one: it has to try that one again. One that the
// CiliumNode names is made again, which is no claim; and a pool that has changed
// may not give the first one out any more.
func (w *World) holdOneNeed(v Version) {
	b := v.New.(*v1alpha1.PodIPBlock)
	if len(w.writer.doubts) == 0 || w.lists(b) || w.api.Get(KindCiliumNode, b.Spec.NodeName) == nil || w.poolsChanged() {
		return
	}
	cidr := netip.MustParsePrefix(b.Spec.CIDR)
	for _, name := range sortedKeys(w.writer.doubts) {
		d := w.writer.doubts[name]
		if d.node == b.Spec.NodeName && d.cidr != cidr && d.cidr.Addr().Is4() == cidr.Addr().Is4() {
			w.violate(6, "block %s was claimed for node %s while it was unknown whether %s is its own, which it is", v.Key, d.node, name)
		}
	}
}

// poolsChanged says that there is another pool than at the beginning, or that
// one has another spec.
func (w *World) poolsChanged() bool {
	for _, v := range w.api.history[KindPool] {
		if v.New == nil || v.New.GetGeneration() != 1 || v.New.GetName() != w.cfg.Pools[0].Name {
			return true
		}
	}
	return false
}
