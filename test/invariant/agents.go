package invariant

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// putBackWithin bounds the time that a CiliumNode that a person deleted and that was recreated may
// lack addresses: its agent may recreate it without any, and the operator restores them in more
// than one write.
const putBackWithin = 30 * time.Second

// askAgents checks periodically that agents' addresses are in their nodes' pools.
func (c *Checker) askAgents(ctx context.Context) {
	for ctx.Err() == nil {
		if harness.Sleep(ctx, c.opts.AgentsEvery) != nil {
			return
		}
		_ = c.AskAgents(ctx) // The API server may be down; the next turn tries again.
	}
}

// AskAgents checks once that the agents' addresses are in their nodes' pools. An address counts as
// held if it was held both before the state it is compared with was written, and afterwards.
func (c *Checker) AskAgents(ctx context.Context) error {
	before := c.opts.Agents()
	if err := c.Sync(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	type lack struct {
		node    string
		version uint64
		addrs   []netip.Addr
	}
	var lacks []lack
	for node, held := range before {
		v := c.model.views[node]
		if v == nil || c.model.objects[KindNode][node] == nil {
			continue // its deletion was judged, or its Node is gone
		}
		missing := slices.DeleteFunc(slices.Clone(held), func(addr netip.Addr) bool {
			return v.pool[addr.Unmap()] || c.model.comesBack(node, addr.Unmap())
		})
		if len(missing) > 0 {
			lacks = append(lacks, lack{node, c.history.applied, missing})
		}
	}
	c.stats.AgentChecks++
	c.mu.Unlock()
	if len(lacks) == 0 {
		return nil
	}
	after := c.opts.Agents()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range lacks {
		still := slices.DeleteFunc(l.addrs, func(addr netip.Addr) bool { return !slices.Contains(after[l.node], addr) })
		if len(still) == 0 {
			continue
		}
		slices.SortFunc(still, netip.Addr.Compare)
		c.report(Violation{
			Rule: 2, Subject: "CiliumNode " + l.node, Version: l.version,
			Text: fmt.Sprintf("%s held by the agent and not in the pool", list(still)),
		})
	}
	return nil
}

// comesBack reports whether an address may still be restored: it was in the CiliumNode when
// that was deleted a moment ago, and no address of its block has been restored yet. For an
// address without a block the pool must still be empty.
func (m *model) comesBack(node string, addr netip.Addr) bool {
	was, now := m.deleted[node], m.views[node]
	if was == nil || !was.pool[addr] || time.Since(m.remade[node]) >= putBackWithin {
		return false
	}
	if b := m.heldBy(node, addr); b != nil {
		return !slices.Contains(now.podCIDRs, b.cidr)
	}
	return len(now.pool) == 0
}
