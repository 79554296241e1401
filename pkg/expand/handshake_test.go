package expand

import (
	"testing"
	"time"
)

// leaver is a node with a block in service and a draining one with only 10.0.0.17 left.
func leaver(edits ...func(*State)) State {
	edits = append([]func(*State){
		full("10.0.0.0/28"), lone("10.0.0.16/28", draining(Reclaim), listed), published("10.0.0.17", ""), used("10.0.0.1"),
	}, edits...)
	return node(edits...)
}

func TestHandshake(t *testing.T) {
	const a = "10.0.0.17"
	handshaking := "10.0.0.16/28 waits for Handshake"
	unsettledWait := "10.0.0.16/28 waits for AgentNotSettled"
	acked := func(ago time.Duration) Memory { return Memory{AckedSince: since(ago, a)} }
	marked := func(ago time.Duration) Memory { return Memory{MarkedSince: since(ago, a)} }
	held := func(ago time.Duration) Memory {
		return Memory{AwaitingPodsSince: heldSince("10.0.0.16/28", ago)}
	}
	keepAck, keepMark := acked(0), marked(0)
	stillHeld, longHeld := held(15*time.Minute), held(16*time.Minute)
	runDecide(t, map[string]decideCase{
		"free: mark": {
			state: leaver(),
			want:  []string{"needs 1 of 14", "mark 10.0.0.17", handshaking},
		},
		"the volume of a pod attaches late: no mark": {
			state: leaver(came("default/new", noon.Add(-7*time.Minute))),
			want:  []string{"needs 2 of 14", "10.0.0.16/28 waits for PodAddress default/new", "again in 9m0s"},
		},
		"it has the name of one that the report still names: no mark": {
			state: leaver(came("default/10.0.0.1", noon.Add(-time.Minute))),
			want:  []string{"needs 1 of 14", "10.0.0.16/28 waits for PodAddress default/10.0.0.1", "again in 1m0s"},
		},
		"a pod came long ago, and hangs before it gets an address: mark": {
			state: leaver(came("default/new", noon.Add(-16*time.Minute))),
			want:  []string{"needs 2 of 14", "mark 10.0.0.17", handshaking},
		},
		"pods keep coming: the block has waited for some": {
			state:    leaver(came("default/new", noon)),
			memory:   held(15 * time.Minute),
			want:     []string{"needs 2 of 14", "10.0.0.16/28 waits for PodAddress default/new", "again in 1m0s"},
			remember: &stillHeld,
		},
		"pods keep coming: the block has waited for long": {
			state:    leaver(came("default/new", noon)),
			memory:   held(16 * time.Minute),
			want:     []string{"needs 2 of 14", "mark 10.0.0.17", handshaking},
			remember: &longHeld,
		},
		"pods keep coming: and no later address of the block waits": {
			state:    leaver(came("default/new", noon), entries(a, Ready)),
			memory:   held(time.Hour),
			want:     []string{"needs 2 of 14", handshaking, "again in 30s"},
			remember: &Memory{AckedSince: since(0, a), AwaitingPodsSince: held(time.Hour).AwaitingPodsSince},
		},
		"the address of the pod that it waited for is known": {
			state:    leaver(pod("default/new", "10.0.0.2")),
			memory:   held(15 * time.Minute),
			want:     []string{"needs 2 of 14", "mark 10.0.0.17", handshaking},
			remember: &Memory{},
		},

		"of a first block of another pool, which no agent has read: mark": {
			state: leaver(changedPool, func(s *State) { s.Fresh, s.Used = true, nil }),
			want:  []string{"needs 0 of 14", "mark 10.0.0.17", unsettledWait},
		},
		"of one that an agent may have read: no mark": {
			state: leaver(changedPool, func(s *State) { s.Used = nil }),
			want:  []string{"needs 0 of 14", unsettledWait},
		},
		"marked: wait for the answer": {
			state:    leaver(entries(a, Marked)),
			want:     []string{"needs 1 of 14", handshaking, "again in 2m0s"},
			remember: &keepMark,
		},
		"marked too long: withdraw, to mark again": {
			state:  leaver(entries(a, Marked)),
			memory: marked(2 * time.Minute),
			want:   []string{"needs 1 of 14", "clear 10.0.0.17", handshaking},
		},

		"ready: hold": {
			state:    leaver(entries(a, Ready)),
			want:     []string{"needs 1 of 14", handshaking, "again in 30s"},
			remember: &keepAck,
		},
		"ready for less than the hold": {
			state:  leaver(entries(a, Ready)),
			memory: acked(29 * time.Second),
			want:   []string{"needs 1 of 14", handshaking, "again in 1s"},
		},
		"ready and held: remove": {
			state:  leaver(entries(a, Ready)),
			memory: acked(30 * time.Second),
			want:   []string{"needs 1 of 14", "remove 10.0.0.17", handshaking},
		},
		"ready, held, and a pod has it after all: take it back": {
			state:    leaver(entries(a, Ready), pod("default/x", a)),
			memory:   acked(time.Hour),
			want:     []string{"needs 2 of 14", "clear 10.0.0.17", "10.0.0.16/28 waits for Pods default/x"},
			remember: &Memory{},
		},
		"ready and the report is gone: no removal": {
			state:    node(full("10.0.0.0/28"), lone("10.0.0.16/28", draining(Reclaim)), published(a, ""), entries(a, Ready)),
			memory:   acked(time.Hour),
			want:     []string{"needs 0 of 14", unsettledWait},
			remember: &Memory{},
		},

		"released while still published: clear": {
			state: leaver(entries(a, Released)),
			want:  []string{"needs 1 of 14", "clear 10.0.0.17", handshaking},
		},
		"out of the pool and marked: the agent still answers": {
			state:  leaver(entries("10.0.0.18", Marked), entries(a, Ready)),
			memory: Memory{AckedSince: since(0, a), MarkedSince: since(time.Minute, "10.0.0.18")},
			want:   []string{"needs 1 of 14", handshaking, "again in 30s"},
		},
		"in service with an entry: clear": {
			state: node(full("10.0.0.0/28"), used("10.0.0.1"), entries("10.0.0.2", Marked), entries("10.0.0.3", Ready), entries("10.0.0.4", DoNotRelease), unsettled),
			want:  []string{"needs 1 of 14", "clear 10.0.0.2-10.0.0.4"},
		},
		"reserved since: leaves one by one": {
			state: node(full("10.0.0.0/28", reserved("10.0.0.2-10.0.0.5")), used("10.0.0.1-10.0.0.2"), entries("10.0.0.4-10.0.0.5", Ready)),
			memory: Memory{
				AckedSince: since(time.Minute, "10.0.0.4"),
			},
			want: []string{"needs 2 of 10", "mark 10.0.0.3", "remove 10.0.0.4", "again in 30s"},
		},
		"in conflict inside a block of its own node: the outer one has the addresses": {
			state: node(full("10.0.0.0/28"), used("10.0.0.1"), lone("10.0.0.8/29", conflict)),
			want:  []string{"needs 1 of 14", "free 10.0.0.8/29 Returned"},
		},
	})
}

