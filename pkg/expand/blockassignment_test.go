package expand

import (
	"net/netip"
	"testing"
	"time"
)

// listing lists CIDRs in the CiliumNode, and sets the number of addresses that its agent requests;
// below 0: it has not reported. Apply it after the blocks.
func listing(requested int, cidrs ...string) func(*State) {
	return func(s *State) {
		s.BlockAssignment = &BlockAssignment{Reported: requested >= 0, Requested: max(0, requested), HasEntry: len(cidrs) > 0}
		for i := range s.Blocks {
			s.Blocks[i].Size, s.Blocks[i].Usable = s.Blocks[i].Count(), nil
		}
		for _, cidr := range cidrs {
			c, foreign := netip.MustParsePrefix(cidr), true
			s.BlockAssignment.Assigned = append(s.BlockAssignment.Assigned, c)
			for i := range s.Blocks {
				if s.Blocks[i].CIDR == c {
					s.Blocks[i].Listed, foreign = true, false
				}
			}
			if foreign {
				s.BlockAssignment.Foreign += len(inner(c))
			}
		}
	}
}

func fixed(s *State) { s.BlockAssignment.SingleBlock = true }

func onDemand(s *State) { s.BlockAssignment.NoPreallocation = true }

// An agent in crd mode still runs, or an old agent in multi-pool mode has left its report there:
// one listing decides, and no address is lost or relisted forever.
func TestDecideLeftover(t *testing.T) {
	const first, second = "10.0.0.0/30", "10.0.0.4/30"
	once := remembering(second)
	runDecide(t, map[string]decideCase{
		"it was, so the agent has returned it": {
			state:    node(lone(first), lone(second, leftover), listing(2, first)),
			memory:   once,
			want:     []string{"needs 0 of 2", "free 10.0.0.4/30 Returned"},
			remember: &once,
		},
		"what cools down goes": {
			state: node(lone(first), lone(second, leftover, cooling(Returned, noon)), listing(2, first)),
			want:  []string{"needs 0 of 2", "delete 10.0.0.4/30"},
		},
	})
}

// An agent that starts requests its reserve before it has restored its pods. Where its CiliumNode
// was deleted and created again, a block must be listed before it counts as returned: a pod that
// has just got an address may not show it yet.
func TestDecideOutlived(t *testing.T) {
	const first, second = "10.0.0.0/30", "10.0.0.4/30"
	once := remembering(second)
	older := created(noon.Add(-time.Minute))
	again := remade(noon)
	runDecide(t, map[string]decideCase{
		"made in the same second": {
			state: node(lone(first), lone(second, created(noon)), listing(2, first), again),
			want:  []string{"needs 0 of 4", "assign 10.0.0.4/30"},
		},
		"also where it drains": {
			state: node(lone(first), lone(second, older, draining(Deleted), request(Deleted)), listing(2, first), again),
			want:  []string{"needs 0 of 4", "assign 10.0.0.4/30", "10.0.0.4/30 waits for Return"},
		},
		"it was, so the agent has returned it": {
			state:    node(lone(first), lone(second, older), listing(2, first), again),
			memory:   once,
			want:     []string{"needs 0 of 2", "free 10.0.0.4/30 Returned"},
			remember: &once,
		},
		"without an address to publish": {
			state: node(lone(first), lone(second, older, reserved("10.0.0.5-10.0.0.6")), listing(2, first), again),
			want:  []string{"needs 0 of 2", "free 10.0.0.4/30 Returned"},
		},
	})
}

