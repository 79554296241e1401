package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

const (
	// seenWithin bounds the wait for the watch to deliver our own claims.
	seenWithin = 5 * time.Second
	// claimTries bounds the number of blocks that one reconcile tries after losing claims to
	// another writer, refusedTries the number of a pool after the API server refuses them.
	claimTries   = 16
	refusedTries = 2
)

// claim creates the blocks of a plan. It returns the addresses that may be published for them, also
// together with an error, and records in the plan the number of addresses that it fell short.
//
// A block is created before its first address is published, and published only after
// the watch has delivered everything up to its creation and no overlapping block: of
// two overlapping blocks, the later one always sees the earlier.
func (r *Reconciler) claim(ctx context.Context, o *observation, p *familyPlan, done *outcome) ([]netip.Addr, error) {
	want := p.plan.Claim
	if want.Addresses == 0 || want.Blocks == 0 || r.inDoubt(o.Name, p.Family) {
		return nil, nil
	}
	var created []crd.Block
	var addrs []netip.Addr
	var failed error
	pools := p.Pools
	if p.Replaces() { // a block of a lower pool would need a replacement as well
		pools = pools[:1]
	}
	for tries := 0; len(created) < want.Blocks && len(addrs) < want.Addresses && tries < want.Blocks+claimTries; tries++ {
		b, pool, err := r.claimAny(ctx, o, p.Family, pools)
		if failed = err; err != nil {
			break
		}
		if pool == nil {
			continue
		}
		created = append(created, b)
		logHolder(ctx, "claimed", b, "NeedsAddresses")
		r.Reporter.sendClaimed(o, p, b)
		r.memory.noteFirstBlock(o.CiliumNode, b.UID)
		addrs = append(addrs, slices.DeleteFunc(r.Publishable(o.CiliumNode.Of(p.CiliumPool), pool, b.CIDR), o.hasEntry)...)
	}
	missing, exhausted := want.Addresses-len(addrs), errors.Is(failed, ipalloc.ErrExhausted)
	switch {
	case exhausted && len(pools) < len(p.Pools):
		failed = nil // until it has a block, those being replaced stay in service
		r.pollFor(done, "its pool has no block to replace others")
	case exhausted:
		failed, p.short = nil, missing
	case failed != nil:
		p.keepBack(failed, 0, missing)
	}
	if err := r.shownAlone(ctx, created); err != nil {
		return nil, errors.Join(failed, err)
	}
	return addrs[:min(len(addrs), want.Room)], failed
}

// hasEntry reports whether an entry of the handshake stands for an address.
func (o *observation) hasEntry(addr netip.Addr) bool {
	_, stands := o.CiliumNode.Release[addr]
	return stands
}

