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
	// agentFloor is how many addresses an agent with health checking waits
	// for before it starts, unless its CiliumNode says more: see agentStarts.
	agentFloor = 2
	// slowStart is for how many AckTimeouts a pod may be without an address before it
	// counts as hanging. A volume that another node has not released is detached by force
	// after 6 minutes (kube-controller-manager, maxWaitForUnmountDuration), and attached
	// then.
	slowStart = 8
	// limitCeiling prevents overflows in sums of numbers set by users.
	limitCeiling = math.MaxInt32
)

// user is who uses an address.
type user struct {
	name  string
	agent bool // the agent itself, not a pod
}

// userOf parses an owner as the agent reports it: those of pods contain a slash.
func userOf(owner string) user {
	name := strings.TrimSuffix(owner, restored)
	return user{name: name, agent: !strings.Contains(name, "/")}
}

func (d *decision) ours(a netip.Addr) bool {
	return ipalloc.FamilyOf(a) == d.state.Family
}

// inUse reports whether a is in use according to the agent's report, a pod's status or the
// node's own addresses. An address that a user assigned to one pod counts as well: the agent
// assigns it to that pod whatever its release entry is (Cilium v1.20.1, pkg/ipam/crd.go,
// allocateNext).
func (d *decision) inUse(a netip.Addr) bool {
	if _, ok := d.state.Used[a]; ok {
		return true
	}
	if _, ok := d.extra[a]; ok {
		return true
	}
	return d.state.Pool[a] != ""
}

// countDemand computes the demand, and records which addresses are in use.
func (d *decision) countDemand() {
	reported := 0
	for a, owner := range d.state.Used {
		if !d.ours(a) {
			continue
		}
		reported++
		if d.state.Pool[a] == "" {
			d.plan.Demand++
			d.countOwn(owner)
		}
	}
	d.reported = reported > 0
	d.trusted = d.state.AgentSettled && d.reported

	d.countPods()
	for _, a := range d.state.Own {
		d.learn(a, user{name: a.String(), agent: true})
	}
}

// countPods adds the bound pods that are missing from the report to the demand.
func (d *decision) countPods() {
	var known map[string]struct{}
	waiting := 0
	for _, pod := range d.state.Pods {
		if d.reportedByIP(pod) {
			continue
		}
		if d.state.NotRun {
			if len(pod.IPs) == 0 { // the agent may have run the family when the pod was added
				d.awaitAddress(pod, slowStart)
			}
			continue
		}
		if known == nil {
			known = d.knownOwners()
		}
		timeouts := slowStart
		switch _, ok := known[pod.Name]; {
		case ok: // it, or the pod that it replaces under the same name
			timeouts = 1
		case slices.ContainsFunc(pod.IPs, d.ours):
			d.plan.Demand++
		default:
			waiting++
		}
		d.awaitAddress(pod, timeouts)
	}
	d.waiting = d.admitted(waiting)
	d.plan.Demand += d.waiting
}

// countOwn counts the addresses in the demand that are the agent's own.
func (d *decision) countOwn(owner string) {
	if userOf(owner).agent {
		d.own++
	}
}

// admitted returns how many of the pods that wait for an address the kubelet admits. A user
// who may create pods can bind any number to a node (spec.nodeName); the kubelet fails those
// beyond its limit. Addresses in use always count, even beyond the limit.
func (d *decision) admitted(waiting int) int {
	if d.state.MaxPods <= 0 {
		return waiting
	}
	return min(waiting, max(0, limit(d.state.MaxPods)+d.own-d.plan.Demand))
}

