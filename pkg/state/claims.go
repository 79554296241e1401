package state

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ErrRefused means that blocks are free, and the API server has refused each of them.
var ErrRefused = errors.New("the API server has refused every free block")

// maxRefused bounds the number of refused CIDRs that the ledger remembers.
const maxRefused = 256

// closedOn is a CIDR that the agent of a node has closed.
type closedOn struct {
	cidr netip.Prefix
	node string
}

// hasClosed returns whether the agent of a node, running in that container, has closed a CIDR, and
// whether that is certain.
func (c *claims) hasClosed(cidr netip.Prefix, node, agent string) (closed, certain bool) {
	closer := c.closed[closedOn{cidr, node}]
	closed = closer.By(agent)
	return closed, closed && !closer.Inferred
}

// closedBy returns which run of its node's agent has closed a block. The agent that runs in that
// container may have done so before the node had this block of the CIDR.
func (l *Ledger) closedBy(b crd.Block, agent string) expand.Closed {
	if agent == "" || b.Closed.Agent == agent || crd.OwnerOfPool(b.CiliumPool) != "" { // see claimPin
		return b.Closed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, certain := l.claims.hasClosed(b.CIDR, b.Node, agent); certain {
		return l.claims.closed[closedOn{b.CIDR, b.Node}]
	}
	return b.Closed
}

// claims are the claims of blocks, and the CIDRs they must not pick.
type claims struct {
	*core
	blocks *heldBlocks
	pins   *Pins

	// underWay are the CIDRs, by node, that are reserved for blocks that do not exist yet; turnover
	// is the number of blocks of each pool that have been claimed or freed.
	underWay map[string][]netip.Prefix
	turnover map[string]uint64
	// unknown are the claims, by node, with a write that was sent but not answered. They stay
	// taken, and the node's next claim retries the same block, so that one need results in one
	// block. unknownOf are the nodes of each claim.
	unknown   map[string][]netip.Prefix
	unknownOf map[netip.Prefix][]string
	// closed are the agents that have closed a CIDR of a block that has left the node since: it
	// would bring the node no address while this agent runs, whoever has had it in between. An
	// inference does not count: it may be wrong, and the node must be able to have the CIDR again.
	closed map[closedOn]expand.Closed
	// refused are the CIDRs of blocks that the API server has refused to create.
	refused map[netip.Prefix]bool
}

// Claim picks a block for node, and reserves it in this process: one that is pinned to the node, or
// any from the first of pools that has one; of a pool for a pod, one that is pinned to the pod. The node owns the block once it is created in the API
// server. It skips blocks that the node's agent, running in that container, has closed, and blocks
// that the API server has refused: if no other is left, it returns ErrRefused, and the next call
// tries these again. It returns ipalloc.ErrExhausted if no pool has one left.
func (l *Ledger) Claim(f ipalloc.Family, node, agent string, pools []*crd.Pool) (cidr netip.Prefix, pool *crd.Pool, err error) {
	l.change(func() { cidr, pool, err = l.claims.claim(f, node, agent, pools) })
	return cidr, pool, err
}

// ClaimPinned is Claim for blocks that are pinned to node alone.
func (l *Ledger) ClaimPinned(f ipalloc.Family, node, agent string, pools []*crd.Pool) (cidr netip.Prefix, pool *crd.Pool, err error) {
	l.change(func() { cidr, pool, err = l.claims.tryAgain(l.claims.claimPinned(f, node, agent, pools)) })
	return cidr, pool, err
}

func (c *claims) claim(f ipalloc.Family, node, agent string, pools []*crd.Pool) (netip.Prefix, *crd.Pool, error) {
	cidr, pool, failure := c.claimPinned(f, node, agent, pools)
	if pool != nil {
		return cidr, pool, failure
	}
	near := make([]netip.Prefix, 0, len(c.blocks.byNode[node]))
	for _, block := range c.blocks.byNode[node] {
		near = append(near, block.CIDR)
	}
	pools = slices.DeleteFunc(slices.Clone(pools), func(p *crd.Pool) bool { return p.Owner != "" })
	cidr, pool, err := c.claimFrom(pools, f, node, func(_ *crd.Pool, cut ipalloc.Cut, o ipalloc.Owner) (netip.Prefix, error) {
		return c.claimOpen(cut, o, agent, near)
	})
	if errors.Is(failure, ErrRefused) && errors.Is(err, ipalloc.ErrExhausted) {
		err = failure
	}
	return c.tryAgain(cidr, pool, err)
}

func (c *claims) claimPinned(f ipalloc.Family, node, agent string, pools []*crd.Pool) (netip.Prefix, *crd.Pool, error) {
	return c.claimFrom(pools, f, node, func(pool *crd.Pool, _ ipalloc.Cut, o ipalloc.Owner) (netip.Prefix, error) {
		return c.claimPin(f, o, agent, pool)
	})
}

// tryAgain lets the next claim try refused blocks again if only these are left.
func (c *claims) tryAgain(cidr netip.Prefix, pool *crd.Pool, err error) (netip.Prefix, *crd.Pool, error) {
	if errors.Is(err, ErrRefused) {
		clear(c.refused)
	}
	return cidr, pool, err
}

// claimFrom picks a block from the first of pools that has one.
func (c *claims) claimFrom(pools []*crd.Pool, f ipalloc.Family, node string, pick func(*crd.Pool, ipalloc.Cut, ipalloc.Owner) (netip.Prefix, error)) (netip.Prefix, *crd.Pool, error) {
	failure := ipalloc.ErrExhausted
	for _, pool := range pools {
		cut, ok := pool.Cut(f)
		if !ok || pool.Paused {
			continue
		}
		cidr, err := pick(pool, cut, ipalloc.Owner{Pool: pool.Name, Node: node})
		if errors.Is(err, ErrRefused) {
			failure = err
			continue
		}
		if errors.Is(err, ipalloc.ErrExhausted) {
			continue
		}
		if err == nil {
			c.underWay[node] = append(c.underWay[node], cidr)
			c.countTurnover(pool.Name)
		}
		return cidr, pool, err
	}
	return netip.Prefix{}, nil, failure
}

// claimOpen picks a free block that neither an agent has closed nor the API server refused. If that is
// inferred of all, it picks the first.
func (c *claims) claimOpen(cut ipalloc.Cut, o ipalloc.Owner, agent string, near []netip.Prefix) (picked netip.Prefix, err error) {
	var skipped []netip.Prefix
	var inferred netip.Prefix
	defer func() {
		for _, cidr := range skipped {
			if cidr != picked {
				c.space.Release(cidr)
			}
		}
	}()
	for {
		cidr, err := c.space.Claim(cut, o, near)
		closed, certain := c.hasClosed(cidr, o.Node, agent)
		if errors.Is(err, ipalloc.ErrExhausted) && inferred.IsValid() {
			return inferred, nil
		}
		if errors.Is(err, ipalloc.ErrExhausted) && slices.ContainsFunc(skipped, func(p netip.Prefix) bool { return c.refused[p] }) {
			return cidr, ErrRefused
		}
		if err != nil || !closed && !c.refused[cidr] {
			return cidr, err
		}
		if !certain && !c.refused[cidr] && !inferred.IsValid() {
			inferred = cidr
		}
		skipped = append(skipped, cidr)
	}
}

// Refuse drops a claim of node that the API server refuses. Claim skips its CIDR for all
// nodes while it has others, so that a policy against one CIDR does not stop its pool.
func (l *Ledger) Refuse(node string, cidr netip.Prefix) {
	l.change(func() {
		if len(l.claims.refused) >= maxRefused {
			clear(l.claims.refused)
		}
		l.claims.refused[cidr] = true
		l.claims.unhold(node, cidr)
	})
}

// countTurnover counts a block of a pool that is claimed or freed.
func (c *claims) countTurnover(pool string) {
	if _, exists := c.turnover[pool]; exists {
		c.turnover[pool]++
	}
}

// Turnover returns the number of blocks of each pool, by name, that have been claimed or freed so
// far.
func (l *Ledger) Turnover() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.claims.turnover)
}

