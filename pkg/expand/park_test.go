package expand

import (
	"net/netip"
	"testing"
	"time"
)

// parks allows blocks of a node to be parked; its agent runs in container c.
func parks(s *State) {
	s.BlockAssignment.Agent, s.BlockAssignment.MayPark, s.BlockAssignment.PoolHasFree = "c", true, true
}

func otherFamilyFull(s *State) { s.BlockAssignment.OtherFamilyFull = true }

func unreplaceable(s *State) { s.BlockAssignment.PoolHasFree = false }

func parked(b *Block) { b.Parked = true }

// closed records that the agent in a container closed a block this long ago.
func closed(agent string, ago time.Duration) func(*Block) {
	return func(b *Block) { b.Closed = Closed{Agent: agent, Since: noon.Add(-ago)} }
}

func fruitless(n int) func(*Block) { return func(b *Block) { b.Closed.Fruitless = n } }

// born adds a pod with an address that was created this long ago.
func born(name, addr string, ago time.Duration) func(*State) {
	return func(s *State) { s.Pods = append(s.Pods, Pod{Name: name, IPs: ips(addr), Created: noon.Add(-ago)}) }
}

func sawParked(cidr, agent string, ago time.Duration) Memory {
	return Memory{Parked: map[netip.Prefix]Parking{netip.MustParsePrefix(cidr): {Agent: agent, Since: noon.Add(-ago)}}}
}

func emptySince(cidr string, ago time.Duration) Memory {
	return Memory{EmptySince: map[netip.Prefix]time.Time{netip.MustParsePrefix(cidr): noon.Add(-ago)}}
}

func heldSince(cidr string, ago time.Duration) map[netip.Prefix]time.Time {
	return map[netip.Prefix]time.Time{netip.MustParsePrefix(cidr): noon.Add(-ago)}
}

const stays, goes = "10.0.0.0/29", "10.0.0.8/30"

// parking is a node with a staying block and a draining one.
func parking(edits ...func(*Block)) func(*State) {
	return func(s *State) {
		lone(stays)(s)
		lone(goes, append([]func(*Block){draining(Deleted), request(Deleted)}, edits...)...)(s)
		listing(2, stays, goes)(s)
		parks(s)
	}
}

