package state

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// applyWindows adds to the state of one family of a node the holds of maintenance windows at now:
// on reclaims by the windows of the node's ruling pool, on requested drains by the windows of the
// block's own pool. Windows never hold back a block that a person deleted.
func (c *Cluster) applyWindows(s *expand.State, pools []*crd.Pool, now time.Time) {
	if len(pools) > 0 {
		s.ReclaimHold = pools[0].Maintenance.Hold(now)
	}
	for i := range s.Blocks {
		if b := &s.Blocks[i]; MayWait(b) {
			if pool := c.PoolOf(b.CIDR); pool != nil {
				b.Hold = pool.Maintenance.Hold(now)
			}
		}
	}
}

// MayWait reports whether the drain of a block in service was requested in another way than
// by deleting it.
func MayWait(b *expand.Block) bool {
	switch b.Request {
	case expand.CIDRDraining, expand.PoolDeleted, expand.NodeUnselected:
		return b.Phase == ipalloc.InService && !b.Conflict
	}
	return false
}

// PoolOf returns the pool of a held-back block, or nil.
func (c *Cluster) PoolOf(cidr netip.Prefix) *crd.Pool {
	b, ok := c.Ledger.Block(cidr)
	if !ok {
		return nil
	}
	return c.Pools.Get(b.Pool)
}
