package expand

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// vacating is a node with only the agent's own addresses in a block that drains because a user has
// requested it.
func vacating(edits ...func(*State)) State {
	edits = append([]func(*State){
		full("10.0.0.0/28"), lone("10.0.0.16/28", draining(CIDRDraining), request(CIDRDraining), listed),
		published("10.0.0.17-10.0.0.18", ""), usedBy("10.0.0.17", "router"), usedBy("10.0.0.18", "health"), used("10.0.0.1"),
	}, edits...)
	return node(edits...)
}

func edit(i int, change func(*Block)) func(*State) {
	return func(s *State) { change(&s.Blocks[i]) }
}

func TestVacate(t *testing.T) {
	const both = "10.0.0.17-10.0.0.18"
	restart := "10.0.0.16/28 waits for AgentRestart health router"
	moved := func(edits ...func(*State)) State {
		return node(append([]func(*State){
			full("10.0.0.0/28"), lone("10.0.0.16/28", draining(Deleted), request(Deleted), listed),
			published(both, ""), usedBy("10.0.0.1", "router"), usedBy("10.0.0.2", "health"), entries(both, Released),
		}, edits...)...)
	}
	runDecide(t, map[string]decideCase{
		"an explicit drain: retire": {
			state: vacating(),
			want:  []string{"needs 3 of 14", "retire " + both, restart},
		},
		"selected again: first the block": {
			state: vacating(edit(1, draining(NodeUnselected)), edit(1, request(None)), entries(both, Released)),
			want:  []string{"needs 3 of 28", "undrain 10.0.0.16/28", "again in 10m0s"},
		},
		"it waits for other nodes: serve": {
			state: node(full("10.0.0.0/28", request(NodeUnselected), func(b *Block) { b.Delay.Reason = WaitNodes }), full("10.0.0.16/28"), usedBy("10.0.0.1", "router")),
			want:  []string{"needs 1 of 28", "10.0.0.0/28 waits for Nodes", "again in 10m0s"},
		},
		"an address that a pod has left: a restart would clear its mark, and the agent take it": {
			state: vacating(published("10.0.0.20", ""), entries(both, Released), entries("10.0.0.20", Marked)),
			want:  []string{"needs 3 of 14", "10.0.0.16/28 waits for Handshake", "again in 2m0s"},
		},
		"the agent has agreed to give it up: restart": {
			state: vacating(published("10.0.0.20", ""), entries(both, Released), entries("10.0.0.20", Ready)),
			want:  []string{"needs 3 of 14", restart, "again in 30s"},
		},
		"retired: wait for a restart": {
			state: vacating(entries(both, Released)),
			want:  []string{"needs 3 of 14", restart},
		},
		"restarted, and not settled yet": {
			state: moved(unsettled),
			want:  []string{"needs 2 of 14", "10.0.0.16/28 waits for AgentNotSettled"},
		},
		"restarted with other addresses: mark": {
			state: moved(),
			want:  []string{"needs 2 of 14", "mark " + both, "10.0.0.16/28 waits for Handshake"},
		},
		"restarted, and the CiliumNode still names one": {
			state: moved(own("10.0.0.17")),
			want:  []string{"needs 2 of 14", "mark 10.0.0.18", "10.0.0.16/28 waits for AgentRestart 10.0.0.17"},
		},

		"reclaimed: never": {
			state: vacating(edit(1, draining(Reclaim)), edit(1, request(None))),
			want:  []string{"needs 3 of 14", "10.0.0.16/28 waits for AgentAddress health router"},
		},
		"the first block of another pool: not once an agent has read it": {
			state: vacating(edit(1, draining(PoolChanged)), edit(1, request(PoolChanged))),
			want:  []string{"needs 3 of 14", "10.0.0.16/28 waits for AgentAddress health router"},
		},
		"first the drain begins": {
			state: node(full("10.0.0.0/28", request(CIDRDraining)), full("10.0.0.16/28"), usedBy("10.0.0.1", "router")),
			want:  []string{"needs 1 of 14", "drain 10.0.0.0/28 CIDRDraining", "10.0.0.0/28 waits for Handshake"},
		},
		"not before a pod's address is known": {
			state: vacating(came("default/new", noon.Add(-time.Minute))),
			want:  []string{"needs 4 of 14", "10.0.0.16/28 waits for PodAddress default/new", "again in 15m0s"},
		},
		"an address that a pod's status names as well: clear, as a pod's": {
			state: vacating(entries(both, Released), pod("default/x", "10.0.0.17")),
			want:  []string{"needs 3 of 14", "clear 10.0.0.17", "10.0.0.16/28 waits for AgentAddress health router"},
		},
		"an address that a person gave to a pod": {
			state: vacating(published("10.0.0.17", "default/x")),
			want:  []string{"needs 2 of 14", "retire 10.0.0.18", "10.0.0.16/28 waits for AgentAddress health router"},
		},

		"no room to move": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  vacating(used("10.0.0.1-10.0.0.13")),
			want:   []string{"needs 15 of 14", "10.0.0.16/28 waits for Replacement"},
		},
		"just enough room": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  vacating(used("10.0.0.1-10.0.0.12")),
			want:   []string{"needs 14 of 14", "retire " + both, restart},
		},
		"not with what bound pods wait for": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  vacating(used("10.0.0.1-10.0.0.12"), pods(1)),
			want:   []string{"needs 15 of 14", "10.0.0.16/28 waits for Replacement"},
		},
		"not with what leaves as well": {
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			state:  vacating(used("10.0.0.1-10.0.0.12"), edit(0, reserved("10.0.0.13-10.0.0.14"))),
			want:   []string{"needs 14 of 12", "mark 10.0.0.13-10.0.0.14", "10.0.0.16/28 waits for Replacement"},
		},
		"not with what leaves once a window opens": {
			state: vacating(edit(0, request(CIDRDraining)), edit(0, held(WaitWindow, time.Minute))),
			want:  []string{"needs 3 of 14", "10.0.0.0/28 waits for Window until 1m0s", "10.0.0.16/28 waits for Replacement", "again in 1m0s"},
		},
		"with what leaves in a distant window": {
			state: vacating(edit(0, request(CIDRDraining)), edit(0, held(WaitWindow, 3*time.Hour))),
			want:  []string{"needs 3 of 14", "retire " + both, "10.0.0.0/28 waits for Window until 3h0m0s", restart, "again in 3h0m0s"},
		},
		"the drain is undone: then its entries": {
			state: node(full("10.0.0.0/28"), full("10.0.0.16/28"), usedBy("10.0.0.17", "router"), entries("10.0.0.17", Released)),
			want:  []string{"needs 1 of 28", "clear 10.0.0.17", "again in 10m0s"},
		},
	})
}

