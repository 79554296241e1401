package expand

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// agentIn is a node with a full block 10.0.0.0/28 (14 addresses); the agent uses two of them.
func agentIn(edits ...func(*State)) State {
	return node(append([]func(*State){
		full("10.0.0.0/28"), usedBy("10.0.0.1", "router"), usedBy("10.0.0.2", "health"),
	}, edits...)...)
}

// requesting adds a bound pod that requests an address.
func requesting(name, addrs string) func(*State) {
	return func(s *State) {
		s.Pods = append(s.Pods, Pod{Name: name, IPs: ips(addrs), Requests: [2]uint16{1, 1}})
	}
}

// ended makes pods have left the node.
func ended(names ...string) func(*State) {
	return func(s *State) { s.Ended = append(s.Ended, names...) }
}

// listed2 is a node with a whole block of 14 addresses; the agent uses two of them.
func listed2(edits ...func(*State)) State {
	block := []func(*State){lone("10.0.0.0/28"), usedBy("10.0.0.1", "router"), usedBy("10.0.0.2", "health"), own("10.0.0.1 10.0.0.2"), listing(8, "10.0.0.0/28")}
	return node(append(block, edits...)...)
}

func TestOffer(t *testing.T) {
	tests := map[string]struct {
		state State
		plan  Plan
		want  int
	}{
		"all but the agent's":                 {state: agentIn(), want: 12},
		"the agent has yet to take one":       {state: node(full("10.0.0.0/28"), usedBy("10.0.0.1", "router")), want: 12},
		"ingress, which is not reported yet":  {state: agentIn(own("10.0.0.3")), want: 11},
		"no report, pods run":                 {state: node(full("10.0.0.0/28"), requesting("default/a", "10.0.0.3")), want: 1},
		"a report of the other family":        {state: node(full("10.0.0.0/28"), usedBy("fd00::1", "router")), want: 0},
		"restored by a restarted agent":       {state: agentIn(usedBy("10.0.0.3", "default/a [restored]"), requesting("default/a", "")), want: 12},
		"it is not reported yet":              {state: agentIn(pod("default/a", "10.0.0.3")), want: 11},
		"it has no address yet":               {state: agentIn(pods(2)), want: 10},
		"its name is reported":                {state: agentIn(usedBy("10.0.0.3", "default/new-0"), pods(1)), want: 11},
		"just ended, while the agent is down": {state: agentIn(usedBy("10.0.0.3", "default/job"), ended("default/job"), unsettled), want: 11},
		"just ended, restored once":           {state: agentIn(usedBy("10.0.0.3", "default/job [restored]"), ended("default/job")), want: 12},
		"just ended, its address is in use":   {state: agentIn(usedBy("10.0.0.3", "default/job"), ended("default/job"), pod("default/b", "10.0.0.3")), want: 11},
		"just ended, its successor waits":     {state: agentIn(usedBy("10.0.0.3", "default/web-0"), ended("default/web-0"), pod("default/web-0", "")), want: 11},
		"marked":                              {state: agentIn(entries("10.0.0.3-10.0.0.5", Marked)), want: 9},
		"about to be marked":                  {state: agentIn(), plan: Plan{Mark: ips("10.0.0.3 10.0.0.9")}, want: 10},
		"a second block that is about to go":  {state: agentIn(full("10.0.1.0/30")), plan: Plan{Drain: []Drain{{CIDR: netip.MustParsePrefix("10.0.1.0/30"), Reason: Reclaim}}}, want: 12},
		"written by hand":                     {state: agentIn(published("192.0.2.1", "")), want: 13},
		"no less than pods with an address":   {state: node(full("10.0.0.0/29", draining(Deleted)), usedBy("10.0.0.1", "router"), requesting("default/a", "10.0.0.2"), requesting("default/b", "10.0.0.3")), want: 2},
		"whole blocks, all but its own":       {state: listed2(), want: 12},
		"no report of whole blocks":           {state: node(lone("10.0.0.0/28"), listing(-1, "10.0.0.0/28"), requesting("default/a", "10.0.0.3")), want: 1},
		"pods of whole blocks":                {state: listed2(requesting("default/a", "10.0.0.3"), pod("default/b", "10.0.0.4"), pods(2)), want: 9},
		"not the ones that it has returned":   {state: listed2(lone("10.0.1.0/28", cooling(Returned, noon)), lone("10.0.2.0/28")), want: 12},
		"nor a closed one":                    {state: node(lone("10.0.0.0/28", closed("b", time.Hour)), listing(8, "10.0.0.0/28"), func(s *State) { s.BlockAssignment.Agent = "b" }), want: 0},
		"a whole block about to drain":        {state: listed2(), plan: Plan{Drain: []Drain{{CIDR: netip.MustParsePrefix("10.0.0.0/28")}}}, want: 0},
		"a CIDR of no block":                  {state: listed2(listing(8, "10.0.0.0/28", "192.0.2.0/29"), pod("default/a", "192.0.2.1")), want: 17},
		"of a pool for pods alone":            {state: node(lone("10.0.0.0/28"), listing(0, "10.0.0.0/28"), onDemand), want: 14},
		"requests of pods of another pool":    {state: listed2(func(s *State) { s.OtherRequests = 3 }), want: 15},
		"the agent's own are about to move":   {state: agentIn(full("10.0.1.0/28", draining(Deleted), request(Deleted)), usedBy("10.0.1.1", "ingress")), want: 11},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Offer(test.state, Budget{}, test.plan); got != test.want {
				t.Errorf("offers %d addresses, want %d", got, test.want)
			}
		})
	}
}

