package world

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// unknownClaim is a claim that was carried out without a response.
type unknownClaim struct {
	node, ciliumPool string
	cidr             netip.Prefix
	uid              types.UID
	// pools and nodes are the numbers of versions of these that the claimer had received.
	pools, nodes int
}

// unheard records that the claimer of the block just created does not know whether it exists.
func (o *Operator) unheard(name string) {
	b, ok := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	if o.unknownClaims == nil {
		o.unknownClaims = map[string]unknownClaim{}
	}
	delete(o.w.rules.first, b.UID) // for all it knows, it was there before
	if o.w.lists(b) {
		return // recreated, which is no claim
	}
	o.unknownClaims[name] = unknownClaim{
		b.Spec.NodeName, o.w.ciliumPoolOf(b), netip.MustParsePrefix(b.Spec.CIDR), b.UID,
		o.stream(KindPool.String()).delivered(), o.stream(KindNode.String()).delivered(),
	}
}

// delivered returns the least number of versions of its kind that the handler has received.
func (s *stream) delivered() int {
	if len(s.listed) > 0 || s.initial > 0 {
		return 0
	}
	return max(0, s.read-len(s.undelivered))
}

// learn drops the claims in doubt that the operator has resolved or whose block is gone, its own writes
// that it has received, and what reconciles in progress may not have known to belong to the
// cluster.
func (o *Operator) learn() {
	o.forgetAcked()
	if o.cluster != nil {
		known := o.cluster.all()
		for _, f := range o.flights {
			f.cluster = slices.DeleteFunc(f.cluster, func(p netip.Prefix) bool { return !slices.Contains(known, p) })
		}
	}
	for name, d := range o.unknownClaims {
		known, held := o.parts.Node.Ledger.Block(d.cidr)
		now := o.w.api.Get(KindBlock, name)
		if held && known.UID == d.uid || now == nil || now.GetUID() != d.uid {
			delete(o.unknownClaims, name)
		}
	}
}

// checkOneNeed checks that an operator does not claim a second block for a need for which it may
// already have claimed one: it has to try that block again. Recreating a block that the
// CiliumNode names is not a claim, and if pools or labels have changed since, another block may
// be the right one.
func (r *writeRules) checkOneNeed(v Version) {
	b := v.New.(*v1alpha1.PodIPBlock)
	if len(r.writer.unknownClaims) == 0 || r.lists(b) || r.api.Get(KindCiliumNode, b.Spec.NodeName) == nil {
		return
	}
	cidr := netip.MustParsePrefix(b.Spec.CIDR)
	for _, name := range sortedKeys(r.writer.unknownClaims) {
		d := r.writer.unknownClaims[name]
		sameNeed := d.node == b.Spec.NodeName && d.cidr != cidr && d.cidr.Addr().Is4() == cidr.Addr().Is4() && d.ciliumPool == r.ciliumPoolOf(b)
		if sameNeed && !r.chosenAnew(d) {
			r.violate(6, "block %s was claimed for node %s before any answer said whether %s is its own, which it is", v.Key, d.node, name)
		}
	}
}

// chosenAnew reports whether, since a claim, another block may have become the right one: a
// pool was created, deleted or edited, or the Node's labels changed.
func (r *writeRules) chosenAnew(d unknownClaim) bool {
	changed := func(v Version) bool {
		return v.Old == nil || v.New == nil || v.New.GetGeneration() != v.Old.GetGeneration() || v.New.GetDeletionTimestamp() != nil
	}
	relabelled := func(v Version) bool {
		return v.Key == d.node && (v.Old == nil || v.New == nil || !maps.Equal(v.Old.GetLabels(), v.New.GetLabels()))
	}
	return slices.ContainsFunc(r.api.history[KindPool][d.pools:], changed) || slices.ContainsFunc(r.api.history[KindNode][d.nodes:], relabelled)
}