// An agent that did not restore a pod returns the pod's block each time it is listed, so it is
// listed for that pod once. A block lost in any other way is listed each time.
func TestDecideLostByAgent(t *testing.T) {
	const first, second = "10.0.0.0/30", "10.0.0.4/30"
	never, now, long := time.Time{}, noon, noon.Add(-givesBackWithin)
	none, asked, seen := Memory{}, relistedFor("10.0.0.5", never), relistedFor("10.0.0.5", now)
	runDecide(t, map[string]decideCase{
		"it is listed": {
			state:    node(lone(first), lone(second), listing(2, first), pod("a/a", "10.0.0.5")),
			want:     []string{"needs 1 of 4", "assign 10.0.0.4/30"},
			remember: &asked,
		},
		"it was seen": {
			state:    node(lone(first), lone(second), listing(2, first, second), pod("a/a", "10.0.0.5")),
			memory:   asked,
			want:     []string{"needs 1 of 4", "again in 5m0s"},
			remember: &seen,
		},
		"it is listed for what the agent requests": {
			state:    node(lone(first), lone(second), listing(3, first), pod("a/a", "10.0.0.5")),
			memory:   seen,
			want:     []string{"needs 0 of 4", "assign 10.0.0.4/30"},
			remember: &seen,
		},
		"an agent that has not reported has returned nothing": {
			state:  node(lone(first), lone(second), listing(-1, first), pod("a/a", "10.0.0.5")),
			memory: seen,
			want:   []string{"needs 1 of 4", "assign 10.0.0.4/30"},
		},
		"for long, has use for it": {
			state:    node(lone(first), lone(second), listing(2, first, second), pod("a/a", "10.0.0.5")),
			memory:   relistedFor("10.0.0.5", long),
			want:     []string{"needs 1 of 4"},
			remember: &none,
		},
		"a pod of a block that cannot be listed wants no other": {
			state: node(lone(first), lone(second, conflict), listing(2, first), pod("a/a", "10.0.0.5")),
			want:  []string{"needs 0 of 2", "10.0.0.4/30 waits for Pods a/a"},
		},
		"nor one of an orphaned block": {
			state: node(lone(first), lone(second, orphaned), listing(2, first), pod("a/a", "10.0.0.5"), pod("a/b", "10.0.0.6"), pod("a/c", "10.0.0.7")),
			want:  []string{"needs 0 of 2", "drain 10.0.0.4/30 PoolDeleted", "10.0.0.4/30 waits for Pods a/a a/b a/c"},
		},
		"a pod that is gone is forgotten": {
			state:    node(lone(first), lone(second), listing(2, first)),
			memory:   seen,
			want:     []string{"needs 0 of 2", "free 10.0.0.4/30 Returned"},
			remember: &none,
		},
	})
}

