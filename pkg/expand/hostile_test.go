package expand

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const (
	tick        = 2 * time.Second
	reportEvery = 15 * time.Second // Cilium's --ipam-cilium-node-update-rate
	seenAfter   = 4 * time.Second  // until others see a pod's IP, or the agent's state
	settleAfter = time.Minute      // of an agent that is Ready
)

// hostile is a world with lags, losses and restarts everywhere.
type hostile struct {
	*world
	pods map[string]*hostilePod
	next int

	// The agent: the time since when it runs or is down, and the endpoints it must still restore.
	down         bool
	changed      time.Time
	lastReport   time.Time
	reportsAgain time.Time
	restoring    map[netip.Addr]string

	broken, removed int
}

type hostilePod struct {
	ip   netip.Addr
	from time.Time // when it got its address
}

// TestHostileWorld drives nodes with agents that restart and report late, with pods that come and
// go, and with an operator that loses writes. No address may leave a pool while a pod or the agent
// has it.
func TestHostileWorld(t *testing.T) {
	removed, broken, moves := 0, 0, 0
	for seed := range rounds(t, 100) {
		h := newHostile(t, seeded(uint64(seed)))
		for range 600 {
			h.step()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		removed, broken, moves = removed+h.removed, broken+h.broken, moves+h.claims+h.undrains+h.drains
	}
	t.Logf("addresses removed %d, claims, undrains and drains %d, pods that a restarted agent did not restore %d", removed, moves, broken)
	if removed == 0 {
		t.Error("nothing was ever removed")
	}
}

func newHostile(t *testing.T, d dice) *hostile {
	h := &hostile{world: newWorld(t, d), pods: map[string]*hostilePod{}, restoring: map[netip.Addr]string{}}
	h.policy = testPolicy()
	h.policy.IdleFor, h.policy.MaxBlocks = d.seconds(120), 8
	h.changed = h.now.Add(-time.Hour)
	// Every pod has one address, and every allocation except the agent's belongs to a pod.
	h.state.Pods = nil
	for _, a := range sortedAddrs(h.live) {
		name := fmt.Sprintf("default/old-%s", a)
		if userOf(h.live[a]).agent {
			name = "router"
		} else {
			h.pods[name] = &hostilePod{ip: a, from: h.changed}
		}
		h.live[a] = name
		h.state.Pool[a] = ""
	}
	h.state.Own = nil
	clear(h.state.Release) // entries on used addresses are not of our making
	h.listBlocks()
	h.alsoUsed = func(a netip.Addr) bool {
		if _, ok := h.restoring[a]; ok {
			return true
		}
		for _, p := range h.pods {
			if p.ip == a {
				return true
			}
		}
		return false
	}
	h.report()
	return h
}

func (h *hostile) step() {
	h.now = h.now.Add(tick)
	h.churn()
	seen := h.observe()
	answered := h.runAgent()
	plan := h.decide(seen)
	// A write that crosses the agent's conflicts; others are lost at random.
	if !answered && !h.d.percent(10) {
		h.removed += len(plan.Remove)
		h.carryOut(plan)
	}
	for _, c := range h.state.Blocks {
		if h.d.percent(1) && h.d.percent(10) {
			h.block(c.CIDR).Request = oneOf(h.d, requests...)
		}
	}
}

// churn starts and deletes pods, in waves.
func (h *hostile) churn() {
	want := 3 + 30*int(h.now.Sub(noon)/(5*time.Minute)%2)
	grow := len(h.pods) < want && h.d.percent(60) || h.d.percent(10)
	shrink := !grow && (len(h.pods) > want && h.d.percent(60) || h.d.percent(10))
	switch {
	case grow:
		h.pods[fmt.Sprintf("default/p-%d", h.next)] = &hostilePod{}
		h.next++
	case shrink:
		names := slices.Sorted(maps.Keys(h.pods))
		if len(names) > 0 {
			name := names[h.d(len(names))]
			p := h.pods[name]
			delete(h.pods, name)
			delete(h.restoring, p.ip)
			// A running agent learns of it; otherwise it finds no such endpoint when it starts.
			if h.live[p.ip] == name {
				delete(h.live, p.ip)
			}
		}
	}
}

// observe returns the state as the operator sees it, late.
func (h *hostile) observe() State {
	s := copyState(h.state)
	s.AgentSettled = h.now.Sub(h.changed) >= settleAfter && !h.down
	if h.now.Sub(h.changed) < seenAfter {
		s.AgentSettled = h.state.AgentSettled
	}
	h.state.AgentSettled = s.AgentSettled
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		p := Pod{Name: name}
		if it := h.pods[name]; it.ip.IsValid() && h.now.Sub(it.from) >= seenAfter {
			p.IPs = []netip.Addr{it.ip}
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

// runAgent runs the agent once, and reports whether it wrote.
func (h *hostile) runAgent() bool {
	switch {
	case h.down && h.now.Sub(h.changed) > h.d.seconds(20):
		h.down, h.changed = false, h.now
		h.reportsAgain = h.now.Add(4 * time.Second)
	case !h.down && len(h.restoring) == 0 && h.d.percent(1) && h.d.percent(40):
		h.down, h.changed = true, h.now
		h.restoring, h.live = h.live, map[netip.Addr]string{}
	}
	if h.down {
		return false
	}
	if len(h.restoring) > 0 && !h.now.Before(h.reportsAgain) {
		h.restore()
	}
	if len(h.restoring) == 0 {
		h.addPods()
	}
	if h.now.Sub(h.lastReport) < reportEvery {
		return false
	}
	h.lastReport = h.now
	h.answer() // while it restores, without any allocation
	if len(h.restoring) == 0 {
		h.report()
	}
	return true
}

// restore returns the endpoints found on disk their addresses, except addresses in the handshake
// (Cilium v1.20.1, pkg/ipam/crd.go, allocate).
func (h *hostile) restore() {
	for _, a := range sortedAddrs(h.restoring) {
		_, published := h.state.Pool[a]
		owner := userOf(h.restoring[a])
		if inHandshake(h.state.Release[a]) || !published {
			if !owner.agent { // which takes another
				h.broken++
			}
			continue
		}
		if !owner.agent {
			owner.name += restored
		}
		h.live[a] = owner.name
	}
	clear(h.restoring)
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		if p := h.pods[name]; p.ip.IsValid() && h.live[p.ip] == name+restored {
			h.live[p.ip] = name
		}
	}
}

// addPods assigns an address to the agent and to each waiting pod.
func (h *hostile) addPods() {
	if !slices.Contains(slices.Collect(maps.Values(h.live)), "router") {
		h.allocate("router")
	}
	for _, name := range slices.Sorted(maps.Keys(h.pods)) {
		p := h.pods[name]
		if p.ip.IsValid() {
			continue
		}
		if a, ok := h.allocate(name); ok {
			p.ip, p.from = a, h.now
		}
	}
}
