package expand

import (
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

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

// TestDrainBegins checks that in any state a block that must leave begins to drain, unless the
// node can still grow, or the remaining blocks could not hold its pods.
func TestDrainBegins(t *testing.T) {
	began, atLimit := 0, 0
	for seed := range rounds(t, 20_000) {
		d := seeded(uint64(seed))
		p, s := d.policy(), d.state()
		s.Gone = false
		for i := range s.Blocks { // more of the subject
			if b := &s.Blocks[i]; b.Phase == ipalloc.InService && d.percent(30) {
				b.Request = oneOf(d, requests...)
			}
		}
		plan, _ := Decide(noon, p, s, d.memory(s))
		if len(plan.Undrain) > 0 || plan.Claim != (Claim{}) {
			continue
		}
		for _, b := range s.Blocks {
			if b.Phase != ipalloc.InService || b.Request == None || b.Conflict {
				continue
			}
			begins := slices.Contains(plan.Drain, Drain{CIDR: b.CIDR, Reason: b.Request})
			switch enough := plan.Capacity >= max(plan.Demand, agentFloor); {
			case enough && !begins:
				t.Fatalf("seed %d: %s does not begin to drain\npolicy %+v\nstate %+v\nplan %s", seed, b.CIDR, p, s, plan)
			case begins:
				began++
				if plan.Demand*100 > p.ExpandPercent*plan.Capacity {
					atLimit++
				}
			}
		}
	}
	t.Logf("drains that began %d, of them at a limit %d", began, atLimit)
	if atLimit == 0 {
		t.Error("the random states have no drain at a limit")
	}
}
