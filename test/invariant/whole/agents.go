package whole

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// AskAgents checks rule 2 once from the agents' side: their addresses lie in the CIDRs assigned to
// them. held returns the addresses by node, sync waits until all writes have been seen. An address
// counts as held if it was held before the state that it is compared with, and still is afterwards.
func (r *Rules) AskAgents(ctx context.Context, held func() map[string][]netip.Addr, sync func(context.Context) error) error {
	before := held()
	if err := sync(ctx); err != nil {
		return err
	}
	outside := r.outside(before)
	if len(outside) == 0 {
		return nil
	}
	after := held()
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, addrs := range outside {
		for _, addr := range addrs {
			if slices.Contains(after[node], addr) {
				r.report(invariant.Violation{Rule: 2, Subject: "agent of " + node, Text: fmt.Sprintf("it holds %s, which is in none of its CIDRs", addr)})
			}
		}
	}
	return nil
}

// outside returns the addresses that lie in no CIDR assigned to their node's agent. A
// node without an object is skipped.
func (r *Rules) outside(held map[string][]netip.Addr) map[string][]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	out := map[string][]netip.Addr{}
	for node, addrs := range held {
		list, there := r.lists[node]
		for _, addr := range addrs {
			if there && !slices.ContainsFunc(list, func(e Entry) bool { return e.CIDR.Contains(addr) }) {
				out[node] = append(out[node], addr)
			}
		}
	}
	return out
}
