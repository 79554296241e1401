package expand

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const cooldown = time.Minute

// world is a node as stored in the API server, the operator's memory, and the agent's own
// knowledge.
type world struct {
	t      *testing.T
	d      dice
	policy Policy
	now    time.Time

	state  State
	budget Budget
	memory Memory
	slots  int

	// live are the agent's allocations, which its report follows.
	live map[netip.Addr]string
	// stir changes, before each plan, the conditions that the node does not control. It reports
	// whether blocks that were held may leave from now on.
	stir func() (opened bool)

	claims, undrains, drains, reclaims int
}

// newWorld returns a node in an arbitrary state with an agent that is settled and reports
// correctly.
func newWorld(t *testing.T, d dice) *world {
	policy := d.policy()
	s, b := d.state()
	w := &world{t: t, d: d, policy: policy, now: noon, state: s, budget: b, slots: 10, live: map[netip.Addr]string{}}
	w.stir = func() bool { return false }
	w.memory = d.memory(w.state)
	w.state.Gone = false
	w.state.AgentReady = true
	w.state.AgentSettled = true
	maps.Copy(w.live, w.state.Used)
	for _, p := range w.state.Pods {
		for _, a := range p.IPs {
			w.live[a] = p.Name
		}
	}
	for _, a := range w.state.Own {
		w.live[a] = "router"
	}
	w.listBlocks()
	return w
}

func sortedAddrs[V any](m map[netip.Addr]V) []netip.Addr {
	return slices.SortedFunc(maps.Keys(m), netip.Addr.Compare)
}

// decide computes a plan and checks it against every rule.
func (w *world) decide(s State) Plan {
	plan, memory := Decide(w.now, w.policy, s, w.budget, w.memory)
	for _, rule := range broken(w.now, w.policy, s, w.budget, w.memory, plan) {
		w.t.Errorf("%s\npolicy %+v\nstate %+v\nplan %s", rule, w.policy, s, plan)
	}
	w.memory = memory
	return plan
}

// carryOut writes the plan as the operator does.
func (w *world) carryOut(plan Plan) {
	for _, c := range plan.Undrain {
		b := w.block(c)
		b.Phase, b.Reason = ipalloc.InService, None
		b.Unwritable = false // the write has passed
		w.undrains++
	}
	for _, d := range plan.Drain {
		b := w.block(d.CIDR)
		if b.Phase == ipalloc.InService {
			w.drains++
			if d.Reason == Reclaim {
				w.reclaims++
			}
		}
		b.Phase, b.Reason = ipalloc.Draining, d.Reason
	}
	w.state.EntriesUnwritable = w.state.EntriesUnwritable && len(plan.Clear)+len(plan.Mark)+len(plan.Retire) == 0
	for _, a := range plan.Clear {
		delete(w.state.Release, a)
	}
	for _, a := range plan.Mark {
		w.state.Release[a] = Marked
	}
	for _, a := range plan.Retire {
		w.state.Release[a] = Released
	}
	for _, a := range plan.Publish {
		w.state.Pool[a] = ""
	}
	for _, a := range plan.Remove {
		if owner, busy := w.live[a]; busy {
			w.t.Errorf("%s left the pool in use by %q", a, owner)
		}
		delete(w.state.Pool, a)
	}
	for _, f := range plan.CoolDown {
		b := w.block(f.CIDR)
		b.Phase, b.Reason, b.CooldownUntil = ipalloc.CoolingDown, f.Reason, w.now.Add(cooldown)
		b.Undone = false
	}
	w.state.Blocks = slices.DeleteFunc(w.state.Blocks, func(b Block) bool { return slices.Contains(plan.Delete, b.CIDR) })
	w.supply(plan.Claim)
	w.listBlocks()
}

// supply assigns blocks of different sizes to the node, and returns the number of their usable
// addresses.
func (w *world) supply(c Claim) int {
	if c == (Claim{}) {
		return 0
	}
	w.claims++
	got := 0
	for n := 0; ; n++ {
		if more, _ := c.Next(n, got); !more {
			break
		}
		b := w.d.newBlock(w.state.Family, w.slots)
		if w.state.Pins > 0 {
			b.Pinned, w.state.Pins = true, w.state.Pins-1
		}
		w.slots++
		got += len(b.Usable)
		w.state.Blocks = append(w.state.Blocks, b)
	}
	slices.SortFunc(w.state.Blocks, func(a, b Block) int { return a.CIDR.Compare(b.CIDR) })
	return got
}

func (w *world) block(c netip.Prefix) *Block {
	for i := range w.state.Blocks {
		if w.state.Blocks[i].CIDR == c {
			return &w.state.Blocks[i]
		}
	}
	w.t.Fatalf("plan names %s, which the node does not hold", c)
	return nil
}

// listBlocks updates podCIDRs to match the pool.
func (w *world) listBlocks() {
	for i := range w.state.Blocks {
		b := &w.state.Blocks[i]
		b.Listed = slices.ContainsFunc(allOf(b.CIDR), func(a netip.Addr) bool {
			_, published := w.state.Pool[a]
			return published && ownedBy(w.state, *b, a)
		})
	}
}

// answer is the agent's side of the handshake (Cilium v1.20.1, pkg/ipam/crd.go,
// updateLocalNodeResource).
func (w *world) answer() {
	for _, a := range sortedAddrs(w.state.Release) {
		_, published := w.state.Pool[a]
		_, busy := w.live[a]
		switch entry := w.state.Release[a]; {
		case !published && entry == Released:
			delete(w.state.Release, a)
		case entry != Marked:
		case !published || busy:
			w.state.Release[a] = DoNotRelease
		default:
			w.state.Release[a] = Ready
		}
	}
}

// allocate assigns to owner any address that the agent may assign.
func (w *world) allocate(owner string) (netip.Addr, bool) {
	var free []netip.Addr
	for _, a := range sortedAddrs(w.state.Pool) {
		if _, busy := w.live[a]; !busy && w.state.Pool[a] == "" && !inHandshake(w.state.Release[a]) {
			free = append(free, a)
		}
	}
	if len(free) == 0 {
		return netip.Addr{}, false
	}
	a := free[w.d(len(free))]
	w.live[a] = owner
	return a, true
}

// startPods assigns an address to every waiting pod, as far as there are any, and one to the agent
// itself.
func (w *world) startPods() {
	known := map[string]bool{}
	for _, owner := range w.live {
		known[userOf(owner).name] = true
	}
	if len(w.live) == 0 {
		w.allocate("router")
	}
	for _, p := range w.state.Pods {
		if !known[p.Name] && len(p.IPs) == 0 {
			_, known[p.Name] = w.allocate(p.Name)
		}
	}
}

func (w *world) report() { w.state.Used = maps.Clone(w.live) }
