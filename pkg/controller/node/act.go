package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
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
// A write that fails keeps back its dependents and no more: see result.record. The outcomes say, for each
// decision, what its writes did not bring.
func (r *Reconciler) act(ctx context.Context, o *observation, decisions []decision, result *result) ([]outcome, error) {
	outcomes := make([]outcome, len(decisions))
	if len(decisions) == 0 {
		return outcomes, nil
	}
	decisions = slices.Clone(decisions)
	for i := range decisions {
		unwritten, err := r.actOnPhases(ctx, o, &decisions[i], &outcomes[i], result)
		if err != nil {
			return outcomes, err
		}
		decisions[i].plan = decisions[i].plan.Without(unwritten)
	}
	if o.CiliumNode == nil {
		return outcomes, r.actOnBlocks(ctx, o, decisions, result)
	}
	decisions, err := keepPodAddresses(ctx, r.Live, o, decisions, result)
	if err := result.record(err); err != nil {
		return outcomes, err
	}
	for i := range decisions {
		outcomes[i].marks = len(decisions[i].plan.Mark) > 0
	}
	view, err := r.actOnHandshake(ctx, o, decisions)
	if err := result.record(err); err != nil {
		return outcomes, err
	}
	change, err := r.claimAndCompose(ctx, o, decisions, outcomes, result)
	if err != nil {
		return outcomes, err
	}
	err = r.apply(ctx, o, view, change, result)
	if err != nil {
		for i := range decisions {
			outcomes[i].fails(err, decisions[i].publishes(), decisions[i].plan.Claim.Addresses)
		}
	} else {
		r.measureGrowth(o, decisions, outcomes, &change)
	}
	if err := result.record(err); err != nil {
		return outcomes, err
	}
	return outcomes, r.actOnBlocks(ctx, o, decisions, result)
}

// claimAndCompose claims the blocks of decisions, and returns the change of the CiliumNode that publishes, removes and lists
// what they say.
func (r *Reconciler) claimAndCompose(ctx context.Context, o *observation, decisions []decision, outcomes []outcome, result *result) (ciliumnode.Change, error) {
	change := ciliumnode.Change{}
	for i := range decisions {
		err := r.claim(ctx, o, &decisions[i], &outcomes[i], &change, result)
		result.failed = errors.Join(result.failed, err) // also if it lost a race: none of the claimed did
	}
	for i := range decisions {
		if err := r.addVerified(ctx, o, &decisions[i], &outcomes[i], &change, result); err != nil {
			return change, err
		}
		plan := &decisions[i].plan
		change.Remove = append(change.Remove, plan.Remove...)
		change.Park = append(change.Park, plan.Close...)
		change.Unpark = append(change.Unpark, plan.Unpark...)
		if plan.Park.IsValid() {
			change.Park = append(change.Park, plan.Park)
		}
		if plan.Forget {
			change.Forget = append(change.Forget, decisions[i].CiliumPool)
		}
	}
	change.Unpark = append(change.Unpark, r.parkedAlone(o)...)
	return change, r.addListed(ctx, o, decisions, &change, result)
}

// addListed adds to a change the blocks that podCIDRs may name: all blocks of the node in the planned families,
// except blocks that overlap one published earlier. If addresses of a block are published though it is
// not listed, they may belong to another one, so the block is read live.
func (r *Reconciler) addListed(ctx context.Context, o *observation, decisions []decision, change *ciliumnode.Change, result *result) error {
	for _, b := range r.Cluster.Ledger.NodeBlocks(o.Name) {
		ciliumPool := r.Cluster.CiliumPoolOf(b, o.CiliumNode)
		if r.Cluster.IsOrphaned(b, o.CiliumNode) || !slices.ContainsFunc(decisions, func(d decision) bool { return d.covers(b, ciliumPool) }) {
			continue
		}
		if view := o.CiliumNode.Of(ciliumPool); !view.ListsForDefaultPool(b.CIDR) {
			mayList := len(r.Cluster.Ledger.Overlaps(b.CIDR)) == 0
			if mayList && view.CountIn(b.CIDR) > 0 {
				var err error
				mayList, err = r.Blocks.verifyUnchanged(ctx, b)
				if err := result.record(err); err != nil {
					return err
				}
			}
			if !mayList {
				continue
			}
		}
		change.Add(b.CIDR, ciliumPool)
	}
	return nil
}

