package expand

import (
	"testing"
	"time"
)

// byNodeAgent lists CIDRs of a node agent that reports. Apply it after the blocks.
func byNodeAgent(cidrs ...string) func(*State) {
	return func(s *State) {
		listing(1, cidrs...)(s)
		s.BlockAssignment.NodeAgent = true
		unsettled(s) // of Cilium's agent nothing is needed
	}
}

func asksFor(n int) func(*State) { return func(s *State) { s.BlockAssignment.Requested = n } }

func ofOtherPool(s *State) { s.Pods[len(s.Pods)-1].OfOtherPool = true }

func ofOwner(s *State) {
	s.BlockAssignment.OfOwner = true
	s.BlockAssignment.NoPreallocation = true
}

func silent(s *State) { s.BlockAssignment.Reported = false }

func TestDecideForNodeAgent(t *testing.T) {
	const first, second, third = "10.0.0.0/29", "10.0.0.8/29", "10.0.0.16/29"
	idleLong := idle(time.Hour, time.Hour)
	runDecide(t, map[string]decideCase{
		"a node without a block claims its reserve": {
			state: node(byNodeAgent()),
			want:  []string{"needs 0 of 0", "claim 2 in 4 blocks, room 2147483647"},
		},
		"a claimed block is listed": {
			state: node(lone(first), byNodeAgent()),
			want:  []string{"needs 0 of 6", "assign 10.0.0.0/29"},
		},
		"a block is listed before the node agent has reported": {
			state: node(lone(first), byNodeAgent(), silent),
			want:  []string{"needs 0 of 6", "assign 10.0.0.0/29"},
		},
		"an agent in multi-pool mode gets what it requests": {
			state: node(lone(first), lone(second), byNodeAgent(first), silent, asksFor(6), pods(6)),
			want:  []string{"needs 6 of 6"},
		},
		"an agent in multi-pool mode gets a returned block back when it requests more": {
			state: node(lone(first), lone(second), byNodeAgent(first), silent, asksFor(8), pods(6)),
			want:  []string{"needs 6 of 12", "assign 10.0.0.8/29"},
		},
		"pods that wait make the node grow at once, by all they need": {
			state: node(lone(first), byNodeAgent(first), used("10.0.0.1-10.0.0.4"), pods(9)),
			want:  []string{"needs 13 of 6", "claim 11 in 3 blocks, room 2147483641"},
		},
		"an address that only a pod's status names counts": {
			state: node(lone(first), byNodeAgent(first), used("10.0.0.1-10.0.0.4"), pod("default/a", "10.0.0.5")),
			want:  []string{"needs 5 of 6", "claim 1 in 3 blocks, room 2147483641"},
		},
		"an address that went with its sandbox leaves a pod that waits": {
			state: node(lone(first), byNodeAgent(first), used("10.0.0.1-10.0.0.6"), pod("default/a", "10.0.1.5")),
			want:  []string{"needs 7 of 6", "claim 3 in 3 blocks, room 2147483641"},
		},
		"a pod of another of Cilium's pools does not wait, though no report names it yet": {
			state: node(lone(first), byNodeAgent(first), used("10.0.0.1-10.0.0.6"), pod("default/a", "10.0.1.5"), ofOtherPool),
			want:  []string{"needs 6 of 6", "claim 2 in 3 blocks, room 2147483641"},
		},
		"an idle block drains and is closed": {
			state:  node(lone(first), lone(second), byNodeAgent(first, second), used("10.0.0.1")),
			memory: idle(time.Hour),
			want:   []string{"needs 1 of 6", "drain 10.0.0.8/29 Reclaim", "close 10.0.0.8/29", "10.0.0.8/29 waits for Return"},
		},
		"of two half-used ones the one with fewer pods": {
			state:  node(lone(first), lone(second), lone(third), byNodeAgent(first, second, third), used("10.0.0.1 10.0.0.9-10.0.0.10 10.0.0.17")),
			memory: idleLong,
			want:   []string{"needs 4 of 12", "drain 10.0.0.16/29 Reclaim", "close 10.0.0.16/29", "10.0.0.16/29 waits for Pods default/10.0.0.17"},
		},
		"nothing is closed before the node agent has reported: another IPAM may assign it": {
			state: node(lone(first), lone(second, draining(Deleted), request(Deleted)), byNodeAgent(first, second), silent, pod("default/a", "10.0.0.1")),
			want:  []string{"needs 1 of 6", "10.0.0.8/29 waits for AgentNotSettled"},
		},
		"a closed block waits for its pods": {
			state: node(lone(first), lone(second, draining(Deleted), request(Deleted), parked), byNodeAgent(first, second), used("10.0.0.9")),
			want:  []string{"needs 1 of 6", "10.0.0.8/29 waits for Pods default/10.0.0.9"},
		},
		"and is no capacity": {
			state: node(lone(first), lone(second, draining(Deleted), request(Deleted), parked), byNodeAgent(first, second), used("10.0.0.1-10.0.0.5 10.0.0.9")),
			want:  []string{"needs 6 of 6", "claim 2 in 3 blocks, room 2147483635", "10.0.0.8/29 waits for Pods default/10.0.0.9"},
		},
		"without pods it waits for the node agent": {
			state: node(lone(first), lone(second, draining(Reclaim), parked), byNodeAgent(first, second)),
			want:  []string{"needs 0 of 6", "10.0.0.8/29 waits for Return"},
		},
		"an agent of another mode gets what it requests, or would not start": {
			state: node(byNodeAgent(), silent, onDemand, asksFor(8)),
			want:  []string{"needs 0 of 0", "claim 8 in 4 blocks, room 2147483647"},
		},
		"a family that is switched off needs no further block, whatever pods have of it": {
			state: node(lone(first, request(CIDRDraining)), lone(second), byNodeAgent(first, second), used("10.0.0.1-10.0.0.4"), pods(2), asksFor(0)),
			want: []string{"needs 4 of 6", "drain 10.0.0.0/29 CIDRDraining", "close 10.0.0.0/29",
				"10.0.0.0/29 waits for Pods default/10.0.0.1 default/10.0.0.2 default/10.0.0.3 default/10.0.0.4"},
		},
		"an owner's block goes with its pod": {
			state: node(lone(first), byNodeAgent(first), ofOwner, asksFor(0)),
			want:  []string{"needs 0 of 6", "drain 10.0.0.0/29 Reclaim", "close 10.0.0.0/29", "10.0.0.0/29 waits for Return"},
		},
		"and not while its pod is here": {
			state: node(lone(first), byNodeAgent(first), ofOwner, pods(1)),
			want:  []string{"needs 1 of 6"},
		},
		"an owner's block drains if people delete it before it is listed": {
			state: node(lone(first, request(Deleted)), byNodeAgent(), ofOwner, pods(1)),
			want:  []string{"needs 1 of 0", "drain 10.0.0.0/29 Deleted", "claim 1 in 4 blocks, room 2147483647", "10.0.0.0/29 waits for Return"},
		},
		"an owner's block in use stays open": {
			state: node(lone(first, request(Deleted)), byNodeAgent(first), ofOwner, used("10.0.0.1")),
			want:  []string{"needs 1 of 0", "claim 1 in 4 blocks, room 2147483641", "10.0.0.0/29 waits for Replacement"},
		},
		"once it is off the list it cools down": {
			state: node(lone(first), lone(second, draining(Reclaim)), byNodeAgent(first)),
			want:  []string{"needs 0 of 6", "free 10.0.0.8/29 Returned"},
		},
		"not before the node agent has reported": {
			state: node(lone(first), lone(second, draining(Reclaim)), byNodeAgent(first), silent),
			want:  []string{"needs 0 of 6", "10.0.0.8/29 waits for AgentNotSettled"},
		},
		"demand opens it again": {
			state: node(lone(first), lone(second, draining(Reclaim), parked), byNodeAgent(first, second), pods(9)),
			want:  []string{"needs 9 of 12", "undrain 10.0.0.8/29", "unpark 10.0.0.8/29"},
		},
		"one whose condition was undone is opened": {
			state: node(lone(first), lone(second, parked), byNodeAgent(first, second)),
			want:  []string{"needs 0 of 12", "unpark 10.0.0.8/29", "again in 10m0s"},
		},
		"one that drains is closed": {
			state: node(lone(first), lone(second, draining(DrainRequested), request(DrainRequested)), byNodeAgent(first, second), used("10.0.0.9")),
			want:  []string{"needs 1 of 6", "close 10.0.0.8/29", "10.0.0.8/29 waits for Pods default/10.0.0.9"},
		},
		"a replacement comes first": {
			state: node(lone(first, request(CIDRDraining)), byNodeAgent(first), used("10.0.0.1")),
			want:  []string{"needs 1 of 0", "claim 3 in 4 blocks, room 2147483641", "10.0.0.0/29 waits for Replacement"},
		},
		"a block of an address in use is listed again": {
			state: node(lone(first), lone(second, draining(Reclaim)), byNodeAgent(first), used("10.0.0.9")),
			want:  []string{"needs 1 of 6", "assign 10.0.0.8/29", "close 10.0.0.8/29", "10.0.0.8/29 waits for Pods default/10.0.0.9"},
		},
		"not for a pod's status alone, once the node agent has reported": {
			state: node(lone(first), lone(second, draining(Reclaim)), byNodeAgent(first), pod("default/a", "10.0.0.9")),
			want:  []string{"needs 1 of 6", "10.0.0.8/29 waits for Pods default/a"},
		},
		"addresses of other Cilium pools are no part of the demand, nor hide a shortage": {
			state: node(lone(first), byNodeAgent(first), used("10.0.0.1-10.0.0.6 10.9.0.1-10.9.0.9"), pods(3), limits(Limits{MaxAllocate: 6})),
			want:  []string{"needs 9 of 6", "short of 3"},
		},
		"entries that a fence left are deleted": {
			state: node(lone(first), byNodeAgent(first), entries("10.0.0.9", Marked)),
			want:  []string{"needs 0 of 6", "clear 10.0.0.9"},
		},
		"a block is not deleted before the node agent has reported": {
			state: node(lone(first), lone(second, cooling(NodeGone, noon), request(Deleted)), byNodeAgent(first), silent),
			want:  []string{"needs 0 of 6"},
		},
		"one that cools down drains again first": {
			state: node(lone(first), lone(second, cooling(Returned, noon)), byNodeAgent(first), used("10.0.0.9")),
			want:  []string{"needs 1 of 6", "drain 10.0.0.8/29 Reclaim", "10.0.0.8/29 waits for Pods default/10.0.0.9"},
		},
		"a cooled block is deleted": {
			state: node(lone(first), lone(second, cooling(Returned, noon)), byNodeAgent(first)),
			want:  []string{"needs 0 of 6", "delete 10.0.0.8/29"},
		},
		"the last block of pods that chose a Cilium pool leaves": {
			state:  node(lone(first), byNodeAgent(first), onDemand, asksFor(0)),
			memory: idle(time.Hour),
			want:   []string{"needs 0 of 0", "drain 10.0.0.0/29 Reclaim", "close 10.0.0.0/29", "10.0.0.0/29 waits for Return"},
		},
		"the last block of the others stays": {
			state:  node(lone(first), byNodeAgent(first)),
			memory: idle(time.Hour),
			want:   []string{"needs 0 of 6"},
		},
		"max-allocate": {
			state: node(lone(first), byNodeAgent(first), used("10.0.0.1-10.0.0.6"), pods(3), limits(Limits{MaxAllocate: 8})),
			want:  []string{"needs 9 of 6", "claim 2 in 3 blocks, room 2", "short of 1"},
		},
	})
}
