package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// reportAddress is marked for release where an agent is to report afresh: it is in
// no pool, so the agent answers do-not-release together with everything it uses
// (pkg/ipam/crd.go, updateLocalNodeResource, v1.20.1). One for documentation
// (RFC 5737, RFC 3849), of a family that the node has and that is not paused, so that
// the entry is cleared again.
func (o *observation) reportAddress() netip.Addr {
	i := slices.IndexFunc(o.Shares, func(f state.Share) bool { return f.Paused == "" })
	if i >= 0 && o.Shares[i].Family == ipalloc.IPv6 {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, 1})
}

// ensureCiliumNode makes the CiliumNode of a Node that a pool serves, before its
// agent asks, or puts back one that was deleted under a running agent, which
// would not do so by itself.
func (r *NodeReconciler) ensureCiliumNode(ctx context.Context, o *observation) error {
	if o.paused() || len(o.Shares) == 0 {
		return nil
	}
	if r.OptedOut(o.Node) {
		return r.withoutCilium(ctx, o)
	}
	if last := r.Ledger.LastCiliumNode(o.Name); last != nil && last.OwnedBy(o.Node) {
		return r.recreate(ctx, o, last)
	}
	view, err := r.CiliumNodes.Create(ctx, o.Node)
	if r.Metrics.wrote("CiliumNode", "create", err) != nil {
		if apierrors.IsAlreadyExists(err) {
			return errStale
		}
		return err
	}
	r.created(o, view)
	if len(o.Blocks) == 0 {
		return nil
	}
	if !slices.ContainsFunc(o.Blocks, restsAsNodeGone) {
		r.Events.ciliumNodeRemade(o.Node)
	}
	if err := r.requestReport(ctx, o); err != nil {
		return err
	}
	return errStale // observe the node as it now is
}

// restsAsNodeGone says that a block rests as its Node was gone: its CiliumNode went
// with that, and is no one that somebody deleted under a running agent.
func restsAsNodeGone(b crd.Block) bool {
	return b.Phase == ipalloc.CoolingDown && b.Reason == expand.NodeGone
}

// withoutCilium lets the blocks of a Node cool down that Cilium no longer runs
// on: it has opted out, and its CiliumNode, seen live, is gone.
func (r *NodeReconciler) withoutCilium(ctx context.Context, o *observation) error {
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil || live != nil {
		return err
	}
	for i := range o.Shares {
		o.Shares[i].State.Gone = true
	}
	return nil
}

// recreate puts a deleted CiliumNode back whole, with the addresses of the
// blocks the node still holds, and asks its agent to report.
func (r *NodeReconciler) recreate(ctx context.Context, o *observation, last *ciliumnode.Stored) error {
	// Their claims come before their addresses.
	if err := r.restoreOrphanedBlocks(ctx, o, last.View); err != nil {
		return err
	}
	// What is another node's by now is not put back as foreign content, nor a block
	// of its own that a watch has shown since, and late.
	without := append(crd.CIDRs(o.Blocks), crd.CIDRs(r.Ledger.NodeBlocks(o.Name))...)
	without = append(without, r.Ledger.HeldElsewhere(o.Name, last.Named())...)
	view, err := r.CiliumNodes.Recreate(ctx, last, o.Node, without)
	if r.Metrics.wrote("CiliumNode", "create", err) != nil {
		if apierrors.IsAlreadyExists(err) {
			return errStale
		}
		return err
	}
	r.created(o, view)
	if len(last.Used) > 0 {
		r.Ledger.MarkRestored(o.Name, view.UID)
	}
	// Told at once: if the agent writes to it before its addresses are published,
	// the next look finds a CiliumNode like any other.
	r.Events.ciliumNodeRestored(o.Node)
	log.FromContext(ctx).Info("put back the deleted CiliumNode", "blocks", len(o.Blocks))
	change := ciliumnode.Change{}
	for _, b := range o.Blocks {
		ciliumPool := r.CiliumPoolOf(b, last.View)
		was := last.Of(ciliumPool)
		if !was.Lists(b.CIDR) && len(r.Ledger.Overlaps(b.CIDR)) > 0 {
			continue // what was published before it stays, and nothing of it comes
		}
		change.Add(b.CIDR, ciliumPool)
		held, err := r.stillHeld(ctx, b)
		if err != nil {
			return err
		}
		if held && b.Phase != ipalloc.CoolingDown {
			change.Publish = append(change.Publish, r.ofBlock(o, b, was.PublishedIn(b.CIDR))...)
		}
	}
	if err := r.apply(ctx, o, view, change); err != nil {
		return err
	}
	if err := r.requestReport(ctx, o); err != nil {
		return err
	}
	return errStale // observe the node as it now is
}

