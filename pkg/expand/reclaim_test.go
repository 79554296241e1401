package expand

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReclaim(t *testing.T) {
	longAgo := time.Hour
	two := node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1-10.0.0.2"))
	runDecide(t, map[string]decideCase{
		"the wait begins": {
			state:    two,
			want:     []string{"needs 2 of 28", "again in 10m0s"},
			remember: &Memory{IdleSince: []time.Time{noon}},
		},
		"the emptiest block goes": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1 10.0.0.17-10.0.0.18")),
			memory:   idle(10 * time.Minute),
			want:     []string{"needs 3 of 14", "drain 10.0.0.0/28 Reclaim", "10.0.0.0/28 waits for Pods default/10.0.0.1"},
			remember: &Memory{},
		},
		"never the agent's own": {
			state:  node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1-10.0.0.3"), usedBy("10.0.0.17", "router [restored]")),
			memory: idle(longAgo),
			want:   []string{"needs 4 of 14", "drain 10.0.0.0/28 Reclaim", "10.0.0.0/28 waits for Pods default/10.0.0.1 default/10.0.0.2 default/10.0.0.3"},
		},
		"never one with an address kept by hand": {
			state: node(full("10.0.0.0/28"), full("10.0.0.16/28"), usedBy("10.0.0.1", "health"), published("10.0.0.17", "default/db-0")),
			want:  []string{"needs 1 of 27"},
		},
		"never one that is pinned": {
			state:  node(full("10.0.0.0/28"), full("10.0.0.16/28", pinned), used("10.0.0.1")),
			memory: idle(longAgo),
			want:   []string{"needs 1 of 14", "drain 10.0.0.0/28 Reclaim", "10.0.0.0/28 waits for Pods default/10.0.0.1"},
		},
		"a drain ends once its block is pinned": {
			state: node(full("10.0.0.0/28"), full("10.0.0.16/28", draining(Reclaim), pinned), used("10.0.0.1")),
			want:  []string{"needs 1 of 28", "undrain 10.0.0.16/28", "again in 10m0s"},
		},
		"never the last": {
			state:  node(full("10.0.0.0/28"), published("10.9.9.1-10.9.9.9", ""), used("10.0.0.1")),
			memory: idle(longAgo),
			want:   []string{"needs 1 of 23"},
		},
		"when the rest would be in use as far as allowed": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1-10.0.0.7")),
			memory:   idle(longAgo),
			want:     []string{"needs 7 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake"},
			remember: &Memory{},
		},
		"not when the rest would be too full": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1-10.0.0.8")),
			memory:   idle(longAgo),
			want:     []string{"needs 8 of 28"},
			remember: &Memory{},
		},
		"disabled": {
			policy: func(p *Policy) { p.ReclaimDisabled = true },
			state:  two,
			memory: idle(longAgo),
			want:   []string{"needs 2 of 28"},
		},
		"an agent that is not settled starts the wait anew": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1"), unsettled),
			memory:   idle(longAgo),
			want:     []string{"needs 1 of 28"},
			remember: &Memory{},
		},
		"several at once": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), full("10.0.0.32/28"), used("10.0.0.1")),
			budget:   budget(5),
			memory:   idle(longAgo, longAgo, longAgo),
			want:     []string{"needs 1 of 14", "drain 10.0.0.16/28 Reclaim", "drain 10.0.0.32/28 Reclaim", "10.0.0.16/28 waits for Handshake", "10.0.0.32/28 waits for Handshake"},
			remember: &Memory{},
		},
		"no budget: look again soon": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1")),
			budget:   budget(0),
			memory:   idle(longAgo),
			want:     []string{"needs 1 of 28", "again in 10s"},
			remember: &Memory{IdleSince: []time.Time{noon.Add(-longAgo)}},
		},
		"a block that goes is not filled any more": {
			state:  node(full("10.0.0.0/28"), lone("10.0.0.16/28"), used("10.0.0.1")),
			memory: idle(longAgo),
			want:   []string{"needs 1 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake"},
		},
		"a drain on request comes first": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), full("10.0.0.32/28", request(Deleted)), used("10.0.0.1")),
			memory:   idle(longAgo),
			want:     []string{"needs 1 of 28", "drain 10.0.0.32/28 Deleted", "10.0.0.32/28 waits for Handshake"},
			remember: &Memory{IdleSince: []time.Time{noon.Add(-longAgo)}},
		},
	})
}