func TestDecideWhole(t *testing.T) {
	const first, second, third = "10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"
	runDecide(t, map[string]decideCase{
		"a replacement comes before the drain": {
			state: node(lone(first, request(CIDRDraining)), pod("a/a", "10.0.0.1"), pod("a/b", "10.0.0.2"), pod("a/c", ""), listing(4, first)),
			want:  []string{"needs 3 of 2", "claim 2 in 4 blocks, room 2147483645", "10.0.0.0/30 waits for Replacement"},
		},
		"with the replacement there the block drains": {
			state: node(lone(first, request(CIDRDraining)), lone(second), listing(2, first, second)),
			want:  []string{"needs 0 of 4", "drain 10.0.0.0/30 CIDRDraining", "10.0.0.0/30 waits for Return"},
		},
		"a new node requests what its policy keeps free": {
			state: node(listing(-1)),
			want:  []string{"needs 0 of 0", "claim 2 in 4 blocks, room 2147483647"},
		},
		"of several that are not listed it gets what it needs": {
			state: node(lone(first), lone(second), lone(third), listing(4, first)),
			want:  []string{"needs 0 of 4", "assign 10.0.0.4/30", "free 10.0.0.8/30 Returned"},
		},
		"pods that hang do where a pool may have no block for them": {
			state: node(lone(first), listing(3, first), pod("a/a", "10.0.0.1"), pod("a/b", "10.0.0.2"), came("a/c", noon.Add(-3*time.Minute))),
			want:  []string{"needs 3 of 2", "claim 1 in 3 blocks, room 2147483645"},
		},
		"not if the agent requests none for them": {
			state: node(listing(0), onDemand, came("a/c", noon.Add(-3*time.Minute))),
			want:  []string{"needs 0 of 0"},
		},
		"pods with an address of another pool of Cilium's do not": {
			state: node(lone(first), listing(2, first), pod("a/a", "10.9.0.1"), pod("a/b", "10.9.0.2"), pod("a/c", "10.9.0.3")),
			want:  []string{"needs 0 of 2"},
		},
		"an agent that starts needs addresses of its own beside the pods it restores": {
			state: node(lone(first), listing(2, first), pod("a/a", "10.0.0.1"), pod("a/b", "10.0.0.2"), own("10.9.0.1"), unsettled),
			want:  []string{"needs 2 of 2", "claim 3 in 3 blocks, room 2147483645"},
		},
		"not once it has one": {
			state: node(lone(first), listing(2, first), pod("a/a", "10.0.0.2"), usedBy("10.0.0.1", "router"), own("10.0.0.1"), unsettled),
			want:  []string{"needs 2 of 2"},
		},
		"a pod that its kubelet accepted long ago does not count as new": {
			state: node(lone(first), listing(2, first), came("a/a", noon), came("a/b", noon), came("a/c", noon), accepted("a/c", -time.Hour)),
			want:  []string{"needs 2 of 2"},
		},
		"nor beside pods that wait for it": {
			state: node(lone(first), listing(2, first), came("a/a", noon), came("a/b", noon), unsettled),
			want:  []string{"needs 2 of 2"},
		},
		"nor of a pool other than the default one": {
			state: node(lone(first), listing(2, first), onDemand, pod("a/a", "10.0.0.1"), pod("a/b", "10.0.0.2"), unsettled),
			want:  []string{"needs 2 of 2"},
		},
		"a family that the agent has no use for": {
			state: node(lone(first), listing(0), came("a/a", noon)),
			want:  []string{"needs 0 of 0", "free 10.0.0.0/30 Returned"},
		},
		"on demand pods count though the agent has not asked": {
			state: node(listing(0), onDemand, came("a/a", noon)),
			want:  []string{"needs 1 of 0", "claim 1 in 4 blocks, room 2147483647"},
		},
		"no more than maxBlocks": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  node(lone(first), listing(4, first), came("a/a", noon), came("a/b", noon), came("a/c", noon)),
			want:   []string{"needs 3 of 2", "short of 1"},
		},
		"a block that is listed again returns to service": {
			state: node(lone(first, draining(Reclaim)), listing(2, first)),
			want:  []string{"needs 0 of 2", "undrain 10.0.0.0/30"},
		},
		"a block that cools down is taken back before another is claimed": {
			state: node(lone(first), lone(second, cooling(Returned, noon.Add(time.Minute))), listing(4, first)),
			want:  []string{"needs 0 of 4", "undrain 10.0.0.4/30"},
		},
		"where the agent has returned all, it forgets them": {
			state: node(lone(first, cooling(Returned, noon.Add(time.Minute))), lone(second, cooling(Returned, noon)), listing(0), onDemand),
			want:  []string{"needs 0 of 0", "forget", "delete 10.0.0.4/30", "again in 1m0s"},
		},
		"and does not forget them again": {
			state:    node(lone(first, cooling(Returned, noon.Add(time.Minute))), listing(0), onDemand),
			memory:   Memory{Forgotten: []netip.Prefix{netip.MustParsePrefix(first)}},
			want:     []string{"needs 0 of 0", "again in 1m0s"},
			remember: &Memory{Forgotten: []netip.Prefix{netip.MustParsePrefix(first)}},
		},
		"where its list shows that they are gone, nothing is written": {
			state:    node(lone(first, cooling(Returned, noon.Add(time.Minute))), lone(second), listing(2, second), onDemand),
			want:     []string{"needs 0 of 2", "again in 1m0s"},
			remember: &Memory{Forgotten: []netip.Prefix{netip.MustParsePrefix(first)}},
		},
		"what stands of a handshake goes": {
			state: node(lone(first), listing(2, first), entries("10.0.0.1 192.0.2.1", Marked), entries("10.0.0.2", Ready)),
			want:  []string{"needs 0 of 2", "clear 10.0.0.1-10.0.0.2 192.0.2.1"},
		},
		"part of a foreign CIDR does not cool down": {
			state: node(lone(second), listing(6, "10.0.0.0/29")),
			want:  []string{"needs 0 of 6"},
		},
		"a fixed block: one, whatever its size and the policy": {
			state: node(listing(-1), fixed, came("a/a", noon), came("a/b", noon)),
			want:  []string{"needs 2 of 0", "claim 1 in 4 blocks, room 2147483647"},
		},
		"a fixed block: that which the node has": {
			state: node(lone(first), lone(second), listing(-1), fixed),
			want:  []string{"needs 0 of 2", "assign 10.0.0.0/30"},
		},
		"a fixed block: a second one goes, and the one that is listed stays": {
			state: node(lone(first, draining(Deleted), request(Deleted)), lone(second), listing(-1, first), fixed),
			want:  []string{"needs 0 of 2", "free 10.0.0.4/30 NodeGone", "10.0.0.0/30 waits for Return"},
		},
		"a fixed block: a second one stays while a pod has an address of it": {
			state: node(lone(first), lone(second), listing(-1, second), fixed, pod("a/a", "10.0.0.1")),
			want:  []string{"needs 1 of 2"},
		},
		"a fixed block: it keeps cooling down while a pod has an address of it": {
			state: node(lone(first, cooling(NodeGone, noon)), lone(second), listing(-1, second), fixed, pod("a/a", "10.0.0.1")),
			want:  []string{"needs 1 of 2"},
		},
		"a fixed block: it does not end while the pod waits": {
			state: node(lone(first), listing(-1, first), fixed, pod("a/a", "10.0.0.1"), pod("a/b", "10.0.0.2"), came("a/c", noon.Add(-3*time.Minute))),
			want:  []string{"needs 3 of 2", "short of 1"},
		},
	})
}