// MarkUnknown keeps a claim with a write that may or may not have succeeded. Only a live read
// resolves it: the watch may still deliver an older block with that CIDR.
func (l *Ledger) MarkUnknown(node string, cidr netip.Prefix) {
	l.change(func() {
		if !slices.Contains(l.claims.unknown[node], cidr) {
			l.claims.unknown[node] = append(l.claims.unknown[node], cidr)
			l.claims.unknownOf[cidr] = append(l.claims.unknownOf[cidr], node)
		}
	})
}

// UnknownClaims returns the claims of node with writes that may or may not have succeeded.
func (l *Ledger) UnknownClaims(node string) []netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.claims.unknown[node])
}

// Forget drops a claim of node that was certainly not written, and its unknown state.
func (l *Ledger) Forget(node string, cidr netip.Prefix) {
	l.change(func() {
		removeFrom(l.claims.unknown, node, cidr)
		removeFrom(l.claims.unknownOf, cidr, node)
		l.claims.unhold(node, cidr)
	})
}

// unhold releases a CIDR that node has claimed and that has no block.
func (c *claims) unhold(node string, cidr netip.Prefix) {
	_, exists := c.blocks.byCIDR[cidr]
	if o, ok := c.space.Owner(cidr); ok && !exists && o.Node == node {
		removeFrom(c.underWay, node, cidr)
		c.freeCIDR(cidr)
	}
}

