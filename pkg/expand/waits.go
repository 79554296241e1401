package expand

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// explain records what each leaving block waits for. Waits that need user action come
// first: the agent keeps its own addresses until it restarts, or as long as the Node
// exists, pods come and go, the handshake proceeds on its own.
func (d *decision) explain() {
	users := d.usersOfLeaving()
	for i := range d.blocks {
		b := &d.blocks[i]
		switch {
		case b.freed:
		case b.asked() && !b.drained:
			d.wait(b, WaitReplacement, nil)
		case b.onHold() && !b.drained:
			d.plan.Waits = append(d.plan.Waits, Wait{CIDR: b.CIDR, For: b.Hold.For, Until: b.Hold.Until})
			d.holdUntil(b.Hold)
		case b.goingOut():
			d.explainLeaving(b, users[b])
		}
	}
}

// goingOut says that the block's addresses leave, once this plan is done.
func (b *block) goingOut() bool {
	if b.undrained {
		return false
	}
	return b.drained || b.Phase == ipalloc.Draining || b.Phase == ipalloc.InService && b.Conflict
}

func (d *decision) explainLeaving(b *block, users map[user]struct{}) {
	var agent, pods []string
	for u := range users {
		if u.agent {
			agent = append(agent, u.name)
		} else {
			pods = append(pods, u.name)
		}
	}
	slices.Sort(agent)
	slices.Sort(pods)
	switch {
	case len(agent) > 0:
		d.explainOwn(b, agent)
	case len(pods) > 0:
		d.wait(b, WaitPods, pods)
	case d.state.BlockDemand != nil && (d.state.BlockDemand.Reported || d.state.BlockDemand.Fixed):
		d.wait(b, WaitReturn, nil)
	case d.state.NotRun && d.state.AgentSettled:
		d.wait(b, WaitHandshake, nil)
	case !d.reported, b.published > 0 && !d.trusted:
		d.wait(b, WaitUnsettled, nil)
	case len(d.awaited) > 0:
		d.wait(b, WaitPodAddress, slices.Sorted(slices.Values(d.awaited)))
	default:
		d.wait(b, WaitHandshake, nil)
	}
}

// explainOwn says what keeps the agent's own addresses in a block.
func (d *decision) explainOwn(b *block, agent []string) {
	leave := b.vacates() || b.drained && b.Request != None
	switch {
	case d.state.BlockDemand != nil || !leave:
		d.wait(b, WaitAgent, agent)
	case !d.trusted: // it may have restarted
		d.wait(b, WaitUnsettled, nil)
	case !b.vacates(): // it drains by this very plan
		d.wait(b, WaitHandshake, nil)
	case !d.roomToMove:
		d.wait(b, WaitReplacement, nil)
	case b.retired < b.own: // some cannot be told from a pod's, or have an entry yet
		d.wait(b, WaitAgent, agent)
	case d.findsLeaving():
		d.wait(b, WaitHandshake, nil)
	default:
		d.wait(b, WaitRestart, agent)
	}
}

func (d *decision) wait(b *block, why WaitReason, by []string) {
	d.plan.Waits = append(d.plan.Waits, Wait{CIDR: b.CIDR, For: why, By: by})
}

// usersOfLeaving are the users of each block on its way out.
func (d *decision) usersOfLeaving() map[*block]map[user]struct{} {
	leaving := map[*block]map[user]struct{}{}
	for i := range d.blocks {
		if b := &d.blocks[i]; b.goingOut() {
			leaving[b] = map[user]struct{}{}
		}
	}
	if len(leaving) == 0 {
		return nil
	}
	for a, owner := range d.state.Used {
		if users := leaving[d.blockOf(a)]; users != nil {
			u := userOf(owner)
			if u.name == "" {
				u.name = a.String()
			}
			users[u] = struct{}{}
		}
	}
	for a, u := range d.extra {
		if users := leaving[d.blockOf(a)]; users != nil {
			users[u] = struct{}{}
		}
	}
	for a, owner := range d.state.Pool {
		if users := leaving[d.blockOf(a)]; users != nil && owner != "" {
			users[user{name: owner}] = struct{}{}
		}
	}
	return leaving
}
