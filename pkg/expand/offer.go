package expand

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ReportLag is how long the agent's report may still name a pod that has ended: twice
// Cilium's default --ipam-cilium-node-update-rate.
const ReportLag = 30 * time.Second

// Offer returns how many addresses of the family the Node offers to pods that request
// one: what the scheduler and the kubelet compare with the sum of the requests of the
// pods on the node. It counts the addresses that any pod may get and that stay in the
// pool once p has been carried out, except
//
//   - the agent's own, and those that it has yet to take;
//   - those in use, unless by a bound pod that requests one. What the report names and
//     no bound pod has is in use as well, as by a pod that was deleted by force, unless
//     its pod has just ended: the kubelet shows that only once the sandbox is gone;
//   - one for each bound pod that requests none and whose address is not known yet.
//
// So all pods that fit beside the bound ones find an address, and bound pods that wait
// for one do, too. While the agent has not reported, nothing counts.
//
// The result is never below what the pods with an address request: a kubelet that
// restarts admits its pods anew, and fails those that the Node has no room for.
func Offer(s State, p Plan) int {
	d := newDecision(time.Time{}, Policy{}, &s, Memory{})
	u := d.requestUse(&p)
	if !u.reported {
		return u.requested
	}
	return max(d.offerable(u, &p), u.requested)
}

// offerable is what Offer returns but for its lower bound.
func (d *decision) offerable(u requestUse, p *Plan) int {
	free := 0
	for a, owner := range d.state.Pool {
		byRequest, used := u.byRequest[a]
		if owner == "" && d.ours(a) && (byRequest || !used) && d.stays(a, p) {
			free++
		}
	}
	return free - u.waiting - u.lacking
}

// requestUse is how the addresses of a node are used, as requests account for it.
type requestUse struct {
	// byRequest has every address in use: whether a bound pod that requests one has it.
	byRequest map[netip.Addr]bool
	// requested is what the bound pods with an address request, waiting how many
	// bound pods without one request none, lacking how many addresses the agent has yet
	// to take.
	requested, waiting, lacking int
	reported                    bool
}

func (d *decision) requestUse(p *Plan) requestUse {
	f, u := d.state.Family, requestUse{byRequest: make(map[netip.Addr]bool, len(d.state.Used))}
	for _, pod := range d.state.Pods {
		for _, a := range pod.IPs {
			if d.ours(a) {
				u.byRequest[a] = pod.Requests[f] > 0
			}
		}
	}
	own := d.agentsOwn()
	byOwner := map[string]netip.Addr{} // reported, and no pod's status names it
	for a, owner := range d.state.Used {
		if !d.ours(a) {
			continue
		}
		u.reported = true
		by := userOf(owner)
		if _, known := u.byRequest[a]; known || by.agent || d.hasEnded(by.name) {
			continue
		}
		u.byRequest[a] = false
		if first, twice := byOwner[by.name]; !twice || a.Less(first) {
			byOwner[by.name] = a
		}
	}
	for a := range own {
		u.byRequest[a] = false
	}
	u.lacking = d.lacking(own, p)
	d.addRequests(&u, byOwner)
	return u
}

// lacking is how many addresses the agent has yet to take: those that it waits for when it
// starts, and others in place of its own that leave.
func (d *decision) lacking(own map[netip.Addr]struct{}, p *Plan) int {
	n := max(agentFloor, len(own))
	for a := range own {
		b := d.blockOf(a)
		leaves := b != nil && (b.vacates() || b.Request != None && drains(p, b))
		if !leaves {
			n--
		}
	}
	return n
}

// agentsOwn are the addresses that the agent uses itself.
func (d *decision) agentsOwn() map[netip.Addr]struct{} {
	own := map[netip.Addr]struct{}{}
	for a, owner := range d.state.Used {
		if d.ours(a) && userOf(owner).agent {
			own[a] = struct{}{}
		}
	}
	for _, a := range d.state.Own {
		if d.ours(a) {
			own[a] = struct{}{}
		}
	}
	return own
}

// hasEnded reports whether a pod has just ended under an agent that runs steadily, so
// that its address is free: an agent that is down frees it only once it is back.
func (d *decision) hasEnded(name string) bool {
	return d.state.AgentSettled && slices.Contains(d.state.Ended, name)
}

// addRequests counts the requests of bound pods. A pod whose status names no address
// yet may be reported by its name already.
func (d *decision) addRequests(u *requestUse, byOwner map[string]netip.Addr) {
	for _, pod := range d.state.Pods {
		requests := int(pod.Requests[d.state.Family])
		has := slices.ContainsFunc(pod.IPs, d.ours)
		if a, reported := byOwner[pod.Name]; reported && !has {
			delete(byOwner, pod.Name)
			u.byRequest[a], has = requests > 0, true
		}
		switch {
		case has:
			u.requested += requests
		case requests == 0:
			u.waiting++
		}
	}
}

// stays reports whether any pod may get a, and whether a stays in the pool once p has
// been carried out.
func (d *decision) stays(a netip.Addr, p *Plan) bool {
	if withheld(d.state.Release[a]) {
		return false
	}
	if _, marked := slices.BinarySearchFunc(p.Mark, a, netip.Addr.Compare); marked {
		return false
	}
	b := d.blockOf(a)
	if b == nil {
		return true
	}
	return b.Phase == ipalloc.InService && !b.leaving(b.usable(a)) && !drains(p, b)
}

// drains reports whether a plan lets a block begin to drain.
func drains(p *Plan, b *block) bool {
	return slices.ContainsFunc(p.Drain, func(drain Drain) bool { return drain.CIDR == b.CIDR })
}
