package expand

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// inUseAnywhere checks rule 2 without the code under test.
func inUseAnywhere(s State, a netip.Addr) bool {
	_, used := s.Used[a]
	return used || slices.Contains(s.Own, a) || slices.ContainsFunc(s.Pods, func(p Pod) bool { return slices.Contains(p.IPs, a) })
}

func findBlock(s State, c netip.Prefix) Block {
	for _, b := range s.Blocks {
		if b.CIDR == c {
			return b
		}
	}
	return Block{}
}

// broken returns the rules that a plan breaks, in any state.
func broken(now time.Time, p Policy, s State, b Budget, m Memory, plan Plan) []string {
	var out []string
	fail := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	brokenAddresses(now, p, s, m, plan, fail)
	brokenBlocks(now, s, plan, fail)
	brokenCaps(p, s, plan, fail)
	brokenSides(s, plan, fail)
	brokenDrains(p, s, b, plan, fail)
	missingClears(s, plan, fail)
	brokenDemand(s, plan, fail)
	return out
}

// brokenDemand checks that addresses in use always count, and that further pods count only up to
// the kubelet's limit.
func brokenDemand(s State, plan Plan, fail failer) {
	if s.Gone || s.BlockAssignment != nil {
		return
	}
	used, agents := 0, 0
	for a, owner := range s.Used {
		if ipalloc.FamilyOf(a) == s.Family && s.Pool[a] == "" {
			used++
			if !strings.Contains(owner, "/") {
				agents++
			}
		}
	}
	if plan.Demand < used {
		fail("needs %d, with %d in use", plan.Demand, used)
	}
	if most := max(used, s.MaxPods+agents); s.MaxPods > 0 && plan.Demand > most+len(s.Pods)-waitingPods(s) {
		fail("needs %d, with %d in use and %d pods admitted", plan.Demand, used, s.MaxPods)
	}
}

// waitingPods counts the pods without an address of the family.
func waitingPods(s State) int {
	n := 0
	for _, pod := range s.Pods {
		if !slices.ContainsFunc(pod.IPs, func(a netip.Addr) bool { return ipalloc.FamilyOf(a) == s.Family }) {
			n++
		}
	}
	return n
}

type failer func(format string, args ...any)

func brokenAddresses(now time.Time, p Policy, s State, m Memory, plan Plan, fail failer) {
	lists := map[netip.Addr]string{}
	for name, list := range map[string][]netip.Addr{"mark": plan.Mark, "clear": plan.Clear, "retire": plan.Retire, "publish": plan.Publish, "remove": plan.Remove} {
		if !slices.IsSortedFunc(list, netip.Addr.Compare) {
			fail("%s is not sorted: %v", name, list)
		}
		for _, a := range list {
			if other, twice := lists[a]; twice {
				fail("%s is in %s and %s", a, other, name)
			}
			lists[a] = name
		}
	}
	for _, a := range plan.Remove {
		brokenRemove(now, p, s, m, a, fail)
	}
	longHeld := func(a netip.Addr) bool {
		for cidr, since := range m.AwaitingPodsSince {
			if cidr.Contains(a) && !now.Before(since.Add(slowStart*p.AckTimeout)) {
				return true
			}
		}
		return false
	}
	if len(slices.DeleteFunc(slices.Clone(plan.Mark), longHeld)) > 0 {
		for _, pod := range s.Pods {
			if now.Before(pod.Seen.Add(slowStart*p.AckTimeout)) && unreported(s, pod) && (!s.FamilyDisabled || len(pod.IPs) == 0) {
				fail("marks while the address of %s is unreported", pod.Name)
			}
		}
	}
	for _, a := range plan.Mark {
		if entry, stands := s.Release[a]; stands && entry != Released || !mayLeave(s, a) {
			fail("marks %s", a)
		}
	}
	if _, stands := s.Release[ProbeAddress(s.Family, s.Pool)]; plan.Probe && (stands || !s.FamilyDisabled) {
		fail("asks for a report in vain")
	}
	for _, a := range plan.Retire {
		brokenRetire(s, a, fail)
	}
	for _, a := range plan.Clear {
		if _, stands := s.Release[a]; !stands {
			fail("clears %s, which has no entry", a)
		}
	}
	for _, a := range plan.Publish {
		brokenPublish(s, a, fail)
	}
}

