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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
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

// BlockClient reads and writes the PodIPBlocks of nodes. The result of a write goes into the ledger
// at once.
type BlockClient struct {
	// Cache reads from the informers, Live from the API server; Writer writes.
	Cache    client.Reader
	Live     client.Reader
	Writer   client.Client
	Ledger   *state.Ledger
	Counters *common.Counters
	Clock    clock.PassiveClock
	// Claimed is called after each claim. Nil: it is not.
	Claimed func()
	// WaitForCache waits until the watch has delivered a block, as Ledger.WaitForCache.
	WaitForCache func(context.Context, types.UID) error
}

// read reads a block from the API server. A missing one is nil.
func (c *BlockClient) read(ctx context.Context, name string) (*crd.Block, error) {
	obj := &v1alpha1.PodIPBlock{}
	err := c.Live.Get(ctx, types.NamespacedName{Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading block %s: %w", name, err)
	}
	b, err := crd.BlockFrom(obj)
	return &b, err
}

// blocksPerPage is the number of blocks read at a time when all are: the same as kubectl's.
const blocksPerPage = 500

// readOverlapping takes into the ledger the live blocks that overlap any of cidrs: the watch may
// lag, and no fence protects the creation of a CiliumNode.
func (c *BlockClient) readOverlapping(ctx context.Context, cidrs []netip.Prefix) error {
	if len(cidrs) == 0 {
		return nil
	}
	for token := ""; ; {
		page := &v1alpha1.PodIPBlockList{}
		if err := c.Live.List(ctx, page, client.Limit(blocksPerPage), client.Continue(token)); err != nil {
			return fmt.Errorf("listing blocks: %w", err)
		}
		for i := range page.Items {
			b, err := crd.BlockFrom(&page.Items[i])
			if err == nil && slices.ContainsFunc(cidrs, b.CIDR.Overlaps) { // the informer reports malformed ones
				c.Ledger.Assume(b)
			}
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// verifyFinalized is unchanged for a block that must have its finalizer: without it the block could
// go at any moment.
func (c *BlockClient) verifyFinalized(ctx context.Context, b crd.Block) (bool, error) {
	if !b.Finalized {
		return false, fmt.Errorf("%w: block %s lacks the operator's finalizer", errUnprotected, b.CIDR)
	}
	return c.verifyUnchanged(ctx, b)
}

// verifyUnchanged reads a block live and reports whether it is as observed and the watch has
// delivered it, along with every older block that could overlap it.
func (c *BlockClient) verifyUnchanged(ctx context.Context, b crd.Block) (bool, error) {
	live, err := c.read(ctx, b.Name)
	if err != nil {
		return false, err
	}
	if live == nil {
		c.Ledger.Remove(b)
		return false, nil
	}
	same := live.UID == b.UID && live.Node == b.Node && live.Phase == b.Phase && live.Deleting == b.Deleting && live.Drain == b.Drain
	return same && live.Finalized && c.Ledger.InCache(b.UID), nil
}

// resolveUnknown settles earlier claims of a node with an unknown outcome, before it claims more.
func (c *BlockClient) resolveUnknown(ctx context.Context, node string) error {
	var failed error
	for _, cidr := range c.Ledger.UnknownClaims(node) {
		live, err := c.read(ctx, crd.BlockName(cidr))
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case live != nil:
			c.Ledger.Assume(*live)
			if live.Node == node {
				logHolder(ctx, config.BlockClaimed, *live, "NeedsAddresses")
			}
		default:
			c.Ledger.Forget(node, cidr)
		}
	}
	return failed
}

// object returns the object of an observed block, in the observed version. An object of
// its own: those from the cache are shared.
func (c *BlockClient) object(ctx context.Context, b crd.Block) (*v1alpha1.PodIPBlock, error) {
	cached := &v1alpha1.PodIPBlock{}
	key := types.NamespacedName{Name: b.Name}
	if err := c.Cache.Get(ctx, key, cached); err == nil && cached.ResourceVersion == b.ResourceVersion {
		return cached.DeepCopy(), nil
	}
	live := &v1alpha1.PodIPBlock{}
	err := c.Live.Get(ctx, key, live)
	switch {
	case apierrors.IsNotFound(err):
		c.Ledger.Remove(b)
		return nil, fmt.Errorf("%w: block %s is gone", errStale, b.CIDR)
	case err != nil:
		return nil, fmt.Errorf("reading block %s: %w", b.Name, err)
	case live.UID != b.UID || live.ResourceVersion != b.ResourceVersion:
		return nil, fmt.Errorf("%w: block %s has changed", errStale, b.CIDR)
	}
	return live, nil
}

// create creates a block for a node. The create is the claim.
func (c *BlockClient) create(ctx context.Context, cidr netip.Prefix, pool *crd.Pool, node *corev1.Node) (crd.Block, error) {
	obj := crd.NewBlock(cidr, pool.Name, node.Name, node.UID)
	if pool.Owner != "" {
		obj.Spec.CiliumPoolName = pool.CiliumPool
	}
	err := c.Counters.CountWrite("PodIPBlock", obj.Name, "create", c.Writer.Create(ctx, obj))
	if err != nil {
		return crd.Block{}, fmt.Errorf("creating block %s for node %s: %w", cidr, node.Name, err)
	}
	return c.assume(obj)
}

// setPhase writes the phase of an observed block, and what it waits for then.
func (c *BlockClient) setPhase(ctx context.Context, b crd.Block, phase ipalloc.Phase, reason expand.Reason, message string, obstacle expand.Obstacle) error {
	return c.updateStatus(ctx, b, "phase", func(obj *v1alpha1.PodIPBlock) bool {
		changed := crd.SetBlockPhase(obj, phase, reason, message, c.Clock.Now())
		if obstacle.Reason == "" {
			return changed
		}
		return crd.SetBlockObstacle(obj, obstacle, message, c.Clock.Now()) || changed
	})
}

// setClosed records that an agent has closed an observed block.
func (c *BlockClient) setClosed(ctx context.Context, b crd.Block, closed expand.Closed) error {
	return c.updateStatus(ctx, b, "closed", func(obj *v1alpha1.PodIPBlock) bool {
		crd.SetBlockClosed(obj, closed)
		return true
	})
}

// setObstacle writes the obstacle to an observed block. message tells what happens to the block.
func (c *BlockClient) setObstacle(ctx context.Context, b crd.Block, obstacle expand.Obstacle, message string) error {
	return c.updateStatus(ctx, b, "wait", func(obj *v1alpha1.PodIPBlock) bool {
		return crd.SetBlockObstacle(obj, obstacle, message, c.Clock.Now())
	})
}

// updateStatus writes the status of an observed block if change changes it, conditional
// on the observed version. The operation names the write in metrics.
func (c *BlockClient) updateStatus(ctx context.Context, b crd.Block, operation string, change func(*v1alpha1.PodIPBlock) bool) error {
	obj, err := c.object(ctx, b)
	if err != nil {
		return err
	}
	if change(obj) {
		err := c.Writer.Status().Update(ctx, obj)
		if err := c.Counters.CountWrite("PodIPBlock", b.Name, operation, err); err != nil {
			return fmt.Errorf("updating the status of block %s: %w", b.CIDR, err)
		}
	}
	_, err = c.assume(obj)
	return err
}

// assume takes an object that a write has returned into the ledger.
func (c *BlockClient) assume(obj *v1alpha1.PodIPBlock) (crd.Block, error) {
	b, err := crd.BlockFrom(obj)
	if err != nil {
		return b, err
	}
	c.Ledger.Assume(b)
	return b, nil
}

// delete removes the finalizer of a block and deletes it. Another finalizer keeps the
// object, which keeps the addresses: the next call fails.
func (c *BlockClient) delete(ctx context.Context, b crd.Block, obj *v1alpha1.PodIPBlock) error {
	if obj.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(obj, v1alpha1.Finalizer) {
		return fmt.Errorf("block %s has cooled down, and others' finalizers keep it: %s", b.CIDR, suggest.Few(obj.Finalizers))
	}
	if controllerutil.ContainsFinalizer(obj, v1alpha1.Finalizer) {
		err := client.IgnoreNotFound(c.Writer.Patch(ctx, obj, common.DropFinalizer(obj)))
		if err := c.Counters.CountWrite("PodIPBlock", b.Name, "finalizer", err); err != nil {
			return fmt.Errorf("removing finalizer of block %s: %w", b.CIDR, err)
		}
	}
	if obj.DeletionTimestamp == nil {
		err := c.Writer.Delete(ctx, obj, client.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion})
		if err := c.Counters.CountWrite("PodIPBlock", b.Name, "delete", client.IgnoreNotFound(err)); err != nil {
			return fmt.Errorf("deleting block %s: %w", b.CIDR, err)
		}
	}
	if len(obj.Finalizers) == 0 {
		c.Ledger.Remove(b)
		c.Counters.CountFreed(b)
		logHolder(ctx, config.BlockFreed, b, string(b.Reason))
	}
	return nil
}

// waitUntilCached waits until the watch has delivered the new blocks, and fails if another
// block overlaps one of them.
func (c *BlockClient) waitUntilCached(ctx context.Context, created []crd.Block) error {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	for _, b := range created {
		if err := c.WaitForCache(ctx, b.UID); err != nil {
			return fmt.Errorf("%w: it has not shown block %s: %w", errCacheBehind, b.CIDR, err)
		}
	}
	for _, b := range created {
		if !c.Ledger.InCache(b.UID) {
			return fmt.Errorf("%w: block %s is gone again", errStale, b.CIDR)
		}
		if len(c.Ledger.Overlaps(b.CIDR)) > 0 {
			return fmt.Errorf("%w: block %s overlaps another", errStale, b.CIDR)
		}
	}
	return nil
}

// claimAny claims a block for node as Ledger.Claim picks it; pinned restricts it to pins. If the API
// server refuses a block, it tries the next one, and then the next pool: an admission policy may
// concern a few CIDRs, or one pool.
func (c *BlockClient) claimAny(ctx context.Context, node *corev1.Node, f ipalloc.Family, container string, pools []*crd.Pool, pinned bool) (crd.Block, *crd.Pool, error) {
	var refused error
	for tries := 1; ; tries++ {
		b, pool, err := c.claimOne(ctx, node, f, container, pools, pinned)
		switch {
		case refusesAll(err):
			return b, nil, err
		case common.RefusalIn(err) != nil:
			if common.RefusalIn(refused) == nil {
				refused = err
			}
			if tries%refusedTries == 0 {
				pools = slices.DeleteFunc(slices.Clone(pools), func(candidate *crd.Pool) bool { return candidate == pool })
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
func (c *BlockClient) claimOne(ctx context.Context, node *corev1.Node, f ipalloc.Family, container string, pools []*crd.Pool, pinned bool) (crd.Block, *crd.Pool, error) {
	claim := c.Ledger.Claim
	if pinned {
		claim = c.Ledger.ClaimPinned
	}
	cidr, pool, err := claim(f, node.Name, container, pools)
	if err != nil {
		if errors.Is(err, ipalloc.ErrExhausted) && len(pools) > 0 && !pinned {
			c.Counters.CountClaim(pools[0].Name, f, common.ClaimExhausted)
		}
		return crd.Block{}, nil, err
	}
	b, err := c.create(ctx, cidr, pool, node)
	switch {
	case err == nil:
		c.Counters.CountClaim(pool.Name, f, common.ClaimOK)
		if c.Claimed != nil {
			c.Claimed()
		}
		return b, pool, nil
	case apierrors.IsAlreadyExists(err):
		return c.claimedBefore(ctx, node.Name, cidr, pool)
	case refusesAll(err), provesFailed(err) && common.RefusalIn(err) == nil:
		c.Ledger.Forget(node.Name, cidr)
	case common.RefusalIn(err) != nil:
		c.Ledger.Refuse(node.Name, cidr)
		log.FromContext(ctx).Info("the API server refuses a block, trying another", "block", cidr.String(), "pool", pool.Name, "reason", termsafe.Line(err.Error()))
	default:
		c.Ledger.MarkUnknown(node.Name, cidr)
	}
	c.Counters.CountClaim(pool.Name, f, common.ClaimError)
	return crd.Block{}, pool, err
}

// claimedBefore checks the owner of a block that already exists: it may be ours, from a write with
// a lost response.
func (c *BlockClient) claimedBefore(ctx context.Context, node string, cidr netip.Prefix, pool *crd.Pool) (crd.Block, *crd.Pool, error) {
	live, err := c.read(ctx, crd.BlockName(cidr))
	if err != nil {
		c.Ledger.MarkUnknown(node, cidr)
		return crd.Block{}, nil, err
	}
	if live == nil {
		c.Ledger.Forget(node, cidr)
		return crd.Block{}, nil, nil
	}
	c.Ledger.Assume(*live)
	f := ipalloc.FamilyOf(cidr.Addr())
	if live.Node == node && live.Pool == pool.Name && live.Phase == ipalloc.InService && !live.Deleting {
		c.Counters.CountClaim(pool.Name, f, common.ClaimOK)
		return *live, pool, nil
	}
	c.Counters.CountClaim(pool.Name, f, common.ClaimTaken)
	return crd.Block{}, nil, nil
}
