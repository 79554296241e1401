package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// act carries out plans in an order that is safe to interrupt after any step:
//
//  1. blocks go back into service, start to drain, or have been closed by their agent;
//  2. marks for release are set and withdrawn, and the agent's own addresses retired;
//  3. blocks are claimed;
//  4. addresses are published and removed, for both families at once, and blocks parked;
//  5. blocks without an address cool down; blocks that have cooled down are released.
//
// Every write of the CiliumNode is conditional on the version that the plan is based
// on, which is older than every claim it publishes.
//
// A write that fails keeps back its dependents and no more: see carryOn. It records in plans the
// number of addresses that their claims fell short.
func (r *Reconciler) act(ctx context.Context, o *observation, plans []familyPlan, done *outcome) error {
	for i := range plans {
		if err := r.actOnPhases(ctx, o, &plans[i], done); err != nil {
			return err
		}
	}
	if o.CiliumNode == nil {
		return r.actOnBlocks(ctx, o, plans, done)
	}
	if err := done.carryOn(keepPodAddresses(ctx, r.Live, o, plans, done)); err != nil {
		return err
	}
	view, err := r.actOnHandshake(ctx, o, plans)
	if err := done.carryOn(err); err != nil {
		return err
	}
	change := ciliumnode.Change{}
	for i := range plans {
		err := r.claim(ctx, o, &plans[i], &change, done)
		done.failed = errors.Join(done.failed, err) // also if it lost a race: none of the claimed did
	}
	for i := range plans {
		p := &plans[i]
		if err := r.publishable(ctx, o, p, &change, done); err != nil {
			return err
		}
		change.Remove = append(change.Remove, p.plan.Remove...)
		change.Unpark = append(change.Unpark, p.plan.Unpark...)
		if cidr := p.plan.Park; cidr.IsValid() {
			change.Park = append(change.Park, cidr)
		}
	}
	change.Unpark = append(change.Unpark, r.parkedAlone(o)...)
	if err := r.toList(ctx, o, plans, &change, done); err != nil {
		return err
	}
	err = r.apply(ctx, o, view, change, done)
	for i := range plans {
		if p := &plans[i]; err != nil {
			p.keepBack(err, p.publishes(), p.plan.Claim.Addresses)
		}
	}
	if err := done.carryOn(err); err != nil {
		return err
	}
	return r.actOnBlocks(ctx, o, plans, done)
}

// keepBack records why addresses that the plan publishes or claims do not reach the node.
func (p *familyPlan) keepBack(err error, published, claimed int) {
	p.failed, p.kept = err, p.kept+published+claimed
	p.plan.Capacity -= published
}

// publishes returns the number of addresses that the plan adds of the node's blocks.
func (p *familyPlan) publishes() int {
	n := len(p.plan.Publish)
	for _, cidr := range p.plan.Assign {
		n += p.sizeOf(cidr)
	}
	return n
}

// sizeOf returns the number of addresses of a block that is assigned whole.
func (p *familyPlan) sizeOf(cidr netip.Prefix) int {
	i := slices.IndexFunc(p.State.Blocks, func(b expand.Block) bool { return b.CIDR == cidr })
	if i < 0 {
		return 0
	}
	return p.State.Blocks[i].Size
}

// toList returns the blocks that podCIDRs may name: all blocks of the node in the planned families,
// except blocks that overlap one published earlier. Anything already published but not listed may
// belong to another block, which is read live.
func (r *Reconciler) toList(ctx context.Context, o *observation, plans []familyPlan, change *ciliumnode.Change, done *outcome) error {
	for _, b := range r.Ledger.NodeBlocks(o.Name) {
		ciliumPool := r.CiliumPoolOf(b, o.CiliumNode)
		if r.IsOrphaned(b, o.CiliumNode) || !slices.ContainsFunc(plans, func(p familyPlan) bool { return p.about(b, ciliumPool) }) {
			continue
		}
		if of := o.CiliumNode.Of(ciliumPool); !of.Lists(b.CIDR) {
			may := len(r.Ledger.Overlaps(b.CIDR)) == 0
			if may && of.CountIn(b.CIDR) > 0 {
				var err error
				may, err = r.Blocks.unchanged(ctx, b)
				if err := done.carryOn(err); err != nil {
					return err
				}
			}
			if !may {
				continue
			}
		}
		change.Add(b.CIDR, ciliumPool)
	}
	return nil
}