// unreported reports whether a pod may have an address of the family that neither the report
// nor its status names.
func unreported(s State, pod Pod) bool {
	for _, a := range pod.IPs {
		if ipalloc.FamilyOf(a) == s.Family {
			return false
		}
	}
	for a, owner := range s.Used {
		if ipalloc.FamilyOf(a) == s.Family && strings.TrimSuffix(owner, " [restored]") == pod.Name {
			return false
		}
	}
	for a, owner := range s.Pool {
		if ipalloc.FamilyOf(a) == s.Family && owner == pod.Name {
			return false
		}
	}
	return true
}

func mayLeave(s State, a netip.Addr) bool {
	owner, published := s.Pool[a]
	return published && owner == "" && !inUseAnywhere(s, a) && s.AgentSettled && (len(s.Used) > 0 || s.FamilyDisabled)
}

func brokenRemove(now time.Time, p Policy, s State, m Memory, a netip.Addr, fail failer) {
	since, seen := m.AckedSince[a]
	switch {
	case !mayLeave(s, a):
		fail("removes %s, in use %v, kept for %q, agent settled %v", a, inUseAnywhere(s, a), s.Pool[a], s.AgentSettled)
	case s.FamilyDisabled:
		brokenUnansweredRemove(now, p, s, m, a, fail)
	case s.Release[a] != Ready:
		fail("removes %s in state %q", a, s.Release[a])
	case p.AckHold > 0 && (!seen || now.Sub(since) < p.AckHold):
		fail("removes %s before the hold is over", a)
	}
}

// brokenUnansweredRemove checks the removal of an address of a family that the agent does not
// run.
func brokenUnansweredRemove(now time.Time, p Policy, s State, m Memory, a netip.Addr, fail failer) {
	since, seen := m.MarkedSince[a]
	switch {
	case !inHandshake(s.Release[a]):
		fail("removes %s in state %q, which an agent that starts may assign", a, s.Release[a])
	case p.AckTimeout > 0 && (!seen || now.Sub(since) < p.AckTimeout):
		fail("removes %s before its mark has stood for long enough", a)
	case s.Release[ProbeAddress(s.Family, s.Pool)] != DoNotRelease:
		fail("removes %s before the agent has reported", a)
	}
}

// brokenRetire checks that only the agent's own addresses retire, in a block that must leave.
func brokenRetire(s State, a netip.Addr, fail failer) {
	owner, used := s.Used[a]
	_, stands := s.Release[a]
	_, published := s.Pool[a]
	b, ok := ownerOf(s, a)
	if stands || !published || !s.AgentSettled || used && strings.Contains(owner, "/") || !used && !slices.Contains(s.Own, a) ||
		!ok || b.Phase != ipalloc.Draining || b.Request == None {
		fail("retires %s of %q, with entry %q", a, owner, s.Release[a])
	}
}

func brokenPublish(s State, a netip.Addr, fail failer) {
	if _, stands := s.Release[a]; stands {
		fail("publishes %s while its entry stands", a)
	}
	if _, published := s.Pool[a]; published {
		fail("publishes %s again", a)
	}
	offered := func(b Block) bool { return serves(b) && slices.Contains(b.Usable, a) }
	restored := func(b Block) bool {
		return b.Phase != ipalloc.CoolingDown && !b.Conflict && b.CIDR.Contains(a) && inUseAnywhere(s, a)
	}
	if !slices.ContainsFunc(s.Blocks, offered) && !slices.ContainsFunc(s.Blocks, restored) {
		fail("publishes %s, which no block in service offers", a)
	}
}

// serves reports whether the block is in service, and without a fault.
func serves(b Block) bool {
	return b.Phase == ipalloc.InService && (b.Request == None || b.Delay.Reason != "") && !b.Conflict
}

