package expand

import (
	"net/netip"
	"testing"
	"time"
)

func runs(cidrs ...string) func(*State) {
	return func(s *State) {
		for _, cidr := range cidrs {
			s.BlockAssignment.ActiveCIDRs = append(s.BlockAssignment.ActiveCIDRs, netip.MustParsePrefix(cidr))
		}
	}
}

func created(at time.Time) func(*Block) { return func(b *Block) { b.Created = at } }

// If a Node comes back under its agent, it gets the block that the agent runs with, or none.
func TestDecideFixedAgain(t *testing.T) {
	const first, second = "10.0.0.0/30", "10.0.0.4/30"
	runDecide(t, map[string]decideCase{
		"it begins to drain first": {
			state: node(lone(second, request(CIDRDraining)), listing(-1), fixed, runs(second)),
			want:  []string{"needs 0 of 2", "drain 10.0.0.4/30 CIDRDraining", "10.0.0.4/30 waits for Return"},
		},
		"it comes back from its cooldown": {
			state: node(lone(first), lone(second, cooling(NodeGone, noon)), listing(-1), fixed, runs(second)),
			want:  []string{"needs 0 of 2", "undrain 10.0.0.4/30"},
		},
		"it comes back from its cooldown and drains": {
			state: node(lone(first), lone(second, cooling(NodeGone, noon), request(Deleted)), listing(-1), fixed, runs(second)),
			want:  []string{"needs 0 of 0", "drain 10.0.0.4/30 Deleted", "10.0.0.4/30 waits for Return"},
		},
		"the agent has not said what it runs with, and the oldest is assigned": {
			state: node(lone(first, created(noon)), lone(second, created(noon.Add(-time.Hour))), listing(-1), fixed),
			want:  []string{"needs 0 of 2", "assign 10.0.0.4/30"},
		},
		"the oldest cools down": {
			state: node(lone(first, created(noon)), lone(second, created(noon.Add(-time.Hour)), cooling(NodeGone, noon)), listing(-1), fixed),
			want:  []string{"needs 0 of 2", "undrain 10.0.0.4/30"},
		},
		"a pod has an address, and its block is assigned": {
			state: node(lone(first), lone(second, draining(CIDRDraining), request(CIDRDraining)), listing(-1), fixed, pod("a/a", "10.0.0.5")),
			want:  []string{"needs 1 of 2", "assign 10.0.0.4/30", "10.0.0.4/30 waits for Pods a/a"},
		},
		"a pod has one of a block that must go, and that drains first": {
			state: node(lone(first), lone(second, cooling(NodeGone, noon), request(CIDRDraining)), listing(-1), fixed, pod("a/a", "10.0.0.5")),
			want:  []string{"needs 1 of 0", "drain 10.0.0.4/30 CIDRDraining", "short of 1", "10.0.0.4/30 waits for Pods a/a"},
		},
		"it has none that can be assigned": {
			state: node(lone(first, reserved("10.0.0.1 10.0.0.2")), listing(-1), fixed),
			want:  []string{"needs 0 of 0", "claim 1 in 3 blocks, room 2147483647"},
		},
	})
}

// An agent is left without a block only if none of the node's blocks can be assigned.
func TestRunsWithAnother(t *testing.T) {
	const first, second = "10.0.0.0/30", "10.0.0.4/30"
	tests := map[string]struct {
		state State
		want  bool
	}{
		"nothing is known of the agent":       {state: node(lone(first), listing(-1), fixed)},
		"it runs with another":                {state: node(lone(first), listing(-1), fixed, runs(second)), want: true},
		"it runs with one that is in dispute": {state: node(lone(first, conflict), listing(-1), fixed, runs(first)), want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.state.RunsWithAnother(); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
