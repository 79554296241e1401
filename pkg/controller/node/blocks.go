package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// claim creates the blocks of a plan. It adds to a change what may be published or assigned of them,
// also if another block could not be created, and records in the outcome the number of addresses that it fell short.
//
// A block is created before its first address is published, and published only after
// the watch has delivered everything up to its creation and no overlapping block: of
// two overlapping blocks, the later one always sees the earlier.
func (r *Reconciler) claim(ctx context.Context, o *observation, d *decision, out *outcome, change *ciliumnode.Change, result *result) error {
	want := d.plan.Claim
	inDoubt := func(cidr netip.Prefix) bool { return ipalloc.FamilyOf(cidr.Addr()) == d.Family }
	if another, _ := want.Next(0, 0); !another || slices.ContainsFunc(r.Cluster.Ledger.UnknownClaims(o.Name), inDoubt) {
		return nil
	}
	var created []crd.Block
	var addrs []netip.Addr
	got := 0
	whole := o.CiliumNode.BlockAssignment != nil
	var failed error
	pools := d.Pools
	if d.Replaces() { // a block of a lower pool would need a replacement as well
		pools = pools[:1]
	}
	for tries := 0; tries < want.Blocks+want.Pins+claimTries; tries++ {
		another, pinned := want.Next(len(created), got)
		if !another {
			break
		}
		b, pool, err := r.Blocks.claimAny(ctx, o.Node, d.Family, r.Cluster.Agents.Container(o.Name), pools, pinned)
		if failed = err; err != nil {
			break
		}
		if pool == nil {
			continue
		}
		created = append(created, b)
		r.Metrics.decisions.WithLabelValues(d.Family.String(), "claim").Inc()
		logHolder(ctx, config.BlockClaimed, b, r.whyClaimed(b))
		r.Reporter.sendClaimed(o, d, b)
		o.memory.first.note(o.CiliumNode, b.UID)
		view := o.CiliumNode.Of(d.CiliumPool)
		if whole {
			got += view.BlockAssignment.Count(b.CIDR)
			continue
		}
		addrs = append(addrs, slices.DeleteFunc(r.Cluster.Publishable(view, pool, b.CIDR), func(addr netip.Addr) bool {
			_, ok := o.CiliumNode.Release[addr] // an entry of the handshake
			return ok
		})...)
		got = len(addrs)
	}
	missing := max(0, want.Addresses-got)
	switch {
	case errors.Is(failed, ipalloc.ErrExhausted) && len(pools) < len(d.Pools):
		failed = nil // until it has a block, those being replaced stay in service
		result.pollFor = "its pool has no block to replace others"
	case errors.Is(failed, ipalloc.ErrExhausted):
		failed = nil
		out.exhausts(missing, o.failedWriteOf(d.Share))
	case failed != nil:
		out.fails(failed, 0, missing)
	}
	if err := r.Blocks.waitUntilCached(ctx, created); err != nil {
		return errors.Join(failed, err)
	}
	change.Publish = append(change.Publish, addrs[:min(len(addrs), want.Room)]...)
	if whole {
		change.Assign = append(change.Assign, crd.CIDRs(created)...)
	}
	return failed
}

// whyClaimed returns the reason of a claim, for the log.
func (r *Reconciler) whyClaimed(b crd.Block) string {
	if r.Cluster.Ledger.Pins.IsPinned(b) {
		return "Pinned"
	}
	return "NeedsAddresses"
}

// setPhase moves an observed block to a phase, and sends the event of it. obstacles are the plan's.
func (r *Reconciler) setPhase(ctx context.Context, o *observation, cidr netip.Prefix, phase ipalloc.Phase, reason expand.Reason, obstacles []expand.Obstacle) error {
	b, err := o.block(cidr)
	if err != nil {
		return err
	}
	message := o.phaseMessage(b, phase, reason)
	obstacle := obstacleOf(b, r.Cluster.Pools.Get(b.Pool), obstacles)
	err = r.Blocks.setPhase(ctx, b, phase, reason, message, obstacle)
	o.memory.noteWrite(b.UID, b.ResourceVersion, err, r.Clock.Now())
	if err != nil {
		return err
	}
	if phase == ipalloc.CoolingDown {
		logHolder(ctx, config.BlockReturned, b, string(reason))
	}
	r.Reporter.sendPhase(o, b, phase, reason, message)
	r.Reporter.sendObstacle(o.Node, b, obstacle)
	return nil
}