// missingClears checks that entries that take an address from a node, or a pod from its
// restarted agent, are cleared at once.
func missingClears(s State, plan Plan, fail failer) {
	if s.Gone {
		return
	}
	for a, entry := range s.Release {
		if _, published := s.Pool[a]; !published || slices.Contains(plan.Clear, a) {
			continue
		}
		b, ok := ownerOf(s, a)
		if !ok || b.Phase == ipalloc.CoolingDown || slices.Contains(plan.Undrain, b.CIDR) {
			continue
		}
		if serves(b) && slices.Contains(b.Usable, a) {
			fail("leaves %s in state %s on %s, which serves", a, entry, b.CIDR)
		}
		if entry == Marked && (!s.AgentSettled || inUseAnywhere(s, a)) {
			fail("leaves %s marked", a)
		}
	}
}

// ownerOf returns the block that a belongs to: if several contain it, the first without a
// conflict.
func ownerOf(s State, a netip.Addr) (Block, bool) {
	var sharing []Block
	for _, b := range s.Blocks {
		if b.CIDR.Contains(a) {
			sharing = append(sharing, b)
		}
	}
	for _, b := range sharing {
		if !b.Conflict {
			return b, true
		}
	}
	if len(sharing) > 0 {
		return sharing[0], true
	}
	return Block{}, false
}

func ownedBy(s State, b Block, a netip.Addr) bool {
	owner, ok := ownerOf(s, a)
	return ok && owner.CIDR == b.CIDR
}

// checkPure decides twice and compares the inputs with copies of them.
func checkPure(t *testing.T, p Policy, s State, b Budget, m Memory) (Plan, Memory) {
	t.Helper()
	s0, m0 := copyState(s), copyMemory(m)
	plan, next := Decide(noon, p, s, b, m)
	if !reflect.DeepEqual(s, s0) || !reflect.DeepEqual(m, m0) {
		t.Fatalf("inputs changed")
	}
	Decide(noon.Add(time.Hour), p, s, b, m) // must not reach into earlier results
	again, nextAgain := Decide(noon, p, s0, b, m0)
	if !reflect.DeepEqual(plan, again) || !reflect.DeepEqual(next, nextAgain) {
		t.Fatalf("same input, two plans:\n%s\n%s", plan, again)
	}
	return plan, next
}

func checkArbitrary(t *testing.T, d dice) {
	t.Helper()
	p := d.policy()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	s, b := d.state()
	m := d.memory(s)
	if d.percent(30) {
		s.MaxPods = 1 + d(12)
	}
	if d.percent(5) {
		s.FamilyDisabled, s.Used, s.Own = true, map[netip.Addr]string{}, nil
		if d.percent(50) {
			s.Release[ProbeAddress(s.Family, s.Pool)] = DoNotRelease
		}
	}
	plan, next := checkPure(t, p, s, b, m)
	for _, rule := range broken(noon, p, s, b, m, plan) {
		t.Errorf("%s\npolicy %+v\nstate %+v\nmemory %+v\nplan %s", rule, p, s, m, plan)
	}
	if !slices.IsSortedFunc(next.IdleSince, time.Time.Compare) {
		t.Errorf("IdleSince is not sorted: %v", next.IdleSince)
	}
	if !plan.RequeueAt.IsZero() && !plan.RequeueAt.After(noon) {
		t.Errorf("again in the past: %s", plan.RequeueAt)
	}
}

// rounds returns the number of random cases of a test: all in TestLong, a fifth of them under make
// test.
func rounds(t *testing.T, n int) int {
	if strings.HasPrefix(t.Name(), "TestLong/") {
		return n
	}
	return n / 5
}

// TestLong runs the random tests with all their cases.
func TestLong(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"rules in any state":         TestRulesInAnyState,
		"converges":                  TestConverges,
		"converges under pressure":   TestConvergesUnderPressure,
		"delayed is as if not asked": TestDelayedIsAsIfNotAsked,
	} {
		t.Run(name, test)
	}
}

func TestRulesInAnyState(t *testing.T) {
	for seed := range rounds(t, 20_000) {
		checkArbitrary(t, seeded(uint64(seed)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// addTapes adds random bytes for a fuzzer's dice.
func addTapes(f *testing.F, n int) {
	for seed := range n {
		d := seeded(uint64(seed))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(d(256))
		}
		f.Add(data)
	}
}

// FuzzDecide checks the rules of a plan for any state; the same input gives the same plan.
func FuzzDecide(f *testing.F) {
	addTapes(f, 32)
	f.Fuzz(func(t *testing.T, data []byte) { checkArbitrary(t, bytesDice(data)) })
}