// actOnPhases carries out the drains and undrains of a plan. It returns the blocks with a drain that was not
// written: their addresses are marked only under the condition.
func (r *Reconciler) actOnPhases(ctx context.Context, o *observation, d *decision, out *outcome, result *result) (unwritten []netip.Prefix, err error) {
	for _, cidr := range d.plan.Undrain {
		err := r.setPhase(ctx, o, cidr, ipalloc.InService, expand.None, nil)
		if err != nil {
			out.fails(err, o.CiliumNode.CountIn(cidr), 0)
		}
		if err := result.record(err); err != nil {
			return nil, err
		}
	}
	for _, drain := range d.plan.Drain {
		if r.lostPlace(o, drain) {
			return nil, fmt.Errorf("%w: another node has its place to move off the pool of block %s", errStale, drain.CIDR)
		}
		err := r.setPhase(ctx, o, drain.CIDR, ipalloc.Draining, drain.Reason, d.plan.Obstacles)
		if !provesNotWritten(err) {
			r.Pacing.Begun(o.Name, drain.CIDR)
		}
		if err != nil {
			unwritten = append(unwritten, drain.CIDR)
		}
		if err := result.record(err); err != nil {
			return nil, err
		}
	}
	for _, c := range d.plan.RecordClosed {
		b, err := o.block(c.CIDR)
		if err != nil {
			return nil, err
		}
		if err := result.record(r.Blocks.setClosed(ctx, b, c.Closed)); err != nil {
			return nil, err
		}
	}
	return unwritten, nil
}

// lostPlace reports whether a drain would begin to move the node off a pool, and another node has taken
// its place since.
func (r *Reconciler) lostPlace(o *observation, d expand.Drain) bool {
	b, err := o.block(d.CIDR)
	return err == nil && d.Reason == expand.NodeUnselected && b.Phase != ipalloc.CoolingDown && !r.Pacing.KeepPlace(o.Name, b.Pool, r.Clock.Now())
}

func (r *Reconciler) actOnHandshake(ctx context.Context, o *observation, decisions []decision) (*ciliumnode.View, error) {
	var change ciliumnode.ReleaseChange
	for _, d := range decisions {
		change.Mark = append(change.Mark, d.plan.Mark...)
		change.Retire = append(change.Retire, d.plan.Retire...)
		change.Clear = append(change.Clear, d.plan.Clear...)
		if d.plan.Probe {
			change.Mark = append(change.Mark, expand.ProbeAddress(d.Family, d.State.Pool))
		}
	}
	if len(change.Mark)+len(change.Retire)+len(change.Clear) == 0 {
		return o.CiliumNode, nil
	}
	view, err := r.writeEntries(ctx, o, o.CiliumNode, change)
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

// writeEntries writes release entries. Entries that are already correct cause no write.
func (r *Reconciler) writeEntries(ctx context.Context, o *observation, view *ciliumnode.View, change ciliumnode.ReleaseChange) (*ciliumnode.View, error) {
	written, err := r.CiliumNodes.PatchReleaseIPs(ctx, view, change)
	if err == nil && written == nil {
		return view, nil
	}
	return r.wroteCiliumNode(o, "release", written, err)
}

// apply writes a change to the CiliumNode, without the addresses that may no longer be
// published.
func (r *Reconciler) apply(ctx context.Context, o *observation, view *ciliumnode.View, change ciliumnode.Change, result *result) error {
	r.dropTaken(o, &change, result)
	if r.Routes != nil && len(change.Publish)+len(change.Assign) > 0 {
		r.Routes.Announce(ctx, o.Name)
	}
	written, err := r.CiliumNodes.PatchSpec(ctx, view, change)
	if err == nil && written == nil {
		return nil
	}
	now, err := r.wroteCiliumNode(o, "publish", written, err)
	if err != nil {
		return err
	}
	r.Metrics.handshake("publish", len(change.Publish))
	r.Metrics.handshake("remove", len(change.Remove))
	for _, cidr := range change.Park { // its agent may answer before it is seen
		o.noteParked(cidr, expand.Parking{Agent: r.Cluster.Agents.Container(o.Name), Since: r.Clock.Now()})
	}
	log.FromContext(ctx).V(1).Info("published", "added", len(change.Publish), "assigned", len(change.Assign), "removed", len(change.Remove),
		"pool", len(now.Published()), "podCIDRs", len(now.PodCIDRs))
	return nil
}

// wroteCiliumNode counts a write of the node's CiliumNode, and takes its result into the ledger. Any
// pending patch of an older version now conflicts, so every block that was cooling down by then can
// no longer be published concurrently.
func (r *Reconciler) wroteCiliumNode(o *observation, write string, written *ciliumnode.View, err error) (*ciliumnode.View, error) {
	if err := r.Counters.CountWrite("CiliumNode", o.Name, write, err); err != nil {
		return nil, err
	}
	r.Cluster.Ledger.UpsertCiliumNode(written)
	for _, b := range o.Blocks {
		if b.Phase == ipalloc.CoolingDown {
			r.Cluster.Ledger.MarkFenced(b)
		}
	}
	return written, nil
}

// addVerified adds to a change the planned addresses and blocks, of blocks that, read live, still
// belong to the node and are in the planned phase. The CiliumNode was read earlier, so if a block leaves service after
// this, the patch conflicts. No address is added to a block that overlaps another, or that has no
// known Cilium pool, or that could go at any moment, as it lacks the finalizer.
func (r *Reconciler) addVerified(ctx context.Context, o *observation, d *decision, out *outcome, change *ciliumnode.Change, result *result) error {
	missing := len(d.plan.Publish) + len(d.plan.Assign)
	if missing == 0 {
		return nil
	}
	for _, b := range o.Blocks {
		addrs := inBlock(b.CIDR, d.plan.Publish)
		whole := slices.Contains(d.plan.Assign, b.CIDR)
		if len(addrs) == 0 && !whole || len(r.Cluster.Ledger.Overlaps(b.CIDR)) > 0 || r.Cluster.IsOrphaned(b, o.CiliumNode) {
			continue
		}
		finalized, err := r.Blocks.verifyFinalized(ctx, b)
		o.memory.noteWrite(b.UID, b.ResourceVersion, err, r.Clock.Now())
		if err != nil {
			out.fails(err, len(addrs)+d.sizeOf(b.CIDR), 0)
			if err := result.record(err); err != nil {
				return err
			}
			continue
		}
		if !finalized {
			return fmt.Errorf("%w: block %s", errStale, b.CIDR)
		}
		change.Publish = append(change.Publish, addrs...)
		missing -= len(addrs)
		if whole {
			change.Assign = append(change.Assign, b.CIDR)
			missing--
		}
	}
	if missing > 0 {
		result.pollFor = "addresses of a block that overlaps another are kept back"
	}
	return nil
}

// inBlock returns the addresses of addrs that lie in a block.
func inBlock(block netip.Prefix, addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(addr netip.Addr) bool { return !block.Contains(addr) })
}