// TestMemoryIsNotShared checks that the memories of two decisions do not share an array.
func TestMemoryIsNotShared(t *testing.T) {
	s := node(full("10.0.0.0/28"), full("10.0.0.16/28"), full("10.0.0.32/28"), used("10.0.0.1"))
	m := Memory{IdleSince: make([]time.Time, 0, 8)}
	_, first := Decide(noon, testPolicy(), s, Budget{}, m)
	Decide(noon.Add(time.Minute), testPolicy(), s, Budget{}, m)
	if diff := cmp.Diff(Memory{IdleSince: []time.Time{noon, noon}}, first, addrKeys); diff != "" {
		t.Error(diff)
	}
}

func TestDrainOnRequest(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"the replacement is requested first": {
			state: node(full("10.0.0.0/28", request(Deleted)), used("10.0.0.1-10.0.0.3")),
			want:  []string{"needs 3 of 0", "claim 5 in 4 blocks, room 86", "10.0.0.0/28 waits for Replacement"},
		},
		"an empty block drains without a replacement": {
			state: node(lone("10.0.0.0/28", request(PoolDeleted)), pods(1)),
			want:  []string{"needs 1 of 0", "drain 10.0.0.0/28 PoolDeleted", "claim 3 in 4 blocks, room 100", "10.0.0.0/28 waits for AgentNotSettled"},
		},
		"once the replacement can be published it drains": {
			state: node(full("10.0.0.0/28", request(CIDRDraining)), lone("10.0.0.16/28"), used("10.0.0.1-10.0.0.2")),
			want: []string{
				"needs 2 of 14", "drain 10.0.0.0/28 CIDRDraining", "publish 10.0.0.17-10.0.0.30",
				"10.0.0.0/28 waits for Pods default/10.0.0.1 default/10.0.0.2",
			},
		},
		"an undrain of the same plan is no replacement yet": {
			state: node(full("10.0.0.0/28", request(Deleted)), full("10.0.0.16/28", draining(Reclaim)), used("10.0.0.1")),
			want:  []string{"needs 1 of 14", "undrain 10.0.0.16/28", "10.0.0.0/28 waits for Replacement"},
		},
		"a reclaim that becomes a request says so": {
			state: node(full("10.0.0.0/28"), full("10.0.0.16/28", draining(Reclaim), request(PoolDeleted)), used("10.0.0.1 10.0.0.17-10.0.0.29")),
			want: []string{
				"needs 14 of 14", "drain 10.0.0.16/28 PoolDeleted", "mark 10.0.0.30", "claim 4 in 3 blocks, room 72",
				"10.0.0.16/28 waits for Pods default/10.0.0.17 default/10.0.0.18 default/10.0.0.19 default/10.0.0.20 " +
					"default/10.0.0.21 default/10.0.0.22 default/10.0.0.23 default/10.0.0.24 default/10.0.0.25 default/10.0.0.26 " +
					"default/10.0.0.27 default/10.0.0.28 default/10.0.0.29",
			},
		},
	})
}

func TestWaits(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"the agent's addresses come first": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", draining(Deleted), request(Deleted)), published("10.0.0.17-10.0.0.19", ""),
				usedBy("10.0.0.17", "router"), used("10.0.0.18"), own("10.0.0.19 10.0.0.17")),
			want: []string{"needs 2 of 14", "retire 10.0.0.17 10.0.0.19", "10.0.0.16/28 waits for AgentRestart 10.0.0.19 router"},
		},
		"pods by name, each once": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", draining(Deleted), request(Deleted)), published("10.0.0.17-10.0.0.18", ""), published("10.0.0.19", "default/db-0"),
				usedBy("10.0.0.17", "default/b [restored]"), pod("default/a", "10.0.0.18"), pod("default/b", "10.0.0.17 10.0.0.18")),
			want: []string{"needs 2 of 14", "10.0.0.16/28 waits for Pods default/a default/b default/db-0"},
		},
	})
}
