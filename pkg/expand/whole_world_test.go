package expand

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// poolAgent is an agent, and its last view of its CiliumNode.
type poolAgent struct {
	multipool.Agent
	assigned  []netip.Prefix
	requested int
	version   int
}

func (a *poolAgent) sees(assigned []netip.Prefix, requested, version int) {
	a.assigned, a.requested, a.version = slices.Clone(assigned), requested, version
	a.Sees(assigned)
}

// pooledNode is a node with whole blocks, its agent and its operator. Each of them sees the other's
// writes late.
type pooledNode struct {
	t      *testing.T
	d      dice
	policy Policy
	now    time.Time
	agent  poolAgent

	state   State // as the API server holds it
	version int   // of the CiliumNode
	slots   int
	born    int
	hangs   map[string]bool
	lost    map[string]bool // their agent has them no more; their status stays

	view        State // as the operator sees it
	viewVersion int
	memory      Memory
	writes      int
	claims      int
	frees       int
}

func newPooledNode(t *testing.T, d dice) *pooledNode {
	p := DefaultPolicy()
	p.MinFree, p.ExpandPercent, p.AckTimeout = d(20), 50+d(51), 20*time.Second
	w := &pooledNode{t: t, d: d, policy: p, now: noon, hangs: map[string]bool{}, lost: map[string]bool{}}
	w.agent = poolAgent{Agent: multipool.Agent{Reserve: oneOf(d, 0, 1, 4, 8, 16)}}
	w.agent.Restored()
	w.startPods() // the agent's own addresses, which wait
	w.state = State{Node: "n1", AgentSettled: true, BlockAssignment: &BlockAssignment{}}
	w.look()
	return w
}

func (w *pooledNode) look() { w.view, w.viewVersion = copyState(w.state), w.version }

// wrote records a write of the CiliumNode.
func (w *pooledNode) wrote(assigned []netip.Prefix) {
	w.version++
	w.writes++
	w.state.BlockAssignment.Assigned = assigned
	for i := range w.state.Blocks {
		w.state.Blocks[i].Listed = slices.Contains(assigned, w.state.Blocks[i].CIDR)
	}
}

// step advances two seconds.
func (w *pooledNode) step(round int) {
	w.now = w.now.Add(2 * time.Second)
	if w.d.percent(60) || round%5 == 0 {
		w.agent.sees(w.state.BlockAssignment.Assigned, w.state.BlockAssignment.Requested, w.version)
	}
	w.startPods()
	if round%7 == 0 { // --ipam-cilium-node-update-rate
		w.agentWrites()
	}
	if w.d.percent(70) {
		w.look()
	}
	w.operate()
	for addr, owner := range w.agent.Live() {
		if !slices.ContainsFunc(w.state.BlockAssignment.Assigned, func(c netip.Prefix) bool { return c.Contains(addr) }) {
			w.t.Errorf("%s of %s is in use, and the agent was not assigned it", addr, owner)
		}
	}
}

// startPods assigns addresses to pods. Their statuses report them later.
func (w *pooledNode) startPods() {
	owners := map[string]netip.Addr{}
	for addr, owner := range w.agent.Live() {
		owners[owner] = addr
	}
	for _, name := range []string{"router", "health"} {
		if _, has := owners[name]; !has {
			_, _ = w.agent.Allocate(name) // or it waits
		}
	}
	for i := range w.state.Pods {
		p := &w.state.Pods[i]
		addr, has := owners[p.Name]
		switch {
		case has && w.d.percent(50):
			p.IPs = []netip.Addr{addr}
		case !has && !w.hangs[p.Name] && !w.lost[p.Name]:
			_, _ = w.agent.Allocate(p.Name)
		}
	}
}

func (w *pooledNode) agentWrites() {
	assigned, requested := w.agent.Update()
	if slices.Equal(assigned, w.agent.assigned) && requested == w.agent.requested {
		return
	}
	if w.agent.version != w.version { // a conflict: it tries again later
		return
	}
	w.wrote(assigned)
	w.state.BlockAssignment.Reported, w.state.BlockAssignment.Requested = true, requested
	w.state.Used = map[netip.Addr]string{}
	for addr, owner := range w.agent.Live() {
		if userOf(owner).agent {
			w.state.Used[addr] = owner
		}
	}
}

func (w *pooledNode) operate() {
	plan, memory := Decide(w.now, w.policy, w.view, w.memory)
	w.memory = memory
	if len(plan.Mark)+len(plan.Remove) > 0 {
		w.t.Errorf("a handshake with an agent that has none: %s", plan)
	}
	for _, c := range plan.Undrain {
		w.phase(c, ipalloc.InService, None)
	}
	for _, d := range plan.Drain {
		w.phase(d.CIDR, ipalloc.Draining, d.Reason)
	}
	fresh := w.supply(plan.Claim)
	if w.version == w.viewVersion { // or it conflicts
		w.publish(append(fresh, plan.Publish...))
	}
	for _, f := range plan.Free {
		w.frees++
		w.phase(f.CIDR, ipalloc.CoolingDown, f.Reason)
	}
	for _, c := range plan.Delete {
		w.giveUp(c)
	}
	if !plan.Empty() {
		w.writes++
		w.look()
	}
}

