package expand

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	// restored is the suffix of the owner of an address that a restarted agent found in use
	// (Cilium v1.20.1, daemon/cmd/endpoint_restore.go).
	restored = " [restored]"
	// agentFloor is the number of addresses that an agent with health checking waits for before it
	// starts, unless its CiliumNode says more: see agentStarts.
	agentFloor = 2
	// slowStart is the number of AckTimeouts that a pod may be without an address before it counts
	// as stuck. A volume that another node has not released is detached by force after 6 minutes
	// (kube-controller-manager, maxWaitForUnmountDuration), and attached then.
	slowStart = 8
	// limitCeiling prevents overflows in sums of numbers set by users.
	limitCeiling = math.MaxInt32
)

// user is who uses an address.
type user struct {
	name  string
	agent bool // the agent itself, not a pod
}

// userOf parses an owner as the agent reports it: pods' names contain a slash.
func userOf(owner string) user {
	name := strings.TrimSuffix(owner, restored)
	return user{name: name, agent: !strings.Contains(name, "/")}
}

// usage records the users of the node's addresses, and its pods that wait for one.
type usage struct {
	state *State
	// reported: the agent has reported. trusted: it is settled as well, so that an
	// address it does not report as used is free.
	reported, trusted bool
	// demand counts the addresses that the node needs now: own of them for the agent
	// itself, waiting of them for bound pods that have none.
	demand, own, waiting int
	// stuck are the bound pods that have been without an address for long.
	stuck []Pod
	// pendingPods are the pods with addresses that should become known within pendingFor; after
	// that they count as stuck.
	pendingPods []string
	pendingFor  time.Duration
	// unreported are the addresses in use that are missing from the agent's report, with
	// their users.
	unreported map[netip.Addr]user
}

// needs are the numbers of addresses that the node should have.
type needs struct {
	// forPods is the number of addresses the node's pods need under the policy, its reserve included; target
	// adds its CiliumNode's further requests, and the addresses expected of it. targetWithoutReserve is the
	// part of target for its pods, and for pods that are yet to be scheduled.
	forPods, target, targetWithoutReserve int
	// hardCap is the largest number of addresses that its pool may hold.
	hardCap int
}

// slowStart is the time until a pod without an address counts as stuck.
func (p Policy) slowStart() time.Duration { return slowStart * p.AckTimeout }

func (s *State) ours(a netip.Addr) bool { return ipalloc.FamilyOf(a) == s.Family }

// inUse reports whether a is in use according to the agent's report, a pod's status or the
// node's own addresses. An address that a user assigned to one pod counts as well: the agent
// assigns it to that pod whatever its release entry is (Cilium v1.20.1, pkg/ipam/crd.go,
// allocateNext).
func (u *usage) inUse(a netip.Addr) bool {
	if _, ok := u.state.Used[a]; ok {
		return true
	}
	if _, ok := u.unreported[a]; ok {
		return true
	}
	return u.state.Pool[a] != ""
}

// countAddresses computes the demand, and records which addresses are in use.
func countAddresses(s *State, input *input) usage {
	u := usage{state: s}
	reported := 0
	for a, owner := range s.Used {
		if !s.ours(a) {
			continue
		}
		reported++
		if s.Pool[a] == "" {
			u.countUsed(owner)
		}
	}
	u.reported = reported > 0
	u.trusted = s.AgentSettled && u.reported

	u.countPods(input)
	for _, a := range s.Own {
		u.learn(a, user{name: a.String(), agent: true})
	}
	return u
}

// countUsed adds an address that the agent reports to the demand.
func (u *usage) countUsed(owner string) {
	u.demand++
	if userOf(owner).agent {
		u.own++
	}
}

// countPods adds the bound pods that are missing from the report to the demand.
func (u *usage) countPods(input *input) {
	var known map[string]struct{}
	waiting := 0
	for _, pod := range u.state.Pods {
		if u.reportedByIP(pod) {
			continue
		}
		if u.state.FamilyDisabled {
			if len(pod.IPs) == 0 { // the agent may have run the family when the pod was added
				u.awaitAddress(pod, input.now, pod.Seen.Add(input.policy.slowStart()))
			}
			continue
		}
		if known == nil {
			known = u.knownOwners()
		}
		wait := input.policy.slowStart()
		_, ok := known[pod.Name]
		switch {
		case ok: // it, or the pod that it replaces under the same name
			wait = input.policy.AckTimeout
		case slices.ContainsFunc(pod.IPs, u.state.ours):
			u.demand++
		default:
			waiting++
		}
		u.awaitAddress(pod, input.now, pod.Seen.Add(wait))
	}
	u.waiting = u.admitted(waiting)
	u.demand += u.waiting
}

