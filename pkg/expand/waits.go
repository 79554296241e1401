package expand

import (
	"cmp"
	"net/netip"
	"slices"
)

// waitOf says what a leaving block waits for that the agent itself, or pods, still use. Waits
// that need user action come first: the agent keeps its own addresses until it restarts, or
// as long as the Node exists, pods come and go, the handshake proceeds on its own.
type waitOf func(b *block, agent, pods []string) (WaitReason, []string)

// explain records what each leaving block waits for.
func (p *planner) explain(leaving waitOf) {
	users := p.usersOfLeaving()
	for _, b := range p.all {
		wait := Wait{CIDR: b.CIDR}
		switch {
		case b.freed:
			continue
		case b.mustLeave() && !b.drained:
			wait.For = WaitReplacement
		case b.leaveDelayed() && !b.drained:
			wait.For, wait.Until = b.Hold.For, b.Hold.Until
			p.requeueAt(b.Hold.Until)
		case b.goingOut():
			wait.For, wait.By = leaving(b, users[b].agent, users[b].pods)
		default:
			continue
		}
		p.plan.Waits = append(p.plan.Waits, wait)
	}
}

func (h *handshake) waitOf(b *block, agent, pods []string) (WaitReason, []string) {
	switch {
	case len(agent) > 0:
		return h.waitOfOwn(b, agent)
	case len(pods) > 0:
		return WaitPods, pods
	case h.NotRun && h.AgentSettled:
		return WaitHandshake, nil
	case !h.reported, b.published > 0 && !h.trusted:
		return WaitUnsettled, nil
	case len(h.pendingPods) > 0:
		return WaitPodAddress, slices.Sorted(slices.Values(h.pendingPods))
	default:
		return WaitHandshake, nil
	}
}

// waitOfOwn says what keeps the agent's own addresses in a block.
func (h *handshake) waitOfOwn(b *block, agent []string) (WaitReason, []string) {
	leave := b.vacates() || b.drained && b.Request != None
	switch {
	case !leave:
		return WaitAgent, agent
	case !h.trusted: // it may have restarted
		return WaitUnsettled, nil
	case !b.vacates(): // it drains by this very plan
		return WaitHandshake, nil
	case !h.roomToMove:
		return WaitReplacement, nil
	case b.retired < b.own: // some cannot be told from a pod's, or have an entry yet
		return WaitAgent, agent
	case h.findsLeaving():
		return WaitHandshake, nil
	default:
		return WaitRestart, agent
	}
}

// users are the names of a block's users, sorted: the agent itself, and pods.
type users struct{ agent, pods []string }

// usersOfLeaving are the users of each block on its way out.
func (p *planner) usersOfLeaving() map[*block]*users {
	leaving := map[*block]*users{}
	for _, b := range p.all {
		if b.goingOut() {
			leaving[b] = &users{}
		}
	}
	if len(leaving) == 0 {
		return nil
	}
	add := func(a netip.Addr, u user) {
		switch of := leaving[p.blockOf(a)]; {
		case of == nil:
		case u.agent:
			of.agent = append(of.agent, cmp.Or(u.name, a.String()))
		default:
			of.pods = append(of.pods, u.name)
		}
	}
	for a, owner := range p.Used {
		add(a, userOf(owner))
	}
	for a, u := range p.unreported {
		add(a, u)
	}
	for a, owner := range p.Pool {
		if owner != "" {
			add(a, user{name: owner})
		}
	}
	for _, of := range leaving {
		slices.Sort(of.agent)
		slices.Sort(of.pods)
		of.agent, of.pods = slices.Compact(of.agent), slices.Compact(of.pods)
	}
	return leaving
}