// inDoubt reports whether it is still unknown if an earlier claim of a family was written.
func (r *Reconciler) inDoubt(node string, f ipalloc.Family) bool {
	return slices.ContainsFunc(r.Ledger.UnknownClaims(node), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

// shownAlone waits until the watch has delivered the new blocks, and fails if another
// block overlaps one of them.
func (r *Reconciler) shownAlone(ctx context.Context, created []crd.Block) error {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	for _, b := range created {
		if err := r.WaitShown(ctx, b.UID); err != nil {
			return fmt.Errorf("%w: it has not shown block %s: %w", errNotShown, b.CIDR, err)
		}
	}
	for _, b := range created {
		switch {
		case !r.Ledger.Shown(b.UID):
			return fmt.Errorf("%w: block %s is gone again", errStale, b.CIDR)
		case len(r.Ledger.Overlaps(b.CIDR)) > 0:
			return fmt.Errorf("%w: block %s overlaps another", errStale, b.CIDR)
		}
	}
	return nil
}

// claimAny is claimOne. If the API server refuses a block, it tries the next one, and then
// the next pool: an admission policy may concern a few CIDRs, or one pool.
func (r *Reconciler) claimAny(ctx context.Context, o *observation, f ipalloc.Family, pools []*crd.Pool) (crd.Block, *crd.Pool, error) {
	var refused error
	for tries := 1; ; tries++ {
		b, pool, err := r.claimOne(ctx, o, f, pools)
		switch {
		case common.RefusalIn(err) != nil:
			if common.RefusalIn(refused) == nil {
				refused = err
			}
			if tries%refusedTries == 0 {
				pools = slices.DeleteFunc(slices.Clone(pools), func(of *crd.Pool) bool { return of == pool })
			}
			if len(pools) == 0 {
				return b, nil, refused
			}
		case refused == nil && errors.Is(err, state.ErrRefused):
			refused = err // and the next call tries them again
		case refused != nil && (errors.Is(err, state.ErrRefused) || errors.Is(err, ipalloc.ErrExhausted)):
			return b, nil, refused
		default:
			return b, pool, err
		}
	}
}

// claimOne creates one block, and returns its pool also if the API server refuses it. A
// nil pool without an error means that another writer claimed it first.
func (r *Reconciler) claimOne(ctx context.Context, o *observation, f ipalloc.Family, pools []*crd.Pool) (crd.Block, *crd.Pool, error) {
	cidr, pool, err := r.Ledger.Claim(f, o.Name, r.Agents.Container(o.Name), pools)
	if err != nil {
		if errors.Is(err, ipalloc.ErrExhausted) && len(pools) > 0 {
			r.Shared.Claimed(pools[0].Name, f, common.ClaimExhausted)
		}
		return crd.Block{}, nil, err
	}
	b, err := r.Blocks.create(ctx, cidr, pool.Name, o.Node)
	switch {
	case err == nil:
		r.countClaimed(pool.Name, f)
		return b, pool, nil
	case apierrors.IsAlreadyExists(err):
		return r.claimedBefore(ctx, o, cidr, pool)
	case common.RefusalIn(err) != nil:
		r.Ledger.Refuse(o.Name, cidr)
		log.FromContext(ctx).Info("the API server refuses a block, trying another", "block", cidr.String(), "pool", pool.Name, "reason", termsafe.Line(err.Error()))
	case definite(err):
		r.Ledger.Forget(o.Name, cidr)
	default:
		r.Ledger.MarkUnknown(o.Name, cidr)
	}
	r.Shared.Claimed(pool.Name, f, common.ClaimError)
	return crd.Block{}, pool, err
}

// claimedBefore checks the owner of a block that already exists: it may be ours, from a write with
// a lost response.
func (r *Reconciler) claimedBefore(ctx context.Context, o *observation, cidr netip.Prefix, pool *crd.Pool) (crd.Block, *crd.Pool, error) {
	live, err := r.Blocks.read(ctx, crd.BlockName(cidr))
	if err != nil {
		r.Ledger.MarkUnknown(o.Name, cidr)
		return crd.Block{}, nil, err
	}
	if live == nil {
		r.Ledger.Forget(o.Name, cidr)
		return crd.Block{}, nil, nil
	}
	r.Ledger.Assume(*live)
	f := ipalloc.FamilyOf(cidr.Addr())
	if live.Node == o.Name && live.Pool == pool.Name && live.Phase == ipalloc.InService && !live.Deleting {
		r.countClaimed(pool.Name, f)
		return *live, pool, nil
	}
	r.Shared.Claimed(pool.Name, f, common.ClaimTaken)
	return crd.Block{}, nil, nil
}

// countClaimed counts a claimed block, as a claim and as a decision.
func (r *Reconciler) countClaimed(pool string, f ipalloc.Family) {
	r.Shared.Claimed(pool, f, common.ClaimOK)
	r.Metrics.claimed(f)
}

// definite reports whether err proves that a write was not carried out.
func definite(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err)
}

// setPhase moves an observed block to a phase, and sends the event of it. waits are those of the plan.
func (r *Reconciler) setPhase(ctx context.Context, o *observation, cidr netip.Prefix, phase ipalloc.Phase, reason expand.Reason, waits []expand.Wait) error {
	b, err := o.block(cidr)
	if err != nil {
		return err
	}
	message := o.phaseMessage(b, phase, reason)
	wait := r.waitOf(b, waits)
	if err := r.Blocks.setPhase(ctx, b, phase, reason, message, wait); err != nil {
		return err
	}
	if phase == ipalloc.CoolingDown {
		logHolder(ctx, "returned", b, string(reason), "since", b.Created.UTC())
	}
	r.Reporter.sendPhase(o, b, phase, reason, message)
	r.Reporter.sendDrainWaits(o.Node, b, wait)
	return nil
}

// giveUp deletes a block that has cooled down, so that other nodes can claim it: only if its
// CiliumNode, read live, names no address of it, and has changed since the block left service, so
// that no older patch can still publish it.
func (r *Reconciler) giveUp(ctx context.Context, o *observation, cidr netip.Prefix) error {
	b, err := o.block(cidr)
	if err != nil {
		return err
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
		if slices.Contains(live.Listed(), cidr) || holdsAlone(live, cidr, o.Blocks) {
			return fmt.Errorf("%w: addresses of block %s are published", errStale, cidr)
		}
		if live.UID != o.uid() { // its agent may still have to report that it uses the block
			return fmt.Errorf("%w: its CiliumNode has been created since", errStale)
		}
		if err := r.fence(ctx, o, live, b); err != nil {
			return err
		}
	}
	return r.Blocks.release(ctx, b, obj)
}

// fence changes the CiliumNode of a block that cools down, unless it has changed since,
// so that any older patch conflicts: usually by marking an address that is not in the
// pool, which the agent refuses and the operator clears. The address is one of the
// block unless another block of the node contains it.
func (r *Reconciler) fence(ctx context.Context, o *observation, live *ciliumnode.View, b crd.Block) error {
	if r.Ledger.Fenced(b) {
		return nil
	}
	addr := b.CIDR.Addr()
	if live.Publishes(addr) || live.BlockDemand != nil && state.ContainsAddr(live.Listed(), addr) { // of another block, which overlaps this one
		addr = o.reportAddress(live)
	}
	moved, err := r.CiliumNodes.BumpVersion(ctx, live, addr)
	if err := r.Shared.Wrote("CiliumNode", o.Name, "release", err); err != nil {
		return err
	}
	r.wroteNode(o, moved)
	return nil
}

// holdsAlone reports whether the CiliumNode publishes an address of cidr that belongs
// to no other block of the node.
func holdsAlone(v *ciliumnode.View, cidr netip.Prefix, blocks []crd.Block) bool {
	listed := func(addr netip.Addr) bool {
		return slices.ContainsFunc(blocks, func(b crd.Block) bool {
			return b.CIDR != cidr && b.CIDR.Contains(addr) && v.Lists(b.CIDR)
		})
	}
	for addr := range v.Pool {
		if cidr.Contains(addr) && !listed(addr) {
			return true
		}
	}
	if v.BlockDemand != nil && slices.ContainsFunc(v.Listed(), func(p netip.Prefix) bool {
		return p.Overlaps(cidr) && !slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.CIDR == p })
	}) {
		return true
	}
	return slices.ContainsFunc(v.NonCanonical, cidr.Contains)
}

