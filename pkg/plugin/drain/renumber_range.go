package drain

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// renumbering is drain --to: it replaces a range of nodes by another. Its progress follows
// from the cluster alone.
type renumbering struct {
	oldRange, newRange string // as on the command line
	// old is the range to be replaced. Its CIDRs are unknown once its pool is gone.
	old target
	// added is the CIDR that the pool gets if the move is between CIDRs. Invalid: the nodes
	// move to the pool newPool.
	added   netip.Prefix
	newPool string
}

type stage int

const (
	toBegin  stage = iota // change the pool so that the old range drains
	toLeave               // wait for blocks, evict pods, restart agents
	toRemove              // take the old range out
	toVerify              // none left
)

func parseRenumbering(c *clusterview.Cluster, oldRange, newRange string) (renumbering, error) {
	oldCIDR, fromErr := netip.ParsePrefix(oldRange)
	newCIDR, toErr := netip.ParsePrefix(newRange)
	if oldRange == newRange {
		return renumbering{}, cli.Usagef("%s is what drains: name another range with --to", oldRange)
	}
	if (fromErr == nil) != (toErr == nil) {
		return renumbering{}, cli.Usagef("%s and %s must be two CIDRs, or two pools", oldRange, newRange)
	}
	if fromErr == nil {
		return renumberingOfCIDR(c, oldCIDR, newCIDR)
	}
	return renumberingOfPool(c, oldRange, newRange)
}

func renumberingOfCIDR(c *clusterview.Cluster, oldCIDR, newCIDR netip.Prefix) (renumbering, error) {
	if err := compareCIDRs(oldCIDR, newCIDR); err != nil {
		return renumbering{}, err
	}
	oldPool, begun := poolOfRange(c, oldCIDR)
	newPool, added := poolOfRange(c, newCIDR)
	switch {
	case !begun && !added:
		return renumbering{}, fmt.Errorf("neither %s nor %s is a CIDR in the spec of a pool", oldCIDR, newCIDR)
	case begun && added && oldPool != newPool:
		return renumbering{}, fmt.Errorf("%s is a CIDR of pool %s, and %s of pool %s: choose a CIDR that is in no pool, or move from pool to pool", oldCIDR, oldPool, newCIDR, newPool)
	case !begun:
		oldPool = newPool // the old CIDR has been taken out
	case !added:
		if err := refuseRange(c, newCIDR); err != nil {
			return renumbering{}, err
		}
	}
	return renumbering{
		oldRange: oldCIDR.String(), newRange: newCIDR.String(), added: newCIDR, newPool: oldPool,
		old: target{name: fmt.Sprintf("CIDR %s of pool %s", oldCIDR, oldPool), pool: oldPool, ranges: []netip.Prefix{oldCIDR}},
	}, nil
}

// compareCIDRs returns why no pool could have both CIDRs, or nil.
func compareCIDRs(oldCIDR, newCIDR netip.Prefix) error {
	if oldCIDR.Masked() != oldCIDR || newCIDR.Masked() != newCIDR {
		return cli.Usagef("CIDRs must have no host bits set: %s, %s", oldCIDR.Masked(), newCIDR.Masked())
	}
	if ipalloc.FamilyOf(oldCIDR.Addr()) != ipalloc.FamilyOf(newCIDR.Addr()) {
		return cli.Usagef("%s and %s are of different families", oldCIDR, newCIDR)
	}
	if oldCIDR.Overlaps(newCIDR) {
		return cli.Usagef("%s and %s overlap", oldCIDR, newCIDR)
	}
	return nil
}

// refuseRange returns why a CIDR cannot be added to a pool, or nil.
func refuseRange(c *clusterview.Cluster, cidr netip.Prefix) error {
	for _, name := range c.State.Pools.Names() {
		for _, r := range crd.CIDRsIn(&c.PodIPPools[name].Spec) {
			if r.Overlaps(cidr) {
				return fmt.Errorf("%s overlaps %s of pool %s", cidr, r, name)
			}
		}
	}
	return nil
}