func (w *pooledNode) phase(c netip.Prefix, is ipalloc.Phase, why Reason) {
	for i := range w.state.Blocks {
		if b := &w.state.Blocks[i]; b.CIDR == c {
			b.Phase, b.Reason, b.CooldownUntil = is, why, w.now.Add(cooldown)
		}
	}
}

func (w *pooledNode) supply(c Claim) []netip.Addr {
	var fresh []netip.Addr
	for n := 0; n < c.Blocks && len(fresh) < c.Addresses; n++ {
		cidr := netip.PrefixFrom(slot(ipalloc.IPv4, w.slots), 28)
		w.slots++
		w.claims++
		w.state.Blocks = append(w.state.Blocks, Block{CIDR: cidr, Usable: inner(cidr)})
		fresh = append(fresh, inner(cidr)...)
	}
	return fresh
}

func (w *pooledNode) publish(addrs []netip.Addr) {
	assigned := slices.Clone(w.state.BlockAssignment.Assigned)
	for _, b := range w.state.Blocks {
		if !b.Listed && b.Phase != ipalloc.CoolingDown && slices.ContainsFunc(addrs, b.CIDR.Contains) {
			assigned = append(assigned, b.CIDR)
		}
	}
	if len(assigned) > len(w.state.BlockAssignment.Assigned) {
		slices.SortFunc(assigned, netip.Prefix.Compare)
		w.wrote(assigned)
	}
}

// giveUp reads the CiliumNode as it is.
func (w *pooledNode) giveUp(c netip.Prefix) {
	if slices.Contains(w.state.BlockAssignment.Assigned, c) {
		return
	}
	if slices.Contains(w.agent.CIDRs(), c) {
		w.t.Errorf("%s goes to others, and the agent may still give addresses of it to pods", c)
	}
	w.version++ // the fence
	w.state.Blocks = slices.DeleteFunc(w.state.Blocks, func(b Block) bool { return b.CIDR == c })
}

// live changes which pods exist.
func (w *pooledNode) live(most int) {
	for range w.d(8) {
		if n := len(w.state.Pods); n > 0 && (n >= most || w.d.percent(45)) {
			w.kill(w.d(n))
			continue
		} else if n > 0 && len(w.lost) < 3 {
			w.lose(w.d(n))
		}
		w.born++
		name := fmt.Sprintf("default/pod-%d", w.born)
		w.hangs[name] = w.d.percent(15)
		w.state.Pods = append(w.state.Pods, Pod{Name: name, Seen: w.now})
	}
}

func (w *pooledNode) kill(i int) {
	name := w.state.Pods[i].Name
	if w.lost[name] { // it stays bound
		return
	}
	w.state.Pods = slices.Delete(w.state.Pods, i, i+1)
	w.takeFromAgent(name)
}

// lose removes a pod from its agent, as when that could not restore it.
func (w *pooledNode) lose(i int) {
	if p := w.state.Pods[i]; len(p.IPs) > 0 {
		w.lost[p.Name] = true
		w.takeFromAgent(p.Name)
	}
}

func (w *pooledNode) takeFromAgent(name string) {
	w.agent.Forget(name)
	for addr, owner := range w.agent.Live() {
		if owner == name {
			w.agent.Release(addr)
		}
	}
}

// TestWholeBlocksInALife lets pods come and go: an address in use is never assigned to others. Once
// the pods stay, every pod gets an address and both sides settle: the agent does not return what
// the operator assigns, even with bound pods that it has lost.
func TestWholeBlocksInALife(t *testing.T) {
	claims, frees, lost := 0, 0, 0
	for seed := range rounds(t, 400) {
		w := newPooledNode(t, seeded(uint64(seed)))
		round := 0
		for _, most := range []int{60, 5, 40, 5} {
			for range 60 {
				round++
				w.live(most)
				w.step(round)
			}
		}
		clear(w.hangs)
		for range 200 {
			round++
			w.step(round)
		}
		w.writes = 0
		for range 60 {
			round++
			w.step(round)
		}
		if w.writes > 0 {
			t.Errorf("not settled: %d writes in two minutes", w.writes)
		}
		pods := 0
		for _, p := range w.state.Pods {
			if !w.lost[p.Name] {
				pods++
			}
		}
		if has := len(w.agent.Live()); has != pods+2 {
			t.Errorf("%d addresses in use by %d pods and the agent", has, pods)
		}
		lost += len(w.lost)
		if t.Failed() {
			t.Fatalf("seed %d, reserve %d", seed, w.agent.Reserve)
		}
		claims += w.claims
		frees += w.frees
	}
	t.Logf("blocks claimed %d, returned %d; pods lost %d", claims, frees, lost)
	if claims == 0 || frees == 0 || lost == 0 {
		t.Error("the random nodes try nothing")
	}
}