// restoreOrphanedBlocks recreates blocks after their objects were removed by force while the
// CiliumNode still lists them, if they lie on a pool's grid. Anything else is foreign. It uses the
// current CiliumNode, or the last one seen, and reports whether it has recreated one.
func (r *Reconciler) restoreOrphanedBlocks(ctx context.Context, o *observation, view *ciliumnode.View, done *outcome) (bool, error) {
	if len(view.Unadopted(crd.CIDRs(o.Blocks))) > 0 { // another IPAM's
		return false, nil
	}
	restored := false
	for _, cidr := range view.Listed() {
		if _, held := r.Ledger.Block(cidr); held || o.pausedFor(cidr, view.ListedFor(cidr)) {
			continue
		}
		pool := r.onGrid(o.Node, cidr, view.ListedFor(cidr))
		if pool == nil {
			continue
		}
		live, err := r.CiliumNodes.Live(ctx, o.Name)
		if err != nil {
			return false, err
		}
		if gone := o.CiliumNode == nil; gone != (live == nil) || !gone && !slices.Contains(live.Listed(), cidr) {
			return false, fmt.Errorf("%w: its CiliumNode no longer lists %s", errStale, cidr)
		}
		err = r.remakeBlock(ctx, o.Node, cidr, pool)
		if err := done.carryOn(err); err != nil {
			return false, err
		}
		restored = restored || err == nil
	}
	return restored, nil
}

// awaitAdopted fails while the cache lacks an adopted block that the CiliumNode already publishes
// in part because another process wrote it. Without that block, the addresses look like pool
// entries that a person added, and the agent may be asked to release them. Blocks on the grid were
// handled earlier.
func (r *Reconciler) awaitAdopted(ctx context.Context, o *observation, _ *outcome) (*observation, error) {
	if o.paused() || o.CiliumNode.BlockDemand != nil || len(o.CiliumNode.Used) > 0 {
		return o, nil
	}
	for _, cidr := range o.CiliumNode.AssignedCIDRs() {
		if _, held := r.Ledger.Block(cidr); held || len(o.CiliumNode.PublishedIn(cidr)) == 0 {
			continue
		}
		live, err := r.Blocks.read(ctx, crd.BlockName(cidr))
		if err != nil {
			return nil, err
		}
		if live != nil {
			return nil, fmt.Errorf("%w: it has not shown block %s", errNotShown, cidr)
		}
	}
	return o, nil
}

// onGrid returns the pool that serves the node for a Cilium pool and could have
// allocated cidr.
func (r *Reconciler) onGrid(node *corev1.Node, cidr netip.Prefix, ciliumPool string) *crd.Pool {
	for _, pool := range r.Pools.Match(node.Labels) {
		if pool.OnGrid(cidr) && (!r.Defaults.CiliumPools || pool.CiliumPool == ciliumPool) {
			return pool
		}
	}
	return nil
}

func (r *Reconciler) remakeBlock(ctx context.Context, node *corev1.Node, cidr netip.Prefix, pool *crd.Pool) error {
	b, err := r.Blocks.create(ctx, cidr, pool.Name, node)
	if err != nil {
		return err
	}
	logHolder(ctx, "claimed", b, event.ReasonBlockRemade)
	r.Events.Send(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name, UID: b.UID}}, event.ReasonBlockRemade, event.Reconcile,
		fmt.Sprintf("the object of block %s was gone while node %s still publishes it; recreated it", cidr, node.Name))
	return nil
}