func TestDecideParks(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"not without a free address elsewhere": {
			state: node(parking(), pod("a/a", "10.0.0.9"), pod("a/b", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6"), unreplaceable),
			want:  []string{"needs 2 of 8", "10.0.0.8/30 waits for Pods a/a", "again in 1m0s"},
		},
		"nor beyond the node's limit of blocks": {
			state:  node(parking(), pod("a/a", "10.0.0.9"), pod("a/b", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6")),
			policy: func(p *Policy) { p.MaxBlocks = 1 },
			want:   []string{"needs 2 of 8", "10.0.0.8/30 waits for Pods a/a", "again in 1m0s"},
		},
		"nor before the agent has settled": {
			state: node(parking(), unsettled),
			want:  []string{"needs 0 of 8", "10.0.0.8/30 waits for AgentNotSettled"},
		},
		"with one it does": {
			state: node(parking(), pod("a/a", "10.0.0.9"), unreplaceable),
			want:  []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
		},
		"not if a pod waits for it": {
			state: node(parking(), pod("a/a", "10.0.0.9"), pod("a/b", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5"), came("a/new", noon), unreplaceable),
			want:  []string{"needs 3 of 8", "10.0.0.8/30 waits for Pods a/a", "again in 1m0s"},
		},
		"one with the agent's own address": {
			state: node(parking(), usedBy("10.0.0.9", "router")),
			want:  []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for AgentAddress router"},
		},
		"not again once the agent has restarted": {
			state: node(parking(closed("b", time.Hour)), usedBy("10.0.0.9", "router"), pod("a/a", "10.0.0.10")),
			want:  []string{"needs 2 of 8", "10.0.0.8/30 waits for AgentAddress router"},
		},
		"again if that run went on allocating": {
			state: node(parking(closed("c", time.Minute)), usedBy("10.0.0.9", "router"), born("a/a", "10.0.0.10", 59*time.Second)),
			want:  []string{"needs 2 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for AgentAddress router"},
		},
		"again without such an address": {
			state: node(parking(closed("b", time.Hour)), pod("a/a", "10.0.0.9")),
			want:  []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
		},
		"but not at once: this clock may be behind": {
			state: node(parking(closed("c", time.Second)), born("a/a", "10.0.0.9", -time.Minute)),
			want:  []string{"needs 1 of 8", "10.0.0.8/30 waits for Pods a/a", "again in 59s"},
		},
		"what the agent went on allocating from": {
			state: node(parking(closed("c", time.Minute)), born("a/a", "10.0.0.9", 59*time.Second)),
			want:  []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
		},
		"not if that was so the last time": {
			state: node(parking(closed("c", time.Minute), fruitless(1)), born("a/a", "10.0.0.9", 59*time.Second)),
			want:  []string{"needs 1 of 8", "close 10.0.0.8/30 by c since -1m0s, 2 fruitless", "10.0.0.8/30 waits for Pods a/a"},
		},
		"nor later": {
			state: node(parking(closed("c", time.Hour), fruitless(2)), pod("a/a", "10.0.0.9")),
			want:  []string{"needs 1 of 8", "10.0.0.8/30 waits for NewPods a/a"},
		},
		"nor another block": {
			state: node(parking(), pod("a/a", "10.0.0.9"), func(s *State) { s.BlockAssignment.Regains = true }),
			want:  []string{"needs 1 of 8", "10.0.0.8/30 waits for NewPods a/a"},
		},
		"the next run of the agent may close it": {
			state: node(parking(closed("b", time.Hour), fruitless(2)), pod("a/a", "10.0.0.9")),
			want:  []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
		},
	})
}

// An empty block is parked for good: the agent would keep it for its reserve.
func TestDecideParksEmpty(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"at once": {state: node(parking()), want: []string{"needs 0 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Return"}},
		"not while a pod has no address": {
			state: node(parking(), came("a/new", noon)),
			want:  []string{"needs 1 of 8", "10.0.0.8/30 waits for PodAddress a/new", "again in 1m0s"},
		},
		"nor without a free address elsewhere": {
			state: node(parking(), pod("a/b", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6"), unreplaceable),
			want:  []string{"needs 1 of 8", "10.0.0.8/30 waits for Replacement", "again in 1m0s"},
		},
		"but then, though such pods keep coming": {
			state: node(parking(), came("a/new", noon)), memory: Memory{AwaitingPodsSince: heldSince(goes, 16*time.Minute)},
			want: []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Return"},
		},
		"also once pods of it have come and gone": {
			state: node(parking(), pod("a/a", "10.0.0.9")), memory: Memory{AwaitingPodsSince: heldSince(goes, 16*time.Minute)},
			want:     []string{"needs 1 of 8", "park 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
			remember: &Memory{AwaitingPodsSince: heldSince(goes, 16*time.Minute)},
		},
		"once its last pod has left": {
			state: node(parking(closed("c", time.Minute))), memory: emptySince(goes, 30*time.Second),
			want: []string{"needs 0 of 6", "park 10.0.0.8/30", "10.0.0.8/30 waits for Return"},
		},
		"of an agent that closes none, once it is empty for minutes": {
			state: node(parking(closed("c", time.Minute), fruitless(2))), memory: emptySince(goes, 30*time.Second),
			want: []string{"needs 0 of 8", "10.0.0.8/30 waits for Return", "again in 4m30s"},
		},
		"not again while the agent says that it is in use": {
			state: node(parking(closed("c", time.Minute))), memory: emptySince(goes, time.Minute),
			want: []string{"needs 0 of 6", "10.0.0.8/30 waits for Return", "again in 4m0s"},
		},
		"nor much later, though the clock was ahead then": {
			state: node(parking(closed("c", -24*time.Hour))), memory: emptySince(goes, time.Minute),
			want: []string{"needs 0 of 6", "10.0.0.8/30 waits for Return", "again in 4m0s"},
		},
	})
}

func TestDecideUnparks(t *testing.T) {
	before := sawParked(goes, "c", time.Second)
	untrusted, none := sawParked(goes, "", 0), Memory{}
	runDecide(t, map[string]decideCase{
		"a moment later": {
			state: node(parking(parked), pod("a/a", "10.0.0.9")), memory: before, remember: &before,
			want: []string{"needs 1 of 7", "unpark 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
		},
		"for the agent's own address": {
			state: node(parking(parked), usedBy("10.0.0.9", "router")), memory: before,
			want: []string{"needs 1 of 7", "unpark 10.0.0.8/30", "10.0.0.8/30 waits for AgentAddress router"},
		},
		"at once where the agent may restart": {
			state: node(parking(parked), pod("a/a", "10.0.0.9"), unsettled), remember: &untrusted,
			want: []string{"needs 1 of 7", "unpark 10.0.0.8/30", "10.0.0.8/30 waits for Pods a/a"},
		},
		"it is back": {
			state: node(parking(), pod("a/a", "10.0.0.9")), memory: before, remember: &before,
			want: []string{"needs 1 of 7", "close 10.0.0.8/30 by c since -1s", "10.0.0.8/30 waits for Pods a/a"},
		},
		"it is back once more": {
			state: node(parking(closed("c", time.Minute)), pod("a/a", "10.0.0.9")), memory: before,
			want: []string{"needs 1 of 7", "close 10.0.0.8/30 by c since -1s", "10.0.0.8/30 waits for Pods a/a"},
		},
		"it is back, though its agent went on allocating from it before": {
			state: node(parking(closed("c", time.Minute)), born("a/a", "10.0.0.9", 59*time.Second)), memory: before,
			want: []string{"needs 1 of 7", "close 10.0.0.8/30 by c since -1s, 1 fruitless", "10.0.0.8/30 waits for Pods a/a"},
		},
		"that is recorded": {
			state: node(parking(closed("c", time.Second)), pod("a/a", "10.0.0.9")), memory: before, remember: &none,
			want: []string{"needs 1 of 7", "10.0.0.8/30 waits for Pods a/a"},
		},
	})
}

// The free addresses of a closed block serve no pod. The agent counts on them, so only pods
// that do not fit elsewhere cause another claim.
func TestDecideBesideClosed(t *testing.T) {
	foundFree := func(ago time.Duration) Memory {
		m := emptySince(goes, 0)
		m.FreeSince = map[string]time.Time{"a/new": noon.Add(-ago)}
		return m
	}
	first, tries, hangs, none := foundFree(0), foundFree(time.Minute), foundFree(5*time.Minute), emptySince(goes, 0)
	const full, more, fills = "10.0.0.0/29", "10.0.0.16/30", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6"
	inService := func(edits ...func(*Block)) func(*State) {
		return func(s *State) {
			lone(full)(s)
			lone(goes, edits...)(s)
			listing(2, full, goes)(s)
			parks(s)
			for _, a := range ips(fills) {
				s.Pods = append(s.Pods, Pod{Name: "a/" + a.String(), IPs: []netip.Addr{a}})
			}
		}
	}
	runDecide(t, map[string]decideCase{
		"however long it has waited": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon.Add(-time.Hour))),
			want:  []string{"needs 7 of 6", "claim 1 in 2 blocks, room 2147483639"},
		},
		"also where the operator has just started": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon), accepted("a/new", -time.Hour)),
			want:  []string{"needs 7 of 6", "claim 1 in 2 blocks, room 2147483639"},
		},
		"not if it hangs for another reason": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon.Add(-time.Hour))), memory: hangs, remember: &hangs,
			want: []string{"needs 6 of 6", "again in 50m0s"},
		},
		"once more if its address may have left before its next attempt": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon.Add(-10*time.Minute))), memory: hangs, remember: &none,
			want: []string{"needs 7 of 6", "claim 1 in 2 blocks, room 2147483639"},
		},
		"not after the first attempts of the kubelet": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon.Add(-time.Hour))), memory: tries, remember: &tries,
			want: []string{"needs 7 of 6", "claim 1 in 2 blocks, room 2147483639"},
		},
		"a later pod of its name does not": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon.Add(-2*time.Minute))), memory: hangs, remember: &none,
			want: []string{"needs 7 of 6", "claim 1 in 2 blocks, room 2147483639"},
		},
		"an address is free for it": {
			state: node(lone(more), inService(closed("c", time.Minute)), came("a/new", noon.Add(-time.Hour)), func(s *State) {
				s.Blocks[0].Listed, s.BlockAssignment.Assigned = true, append(s.BlockAssignment.Assigned, s.Blocks[0].CIDR)
			}), remember: &first,
			want: []string{"needs 7 of 8"},
		},
		"nor what the agent requests for it": {
			state: node(inService(closed("c", time.Minute)), otherFamilyFull, func(s *State) { s.BlockAssignment.Requested = 16 }),
			want:  []string{"needs 6 of 6"},
		},
		"what the agent requests beyond that does": {
			state: node(inService(closed("c", time.Minute)), func(s *State) { s.BlockAssignment.Requested = 16 }),
			want:  []string{"needs 6 of 6", "claim 8 in 2 blocks, room 2147483639"},
		},
		"where nothing is closed it does": {
			state: node(inService(), otherFamilyFull, func(s *State) { s.BlockAssignment.Requested = 16 }),
			want:  []string{"needs 6 of 8", "claim 8 in 2 blocks, room 2147483639"},
		},
		"past the cap on addresses": {
			state: node(inService(closed("c", time.Minute)), came("a/new", noon), limits(Limits{MaxAllocate: 8})),
			want:  []string{"needs 7 of 6", "claim 1 in 2 blocks, room 2"},
		},
		"there is no room": {
			state:  node(inService(closed("c", time.Minute)), came("a/new", noon)),
			policy: func(p *Policy) { p.MaxBlocks = 2 },
			want:   []string{"needs 7 of 6", "short of 1"},
		},
		"nor taken back while it cools down": {
			state: node(lone(full), lone(goes, cooling(Returned, noon.Add(time.Minute)), closed("c", time.Minute)), listing(8, full), parks),
			want:  []string{"needs 0 of 6", "claim 2 in 3 blocks, room 2147483641", "again in 1m0s"},
		},
	})
}