// freeCIDR frees the CIDR of a block or a claim.
func (c *claims) freeCIDR(cidr netip.Prefix) {
	if o, ok := c.space.Owner(cidr); ok && c.space.Release(cidr) {
		c.countTurnover(o.Pool)
		c.freed = append(c.freed, cidr)
	}
}

// removeFrom removes a value from the values of a key.
func removeFrom[K, V comparable](index map[K][]V, key K, value V) {
	i := slices.Index(index[key], value)
	if i < 0 {
		return
	}
	index[key] = slices.Delete(index[key], i, i+1)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// ComesBack reports whether nodes can claim a block of a pool, which may be nil, once its node has
// returned it: neither its CIDR nor anything that withholds an address of it is in the way. The podCIDRs of
// CiliumNodes do not count, as the node that returns the block no longer lists it.
func (l *Ledger) ComesBack(pool *crd.Pool, block netip.Prefix) bool {
	if pool == nil || !pool.Assigns(block) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Exclusions.reserved.Reservations(block) == 0
}

// claimPin claims a block of a pool that is pinned to a node, or to the pod that the pool is for.
func (c *claims) claimPin(f ipalloc.Family, o ipalloc.Owner, agent string, pool *crd.Pool) (netip.Prefix, error) {
	if !c.space.Ready() {
		return netip.Prefix{}, ipalloc.ErrNotReady
	}
	failure := ipalloc.ErrExhausted
	for _, cidr := range c.pins.missing(cmp.Or(pool.Owner, o.Node), o.Node) {
		// When an agent returns the last CIDR of a Cilium pool, it forgets the closed ones. A pod's pool
		// has one CIDR of a family (pkg/ipam/multipool_manager.go, updateLocalNode, v1.20.2).
		_, closed := c.hasClosed(cidr, o.Node, agent)
		if ipalloc.FamilyOf(cidr.Addr()) != f || !pool.AssignsNow(cidr) || closed && pool.Owner == "" {
			continue
		}
		if !c.refused[cidr] {
			return cidr, c.space.Restore(ipalloc.Held{CIDR: cidr, Owner: o})
		}
		failure = ErrRefused
	}
	return netip.Prefix{}, failure
}
