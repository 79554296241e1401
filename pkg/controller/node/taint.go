package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// setShortage writes the condition of the Node, puts the shortage taint on it while its pods cannot
// get an address, and takes it off afterwards. A Node that registered with the taint keeps it until
// it is served: autoscalers take a node without its startup taint for a complete one.
func (r *Reconciler) setShortage(ctx context.Context, o *observation, plans []familyPlan, lack *shortage) (err error) {
	if r.Paused { // a pause promises no write about nodes
		return nil
	}
	if r.Reporter.NodeCondition {
		err = r.Reporter.setNodeCondition(ctx, o.Node, lack)
	}
	short := lack != nil && lack.unmet && !lack.someOnly
	if r.ShortageTaint == "" || !short && !r.OptedOut(o.Node) && !o.servesPods(r.OfferFamilies, plans) {
		return err
	}
	return errors.Join(err, r.Reporter.setNodeTaint(ctx, o.Node, r.ShortageTaint, short && !r.SetsNoTaint))
}

// servesPods reports whether the node has all addresses that it gets for now: of its first block,
// and for unscheduled pods. Where Nodes offer addresses, they count once they are offered. Another
// IPAM serves its nodes by itself.
func (o *observation) servesPods(families []ipalloc.Family, plans []familyPlan) bool {
	if o.OtherIPAM {
		return true
	}
	if o.CiliumNode == nil || len(o.Shares) == 0 {
		return false
	}
	for i := range plans {
		p := &plans[i]
		grows := len(p.plan.Publish)+len(p.plan.Assign) > 0 || p.plan.Claim.Blocks > 0 && p.short == 0 // by this plan
		if !p.State.FamilyDisabled && (grows || p.CiliumPool == "" && !o.provides(families, plans, p.Family)) {
			return false
		}
	}
	return true
}

// provides reports whether the node has addresses of a family for pods.
func (o *observation) provides(families []ipalloc.Family, plans []familyPlan, f ipalloc.Family) bool {
	if slices.Contains(families, f) {
		n, known := o.offerOf(families, plans, f, "")
		is := o.memory.lastOffer(o.Node)
		// An offer that was written in this reconcile has changed the Node.
		return known && n > 0 && n == is.allocatable.Of("")[f] && is.version == o.Node.ResourceVersion
	}
	return slices.ContainsFunc(o.CiliumNode.Named(), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

// setNodeTaint keeps pods off a Node without addresses for them, by a taint of this key.
func (r *Reporter) setNodeTaint(ctx context.Context, node *corev1.Node, key string, short bool) error {
	isOurs := func(t corev1.Taint) bool { return t.Key == key }
	if slices.ContainsFunc(node.Spec.Taints, isOurs) == short {
		return nil
	}
	changed := node.DeepCopy()
	changed.Spec.Taints = slices.DeleteFunc(changed.Spec.Taints, isOurs)
	if short {
		changed.Spec.Taints = append(changed.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := r.Shared.Wrote("Node", node.Name, "taint", client.IgnoreNotFound(r.Client.Patch(ctx, changed, patch))); err != nil {
		return fmt.Errorf("tainting Node %s: %w", node.Name, err)
	}
	return nil
}