func renumberingOfPool(c *clusterview.Cluster, oldPool, newPool string) (renumbering, error) {
	if c.PodIPPools[newPool] == nil {
		return renumbering{}, fmt.Errorf("there is no PodIPPool %s%s", newPool, suggest.DidYouMean(newPool, c.State.Pools.Names()))
	}
	m := renumbering{oldRange: "pool " + oldPool, newRange: "pool " + newPool, newPool: newPool, old: target{name: "pool " + oldPool, pool: oldPool}}
	if pool := c.PodIPPools[oldPool]; pool != nil {
		m.old.ranges = crd.CIDRsIn(&pool.Spec)
	}
	return m, nil
}

// byCIDR reports whether the pool stays and gets another CIDR.
func (m *renumbering) byCIDR() bool { return m.added.IsValid() }

// pool returns the pool with the old range; nil: it is gone.
func (m *renumbering) pool(c *clusterview.Cluster) *v1alpha1.PodIPPool {
	return c.PodIPPools[m.old.pool]
}

func (m *renumbering) inSpec(c *clusterview.Cluster) bool {
	pool := m.pool(c)
	return pool != nil && len(entriesIn(pool, m.old.ranges)) > 0
}

func (m *renumbering) stage(c *clusterview.Cluster) stage {
	pool := m.pool(c)
	if m.inSpec(c) && pool.DeletionTimestamp == nil && m.changes(pool) {
		return toBegin
	}
	if len(m.rows(c)) > 0 || pool != nil && pool.DeletionTimestamp != nil {
		return toLeave
	}
	if m.inSpec(c) {
		return toRemove
	}
	return toVerify
}

// drains reports whether any of the old range drains. The pool must be there.
func (m *renumbering) drains(c *clusterview.Cluster) bool {
	return slices.ContainsFunc(entriesIn(m.pool(c), m.old.ranges), func(entry *v1alpha1.PoolCIDR) bool {
		return entry.AllocationPolicy == v1alpha1.AllocationDrain
	})
}

func (m *renumbering) changes(pool *v1alpha1.PodIPPool) bool {
	edited := pool.DeepCopy()
	m.edit(edited)
	return !equality.Semantic.DeepEqual(pool.Spec, edited.Spec)
}

func (m *renumbering) edit(pool *v1alpha1.PodIPPool) {
	for _, entry := range entriesIn(pool, m.old.ranges) {
		entry.AllocationPolicy = v1alpha1.AllocationDrain
	}
	added := entriesIn(pool, []netip.Prefix{m.added})
	for _, entry := range added {
		if !(crd.Range{Policy: entry.AllocationPolicy}).Allocates() {
			entry.AllocationPolicy = v1alpha1.AllocationAllocate
		}
	}
	if m.byCIDR() && len(added) == 0 {
		addCIDR(pool, m.added)
	}
}

func addCIDR(pool *v1alpha1.PodIPPool, cidr netip.Prefix) {
	for _, r := range crd.RangesIn(&pool.Spec) {
		if r.Family == ipalloc.FamilyOf(cidr.Addr()) {
			*r.CIDRs = append(*r.CIDRs, v1alpha1.PoolCIDR{CIDR: cidr.String()})
		}
	}
}

// begin makes the old range drain, and adds the new one in the same write. check: only ask the
// API server whether it would accept that.
func (m *renumbering) begin(ctx context.Context, c *clusterview.Cluster, check bool) error {
	return patchPool(ctx, c, m.pool(c), m.edit, check)
}

// remove removes the old range from the pool, with its reservations, or deletes the old pool.
func (m *renumbering) remove(ctx context.Context, c *clusterview.Cluster) error {
	old := m.pool(c)
	if !m.byCIDR() {
		if err := c.Client.Delete(ctx, old, client.Preconditions{UID: &old.UID}); err != nil {
			return fmt.Errorf("deleting PodIPPool %s: %w", old.Name, err)
		}
		return nil
	}
	return patchPool(ctx, c, old, m.takeOut, false)
}