// dropTaken drops from a change the addresses and blocks that podCIDRs may not list, and the unused
// ones that another node's CiliumNode names. One address in use keeps all of a block that is assigned
// whole.
func (r *Reconciler) dropTaken(o *observation, change *ciliumnode.Change, result *result) {
	var publish []netip.Addr
	var assign []netip.Prefix
	for _, block := range change.Blocks {
		addrs := inBlock(block, change.Publish)
		whole := slices.Contains(change.Assign, block)
		if len(addrs) == 0 && !whole {
			continue
		}
		elsewhere := r.Cluster.Ledger.NamedElsewhere(o.Name, block)
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
		result.pollFor = "another CiliumNode names addresses"
	}
	change.Publish = publish
	change.Assign = assign
}

// uses reports whether the agent's report or a pod's status names an address of cidr.
func (o *observation) uses(cidr netip.Prefix) bool {
	return o.CiliumNode.UsesAny(cidr) || slices.ContainsFunc(o.Pods, func(p expand.Pod) bool { return slices.ContainsFunc(p.IPs, cidr.Contains) })
}

// actOnBlocks starts the cooldown of blocks and releases cooled ones. What each deletion depends on is read
// live, so one that lost a race, even for good, stops no other.
func (r *Reconciler) actOnBlocks(ctx context.Context, o *observation, decisions []decision, result *result) error {
	for _, d := range decisions {
		if len(d.plan.CoolDown) > 0 {
			if err := result.record(r.coolDown(ctx, o, d.plan.CoolDown, result)); err != nil {
				return err
			}
		}
		for _, cidr := range d.plan.Delete {
			runs, err := r.runsWith(ctx, o)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(runs, cidr.Overlaps) {
				result.pollFor = "the agent runs with a block"
				continue
			}
			result.failed = errors.Join(result.failed, r.deleteBlock(ctx, o, cidr))
		}
	}
	return nil
}

// coolDown starts the cooldown of blocks that their agent no longer has. An agent may still use a
// block assigned to its Node before the Node was deleted and created again, until that agent
// restarts. Its CiliumNode names the block; changes to it do not trigger a reconcile here.
func (r *Reconciler) coolDown(ctx context.Context, o *observation, blocks []expand.CoolDown, result *result) error {
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
			result.pollFor = "the agent runs with a block"
			continue
		}
		if err := result.record(r.setPhase(ctx, o, f.CIDR, ipalloc.CoolingDown, f.Reason, nil)); err != nil {
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
func verifyReturned(ctx context.Context, client *ciliumnode.Client, o *observation, blocks []expand.CoolDown) error {
	if o.CiliumNode.Addresses != nil {
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
		if live.ListsInAnyPool(b.CIDR) {
			return fmt.Errorf("%w: block %s is on the list of its agent", errStale, b.CIDR)
		}
	}
	return nil
}
