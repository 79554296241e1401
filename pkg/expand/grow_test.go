package expand

import "testing"

func TestDemand(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"a pod is known by its name": {
			state: node(full("10.0.0.0/28"), usedBy("10.0.0.1", "default/web-0"), pod("default/web-0", "")),
			want:  []string{"needs 1 of 14"},
		},
		"the other family does not count": {
			state: node(full("10.0.0.0/28"), used("10.0.0.2"), usedBy("fd00::1", "default/web-0"), published("fd00::1", ""), pod("default/web-0", "fd00::1")),
			want:  []string{"needs 2 of 14"},
		},
		"a pod that an address is kept for is no demand before it runs": {
			state: node(full("10.0.0.0/28"), published("10.9.9.9", "default/db-0"), used("10.0.0.2"), pod("default/db-0", "")),
			want:  []string{"needs 1 of 14"},
		},
	})
}

// Pods that the kubelet does not admit do not count, so no user can push a node to its block limit
// with pods that set spec.nodeName.
func TestDemandIsBoundByMaxPods(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"more pods than the kubelet admits": {
			state: node(full("10.0.0.0/26"), used("10.0.0.1"), pods(5000), maxPods(40)),
			want:  []string{"needs 40 of 62"},
		},
		"a node that cannot run pods keeps what an agent waits for": {
			state: node(pods(5000), maxPods(1)),
			want:  []string{"needs 1 of 0", "claim 3 in 4 blocks, room 100"},
		},
		"a reserve for those that it does": {
			policy: func(p *Policy) { p.ExpandPercent = 80 },
			state:  node(full("10.0.0.0/27"), full("10.0.0.32/27"), usedBy("10.0.0.1", "router"), used("10.0.0.2-10.0.0.30"), used("10.0.0.33-10.0.0.53"), maxPods(59)),
			want:   []string{"needs 51 of 60", "claim 1 in 2 blocks, room 40"},
		},
		"of an agent that is assigned whole blocks": {
			state: node(lone("10.0.0.0/26"), usedBy("10.0.0.1", "router"), came("default/a", noon), came("default/b", noon), came("default/c", noon),
				pod("default/d", "10.0.0.2"), maxPods(2), listing(8, "10.0.0.0/26")),
			want: []string{"needs 3 of 62"},
		},
	})
}

func TestGrow(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"an agent waits for two addresses before it starts": {
			policy: func(p *Policy) { p.MinFree = 0 },
			state:  node(published("10.9.9.9", "")),
			want:   []string{"needs 0 of 1", "claim 1 in 4 blocks, room 99"},
		},
		"at the threshold nothing happens": {
			state: node(full("10.0.0.0/28"), used("10.0.0.1-10.0.0.11")),
			want:  []string{"needs 11 of 14"},
		},
		"above the threshold it grows": {
			state: node(full("10.0.0.0/28"), used("10.0.0.1-10.0.0.12")),
			want:  []string{"needs 12 of 14", "claim 1 in 3 blocks, room 86"},
		},
		"pinned blocks come without need": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  node(full("10.0.0.0/28"), used("10.0.0.1"), missing(2)),
			want:   []string{"needs 1 of 14", "claim 2 pinned"},
		},
		"pinned blocks serve a need": {
			state: node(full("10.0.0.0/28"), used("10.0.0.1-10.0.0.12"), missing(1)),
			want:  []string{"needs 12 of 14", "claim 1 pinned", "claim 1 in 3 blocks, room 86"},
		},
		"pinned blocks wait for room": {
			policy: func(p *Policy) { p.MaxAddresses = 14 },
			state:  node(full("10.0.0.0/28"), used("10.0.0.1"), missing(1)),
			want:   []string{"needs 1 of 14"},
		},
		"no more than maxBlocks": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  node(full("10.0.0.0/28"), used("10.0.0.1-10.0.0.14"), pods(3)),
			want:   []string{"needs 17 of 14", "short of 3"},
		},
		"pre-allocate": {
			state: node(full("10.0.0.0/28"), used("10.0.0.1-10.0.0.5"), limits(Limits{PreAllocate: 10})),
			want:  []string{"needs 5 of 14", "claim 1 in 3 blocks, room 86"},
		},
		"max-above-watermark": {
			state: node(lone("10.0.0.0/28"), used("10.0.0.1-10.0.0.3"), limits(Limits{MaxAboveWatermark: 2})),
			want:  []string{"needs 3 of 7", "publish 10.0.0.1-10.0.0.7"},
		},
		"an entry that stands keeps an address out of the pool": {
			state: node(full("10.0.0.0/29"), lone("10.0.0.8/29"), used("10.0.0.1"), entries("10.0.0.9", Ready), entries("10.0.0.10", Released), entries("10.0.0.11", Marked)),
			want:  []string{"needs 1 of 12", "clear 10.0.0.9-10.0.0.10", "publish 10.0.0.12-10.0.0.14", "again in 2m0s"},
		},
	})
}

func TestUndrain(t *testing.T) {
	later := noon.Add(1e9)
	crowded := used("10.0.0.1-10.0.0.14")
	runDecide(t, map[string]decideCase{
		"only as many as needed, fullest first": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", draining(Reclaim), listed), published("10.0.0.17", ""), full("10.0.0.32/28", draining(Reclaim)), crowded),
			want:  []string{"needs 14 of 28", "undrain 10.0.0.32/28", "mark 10.0.0.17", "10.0.0.16/28 waits for Handshake"},
		},
		"draining before cooling": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", cooling(Returned, later)), lone("10.0.0.32/28", draining(Reclaim), listed), crowded),
			want:  []string{"needs 14 of 28", "undrain 10.0.0.32/28", "again in 1s"},
		},
		"no more than maxBlocks": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  node(full("10.0.0.0/28"), lone("10.0.0.16/28", cooling(Returned, later)), crowded, pods(1)),
			want:   []string{"needs 15 of 14", "short of 1", "again in 1s"},
		},
		"a drain no longer requested ends, whatever the demand": {
			state: node(full("10.0.0.0/28"), full("10.0.0.16/28", draining(CIDRDraining))),
			want:  []string{"needs 0 of 28", "undrain 10.0.0.16/28"},
		},
	})
}