// askForReport makes an agent report that runs steadily and has said nothing of
// what it uses: its CiliumNode was made anew while it ran, by itself or by a
// process that did not come to ask. Once is enough for each CiliumNode, as one
// that does not answer is broken. One of another mode would not answer.
func (r *NodeReconciler) askForReport(ctx context.Context, o *observation) error {
	if o.paused() || o.Adopting || !o.Settled || len(o.CiliumNode.Used) > 0 || len(o.CiliumNode.Pool) == 0 || !r.firstAsk(o.Name, o.CiliumNode.UID) {
		return nil
	}
	if err := r.requestReport(ctx, o); err != nil {
		r.askAgain(o.Name)
		return err
	}
	return errStale // observe the node as it now is
}

// requestReport makes the agent report everything it uses.
func (r *NodeReconciler) requestReport(ctx context.Context, o *observation) error {
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil || live == nil || live.BlockDemand != nil { // that agent tells by itself
		return err
	}
	_, err = r.release(ctx, o, live, []netip.Addr{o.reportAddress()}, nil)
	return err
}

// created takes a CiliumNode just made as the one to decide on.
func (r *NodeReconciler) created(o *observation, view *ciliumnode.View) {
	r.wroteNode(o, view)
	o.CiliumNode = view
	for i := range o.Shares {
		fo, s := &o.Shares[i], &o.Shares[i].State
		now := r.State(expand.State{Family: s.Family}, fo.CiliumPool, view, o.Blocks)
		s.Pool, s.Used, s.Release, s.Own, s.Limits, s.BlockDemand = now.Pool, now.Used, now.Release, now.Own, now.Limits, now.BlockDemand
		for b := range s.Blocks {
			s.Blocks[b].Listed = view.Of(fo.CiliumPool).Lists(s.Blocks[b].CIDR)
		}
	}
}

// nodeGone sees to it that a Node that is gone, seen live, has no CiliumNode,
// and lets its blocks cool down: its machine may still be running.
func (r *NodeReconciler) nodeGone(ctx context.Context, o *observation) error {
	if r.Paused {
		o.Shares = nil
		return nil
	}
	if len(o.Blocks) == 0 {
		o.Shares = nil
		if o.CiliumNode == nil {
			r.Ledger.ForgetCiliumNode(o.Name)
			r.forget(o.Name)
			for _, f := range ipalloc.Families() {
				r.Metrics.forget(o.Name, f)
			}
			r.Events.forget(o.Name)
		}
		return nil
	}
	// The CiliumNode first: if a new Node's agent takes it over after this, its
	// version moves and the deletion loses.
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil {
		return err
	}
	err = r.Live.Get(ctx, types.NamespacedName{Name: o.Name}, &corev1.Node{})
	if err == nil {
		return fmt.Errorf("%w: Node %s is there", errStale, o.Name)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading Node %s: %w", o.Name, err)
	}
	if live != nil {
		if err := r.Metrics.wrote("CiliumNode", "delete", r.CiliumNodes.Delete(ctx, live)); err != nil {
			return err
		}
		return fmt.Errorf("%w: deleted the CiliumNode of Node %s, which is gone", errStale, o.Name)
	}
	o.CiliumNode = nil
	for i := range o.Shares {
		o.Shares[i].State.Gone = true
		o.Shares[i].Paused = ""
	}
	return nil
}
