package expand

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// inUseByAnybody reads rule 2 anew, without the code under test.
func inUseByAnybody(s State, a netip.Addr) bool {
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

// broken are the rules that a plan breaks, whatever the state it is for.
func broken(now time.Time, p Policy, s State, m Memory, plan Plan) []string {
	var out []string
	fail := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	brokenAddresses(now, p, s, m, plan, fail)
	brokenBlocks(now, s, plan, fail)
	brokenCaps(p, s, plan, fail)
	return out
}

type failer func(format string, args ...any)

func brokenAddresses(now time.Time, p Policy, s State, m Memory, plan Plan, fail failer) {
	lists := map[netip.Addr]string{}
	for name, list := range map[string][]netip.Addr{"mark": plan.Mark, "clear": plan.Clear, "publish": plan.Publish, "remove": plan.Remove} {
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
	reported := len(s.Used) > 0
	for _, a := range plan.Remove {
		since, seen := m.AckedSince[a]
		switch _, published := s.Pool[a]; {
		case inUseByAnybody(s, a):
			fail("removes %s, which is in use", a)
		case s.Pool[a] != "":
			fail("removes %s, which is kept for %s", a, s.Pool[a])
		case !published || s.Release[a] != Ready:
			fail("removes %s in state %q, published %v", a, s.Release[a], published)
		case !s.AgentSettled || !reported:
			fail("removes %s from an agent that cannot be believed", a)
		case p.AckHold > 0 && (!seen || now.Sub(since) < p.AckHold):
			fail("removes %s before the hold is over", a)
		}
	}
	for _, a := range plan.Mark {
		_, stands := s.Release[a]
		_, published := s.Pool[a]
		if inUseByAnybody(s, a) || stands || !published || s.Pool[a] != "" || !s.AgentSettled || !reported {
			fail("marks %s", a)
		}
	}
	for _, a := range plan.Clear {
		if _, stands := s.Release[a]; !stands {
			fail("clears %s, which has no entry", a)
		}
	}
	for _, a := range plan.Publish {
		if _, stands := s.Release[a]; stands {
			fail("publishes %s while its entry stands", a)
		}
		if _, published := s.Pool[a]; published {
			fail("publishes %s again", a)
		}
		if !slices.ContainsFunc(s.Blocks, func(b Block) bool {
			return b.Phase == ipalloc.InService && b.Request == None && !b.Conflict && slices.Contains(b.Usable, a)
		}) {
			fail("publishes %s, which no block in service offers", a)
		}
	}
}

func brokenBlocks(now time.Time, s State, plan Plan, fail failer) {
	seen := map[netip.Prefix]string{}
	once := func(c netip.Prefix, list string) Block {
		if other, twice := seen[c]; twice {
			fail("%s is in %s and %s", c, other, list)
		}
		seen[c] = list
		return findBlock(s, c)
	}
	holds := func(b Block) (published, inUse bool) {
		for _, a := range allOf(b.CIDR) {
			if !ownedBy(s, b, a) {
				continue
			}
			_, in := s.Pool[a]
			published = published || in
			inUse = inUse || inUseByAnybody(s, a)
		}
		return published, inUse
	}
	for _, c := range plan.Undrain {
		if b := once(c, "undrain"); b.Phase == ipalloc.InService || b.Request != None || b.Conflict {
			fail("undrains %+v", b)
		}
	}
	for _, d := range plan.Drain {
		b := once(d.CIDR, "drain")
		if d.Reason == None || b.Phase == ipalloc.Draining && b.Reason == d.Reason {
			fail("drains %+v for %q", b, d.Reason)
		}
	}
	for _, f := range plan.Free {
		b := once(f.CIDR, "free")
		if published, inUse := holds(b); !s.Gone && (published || inUse || b.Listed) {
			fail("frees %s: published %v, in use %v, listed %v", b.CIDR, published, inUse, b.Listed)
		}
	}
	for _, c := range plan.Delete {
		b := once(c, "delete")
		if published, inUse := holds(b); published || !s.Gone && inUse || b.Listed || b.Phase != ipalloc.CoolingDown || now.Before(b.RestUntil) {
			fail("deletes %+v: published %v, in use %v", b, published, inUse)
		}
	}
}

// ownedBy says that a is b's: of blocks that share it, it belongs to the first
// without a conflict.
func ownedBy(s State, b Block, a netip.Addr) bool {
	var sharing []Block
	for _, other := range s.Blocks {
		if other.CIDR.Contains(a) {
			sharing = append(sharing, other)
		}
	}
	slices.SortStableFunc(sharing, func(a, b Block) int {
		if a.Conflict == b.Conflict {
			return a.CIDR.Compare(b.CIDR)
		}
		if b.Conflict {
			return -1
		}
		return 1
	})
	return len(sharing) > 0 && sharing[0].CIDR == b.CIDR
}

func brokenCaps(p Policy, s State, plan Plan, fail failer) {
	top := p.MaxAddresses
	if s.Limits.MaxAllocate > 0 {
		top = min(top, s.Limits.MaxAllocate)
	}
	if after := len(s.Pool) + len(plan.Publish) + plan.Claim.Room; after > top && len(plan.Publish)+plan.Claim.Room > 0 {
		fail("%d published addresses, at most %d allowed", after, top)
	}
	serving, welcome := 0, 0
	for _, b := range s.Blocks {
		switch {
		case b.Phase == ipalloc.InService && b.Request == None && !b.Conflict:
			serving++
		case b.Reason == NodeGone && slices.Contains(plan.Undrain, b.CIDR):
			welcome++
		}
	}
	after := serving + len(plan.Undrain) + plan.Claim.Blocks
	if grown := len(plan.Undrain) - welcome + plan.Claim.Blocks; grown > 0 && after > p.MaxBlocks {
		fail("%d blocks, at most %d allowed", after, p.MaxBlocks)
	}
	if c := plan.Claim; c != (Claim{}) && (c.Addresses < 1 || c.Blocks < 1 || c.Room < c.Addresses) {
		fail("claims %+v", c)
	}
}

// checkPure decides twice and holds the inputs to their copies.
func checkPure(t *testing.T, p Policy, s State, m Memory) (Plan, Memory) {
	t.Helper()
	s0, m0 := copyState(s), copyMemory(m)
	plan, next := Decide(noon, p, s, m)
	if !reflect.DeepEqual(s, s0) || !reflect.DeepEqual(m, m0) {
		t.Fatalf("inputs changed")
	}
	again, nextAgain := Decide(noon, p, s0, m0)
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
	s := d.state()
	m := d.memory(s)
	plan, next := checkPure(t, p, s, m)
	for _, rule := range broken(noon, p, s, m, plan) {
		t.Errorf("%s\npolicy %+v\nstate %+v\nmemory %+v\nplan %s", rule, p, s, m, plan)
	}
	if !slices.IsSortedFunc(next.IdleSince, time.Time.Compare) {
		t.Errorf("IdleSince is not sorted: %v", next.IdleSince)
	}
	if !plan.Again.IsZero() && !plan.Again.After(noon) {
		t.Errorf("again in the past: %s", plan.Again)
	}
}

// rounds is how many random cases a test runs.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func TestRulesInAnyState(t *testing.T) {
	for seed := range rounds(20_000) {
		checkArbitrary(t, seeded(uint64(seed)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzDecide(f *testing.F) {
	for seed := range 32 {
		d := seeded(uint64(seed))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(d(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkArbitrary(t, bytesDice(data)) })
}
