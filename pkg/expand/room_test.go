package expand

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// expects makes n pods that request an address be expected on the node.
func expects(n int) func(*State) {
	return func(s *State) { s.Offers, s.Expected = true, n }
}

// greedy adds a bound pod that requests n addresses.
func greedy(name, addrs string, n uint16) func(*State) {
	return func(s *State) {
		s.Offers, s.Pods = true, append(s.Pods, Pod{Name: name, IPs: ips(addrs), Requests: [2]uint16{n, n}})
	}
}

// scarce makes pods elsewhere wait for blocks.
func scarce(s *State) { s.Scarce = true }

// A node that has claimed no reserve is decided on again later, because no event says that no pod
// waits any more.
func TestReserveFollows(t *testing.T) {
	plan, _ := Decide(noon, DefaultPolicy(), agentIn(used("10.0.0.3-10.0.0.13"), scarce), Budget{}, Memory{})
	if want := noon.Add(reserveWait); !plan.RequeueAt.Equal(want) {
		t.Errorf("again at %s, want %s", plan.RequeueAt, want)
	}
}

func TestExpectedPods(t *testing.T) {
	// A full block of 14: two addresses are the agent's, ten are used by pods that request
	// them, two are free.
	busy := func(more ...func(*State)) State {
		s := agentIn(used("10.0.0.3-10.0.0.12"))
		for _, a := range ips("10.0.0.3-10.0.0.12") {
			requesting("default/"+a.String(), a.String())(&s)
		}
		for _, edit := range more {
			edit(&s)
		}
		return s
	}
	noReserve := func(p *Policy) { p.MinFree, p.ExpandPercent, p.ReclaimPercent = 0, 100, 50 }
	runDecide(t, map[string]decideCase{
		"pods elsewhere wait, and come before its reserve": {state: busy(scarce), want: []string{"needs 12 of 14", "again in 1m0s"}},
		"its own come first":           {state: busy(scarce, expects(3)), want: []string{"needs 12 of 14", "claim 1 in 3 blocks, room 86"}},
		"and what its agent waits for": {state: node(scarce, limits(Limits{MinAllocate: 8, PreAllocate: 20})), want: []string{"needs 0 of 0", "claim 8 in 4 blocks, room 100", "again in 1m0s"}},
		"the agent has yet to report":  {policy: noReserve, state: node(full("10.0.0.0/28"), expects(13)), want: []string{"needs 0 of 14", "claim 1 in 3 blocks, room 86"}},
		"a pod that requests several": {
			policy: noReserve, state: agentIn(usedBy("10.0.0.3", "default/a"), greedy("default/a", "10.0.0.3", 14)),
			want: []string{"needs 3 of 14", "claim 2 in 3 blocks, room 86"},
		},
		"of whole blocks":                      {state: listed2(requesting("default/a", "10.0.0.3"), expects(20)), want: []string{"needs 3 of 14", "claim 9 in 3 blocks, room 2147483633"}},
		"a returned whole block is taken back": {state: listed2(lone("10.0.1.0/28", cooling(Returned, noon.Add(time.Minute))), listing(8, "10.0.0.0/28"), expects(13)), want: []string{"needs 2 of 28", "undrain 10.0.1.0/28"}},
		"it has no address yet": {
			policy: noReserve, state: agentIn(greedy("default/a", "", 14)), want: []string{"needs 3 of 14"},
		},
	})
}

