package invariant

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// remadeGrace is how long a CiliumNode that was deleted by hand and is there
// again may lack addresses: it is put back in more than one write.
const remadeGrace = 10 * time.Second

// askAgents checks at intervals that what agents hold is in their nodes' pools.
func (c *Checker) askAgents(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(c.opts.AgentsEvery):
		}
		_ = c.AskAgents(ctx) // The API server may be down; the next turn tries again.
	}
}

// AskAgents checks once that what the agents hold is in their nodes' pools. An address
// counts as held if it was held before the state that it is compared with was written,
// and still is afterwards.
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
		if v == nil || time.Since(c.model.remade[node]) < remadeGrace {
			continue // it was deleted by hand
		}
		missing := slices.DeleteFunc(slices.Clone(held), func(addr netip.Addr) bool { return v.pool[addr.Unmap()] })
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