func TestFree(t *testing.T) {
	served := func(edits ...func(*State)) State {
		return node(append([]func(*State){full("10.0.0.0/28"), used("10.0.0.1")}, edits...)...)
	}
	later, earlier := noon.Add(time.Minute), noon.Add(-time.Minute)
	runDecide(t, map[string]decideCase{
		"nothing left: cool down": {
			state: served(lone("10.0.0.16/28", draining(Deleted), request(Deleted))),
			want:  []string{"needs 1 of 14", "free 10.0.0.16/28 Returned"},
		},
		"not before its last address left the pool": {
			state: served(lone("10.0.0.16/28", draining(Reclaim)), published("10.0.0.17", "")),
			want:  []string{"needs 1 of 14", "mark 10.0.0.17", "10.0.0.16/28 waits for Handshake"},
		},
		"cooling down, its last entries go": {
			state: served(lone("10.0.0.16/28", cooling(Returned, later)), entries("10.0.0.31", Ready)),
			want:  []string{"needs 1 of 14", "clear 10.0.0.31", "again in 1m0s"},
		},
		"not while an address is in use, which is restored to the pool": {
			state: served(lone("10.0.0.16/28", draining(Reclaim)), usedBy("10.0.0.17", "default/x")),
			want:  []string{"needs 2 of 14", "publish 10.0.0.17", "10.0.0.16/28 waits for Pods default/x"},
		},
		"in conflict and never published": {
			state: served(lone("10.0.0.16/28", conflict, request(Deleted))),
			want:  []string{"needs 1 of 14", "free 10.0.0.16/28 Returned"},
		},
		"in conflict, and a deleted CiliumNode may have contained it: not before the agent reports": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", conflict), remade(noon)),
			want:  []string{"needs 0 of 14", "10.0.0.16/28 waits for AgentNotSettled", "again in 2m0s"},
		},
		"the same, made in the same second as the CiliumNode": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", conflict, created(noon)), remade(noon)),
			want:  []string{"needs 0 of 14", "10.0.0.16/28 waits for AgentNotSettled", "again in 2m0s"},
		},
		"the same, and the agent had the time to report": {
			state: node(full("10.0.0.0/28"), lone("10.0.0.16/28", conflict), remade(noon.Add(-2*time.Minute))),
			want:  []string{"needs 0 of 14", "free 10.0.0.16/28 Returned"},
		},
		"cooled down": {
			state: served(lone("10.0.0.16/28", cooling(Returned, noon))),
			want:  []string{"needs 1 of 14", "delete 10.0.0.16/28"},
		},
		"cooled down but still listed": {
			state: served(lone("10.0.0.16/28", cooling(Returned, earlier), listed)),
			want:  []string{"needs 1 of 14"},
		},
		"cooled down but in use: drain again, and restored later": {
			state: served(lone("10.0.0.16/28", cooling(Returned, earlier)), pod("default/x", "10.0.0.17")),
			want:  []string{"needs 2 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Pods default/x"},
		},
		"published again while it cools down: drain again, and nothing else": {
			state: served(lone("10.0.0.16/28", cooling(Returned, earlier)), published("10.0.0.17", ""), entries("10.0.0.18", Ready)),
			want:  []string{"needs 1 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake"},
		},
		"node gone and cooled down, but its pool is still there": {
			state: node(gone, lone("10.0.0.16/28", cooling(NodeGone, earlier)), published("10.0.0.17", "")),
			want:  []string{"needs 0 of 0"},
		},
		"node gone: all blocks cool down, whatever their use": {
			state: served(gone, lone("10.0.0.16/28", draining(Reclaim)), pods(40), entries("10.0.0.2", Marked),
				lone("10.0.0.32/28", cooling(NodeGone, later)), lone("10.0.0.48/28", cooling(Returned, noon))),
			want: []string{
				"needs 0 of 0", "free 10.0.0.0/28 NodeGone", "free 10.0.0.16/28 NodeGone", "delete 10.0.0.48/28", "again in 1m0s",
			},
			remember: &Memory{},
		},
	})
}

// changedPool makes the draining block leave because its node has moved to another pool.
func changedPool(s *State) {
	s.Blocks[1].Reason, s.Blocks[1].Request = PoolChanged, PoolChanged
}