// about reports whether a plan covers a block of a Cilium pool: same family, same Cilium pool.
func (p *familyPlan) about(b crd.Block, ciliumPool string) bool {
	return p.Family == ipalloc.FamilyOf(b.CIDR.Addr()) && p.CiliumPool == ciliumPool
}

func (r *Reconciler) actOnPhases(ctx context.Context, o *observation, p *familyPlan, done *outcome) error {
	for _, cidr := range p.plan.Undrain {
		err := r.setPhase(ctx, o, cidr, ipalloc.InService, expand.None, nil)
		if err != nil {
			p.keepBack(err, o.CiliumNode.CountIn(cidr), 0)
		}
		if err := done.carryOn(err); err != nil {
			return err
		}
	}
	for _, d := range p.plan.Drain {
		if r.lostPlace(o, d) {
			return fmt.Errorf("%w: another node has its place to move off the pool of block %s", errStale, d.CIDR)
		}
		err := r.setPhase(ctx, o, d.CIDR, ipalloc.Draining, d.Reason, p.plan.Waits)
		if !unwritten(err) {
			r.Pacing.Begun(o.Name, d.CIDR)
		}
		if err != nil { // its addresses are marked only under the condition
			p.plan.Mark, p.plan.Retire, p.plan.Remove = outside(d.CIDR, p.plan.Mark), outside(d.CIDR, p.plan.Retire), outside(d.CIDR, p.plan.Remove)
		}
		if err := done.carryOn(err); err != nil {
			return err
		}
	}
	for _, c := range p.plan.Close {
		b, err := o.block(c.CIDR)
		if err != nil {
			return err
		}
		if err := done.carryOn(r.Blocks.setClosed(ctx, b, c.Closed)); err != nil {
			return err
		}
	}
	return nil
}

// lostPlace reports whether a drain would begin to move the node off a pool, and another node has taken
// its place since.
func (r *Reconciler) lostPlace(o *observation, d expand.Drain) bool {
	b, err := o.block(d.CIDR)
	return err == nil && d.Reason == expand.NodeUnselected && b.Phase != ipalloc.CoolingDown && !r.Pacing.MayMove(o.Name, b.Pool, r.Clock.Now())
}

// unwritten reports whether err proves that a write was not carried out, or was never
// sent.
func unwritten(err error) bool {
	return errors.Is(err, errStale) || apierrors.IsConflict(err) || definite(err)
}

func (r *Reconciler) actOnHandshake(ctx context.Context, o *observation, plans []familyPlan) (*ciliumnode.View, error) {
	var change ciliumnode.Entries
	for _, p := range plans {
		change.Mark = append(change.Mark, p.plan.Mark...)
		change.Retire = append(change.Retire, p.plan.Retire...)
		change.Clear = append(change.Clear, p.plan.Clear...)
		if p.plan.Ask {
			change.Mark = append(change.Mark, expand.ReportAddress(p.Family, p.State.Pool))
		}
	}
	if len(change.Mark)+len(change.Retire)+len(change.Clear) == 0 {
		return o.CiliumNode, nil
	}
	view, err := r.release(ctx, o, o.CiliumNode, change)
	o.memory.noteWrite(o.uid(), "", err, r.Clock.Now())
	if err != nil { // if it was done all the same, the next write of this version conflicts
		return o.CiliumNode, err
	}
	if view != o.CiliumNode {
		r.Metrics.handshake("mark", len(change.Mark))
		r.Metrics.handshake("retire", len(change.Retire))
		r.Metrics.handshake("clear", len(change.Clear))
	}
	return view, nil
}

// release writes release entries. Entries that are already correct cause no write.
func (r *Reconciler) release(ctx context.Context, o *observation, view *ciliumnode.View, change ciliumnode.Entries) (*ciliumnode.View, error) {
	written, err := r.CiliumNodes.Release(ctx, view, change)
	if err == nil && written == nil {
		return view, nil
	}
	return r.wroteNode(o, "release", written, err)
}