// TestRetireKeepsRoom checks that in any state an agent that restarts after a plan has been carried
// out finds as many free addresses as are retired, and that only a block that must leave loses its
// agent's addresses.
func TestRetireKeepsRoom(t *testing.T) {
	retired, kept := 0, 0
	for seed := range rounds(t, 20_000) {
		d := seeded(uint64(seed))
		p := d.policy()
		s, b := d.state()
		s.Gone, s.AgentSettled = false, !d.percent(10)
		s.AgentReady = s.AgentReady || s.AgentSettled
		s.Pods = slices.DeleteFunc(s.Pods, func(pod Pod) bool { return len(pod.IPs) == 0 && d.percent(90) })
		for i := range s.Blocks {
			if b := &s.Blocks[i]; b.Phase == ipalloc.Draining && d.percent(70) {
				b.Reason = oneOf(d, requests...)
				b.Request = b.Reason
			}
		}
		plan, _ := Decide(noon, p, s, b, d.memory(s))
		for _, a := range plan.Retire {
			b, ok := ownerOf(s, a)
			if !ok || b.Phase != ipalloc.Draining || b.Request == None || !s.AgentSettled || slices.ContainsFunc(s.Pods, func(p Pod) bool { return slices.Contains(p.IPs, a) }) {
				t.Fatalf("seed %d: retires %s\nstate %+v\nplan %s", seed, a, s, plan)
			}
		}
		after, all := carriedOut(s, plan), 0
		for a, entry := range after.Release {
			b, ok := ownerOf(s, a)
			_, published := after.Pool[a]
			if ok && b.Phase == ipalloc.Draining && !slices.Contains(plan.Undrain, b.CIDR) && published && entry == Released && inUseAnywhere(after, a) {
				all++
			}
		}
		if free := freeToTake(after); all > free {
			t.Fatalf("seed %d: %d retired and %d free\nstate %+v\nplan %s", seed, all, free, s, plan)
		}
		if len(plan.Retire) > 0 {
			retired++
		} else if all > 0 {
			kept++
		}
	}
	t.Logf("plans that retire %d, that keep retired addresses %d", retired, kept)
	if retired == 0 || kept == 0 {
		t.Error("the random states do not show it")
	}
}

// freeToTake counts the addresses that an agent may assign, without the ones that bound pods will
// take.
func freeToTake(s State) int {
	free := 0
	for a, owner := range s.Pool {
		is := s.Release[a]
		if owner == "" && ipalloc.FamilyOf(a) == s.Family && !inUseAnywhere(s, a) && is != Marked && is != Ready && is != Released {
			free++
		}
	}
	return free
}