// admitted returns the number of pods that wait for an address and that the kubelet admits. A user
// who may create pods can bind any number to a node (spec.nodeName); the kubelet fails those beyond
// its limit. Addresses in use always count, even beyond the limit.
func (u *usage) admitted(waiting int) int {
	if u.state.MaxPods <= 0 {
		return waiting
	}
	return min(waiting, max(0, limit(u.state.MaxPods)+u.own-u.demand))
}

// awaitAddress notes a recent pod with an address that neither the agent's report, which lags, nor
// the pod's status names yet. It may be any address that looks free. If that were marked, and the
// agent restarted before the mark is withdrawn, the pod would not be restored. A pod without one
// after end is stuck, maybe for good.
func (u *usage) awaitAddress(pod Pod, now, end time.Time) {
	known := slices.ContainsFunc(pod.IPs, u.state.ours)
	if !known && now.Before(end) {
		u.pendingPods = append(u.pendingPods, pod.Name)
		u.pendingFor = max(u.pendingFor, end.Sub(now))
	}
}

// reportedByIP reports whether the agent's report names an address of the pod. It records the
// addresses of the pods that the report does not name.
func (u *usage) reportedByIP(pod Pod) bool {
	found := false
	for _, a := range pod.IPs {
		if !u.state.ours(a) {
			continue
		}
		if _, ok := u.state.Used[a]; ok {
			found = true
			continue
		}
		u.learn(a, user{name: pod.Name})
	}
	return found
}

// learn notes that a is in use though the agent does not report it.
func (u *usage) learn(a netip.Addr, owner user) {
	if _, ok := u.state.Used[a]; ok || !u.state.ours(a) {
		return
	}
	if known, ok := u.unreported[a]; !ok || (owner.agent && !known.agent) {
		remember(&u.unreported, a, owner)
	}
}

// knownOwners are the pods that have an address, or one kept for them.
func (u *usage) knownOwners() map[string]struct{} {
	known := make(map[string]struct{}, len(u.state.Used))
	for a, owner := range u.state.Used {
		if u.state.ours(a) {
			known[userOf(owner).name] = struct{}{}
		}
	}
	for a, owner := range u.state.Pool {
		if owner != "" && u.state.ours(a) {
			known[owner] = struct{}{}
		}
	}
	return known
}

// addressNeeds returns the needs of a node with an agent that is assigned addresses.
func addressNeeds(policy Policy, u *usage, bs *blocks) needs {
	s := u.state
	n := needs{hardCap: policy.MaxAddresses}
	if most := limit(s.Limits.MaxAllocate); most > 0 {
		n.hardCap = min(n.hardCap, most)
	}
	if !s.RunsFamily() { // no block is claimed
		return n
	}
	requested := u.demand + s.requestedBeyond()
	n.forPods = u.withReserve(policy, u.demand)
	n.targetWithoutReserve = max(s.Limits.agentStarts(), requested)
	n.target = max(n.forPods, u.withReserve(policy, requested), limit(s.Limits.MinAllocate), u.demand+limit(s.Limits.PreAllocate))
	if s.Expected > 0 {
		// Until the Node can offer the requests of pods that are yet to be scheduled there. These
		// may have the reserve: it follows once they are bound.
		published := bs.openCapacity()
		expected := published - offerRoom(u, bs, published) + limit(s.Expected)
		n.targetWithoutReserve = max(n.targetWithoutReserve, expected)
		n.target = max(n.target, expected)
	}
	return n
}

// agentStarts is the number of addresses that the agent waits for before it starts (Cilium v1.20.1,
// pkg/ipam/crd.go, hasMinimumIPsInPool).
func (l Limits) agentStarts() int {
	return max(agentFloor, limit(cmp.Or(l.MinAllocate, l.PreAllocate)))
}

// withReserve is the number of addresses that the policy has for a demand. The reserve is for no
// more pods than the kubelet admits: others could use the rest.
func (u *usage) withReserve(policy Policy, demand int) int {
	percent := policy.ExpandPercent
	reserve := max(demand+policy.MinFree, (demand*100+percent-1)/percent)
	if most := limit(u.state.MaxPods); most > 0 {
		reserve = min(reserve, max(demand, most+max(agentFloor, u.own)))
	}
	return max(agentFloor, reserve)
}

// requestedBeyond is the number of addresses that bound pods request of the scheduler beyond the
// one that each has: no other pod can request the free part of them. A pod without an address does
// not count: the kubelet fails pods that the Node offers too few for.
func (s *State) requestedBeyond() int {
	if !s.Offers {
		return 0
	}
	n := 0
	for _, pod := range s.Pods {
		if requests := int(pod.Requests[s.Family]); requests > 1 && slices.ContainsFunc(pod.IPs, s.ours) {
			n += requests - 1
		}
	}
	return n
}

func limit(n int) int { return min(max(n, 0), limitCeiling) }
