package expand

import "testing"

// TestDrainAtLimit checks that a limit never keeps a block that the node does not need.
func TestDrainAtLimit(t *testing.T) {
	busy := "10.0.0.1-10.0.0.14 10.0.0.17-10.0.0.30 10.0.0.33-10.0.0.41"
	runDecide(t, map[string]decideCase{
		"max-allocate: the replacement may be published beside the block that leaves": {
			state: node(full("10.0.0.0/28", request(Deleted)), used("10.0.0.1-10.0.0.3"), limits(Limits{MaxAllocate: 14})),
			want:  []string{"needs 3 of 0", "claim 5 in 4 blocks, room 5", "10.0.0.0/28 waits for Replacement"},
		},
		"max-allocate: more pods than it allows": {
			state: node(full("10.0.0.0/28", request(Deleted)), used("10.0.0.1-10.0.0.14"), pods(6), limits(Limits{MaxAllocate: 14})),
			want:  []string{"needs 20 of 0", "claim 14 in 4 blocks, room 14", "10.0.0.0/28 waits for Replacement"},
		},
		"no replacement makes an object more than twice as large": {
			policy: func(p *Policy) { p.MaxAddresses = 14 },
			state: node(full("10.0.0.0/28", draining(Deleted), request(Deleted)), full("10.0.0.16/28", draining(Deleted), request(Deleted)),
				used("10.0.0.1-10.0.0.3")),
			want: []string{
				"needs 3 of 0", "mark 10.0.0.4-10.0.0.14 10.0.0.17-10.0.0.30",
				"10.0.0.0/28 waits for Pods default/10.0.0.1 default/10.0.0.2 default/10.0.0.3", "10.0.0.16/28 waits for Handshake",
			},
		},
		"maxBlocks: a block in use goes, though nothing is left to spare": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  node(full("10.0.0.0/28"), full("10.0.0.16/28", request(Deleted)), used("10.0.0.1-10.0.0.13 10.0.0.17")),
			want:   []string{"needs 14 of 14", "drain 10.0.0.16/28 Deleted", "10.0.0.16/28 waits for Pods default/10.0.0.17"},
		},
		"not while another block may be claimed": {
			policy: func(p *Policy) { p.MaxBlocks = 4 },
			state:  node(full("10.0.0.0/28"), full("10.0.0.16/28"), full("10.0.0.32/28"), full("10.0.0.48/28", request(Deleted)), used(busy)),
			want:   []string{"needs 37 of 42", "claim 5 in 1 blocks, room 44", "10.0.0.48/28 waits for Replacement"},
		},
		"an agent waits for two addresses before it starts": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  node(lone("10.0.0.0/30", reserved("10.0.0.1")), published("10.0.0.2", ""), full("10.0.0.16/28", request(Deleted))),
			want:   []string{"needs 0 of 1", "10.0.0.16/28 waits for Replacement"},
		},
	})
}