func (m *renumbering) takeOut(pool *v1alpha1.PodIPPool) {
	for _, r := range crd.RangesIn(&pool.Spec) {
		*r.CIDRs = slices.DeleteFunc(*r.CIDRs, isOneOf(m.old.ranges))
	}
	pool.Spec.Reserved = slices.DeleteFunc(pool.Spec.Reserved, func(r v1alpha1.ReservedCIDR) bool {
		p, err := netip.ParsePrefix(r.CIDR)
		return err == nil && ipalloc.Covered(p, m.old.ranges)
	})
}

// patchPool edits a pool if its spec is still exactly the one read. The operator may write the
// status at any time, so a conflict alone does not mean that the spec has changed. check: only ask
// the API server whether it would accept the edit.
func patchPool(ctx context.Context, c *clusterview.Cluster, old *v1alpha1.PodIPPool, edit func(*v1alpha1.PodIPPool), check bool) error {
	var options []client.PatchOption
	if check {
		options = append(options, client.DryRunAll)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pool := old.DeepCopy()
		edit(pool)
		err := c.Client.Patch(ctx, pool, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), options...)
		if !apierrors.IsConflict(err) {
			return err
		}
		live := &v1alpha1.PodIPPool{}
		if getErr := c.Client.Get(ctx, client.ObjectKeyFromObject(old), live); getErr != nil {
			return getErr
		}
		if live.UID == old.UID && live.DeletionTimestamp.Equal(old.DeletionTimestamp) && equality.Semantic.DeepEqual(live.Spec, old.Spec) {
			old = live
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("patching PodIPPool %s: %w", old.Name, err)
	}
	return nil
}

// rows returns the blocks of the old range, including cooling ones.
func (m *renumbering) rows(c *clusterview.Cluster) []list.BlockRow {
	return slices.DeleteFunc(list.BlockRows(c, list.BlockFilter{}), func(r list.BlockRow) bool {
		if !m.byCIDR() && r.Pool == m.old.pool {
			return false
		}
		return !overlapsAny(r.CIDR, m.old.ranges)
	})
}

func overlapsAny(p netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, p.Overlaps)
}

func (m *renumbering) heldOfNew(c *clusterview.Cluster) []crd.Block {
	return slices.DeleteFunc(c.Blocks(), func(b crd.Block) bool {
		if m.byCIDR() {
			return !m.added.Overlaps(b.CIDR)
		}
		return b.Pool != m.newPool
	})
}

// nodesWith returns the nodes with a CiliumNode of which some addresses or CIDRs lie in the old
// range, sorted.
func (m *renumbering) nodesWith(c *clusterview.Cluster, cidrsOf func(*ciliumnode.View) []netip.Prefix) []string {
	return slices.DeleteFunc(c.NodeNames(), func(node string) bool {
		view := c.State.Ledger.CiliumNode(node)
		return view == nil || !slices.ContainsFunc(cidrsOf(view), func(p netip.Prefix) bool { return overlapsAny(p, m.old.ranges) })
	})
}

// named returns the nodes with a CiliumNode that names addresses or CIDRs in the old range, without
// stale ones.
func (m *renumbering) named(c *clusterview.Cluster) []string {
	return m.nodesWith(c, func(view *ciliumnode.View) []netip.Prefix {
		return slices.Concat(view.PodRanges(), view.ListedInAnyPool(), singles(slices.Values(view.InUseUnreported())), singles(maps.Keys(view.Used)), singles(maps.Keys(view.Release)))
	})
}

// stale returns the nodes with a CiliumNode that names addresses in the old range that the agent
// had when it ran their family. It names them until it runs the family again, and no other node
// gets them until then, so they may stay.
func (m *renumbering) stale(c *clusterview.Cluster) []string {
	return m.nodesWith(c, func(view *ciliumnode.View) []netip.Prefix {
		if view.Addresses == nil {
			return nil
		}
		return singles(slices.Values(view.Addresses.Stale))
	})
}

func singles(addresses iter.Seq[netip.Addr]) []netip.Prefix {
	var out []netip.Prefix
	for a := range addresses {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}