// deleteBlock deletes a block that has cooled down, so that other nodes can claim it: only if its
// CiliumNode, read live, names no address of it, and has changed since the block left service, so
// that no older patch can still publish it.
func (r *Reconciler) deleteBlock(ctx context.Context, o *observation, cidr netip.Prefix) error {
	b, err := o.block(cidr)
	if err != nil {
		return err
	}
	if r.Routes != nil && r.Routes.Announces(o.Name, cidr) { // or two nodes would announce it
		return fmt.Errorf("%w: the node still announces block %s", errCacheBehind, cidr)
	}
	obj, err := r.Blocks.object(ctx, b)
	if err != nil {
		return err
	}
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil {
		return err
	}
	if live != nil {
		if slices.Contains(live.ListedInAnyPool(), cidr) || publishesBeyondBlocks(live, cidr, o.Blocks) {
			return fmt.Errorf("%w: addresses of block %s are published", errStale, cidr)
		}
		if live.UID != o.uid() { // its agent may still have to report that it uses the block
			return fmt.Errorf("%w: its CiliumNode has been created since", errStale)
		}
		if err := r.fence(ctx, o, live, b); err != nil {
			return err
		}
	}
	return r.Blocks.delete(ctx, b, obj)
}

// fence changes the CiliumNode of a block that cools down, unless it has changed since,
// so that any older patch conflicts: usually by marking an address that is not in the
// pool, which the agent refuses and the operator clears. The address is one of the
// block unless another block of the node contains it.
func (r *Reconciler) fence(ctx context.Context, o *observation, live *ciliumnode.View, b crd.Block) error {
	if r.Cluster.Ledger.Fenced(b) {
		return nil
	}
	addr := b.CIDR.Addr()
	if live.Publishes(addr) || live.BlockAssignment != nil && state.ContainsAddr(live.ListedInAnyPool(), addr) { // of another block, which overlaps this one
		addr = o.probeAddress(live)
	}
	moved, err := r.CiliumNodes.BumpVersion(ctx, live, addr)
	_, err = r.wroteCiliumNode(o, "release", moved, err)
	return err
}

// publishesBeyondBlocks reports whether the CiliumNode publishes an address of cidr that belongs
// to no other block of the node.
func publishesBeyondBlocks(v *ciliumnode.View, cidr netip.Prefix, blocks []crd.Block) bool {
	listed := func(addr netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(b crd.Block) bool {
			return b.CIDR != cidr && b.CIDR.Contains(addr) && v.ListsForDefaultPool(b.CIDR)
		})
	}
	if v.Addresses == nil {
		return slices.ContainsFunc(v.ListedInAnyPool(), func(p netip.Prefix) bool {
			return p.Overlaps(cidr) && !slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR == p })
		})
	}
	for addr := range v.Addresses.Pool {
		if cidr.Contains(addr) && !listed(addr) {
			return true
		}
	}
	return slices.ContainsFunc(v.Addresses.NonCanonical, cidr.Contains)
}

// restoreOrphanedBlocks creates blocks that the CiliumNode lists and that lie on a pool's grid: their
// objects were removed by force, or cilium-operator assigned them. Anything else is foreign. It uses the
// current CiliumNode, or the last one seen, and reports whether it has recreated one.
func (r *Reconciler) restoreOrphanedBlocks(ctx context.Context, o *observation, view *ciliumnode.View, result *result) (bool, error) {
	if len(view.Unadopted(crd.CIDRs(o.Blocks))) > 0 { // another IPAM's
		return false, nil
	}
	restored := false
	for _, cidr := range view.ListedInAnyPool() {
		if _, known := r.Cluster.Ledger.Block(cidr); known || o.unchangeableFor(cidr, view.ListedFor(cidr)) {
			continue
		}
		pool := r.poolOfOrphan(o, view, cidr)
		if pool == nil {
			continue
		}
		live, err := r.CiliumNodes.Live(ctx, o.Name)
		if err != nil {
			return false, err
		}
		if isMissing := o.CiliumNode == nil; isMissing != (live == nil) || !isMissing && !slices.Contains(live.ListedInAnyPool(), cidr) {
			return false, fmt.Errorf("%w: its CiliumNode no longer lists %s", errStale, cidr)
		}
		b, err := r.Blocks.create(ctx, cidr, pool, o.Node)
		if err == nil {
			restored = true
			logHolder(ctx, config.BlockClaimed, b, event.ReasonBlockRemade)
			r.Events.Send(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name, UID: b.UID}}, event.ReasonBlockRemade, event.Reconcile,
				fmt.Sprintf("node %s lists %s of pool %s, which had no PodIPBlock; created it", o.Name, cidr, pool.Name))
		}
		if err := result.record(err); err != nil {
			return false, err
		}
	}
	return restored, nil
}

// poolOfOrphan returns the pool to recreate a listed block of, or nil: no pool of the node for the
// Cilium pool that it is listed for has it on its grid.
func (r *Reconciler) poolOfOrphan(o *observation, view *ciliumnode.View, cidr netip.Prefix) *crd.Pool {
	ciliumPool := view.ListedFor(cidr)
	owner := crd.OwnerOfPool(ciliumPool)
	for _, pool := range r.Cluster.Pools.Match(o.Node.Labels) {
		if !pool.OnGrid(cidr) || !pool.ServesCiliumPool(ciliumPool) {
			continue
		}
		if owner != "" {
			return pool.ForCiliumPoolOfOwner(ciliumPool)
		}
		return pool
	}
	return nil
}