// A pod waits although blocks have free addresses: they count as closed, although the operator did not
// observe that.
func TestDecideInfersClosed(t *testing.T) {
	const full, more = "10.0.0.0/30", "10.0.0.16/30"
	waits := func(ago time.Duration) Memory {
		return Memory{FreeSince: map[string]time.Time{"a/new": noon.Add(-ago)}}
	}
	asks := func(requested, reserve int) func(*State) {
		return func(s *State) {
			s.BlockAssignment.Requested = requested
			s.BlockAssignment.PreAllocation = reserve
		}
	}
	stuck := func(edits ...func(*State)) State {
		return node(append([]func(*State){
			lone(full), lone(goes), listing(2, full, goes), asks(4, 1), parks, pod("a/a", "10.0.0.1"), pod("a/z", "10.0.0.2"),
			func(s *State) {
				s.BlockAssignment.MayHaveClosed = true
				s.Pods = append(s.Pods, Pod{Name: "a/new", Seen: noon.Add(-7 * time.Minute), Created: noon.Add(-7 * time.Minute)})
			},
		}, edits...)...)
	}
	cautious := func(s *State) { s.BlockAssignment.MayHaveClosed = false }
	inferred := func(s *State) {
		s.Blocks[1].Closed = Closed{Agent: "c", Since: noon.Add(-7 * time.Minute), Inferred: true}
	}
	forHours := func(s *State) { s.Pods[2].Seen = noon.Add(-2 * time.Hour) }
	has := func(addr string) func(*State) { return func(s *State) { s.Pods[2].IPs = ips(addr) } }
	also := func(cidr string, edit func(*Block)) func(*State) {
		return func(s *State) {
			lone(cidr, edit)(s)
			b := &s.Blocks[len(s.Blocks)-1]
			b.Listed, b.Size, b.Usable = true, 2, nil
			s.BlockAssignment.Assigned = append(s.BlockAssignment.Assigned, b.CIDR)
		}
	}
	long, first, none := waits(5*time.Minute), waits(0), Memory{}
	witness := Memory{Witness: "a/new"}
	closes, claims := "close 10.0.0.8/30 by c since -7m0s, inferred", "claim 1 in 2 blocks, room 2147483643"
	runDecide(t, map[string]decideCase{
		"after minutes": {
			state: stuck(), memory: long, remember: &witness,
			want: []string{"needs 3 of 2", closes, claims, "again in 1m0s"},
		},
		"not at once": {
			state: stuck(), remember: &first,
			want: []string{"needs 2 of 4", "again in 1m0s"},
		},
		"not before that pod waits for long": {
			state: stuck(func(s *State) { s.Pods[2].Seen = noon }), memory: long, remember: &none,
			want: []string{"needs 3 of 4", "again in 1m0s"},
		},
		"an earlier pod has an address of it": {
			state: stuck(asks(5, 1), born("a/b", "10.0.0.9", 8*time.Minute)), memory: long,
			want: []string{"needs 4 of 3", closes, claims, "again in 1m0s"},
		},
		"a later pod has": {
			state: stuck(born("a/b", "10.0.0.9", 6*time.Minute)), memory: long, remember: &long,
			want: []string{"needs 3 of 4", "again in 1m0s"},
		},
		"a later pod has one of another": {
			state: stuck(also(more, func(*Block) {}), born("a/b", "10.0.0.17", 6*time.Minute)), memory: long,
			want: []string{"needs 3 of 6", "again in 1m0s"},
		},
		"all that have free addresses": {
			state: stuck(also(more, func(*Block) {})), memory: long,
			want: []string{"needs 3 of 2", closes, "close 10.0.0.16/30 by c since -7m0s, inferred", "claim 1 in 1 blocks, room 2147483641", "again in 1m0s"},
		},
		"once": {
			state: stuck(inferred), memory: long,
			want: []string{"needs 3 of 2", "claim 1 in 2 blocks, room 2147483643", "again in 1m0s"},
		},
		"a later pod opens it again": {
			state: stuck(inferred, born("a/b", "10.0.0.9", 0)), memory: long,
			want: []string{"needs 3 of 4", "open 10.0.0.8/30", "again in 1m0s"},
		},
		"no other block for the same pod, which hangs": {
			state: stuck(also(more, func(*Block) {}), inferred), memory: long,
			want: []string{"needs 2 of 4", "open 10.0.0.8/30", "again in 1m0s"},
		},
		"the pod has an address elsewhere, so it is true": {
			state: stuck(also(more, func(*Block) {}), inferred, has("10.0.0.17")), memory: witness,
			want: []string{"needs 3 of 4", "close 10.0.0.8/30 by c since -7m0s"},
		},
		"another pod of the same second has": {
			state: stuck(also(more, func(*Block) {}), inferred, has("10.0.0.17")),
			want:  []string{"needs 3 of 4", "open 10.0.0.8/30"},
		},
		"the pod has one of the block": {
			state: stuck(inferred, has("10.0.0.9")),
			want:  []string{"needs 3 of 3", "open 10.0.0.8/30"},
		},
		"the pod is gone": {
			state: stuck(inferred, func(s *State) { s.Pods = s.Pods[:2] }),
			want:  []string{"needs 2 of 2", "open 10.0.0.8/30"},
		},
		"not before an hour if the agent was not asked": {
			state: stuck(asks(3, 1)), memory: long, remember: &long,
			want: []string{"needs 2 of 4", "again in 1m0s"},
		},
		"nor if it may only round up": {
			state: stuck(asks(16, 8), forHours), memory: waits(59 * time.Minute),
			want: []string{"needs 2 of 4", "claim 12 in 2 blocks, room 2147483643", "again in 1m0s"},
		},
		"then it does": {
			state: stuck(asks(3, 1), forHours), memory: waits(time.Hour), remember: &witness,
			want: []string{"needs 3 of 2", closes, claims, "again in 1m0s"},
		},
		"unless no other block is to be had": {
			state: stuck(asks(3, 1), forHours, unreplaceable), memory: waits(time.Hour),
			want: []string{"needs 2 of 4", "again in 1m0s"},
		},
		"and the agent's restart": {
			state: stuck(func(s *State) {
				s.Blocks[1].Closed = Closed{Agent: "b", Since: noon.Add(-7 * time.Minute), Inferred: true}
			}, cautious),
			want: []string{"needs 2 of 4"},
		},
		"not if the agent may restart":                {state: stuck(unsettled), memory: long, want: []string{"needs 2 of 4", "claim 1 in 2 blocks, room 2147483643", "again in 1m0s"}},
		"nor where the operator would have seen it":   {state: stuck(cautious), memory: long, want: []string{"needs 2 of 4"}},
		"nor beside an address that is not a block's": {state: stuck(func(s *State) { s.BlockAssignment.Foreign = 2 }), memory: long, want: []string{"needs 2 of 6", "again in 1m0s"}},
	})
}