// In any state, as many pods as the scheduler can still bind find an address once the plan has
// been carried out, and so do the agent and the pods that already wait; and the running pods
// would be admitted again.
func TestOfferInAnyState(t *testing.T) {
	cases := 20000
	if testing.Short() {
		cases = 2000
	}
	scarce, free := 0, 0
	for seed := range cases {
		d := seeded(uint64(seed))
		s, b := d.state()
		if s.Gone {
			continue
		}
		if d.percent(80) { // else few nodes have room
			s.Pods = slices.DeleteFunc(s.Pods, func(p Pod) bool { return len(p.IPs) == 0 && d.percent(90) })
		}
		for i := range s.Pods {
			if d.percent(60) {
				s.Pods[i].Requests[s.Family] = uint16(1 + d(5)/4)
			}
		}
		truth := d.someHaveEnded(&s)
		plan, _ := Decide(noon, d.policy(), s, b, d.memory(s))
		offer := Offer(s, b, plan)
		running, bound := requestsOf(s)
		if offer < running {
			t.Errorf("seed %d: offers %d, and pods that run request %d", seed, offer, running)
		}
		more := offer - bound
		if more <= 0 {
			scarce++
			continue
		}
		free++
		if left := leftFor(carriedOut(truth, plan)); left < more {
			t.Errorf("seed %d: %d more pods may be bound, and %d addresses are left", seed, more, left)
		}
	}
	if scarce < cases/20 || free < cases/20 {
		t.Errorf("%d nodes with room and %d without: the cases are one-sided", free, scarce)
	}
}

// someHaveEnded makes some reported pods without a status have ended, and returns the state as
// the agent knows it: without their addresses.
func (d dice) someHaveEnded(s *State) State {
	truth := copyState(*s)
	for _, a := range slices.SortedFunc(maps.Keys(s.Used), netip.Addr.Compare) {
		name := strings.TrimSuffix(s.Used[a], restored)
		if strings.Contains(name, "/") && !slices.Contains(s.Ended, name) && d.percent(30) {
			s.Ended = append(s.Ended, name)
		}
	}
	maps.DeleteFunc(truth.Used, func(a netip.Addr, owner string) bool {
		return slices.Contains(s.Ended, strings.TrimSuffix(owner, restored)) &&
			!slices.ContainsFunc(s.Pods, func(p Pod) bool { return slices.Contains(p.IPs, a) })
	})
	return truth
}

// requestsOf returns the requests of the pods with an address, and of all bound ones.
func requestsOf(s State) (running, bound int) {
	for _, p := range s.Pods {
		bound += int(p.Requests[s.Family])
		if slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == s.Family }) {
			running += int(p.Requests[s.Family])
		}
	}
	return running, bound
}

// carriedOut returns the state after the entries and drains of a plan.
func carriedOut(s State, p Plan) State {
	s = copyState(s)
	for _, a := range p.Clear {
		delete(s.Release, a)
	}
	for _, a := range p.Retire {
		s.Release[a] = Released
	}
	for _, a := range p.Mark {
		s.Release[a] = Marked
	}
	for i := range s.Blocks {
		if slices.ContainsFunc(p.Drain, func(d Drain) bool { return d.CIDR == s.Blocks[i].CIDR }) {
			s.Blocks[i].Phase = ipalloc.Draining
		}
	}
	return s
}

// leftFor counts the addresses that the agent may still assign, less its own needs and those for
// bound pods without one. It does not use the code under test.
func leftFor(s State) int {
	left, agents := 0, map[netip.Addr]bool{}
	for a, owner := range s.Used {
		if ipalloc.FamilyOf(a) == s.Family && !strings.Contains(owner, "/") {
			agents[a] = true
		}
	}
	for _, a := range s.Own {
		if ipalloc.FamilyOf(a) == s.Family {
			agents[a] = true
		}
	}
	for a, owner := range s.Pool {
		is := s.Release[a]
		if owner == "" && ipalloc.FamilyOf(a) == s.Family && !inUseAnywhere(s, a) && is != Marked && is != Ready && is != Released && keeps(s, a) {
			left++
		}
	}
	names := map[string]int{} // reported, and no status has the address
	for a, owner := range s.Used {
		if ipalloc.FamilyOf(a) == s.Family && !slices.ContainsFunc(s.Pods, func(p Pod) bool { return slices.Contains(p.IPs, a) }) {
			names[strings.TrimSuffix(owner, " [restored]")]++
		}
	}
	for _, p := range s.Pods {
		switch {
		case slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == s.Family }):
		case names[p.Name] > 0:
			names[p.Name]--
		default:
			left--
		}
	}
	staying := 0
	for a := range agents {
		if b, ok := ownerOf(s, a); !ok || b.Phase != ipalloc.Draining || b.Request == None {
			staying++
		}
	}
	return left - max(2, len(agents)) + staying
}

// keeps reports whether an address stays in the pool: it lies in no block, or in one in service
// that may have it.
func keeps(s State, a netip.Addr) bool {
	in, stays := false, false
	for _, b := range s.Blocks {
		if b.CIDR.Contains(a) {
			in = true
			stays = stays || b.Phase == ipalloc.InService && !b.Conflict && slices.Contains(b.Usable, a)
		}
	}
	return !in || stays
}