// apply writes a change to the CiliumNode, without the addresses that may no longer be
// published.
func (r *Reconciler) apply(ctx context.Context, o *observation, view *ciliumnode.View, change ciliumnode.Change, done *outcome) error {
	r.dropTaken(o, &change, done)
	if r.Routes != nil && len(change.Publish)+len(change.Assign) > 0 {
		r.Routes.Announce(ctx, o.Name)
	}
	written, err := r.CiliumNodes.Apply(ctx, view, change)
	if err == nil && written == nil {
		return nil
	}
	now, err := r.wroteNode(o, "publish", written, err)
	if err != nil {
		return err
	}
	r.Metrics.handshake("publish", len(change.Publish))
	r.Metrics.handshake("remove", len(change.Remove))
	for _, cidr := range change.Park { // its agent may answer before it is seen
		o.noteParked(cidr, expand.Parking{Agent: r.Agents.Container(o.Name), Since: r.Clock.Now()})
	}
	log.FromContext(ctx).V(1).Info("published", "added", len(change.Publish), "assigned", len(change.Assign), "removed", len(change.Remove),
		"pool", len(now.Pool), "podCIDRs", len(now.PodCIDRs))
	return nil
}

// wroteNode counts a write of the node's CiliumNode, and takes its result into the ledger. Any
// pending patch of an older version now conflicts, so every block that was cooling down by then can
// no longer be published concurrently.
func (r *Reconciler) wroteNode(o *observation, write string, written *ciliumnode.View, err error) (*ciliumnode.View, error) {
	if err := r.Shared.Wrote("CiliumNode", o.Name, write, err); err != nil {
		return nil, err
	}
	r.Ledger.UpsertCiliumNode(written)
	for _, b := range o.Blocks {
		if b.Phase == ipalloc.CoolingDown {
			r.Ledger.MarkFenced(b)
		}
	}
	return written, nil
}

// publishable adds to a change the planned addresses and blocks, of blocks that, read live, still
// belong to the node and are in the planned phase. The CiliumNode was read earlier, so if a block leaves service after
// this, the patch conflicts. No address is added to a block that overlaps another, or that has no
// known Cilium pool, or that could go at any moment, as it lacks the finalizer.
func (r *Reconciler) publishable(ctx context.Context, o *observation, p *familyPlan, change *ciliumnode.Change, done *outcome) error {
	if len(p.plan.Publish)+len(p.plan.Assign) == 0 {
		return nil
	}
	left := len(p.plan.Publish) + len(p.plan.Assign)
	for _, b := range o.Blocks {
		addrs, whole := inBlock(b.CIDR, p.plan.Publish), slices.Contains(p.plan.Assign, b.CIDR)
		if len(addrs) == 0 && !whole || len(r.Ledger.Overlaps(b.CIDR)) > 0 || r.IsOrphaned(b, o.CiliumNode) {
			continue
		}
		held, err := r.Blocks.protected(ctx, b)
		o.memory.noteWrite(b.UID, b.ResourceVersion, err, r.Clock.Now())
		if err != nil {
			p.keepBack(err, len(addrs)+p.sizeOf(b.CIDR), 0)
			if err := done.carryOn(err); err != nil {
				return err
			}
			continue
		}
		if !held {
			return fmt.Errorf("%w: block %s", errStale, b.CIDR)
		}
		change.Publish, left = append(change.Publish, addrs...), left-len(addrs)
		if whole {
			change.Assign, left = append(change.Assign, b.CIDR), left-1
		}
	}
	if left > 0 {
		done.pollFor = "addresses of a block that overlaps another are kept back"
	}
	return nil
}

// inBlock returns the addresses of addrs that lie in a block.
func inBlock(block netip.Prefix, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return !block.Contains(addr) })
}

// outside returns the addresses of addrs that do not lie in a block.
func outside(block netip.Prefix, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), block.Contains)
}