// awaitAdopted fails while the cache lacks an adopted block that the CiliumNode already publishes
// in part because another process wrote it. Without that block, the addresses look like pool
// entries that a person added, and the agent may be asked to release them. Blocks on the grid were
// handled earlier.
func (r *Reconciler) awaitAdopted(ctx context.Context, o *observation, _ *result) (*observation, error) {
	if o.CiliumNode.BlockAssignment != nil {
		return o, nil
	}
	for _, cidr := range o.CiliumNode.AssignedCIDRs() {
		if _, known := r.Cluster.Ledger.Block(cidr); known || len(o.CiliumNode.PublishedIn(cidr)) == 0 {
			continue
		}
		live, err := r.Blocks.read(ctx, crd.BlockName(cidr))
		if err != nil {
			return nil, err
		}
		if live != nil {
			return nil, fmt.Errorf("%w: it has not shown block %s", errCacheBehind, cidr)
		}
	}
	return o, nil
}

// obstacleOf returns which of the obstacles of a plan is a block's, with its note. pool may be nil.
func obstacleOf(b crd.Block, pool *crd.Pool, obstacles []expand.Obstacle) expand.Obstacle {
	i := slices.IndexFunc(obstacles, func(o expand.Obstacle) bool { return o.CIDR == b.CIDR })
	if i < 0 {
		return expand.Obstacle{}
	}
	obstacle := obstacles[i]
	obstacle.Note = obstacleNote(b, pool, obstacle)
	if b.Phase == ipalloc.InService && obstacle.Request == expand.None {
		obstacle.Request = v1alpha1.ConflictOverlap
	}
	return obstacle
}

// reportObstacles reports the obstacles to blocks that leave, or must, where they have changed. The
// names of the pods in a block change constantly, and are not reported again.
func (r *Reconciler) reportObstacles(ctx context.Context, o *observation, decisions []decision, result *result) error {
	for i := range decisions {
		d := &decisions[i]
		for _, b := range o.Blocks {
			if b.Obstacle.Reason == "" && len(d.plan.Obstacles) == 0 || !d.covers(b, r.Cluster.CiliumPoolOf(b, o.CiliumNode)) || b.Phase == ipalloc.CoolingDown || changesPhase(d.plan, b.CIDR) {
				continue
			}
			obstacle := obstacleOf(b, r.Cluster.Pools.Get(b.Pool), d.plan.Obstacles)
			if o.isReported(b, obstacle) {
				continue
			}
			err := r.Blocks.setObstacle(ctx, b, obstacle, o.obstacleMessage(b, obstacle))
			if err == nil {
				r.Reporter.sendObstacle(o.Node, b, obstacle)
			}
			if err := result.record(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// isReported reports whether the status of a block tells an obstacle to it. While its agent only settles, which every agent
// does anew when the operator starts, it tells the obstacle from before.
func (o *observation) isReported(b crd.Block, obstacle expand.Obstacle) bool {
	told := b.Obstacle
	if obstacle.Request != told.Request {
		return false
	}
	if obstacle.Reason == expand.WaitUnsettled && told.Reason != "" && !o.Settles.IsZero() {
		return true
	}
	return obstacle.Reason == told.Reason && (obstacle.Note == told.Note || !obstacle.Reason.IsDelay())
}

// changesPhase reports whether a plan has moved a block to another phase.
func changesPhase(p expand.Plan, cidr netip.Prefix) bool {
	return slices.Contains(p.Undrain, cidr) ||
		slices.ContainsFunc(p.Drain, func(d expand.Drain) bool { return d.CIDR == cidr }) ||
		slices.ContainsFunc(p.CoolDown, func(f expand.CoolDown) bool { return f.CIDR == cidr })
}

// parkedAlone returns the parked CIDRs in use that no block of the node covers: the block was torn
// away after its pool had lost the range. Left parked, they would prevent every other parking, and
// their pods would lose their network when the agent restarts.
func (r *Reconciler) parkedAlone(o *observation) []netip.Prefix {
	if o.CiliumNode.HasNodeAgent() {
		return nil // it returns them with their last pods
	}
	alone := ipalloc.Uncovered(o.CiliumNode.Parked(), crd.CIDRs(r.Cluster.Ledger.NodeBlocks(o.Name)))
	return slices.DeleteFunc(alone, func(cidr netip.Prefix) bool {
		return !o.uses(cidr) || o.unchangeableFor(cidr, o.CiliumNode.ListedFor(cidr))
	})
}