func TestRoomOf(t *testing.T) {
	p := testPolicy() // four blocks, a hundred addresses
	tests := map[string]struct {
		state State
		want  Room
	}{
		"all but the agent's":            {agentIn(), Room{Free: 12, Blocks: 3, Addresses: 86}},
		"less what bound pods request":   {agentIn(greedy("default/a", "10.0.0.3", 5)), Room{Free: 7, Blocks: 3, Addresses: 86}},
		"what is about to be published":  {agentIn(lone("10.0.1.0/29")), Room{Free: 18, Blocks: 2, Addresses: 80}},
		"what it can take back":          {agentIn(full("10.0.1.0/29", draining(Reclaim))), Room{Free: 12, Back: 6, Blocks: 2, Addresses: 80}},
		"what comes back anyway":         {agentIn(full("10.0.1.0/29", draining(Deleted))), Room{Free: 18, Blocks: 2, Addresses: 80}},
		"no report yet":                  {node(full("10.0.0.0/28")), Room{Free: 12, Blocks: 3, Addresses: 86}},
		"a limit that follows its need":  {agentIn(limits(Limits{MaxAboveWatermark: 1})), Room{Free: 12, Blocks: 3, Addresses: 86}},
		"of whole blocks":                {listed2(requesting("default/a", "10.0.0.3")), Room{Free: 11, Blocks: 3, Addresses: 1<<31 - 15}},
		"a whole one comes back":         {node(lone("10.0.1.0/28", cooling(Returned, noon)), listing(1, "10.0.0.0/28")), Room{Free: 12, Back: 14, Blocks: 3, Addresses: 1<<31 - 15}},
		"more is requested than offered": {agentIn(greedy("default/a", "", 20)), Room{Free: -8, Blocks: 3, Addresses: 86}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, RoomOf(noon, p, test.state)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// recalls makes pods elsewhere wait for these blocks.
func recalls(cidrs ...string) func(*State) {
	return func(s *State) {
		for _, c := range cidrs {
			s.Recall = append(s.Recall, netip.MustParsePrefix(c))
		}
	}
}

func TestRecall(t *testing.T) {
	// Two blocks of 14: with ten addresses of the first in use, the second is not idle by
	// ReclaimPercent, but the node does not need it.
	busy := func(more ...func(*State)) State {
		return node(append([]func(*State){full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1-10.0.0.10")}, more...)...)
	}
	goes := []string{"needs 10 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake"}
	stays := []string{"needs 10 of 28"}
	runDecide(t, map[string]decideCase{
		"not without":                    {state: busy(), memory: idle(time.Hour), want: stays},
		"at once":                        {state: busy(recalls("10.0.0.16/28")), want: goes},
		"not what a pod has":             {state: busy(recalls("10.0.0.16/28"), pod("default/a", "10.0.0.17")), want: []string{"needs 11 of 28"}},
		"not what its own pods wait for": {state: busy(recalls("10.0.0.16/28"), expects(5)), want: stays},
		"not beyond the rates":           {state: busy(recalls("10.0.0.16/28")), budget: budget(0), want: []string{"needs 10 of 28", "again in 10s"}},
		"not where reclaim is disabled":  {policy: func(p *Policy) { p.ReclaimDisabled = true }, state: busy(recalls("10.0.0.16/28")), want: stays},
		"others wait as ever": {
			state:  node(full("10.0.0.0/28"), full("10.0.0.16/28"), full("10.0.0.32/28"), used("10.0.0.1-10.0.0.2"), recalls("10.0.0.16/28")),
			budget: budget(5),
			want:   []string{"needs 2 of 28", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake", "again in 10m0s"},
		},
	})
}

// A node that returns no block now has none to spare, so another one is asked.
func TestNothingIsReleasable(t *testing.T) {
	idle := func(more ...func(*State)) State {
		return node(append([]func(*State){full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1")}, more...)...)
	}
	for name, s := range map[string]State{
		"outside its window":     idle(func(s *State) { s.ReclaimDelay = Obstacle{Reason: WaitWindow} }),
		"its agent is unsettled": idle(unsettled),
		"it needs what it has":   idle(expects(20)),
		"it has one block":       node(full("10.0.0.0/28"), usedBy("10.0.0.1", "router")),
		"both blocks are in use": idle(used("10.0.0.17")),
	} {
		t.Run(name, func(t *testing.T) {
			if got := Recallable(noon, testPolicy(), s); len(got) > 0 {
				t.Errorf("it can spare %v", got)
			}
		})
	}
	if got := Recallable(noon, testPolicy(), idle()); len(got) != 1 {
		t.Errorf("an idle node can spare %v, want a block", got)
	}
}