// awaitAddress notes a recent pod whose address neither the agent's report, which
// lags, nor the pod's status names yet. It may be any address that looks free. If
// that were marked, and the agent restarted before the mark is withdrawn, the pod
// would not be restored. A pod without one for more AckTimeouts hangs, maybe for good.
func (d *decision) awaitAddress(pod Pod, timeouts int) {
	known := slices.ContainsFunc(pod.IPs, d.ours)
	until := pod.Seen.Add(time.Duration(timeouts) * d.policy.AckTimeout)
	if !known && d.now.Before(until) {
		d.awaited = append(d.awaited, pod.Name)
		d.awaitedUntil = max(d.awaitedUntil, until.Sub(d.now))
	}
}

// reportedByIP says that the agent's report names an address of the pod. It
// learns of those that the report does not name.
func (d *decision) reportedByIP(pod Pod) bool {
	found := false
	for _, a := range pod.IPs {
		if !d.ours(a) {
			continue
		}
		if _, ok := d.state.Used[a]; ok {
			found = true
			continue
		}
		d.learn(a, user{name: pod.Name})
	}
	return found
}

// learn notes that a is in use though the agent does not report it.
func (d *decision) learn(a netip.Addr, u user) {
	if !d.ours(a) {
		return
	}
	if _, ok := d.state.Used[a]; ok {
		return
	}
	if d.extra == nil {
		d.extra = map[netip.Addr]user{}
	}
	if known, ok := d.extra[a]; !ok || (u.agent && !known.agent) {
		d.extra[a] = u
	}
}

// knownOwners are the pods that have an address, or one kept for them.
func (d *decision) knownOwners() map[string]struct{} {
	known := make(map[string]struct{}, len(d.state.Used))
	for a, owner := range d.state.Used {
		if d.ours(a) {
			known[userOf(owner).name] = struct{}{}
		}
	}
	for a, owner := range d.state.Pool {
		if owner != "" && d.ours(a) {
			known[owner] = struct{}{}
		}
	}
	return known
}

// setTarget sets how many addresses the node should have, and how many its pool
// may hold at most.
func (d *decision) setTarget() {
	demand, limits := d.plan.Demand, d.state.Limits
	if !d.state.NotRun { // else nothing is claimed
		d.need = d.withReserve(demand)
		beyond := d.requestedBeyond()
		d.unreserved = max(d.agentStarts(), demand+beyond)
		d.target = max(d.need, d.withReserve(demand+beyond), limit(limits.MinAllocate), demand+limit(limits.PreAllocate))
	}
	d.hardCap = d.policy.MaxAddresses
	if most := limit(limits.MaxAllocate); most > 0 {
		d.hardCap = min(d.hardCap, most)
	}
}

// agentStarts is how many addresses the agent waits for before it starts (Cilium v1.20.1,
// pkg/ipam/crd.go, hasMinimumIPsInPool).
func (d *decision) agentStarts() int {
	return max(agentFloor, limit(cmp.Or(d.state.Limits.MinAllocate, d.state.Limits.PreAllocate)))
}

// withReserve is how many addresses the policy has for a demand. The reserve is for no
// more pods than the kubelet admits: others could use what is left.
func (d *decision) withReserve(demand int) int {
	percent := d.policy.ExpandPercent
	reserve := max(demand+d.policy.MinFree, (demand*100+percent-1)/percent)
	if most := limit(d.state.MaxPods); most > 0 {
		reserve = min(reserve, max(demand, most+max(agentFloor, d.own)))
	}
	return max(agentFloor, reserve)
}

// requestedBeyond is how many addresses bound pods request of the scheduler beyond the
// one that each has: what is free of them, no other pod can request. A pod without an
// address does not count: the kubelet fails those that the Node does not offer enough for.
func (d *decision) requestedBeyond() int {
	if !d.state.Offers {
		return 0
	}
	n := 0
	for i := range d.state.Pods {
		pod := &d.state.Pods[i]
		if requests := int(pod.Requests[d.state.Family]); requests > 1 && slices.ContainsFunc(pod.IPs, d.ours) {
			n += requests - 1
		}
	}
	return n
}

func limit(n int) int { return min(max(n, 0), limitCeiling) }
