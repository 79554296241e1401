package scheduling

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// FirstBlock is a node that has no block of a family, so that its agent cannot start.
type FirstBlock struct {
	Node string
	// Pools are the pools to claim from, best first, for each family that the node lacks.
	// None of them has a free block.
	Pools [2][]string
}

// SetWithoutBlock records whether a node waits for the first block of a family.
func (u *Unscheduled) SetWithoutBlock(node string, waits bool) {
	u.mu.Lock()
	changed := u.withoutBlock[node] != waits
	if waits {
		u.withoutBlock[node] = true
	} else {
		delete(u.withoutBlock, node)
	}
	u.mu.Unlock()
	if changed && u.Changed != nil {
		u.Changed()
	}
}

func (u *Unscheduled) isWithoutBlock(node string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.withoutBlock[node]
}

// firstBlocks returns the nodes that wait for the first block of a family while their pools have
// none left.
func (c *Offering) firstBlocks(a *Assignment, nodes []*corev1.Node, now time.Time) []FirstBlock {
	var out []FirstBlock
	free := FreeBlocks{{}, {}}
	for _, node := range nodes {
		if !c.Unscheduled.isWithoutBlock(node.Name) || node.DeletionTimestamp != nil {
			continue
		}
		s := c.State.Snapshot(node.Name, node, now)
		first := FirstBlock{Node: node.Name}
		for i := range s.Shares {
			share := &s.Shares[i]
			if lacksFirstBlock(share) && s.Claims[share.Family] == 0 && !a.misses(node.Name, share.Family) {
				first.Pools[share.Family] = c.fullPools(share, free[share.Family])
			}
		}
		if len(first.Pools[ipalloc.IPv4])+len(first.Pools[ipalloc.IPv6]) > 0 {
			out = append(out, first)
		}
	}
	return out
}

// lacksFirstBlock reports whether the node has neither a block nor a published address of
// the family, and may get one.
func lacksFirstBlock(s *state.Share) bool {
	if s.CiliumPool != "" || !s.Standing.MayClaim() || s.State.FamilyDisabled || len(s.State.Blocks) > 0 {
		return false
	}
	for addr := range s.State.Pool {
		if ipalloc.FamilyOf(addr) == s.Family {
			return false
		}
	}
	return true
}

// misses reports whether pods on a node already wait for blocks of a family: the first of
// these will be the node's first block.
func (a *Assignment) misses(node string, f ipalloc.Family) bool {
	i := slices.IndexFunc(a.Candidates, func(n Candidate) bool { return n.Node == node })
	return i >= 0 && a.Missing[i][f] > 0
}

// fullPools returns the pools that a share claims from if none of them has a free block.
// Otherwise it takes one from free, so that no other node counts on it.
func (c *Offering) fullPools(share *state.Share, free map[string]uint64) []string {
	var full []string
	for _, pool := range share.Pools {
		cut, assigns := pool.Cut(share.Family)
		if !assigns || pool.Paused {
			continue
		}
		if _, known := free[pool.Name]; !known {
			free[pool.Name] = c.State.Ledger.Free(cut)
		}
		if free[pool.Name] > 0 {
			free[pool.Name]--
			return nil
		}
		full = append(full, pool.Name)
	}
	return full
}
