package expand

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// settleTime is longer than all waits of a random policy and a cooldown together.
const settleTime = 5 * time.Minute

// TestConverges drives nodes from any state under a constant demand: they settle, and do not
// grow after something has been reclaimed.
func TestConverges(t *testing.T) {
	worst, grew, shrank := 0, 0, 0
	for seed := range rounds(t, 5000) {
		w := newWorld(t, seeded(uint64(seed)))
		worst = max(worst, w.settle(seed%2 == 0))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		grew += min(1, w.claims+w.undrains)
		shrank += min(1, w.reclaims)
	}
	t.Logf("nodes that grew %d, that shrank %d; most moves of one %d", grew, shrank, worst)
	if grew == 0 || shrank == 0 {
		t.Error("the random nodes try nothing")
	}
}

// settle runs until the world is stable, and returns the number of times that the node's blocks
// left service or returned. restless: pods in leaving blocks are eventually replaced.
func (w *world) settle(restless bool) int {
	held := len(w.state.Blocks)
	quietSince := w.now
	var before Claim
	var got int
	for range 3000 {
		if w.stir() {
			before = Claim{} // replacements for blocks that may go from now on
		}
		old := copyState(w.state)
		w.answer()
		w.startPods()
		if restless {
			w.replacePod()
		}
		constant := len(w.state.Used) > 0
		w.report()

		plan := w.decide(copyState(w.state))
		w.checkGrowth(plan, before, got, constant)
		slots := w.slots
		w.carryOut(plan)
		back := w.state.Expected > 0 && len(plan.Undrain) > 0
		if before, got = plan.Claim, w.usableFrom(slots); !constant || back {
			// The agent's first report adds to the demand, and in a block that returned to
			// service only the addresses that are not in use are left for pods still to be
			// scheduled.
			before = Claim{}
		}
		if w.t.Failed() {
			return 0
		}

		if plan.Empty() && reflect.DeepEqual(old, w.state) {
			if plan.RequeueAt.IsZero() || w.now.Sub(quietSince) > settleTime {
				return w.checkSettled(plan, held)
			}
			w.now = plan.RequeueAt
			continue
		}
		w.now = w.now.Add(time.Second)
		quietSince = w.now
	}
	w.t.Errorf("does not settle: %+v\npolicy %+v", w.state, w.policy)
	return 0
}

// usableFrom counts the usable addresses of blocks supplied since then.
func (w *world) usableFrom(slots int) int {
	n := 0
	for _, b := range w.state.Blocks {
		if b.CIDR.Addr().Compare(slot(w.state.Family, slots)) >= 0 && b.CIDR.Addr().Compare(slot(w.state.Family, w.slots)) < 0 {
			n += len(b.Usable)
		}
	}
	return n
}

// checkGrowth checks that a claim that no cap limited covers the demand at once, and that no
// growth follows a reclaim.
func (w *world) checkGrowth(plan Plan, before Claim, got int, constant bool) {
	needed := func(c netip.Prefix) bool { return !w.block(c).Pinned }
	grows := plan.Claim.Addresses > 0 || slices.ContainsFunc(plan.Undrain, needed)
	// As pods move off a leaving block, less of the others is left for pods still to be scheduled.
	back := plan.Claim.Addresses == 0 && w.state.Expected > 0
	if constant && w.reclaims > 0 && grows && !back {
		w.t.Errorf("grows after a reclaim: %s\npolicy %+v\nlimits %+v", plan, w.policy, w.state.Limits)
	}
	if before.Addresses == 0 || before.Room == before.Addresses || got < before.Addresses || w.state.Scarce {
		return
	}
	enough := plan.Capacity >= plan.Demand+w.policy.MinFree && plan.Demand*100 <= plan.Capacity*w.policy.ExpandPercent &&
		plan.Capacity >= w.state.Limits.MinAllocate && plan.Capacity >= plan.Demand+w.state.Limits.PreAllocate
	if grows || !enough {
		w.t.Errorf("still short after claim %+v: %s\npolicy %+v", before, plan, w.policy)
	}
}

// checkSettled checks the properties of a settled node.
func (w *world) checkSettled(plan Plan, held int) int {
	for _, wait := range plan.Obstacles {
		stuck := len(w.state.Used) > 0 && (wait.Reason == WaitHandshake || wait.Reason == WaitUnsettled)
		short := wait.Reason == WaitReplacement && plan.Capacity >= max(plan.Demand, agentFloor) && !w.keepsOwn(wait.CIDR)
		if stuck || short {
			w.t.Errorf("settled, but %s\nplan %s\nstate %+v", wait, plan, w.state)
		}
	}
	for _, b := range w.state.Blocks {
		if b.Phase == ipalloc.CoolingDown && !slices.ContainsFunc(allOf(b.CIDR), func(a netip.Addr) bool { return inUseAnywhere(w.state, a) }) {
			w.t.Errorf("settled, but %s is cooling down", b.CIDR)
		}
	}
	moves := w.claims + w.undrains + w.drains
	if most := 2*held + 2*w.policy.MaxBlocks + 4; moves > most {
		w.t.Errorf("%d claims, %d undrains, %d drains; at most %d expected", w.claims, w.undrains, w.drains, most)
	}
	return moves
}

// keepsOwn reports whether a block has one of the agent's own addresses that users keep in the
// pool: it is not part of the demand, and does not move.
func (w *world) keepsOwn(block netip.Prefix) bool {
	for a, owner := range w.state.Used {
		if block.Contains(a) && userOf(owner).agent && w.state.Pool[a] != "" {
			return true
		}
	}
	return false
}

// replacePod sometimes deletes a pod in a leaving block, and starts another in its place.
func (w *world) replacePod() {
	if !w.d.percent(30) {
		return
	}
	for _, a := range sortedAddrs(w.live) {
		owner := userOf(w.live[a])
		if owner.agent || !w.isLeaving(a) {
			continue
		}
		// An address kept by a person belongs to somebody else's demand.
		if w.state.Pool[a] != "" {
			continue
		}
		name := fmt.Sprintf("default/next-%d", len(w.live)*1000+w.d(1000))
		if _, ok := w.allocate(name); !ok {
			return
		}
		delete(w.live, a)
		for i := range w.state.Pods {
			p := &w.state.Pods[i]
			p.IPs = slices.DeleteFunc(slices.Clone(p.IPs), func(ip netip.Addr) bool { return ip == a })
			if p.Name == owner.name && len(p.IPs) == 0 {
				p.Name = name
			}
		}
		return
	}
}

func (w *world) isLeaving(a netip.Addr) bool {
	return slices.ContainsFunc(w.state.Blocks, func(b Block) bool {
		return b.CIDR.Contains(a) && (b.Phase == ipalloc.Draining || b.Request != None)
	})
}

// thrown returns dice that throw a fuzzer's bytes, and then continue at random, seeded with
// those bytes.
func thrown(data []byte) dice {
	hash := fnv.New64a()
	_, _ = hash.Write(data)
	bytes, after := bytesDice(data), seeded(hash.Sum64())
	left := len(data)
	return func(n int) int {
		if left--; left >= 0 {
			return bytes(n)
		}
		return after(n)
	}
}

// FuzzConverges runs TestConverges from any state.
func FuzzConverges(f *testing.F) {
	addTapes(f, 16)
	f.Fuzz(func(t *testing.T, data []byte) {
		newWorld(t, thrown(data)).settle(len(data)%2 == 0)
	})
}