// A block in use that the node can do without drains, one at a time, if blocks in use remain that are
// enough.
func TestDecideCompacts(t *testing.T) {
	const a, b, spare = "10.0.0.0/28", "10.0.0.16/28", "10.0.0.32/28"
	long, first := idle(10*time.Minute), idle(0)
	// two blocks of 14, with a pod in each; the agent requests 8
	pair := func(edits ...func(*State)) State {
		return node(append([]func(*State){
			lone(a), lone(b), listing(8, a, b), parks, pod("a/a", "10.0.0.1"), pod("a/b", "10.0.0.17"), func(s *State) { s.BlockAssignment.MayCompact = true },
		}, edits...)...)
	}
	of := func(i int, edit func(*Block)) func(*State) { return func(s *State) { edit(&s.Blocks[i]) } }
	begun := func(edits ...func(*State)) State {
		return pair(append([]func(*State){of(1, draining(Compaction))}, edits...)...)
	}
	stays := []string{"needs 2 of 28"}
	runDecide(t, map[string]decideCase{
		"once it has not needed it for long": {state: pair(), memory: long, want: []string{"needs 2 of 28", "drain 10.0.0.16/28 Compaction", "10.0.0.16/28 waits for Pods a/b"}},
		"not at once":                        {state: pair(), remember: &first, want: []string{"needs 2 of 28", "again in 10m0s"}},
		"that with the fewest pods":          {state: pair(pod("a/c", "10.0.0.18")), memory: long, want: []string{"needs 3 of 28", "drain 10.0.0.0/28 Compaction", "10.0.0.0/28 waits for Pods a/a"}},
		"not without the flag":               {state: pair(func(s *State) { s.BlockAssignment.MayCompact = false }), memory: long, want: stays},
		"nor beside a parked block":          {state: pair(func(s *State) { s.BlockAssignment.MayPark = false }), memory: long, want: stays},
		"nor if reclaim is off":              {state: pair(), policy: func(p *Policy) { p.ReclaimDisabled = true }, memory: long, want: stays},
		"nor without budget":                 {state: pair(), budget: budget(0), memory: long, want: append(stays, "again in 10s")},
		"nor outside a window":               {state: pair(func(s *State) { s.ReclaimDelay = Obstacle{Reason: WaitWindow, Until: noon.Add(time.Hour)} }), memory: long, want: append(stays, "again in 1h0m0s")},
		"nor while the agent may restart":    {state: pair(unsettled, usedBy("10.0.0.2", "router")), memory: long, want: []string{"needs 3 of 28"}},
		"nor if the rest would not do":       {state: pair(func(s *State) { s.BlockAssignment.Requested = 16 }), memory: long, want: stays},
		"nor above the threshold":            {state: pair(), policy: func(p *Policy) { p.ReclaimPercent = 10 }, memory: long, want: stays},
		"nor with the agent's own address": {
			state: pair(usedBy("10.0.0.18", "router"), pod("a/c", "10.0.0.2"), pod("a/d", "10.0.0.3")), memory: long,
			want: []string{"needs 5 of 28", "drain 10.0.0.0/28 Compaction", "10.0.0.0/28 waits for Pods a/a a/c a/d"},
		},
		"nor a pinned one": {state: pair(of(0, pinned), of(1, pinned)), memory: long, want: stays},
		"nor one that was closed before": {
			state: pair(of(1, closed("b", time.Hour))), memory: long,
			want: []string{"needs 2 of 28", "drain 10.0.0.0/28 Compaction", "10.0.0.0/28 waits for Pods a/a"},
		},
		"nor one that an agent in crd mode may use": {
			state: pair(of(1, func(b *Block) { b.Leftover = true })), memory: long,
			want: []string{"needs 2 of 28", "drain 10.0.0.0/28 Compaction", "10.0.0.0/28 waits for Pods a/a"},
		},
		"nor beside one that must leave later": {
			state: pair(of(0, request(PoolDeleted)), of(0, func(b *Block) { b.Delay = Obstacle{Reason: WaitWindow, Until: noon.Add(time.Hour)} })), memory: long,
			want: []string{"needs 2 of 28", "10.0.0.0/28 waits for Window until 1h0m0s", "again in 1h0m0s"},
		},
		"nor beside a closed one":  {state: pair(of(1, closed("c", time.Hour))), memory: long, want: []string{"needs 2 of 15"}},
		"nor beside one that goes": {state: begun(of(1, draining(Deleted)), of(1, request(Deleted)), unreplaceable, func(s *State) { s.BlockAssignment.Requested = 8 }), memory: long, want: []string{"needs 2 of 28", "park 10.0.0.16/28", "10.0.0.16/28 waits for Pods a/b"}},
		"the agent may return what is not in use": {
			state:  node(lone(a), lone(spare), listing(8, a, spare), parks, pod("a/a", "10.0.0.1"), func(s *State) { s.BlockAssignment.MayCompact = true }),
			memory: long, want: []string{"needs 1 of 28"},
		},
		"then it is parked":                     {state: begun(), want: []string{"needs 2 of 28", "park 10.0.0.16/28", "10.0.0.16/28 waits for Pods a/b"}},
		"then it is closed":                     {state: begun(of(1, closed("c", time.Minute))), want: []string{"needs 2 of 15", "10.0.0.16/28 waits for Pods a/b"}},
		"put back on demand":                    {state: begun(func(s *State) { s.BlockAssignment.Requested = 29 }), want: []string{"needs 2 of 28", "undrain 10.0.0.16/28", "claim 1 in 2 blocks, room 2147483619"}},
		"put back once the agent has restarted": {state: begun(of(1, closed("b", time.Minute))), want: []string{"needs 2 of 28", "undrain 10.0.0.16/28", "again in 10m0s"}},
		"put back with its own address":         {state: begun(usedBy("10.0.0.18", "router")), want: []string{"needs 3 of 28", "undrain 10.0.0.16/28", "again in 10m0s"}},
		"put back without the flag":             {state: begun(func(s *State) { s.BlockAssignment.MayCompact = false }), want: []string{"needs 2 of 28", "undrain 10.0.0.16/28"}},
	})
}

// A block that is closed, parked, not listed or in use is of no use to a new pod.
func TestHasFree(t *testing.T) {
	const four = "10.0.0.8/29"
	fill := pod("a/a", "10.0.0.9 10.0.0.10 10.0.0.11 10.0.0.12 10.0.0.13")
	last, listed := usedBy("10.0.0.14", "router"), listing(2, four)
	tests := map[string]struct {
		state State
		want  bool
	}{
		"none is":                      {node(lone(four), listed, fill, last), false},
		"two pods have the same":       {node(lone(four), listed, fill, pod("a/b", "10.0.0.9")), true},
		"the block is closed":          {node(lone(four, closed("c", time.Minute)), listed, parks), false},
		"an earlier run has closed it": {node(lone(four, closed("b", time.Minute)), listed, parks), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.state.HasFree(); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}
