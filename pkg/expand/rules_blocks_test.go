package expand

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func brokenBlocks(now time.Time, s State, plan Plan, fail failer) {
	seen := map[netip.Prefix]string{}
	once := func(c netip.Prefix, list string) Block {
		if other, twice := seen[c]; twice {
			fail("%s is in %s and %s", c, other, list)
		}
		seen[c] = list
		return findBlock(s, c)
	}
	for _, c := range plan.Undrain {
		if b := once(c, "undrain"); b.Phase == ipalloc.InService || b.Request != None || b.Conflict {
			fail("undrains %+v", b)
		}
	}
	for _, d := range plan.Drain {
		if b := once(d.CIDR, "drain"); d.Reason == None || b.Phase == ipalloc.Draining && b.Reason == d.Reason {
			fail("drains %+v for %q", b, d.Reason)
		}
	}
	for _, f := range plan.CoolDown {
		brokenEnd(s, once(f.CIDR, "free"), s.Gone, fail)
	}
	for _, c := range plan.Delete {
		b := once(c, "delete")
		brokenEnd(s, b, false, fail)
		if b.Phase != ipalloc.CoolingDown || now.Before(b.CooldownUntil) {
			fail("deletes %s before its cooldown is over", b.CIDR)
		}
	}
}

// brokenEnd checks that a block is released only when none of its addresses is left.
func brokenEnd(s State, b Block, anyway bool, fail failer) {
	published, inUse := holds(s, b)
	inUse = inUse && !s.Gone
	if !anyway && (published || inUse || b.Listed) {
		fail("releases %s: published %v, in use %v, listed %v", b.CIDR, published, inUse, b.Listed)
	}
}

// holds reports whether addresses of b are published, or in use.
func holds(s State, b Block) (published, inUse bool) {
	for _, a := range allOf(b.CIDR) {
		if ownedBy(s, b, a) {
			_, in := s.Pool[a]
			published = published || in
			inUse = inUse || inUseAnywhere(s, a)
		}
	}
	return published, inUse
}

func hardCap(p Policy, s State) int {
	if s.Limits.MaxAllocate > 0 {
		return min(p.MaxAddresses, s.Limits.MaxAllocate)
	}
	return p.MaxAddresses
}

func brokenCaps(p Policy, s State, plan Plan, fail failer) {
	adds := plan.Claim.Room
	for _, a := range plan.Publish {
		if !inUseAnywhere(s, a) { // an address in use is restored past any cap
			adds++
		}
	}
	brokenExcess(p, s, plan, adds, fail)
	serving, returning, welcome := 0, 0, 0
	for _, b := range s.Blocks {
		published := slices.ContainsFunc(slices.Collect(maps.Keys(s.Pool)), b.CIDR.Contains)
		switch {
		case serves(b):
			if published || !b.Unwritable {
				serving++
			}
		case slices.Contains(plan.Undrain, b.CIDR) && !b.Unwritable:
			returning++
			if b.Reason == NodeGone || b.Undone || b.Phase == ipalloc.Draining && (b.Reason != Reclaim || b.Pinned) {
				welcome++
			}
		}
	}
	after := serving + returning + plan.Claim.Blocks
	if grown := returning - welcome + plan.Claim.Blocks; grown > 0 && after > p.MaxBlocks {
		fail("%d blocks, at most %d allowed", after, p.MaxBlocks)
	}
	if c := plan.Claim; c != (Claim{}) && ((c.Addresses < 1 || c.Blocks < 1) && c.Pins == 0 || c.Room < max(1, c.Addresses) || c.Pins > s.Pins) {
		fail("claims %+v", c)
	}
}

// brokenExcess checks that beyond the caps only replacements for leaving blocks are published,
// as far as pods need them.
func brokenExcess(p Policy, s State, plan Plan, adds int, fail failer) {
	after, departing, takenBack := len(s.Pool)+adds, 0, 0
	if adds == 0 || after <= hardCap(p, s) {
		return
	}
	for a := range s.Pool {
		switch b, ok := ownerOf(s, a); {
		case ok && b.Request != None && (b.Phase != ipalloc.InService || b.Delay.Reason == ""):
			departing++
		case ok && slices.Contains(plan.Undrain, b.CIDR):
			takenBack++
		}
	}
	need := max(agentFloor, plan.Demand+p.MinFree, (plan.Demand*100+p.ExpandPercent-1)/p.ExpandPercent)
	switch has := plan.Capacity + plan.Claim.Room - takenBack; {
	case after-departing > hardCap(p, s):
		fail("%d published addresses, of which %d must go; at most %d allowed", after, departing, hardCap(p, s))
	case after > 2*p.MaxAddresses:
		fail("%d published addresses, more than twice %d", after, p.MaxAddresses)
	case has > need:
		fail("%d published addresses, at most %d allowed, though %d are more than the %d that pods need", after, hardCap(p, s), has, need)
	}
}