// dropTaken drops from a change the addresses and blocks that podCIDRs may not list, and the unused
// ones that another node's CiliumNode names. One address in use keeps all of a block that is assigned
// whole.
func (r *Reconciler) dropTaken(o *observation, change *ciliumnode.Change, done *outcome) {
	var publish []netip.Addr
	var assign []netip.Prefix
	for _, block := range change.Blocks {
		addrs, whole := inBlock(block, change.Publish), slices.Contains(change.Assign, block)
		if len(addrs) == 0 && !whole {
			continue
		}
		elsewhere := r.Ledger.NamedElsewhere(o.Name, block)
		if whole && (len(elsewhere) == 0 || o.uses(block)) {
			assign = append(assign, block)
		}
		for _, addr := range addrs {
			if !state.ContainsAddr(elsewhere, addr) || o.uses(netip.PrefixFrom(addr, addr.BitLen())) {
				publish = append(publish, addr)
			}
		}
	}
	if len(publish)+len(assign) < len(change.Publish)+len(change.Assign) {
		done.pollFor = "another CiliumNode names addresses"
	}
	change.Publish, change.Assign = publish, assign
}

// uses reports whether the agent's report or a pod's status names an address of cidr.
func (o *observation) uses(cidr netip.Prefix) bool {
	return o.CiliumNode.UsesAny(cidr) || slices.ContainsFunc(o.Pods, func(p expand.Pod) bool { return slices.ContainsFunc(p.IPs, cidr.Contains) })
}

// actOnBlocks starts the cooldown of blocks and releases cooled ones. What each deletion depends on is read
// live, so one that lost a race, even for good, stops no other.
func (r *Reconciler) actOnBlocks(ctx context.Context, o *observation, plans []familyPlan, done *outcome) error {
	for _, p := range plans {
		if len(p.plan.Free) > 0 {
			if err := done.carryOn(r.coolDown(ctx, o, p.plan.Free, done)); err != nil {
				return err
			}
		}
		for _, cidr := range p.plan.Delete {
			runs, err := r.runsWith(ctx, o)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(runs, cidr.Overlaps) {
				done.pollFor = "the agent runs with a block"
				continue
			}
			done.failed = errors.Join(done.failed, r.deleteBlock(ctx, o, cidr))
		}
	}
	return nil
}

// coolDown starts the cooldown of blocks that their agent no longer has. An agent may still use a
// block assigned to its Node before the Node was deleted and created again, until that agent
// restarts. Its CiliumNode names the block; changes to it do not trigger a reconcile here.
func (r *Reconciler) coolDown(ctx context.Context, o *observation, blocks []expand.Free, done *outcome) error {
	if o.CiliumNode != nil {
		if err := verifyReturned(ctx, r.CiliumNodes, o, blocks); err != nil {
			return err
		}
	}
	runs, err := r.runsWith(ctx, o)
	if err != nil {
		return err
	}
	for _, f := range blocks {
		if slices.ContainsFunc(runs, f.CIDR.Overlaps) {
			done.pollFor = "the agent runs with a block"
			continue
		}
		if err := done.carryOn(r.setPhase(ctx, o, f.CIDR, ipalloc.CoolingDown, f.Reason, nil)); err != nil {
			return err
		}
	}
	return nil
}

// runsWith returns the podCIDRs that a node's agent runs with, in kubernetes mode.
func (r *Reconciler) runsWith(ctx context.Context, o *observation) ([]netip.Prefix, error) {
	if o.CiliumNode == nil {
		return nil, nil
	}
	return r.CiliumNodes.RunsWith(ctx, o.Name)
}

// verifyReturned fails if blocks that are assigned whole, and that are about to cool down because the
// agent returned them, are on the agent's list, read live: the watch may lag behind another process
// that assigned them. If the CiliumNode were deleted then, no object would record that the agent
// has them.
func verifyReturned(ctx context.Context, client *ciliumnode.Client, o *observation, blocks []expand.Free) error {
	if o.CiliumNode.BlockAssignment == nil {
		return nil
	}
	live, err := client.Live(ctx, o.Name)
	if err != nil {
		return err
	}
	if live == nil {
		return fmt.Errorf("%w: it has no CiliumNode", errStale)
	}
	for _, b := range blocks {
		if live.HasBlock(b.CIDR) {
			return fmt.Errorf("%w: block %s is on the list of its agent", errStale, b.CIDR)
		}
	}
	return nil
}
