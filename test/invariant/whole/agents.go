package whole

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// AskAgents checks rule 2 once from the agents' side: what they hold lies in what
// they are told. held tells the addresses by node, sync waits until all that was
// written has been seen. An address counts as held where it was so before and
// still is after the state that it is compared with.
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
				r.report(invariant.Violation{Rule: 2, Subject: "agent of " + node, Text: fmt.Sprintf("it holds %s and is told no CIDR of it", addr)})
			}
		}
	}
	return nil
}

// outside are the addresses that lie in nothing that their node's agent is told.
// Of a node without an object nobody knows.
func (r *Rules) outside(held map[string][]netip.Addr) map[string][]netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	out := map[string][]netip.Addr{}
	for node, addrs := range held {
		list, there := r.lists[node]
		for _, addr := range addrs {
			if there && !slices.ContainsFunc(list, func(cidr netip.Prefix) bool { return cidr.Contains(addr) }) {
				out[node] = append(out[node], addr)
			}
		}
	}
	return out
}