// brokenSides checks that the addresses of a block that leaves service or returns wait for the
// next plan.
func brokenSides(s State, plan Plan, fail failer) {
	touched := slices.Concat(plan.Mark, plan.Clear, plan.Publish, plan.Remove)
	for _, c := range plan.Undrain {
		for _, a := range touched {
			if ownedBy(s, findBlock(s, c), a) {
				fail("touches %s of %s, which it undrains", a, c)
			}
		}
	}
	for _, d := range plan.Drain {
		b := findBlock(s, d.CIDR)
		for _, a := range plan.Publish {
			if b.CIDR.Contains(a) && ownedBy(s, b, a) {
				fail("publishes %s of %s, which it drains", a, d.CIDR)
			}
		}
	}
}

// isOnNode reports whether any address of a block is on the node, or listed.
func isOnNode(s State, b Block) bool {
	published, inUse := holds(s, b)
	hasEntry := func(a netip.Addr) bool {
		_, ok := s.Release[a]
		return ok
	}
	return published || inUse || b.Listed || slices.ContainsFunc(b.Usable, hasEntry)
}

// brokenDrains checks that a node keeps enough.
func brokenDrains(p Policy, s State, budget Budget, plan Plan, fail failer) {
	reclaims, requested, left := 0, 0, 0
	for _, b := range s.Blocks {
		drained := slices.ContainsFunc(plan.Drain, func(d Drain) bool { return d.CIDR == b.CIDR })
		switch {
		case b.Phase != ipalloc.InService:
		case drained && b.Delay.Reason != "" && !slices.Contains(plan.Drain, Drain{CIDR: b.CIDR, Reason: Reclaim}):
			fail("drains %s, which is held", b.CIDR)
		case drained && b.Request != None && b.Delay.Reason == "":
			if isOnNode(s, b) {
				requested++
			}
		case drained:
			reclaims++
			brokenReclaim(p, s, plan, b, fail)
		case serves(b):
			left++
		}
	}
	least := min(plan.Demand+p.MinFree, hardCap(p, s))
	if full := left >= p.MaxBlocks || len(s.Pool)+len(s.Release)+len(plan.Publish) >= hardCap(p, s); full && reclaims == 0 {
		least = min(least, max(plan.Demand, agentFloor))
	}
	if s.MaxPods > 0 { // the reserve is for pods alone
		least = min(least, max(plan.Demand, s.MaxPods+agentFloor))
	}
	if s.FamilyDisabled { // it needs none
		least = 0
	}
	if reclaims+requested > 0 && (plan.Capacity < least || plan.Claim.Addresses > 0) {
		fail("drains though the node lacks addresses: %d of at least %d", plan.Capacity, least)
	}
	if reclaims > 0 && (left == 0 || reclaims > budget.Reclaims || s.ReclaimDelay.Reason != "") {
		fail("reclaims %d blocks of %d, %d allowed, held for %q", reclaims, reclaims+left, budget.Reclaims, s.ReclaimDelay.Reason)
	}
}

func brokenReclaim(p Policy, s State, plan Plan, b Block, fail failer) {
	for a, owner := range s.Used {
		if b.CIDR.Contains(a) && userOf(owner).agent {
			fail("reclaims %s from %s", b.CIDR, owner)
		}
	}
	most := p.ReclaimPercent
	if slices.Contains(s.Recall, b.CIDR) && !slices.ContainsFunc(allOf(b.CIDR), func(a netip.Addr) bool { return inUseAnywhere(s, a) }) {
		most = p.ExpandPercent
		if s.MaxPods > 0 {
			most = 100 // a node with room for all pods that its kubelet admits needs no reserve
		}
	}
	switch {
	case !s.AgentSettled || len(s.Used) == 0:
		fail("reclaims on the word of an agent that cannot be believed")
	case plan.Demand*100 > most*plan.Capacity:
		fail("reclaims though %d of %d would be in use", plan.Demand, plan.Capacity)
	case plan.Capacity < s.Limits.MinAllocate || plan.Capacity < plan.Demand+s.Limits.PreAllocate:
		fail("reclaims below min-allocate or pre-allocate")
	}
}
