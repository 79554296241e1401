package expand

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// explain records the obstacle to each leaving block. obstacleTo explains the blocks on their way out,
// and names the users they wait for. Obstacles that need user action come first: the agent keeps its
// own addresses until it restarts, or as long as the Node exists, pods come and go, the handshake
// proceeds on its own.
func (p *planner) explain(obstacleTo func(*block) (WaitReason, []string)) {
	p.blocks.findUsers(&p.usage)
	for _, b := range p.blocks.all {
		planned := b.planned()
		if planned != fateMustLeave && planned != fateDelayed && !b.leavesByPlan() {
			continue
		}
		obstacle := Obstacle{CIDR: b.CIDR}
		if b.Phase == ipalloc.InService {
			obstacle.Request = b.Request
		}
		switch planned {
		case fateMustLeave:
			obstacle.Reason = WaitReplacement
		case fateDelayed:
			obstacle.Reason = b.Delay.Reason
			obstacle.Until = b.Delay.Until
			p.requeueAt(b.Delay.Until)
		default:
			obstacle.Reason, obstacle.By = obstacleTo(b)
		}
		p.plan.Obstacles = append(p.plan.Obstacles, obstacle)
	}
}

func (h *handshake) obstacleTo(b *block) (WaitReason, []string) {
	switch {
	case len(b.byAgent) > 0:
		return h.obstacleToOwn(b)
	case len(b.byPods) > 0:
		return WaitPods, b.byPods
	case b.waitReason != "":
		return WaitPodAddress, slices.Sorted(slices.Values(h.usage.pendingPods))
	case h.state.FamilyDisabled && h.state.AgentSettled:
		return WaitHandshake, nil
	case !h.usage.reported, b.published > 0 && !h.usage.trusted:
		return WaitUnsettled, nil
	default:
		return WaitHandshake, nil
	}
}

// obstacleToOwn returns the obstacle to the agent's own addresses in a block.
func (h *handshake) obstacleToOwn(b *block) (WaitReason, []string) {
	leave := b.vacates() || b.change == changeDrain && b.Request != None
	switch {
	case !leave:
		return WaitAgent, b.byAgent
	case !h.usage.trusted: // it may have restarted
		return WaitUnsettled, nil
	case !b.vacates(): // it drains by this very plan
		return WaitHandshake, nil
	case !h.roomToMove:
		return WaitReplacement, nil
	case b.waitReason != "":
		return WaitPodAddress, slices.Sorted(slices.Values(h.usage.pendingPods))
	case b.retired < b.own: // some look like a pod's, or have an entry yet
		return WaitAgent, b.byAgent
	case h.findsLeaving():
		return WaitHandshake, nil
	default:
		return WaitRestart, b.byAgent
	}
}

// findUsers sets the names of the users of each block on its way out.
func (bs *blocks) findUsers(u *usage) {
	if !slices.ContainsFunc(bs.all, (*block).leavesByPlan) {
		return
	}
	add := func(a netip.Addr, holder user) {
		b := bs.blockOf(a)
		if b == nil || !b.leavesByPlan() {
			return
		}
		if holder.agent {
			b.byAgent = append(b.byAgent, cmp.Or(holder.name, a.String()))
			return
		}
		b.byPods = append(b.byPods, holder.name)
	}
	for a, owner := range u.state.Used {
		add(a, userOf(owner))
	}
	for a, holder := range u.unreported {
		add(a, holder)
	}
	for a, owner := range u.state.Pool {
		if owner != "" {
			add(a, user{name: owner})
		}
	}
	for _, b := range bs.all {
		slices.Sort(b.byAgent)
		slices.Sort(b.byPods)
		b.byAgent, b.byPods = slices.Compact(b.byAgent), slices.Compact(b.byPods)
	}
}
