package world

import (
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// quiescence ends faults and continues until operators are at rest.
type quiescence struct {
	*World
	turn    int       // of nextOngoing
	sent    int       // writes of operators, some without a change
	lasting int       // writes that tell more than the hour
	wrote   time.Time // when an operator last wrote something
}

// GoesOn reports whether an action continues without new user input or faults.
func (v Verb) GoesOn() bool {
	switch v {
	case Start, Lead, Watch, Tell, Reconcile, Call, Shown, Timeout, Thaw,
		AgentStart, AgentOpen, AgentRestore, AgentServe, AgentSee, AgentReport, AgentPod, AgentSync,
		NodeAgentStart, NodeAgentSee, NodeAgentRun, NodeAgentCall, SandboxDel, PodAdd, PodStatus, PodDel, PodGone, Collect, CommandCall, AgentRollout, SchedulerSee, Schedule:
		return true
	}
	return false
}

// Quiesce ends all faults and continues until the operators are at rest. It returns false if that
// takes more than limit actions.
func (w *World) Quiesce(limit int) bool {
	w.users.unpause()
	return w.quiescence.goOnUntilRest(limit)
}

// goOnUntilRest is Quiesce without changing pools or nodes.
func (qu *quiescence) goOnUntilRest(limit int) bool {
	defer qu.endFaults()()
	qu.sched.faultsEnd()
	qu.wrote = qu.clock.now
	for range limit {
		if len(qu.Violations) > 0 {
			return false
		}
		if idle := qu.goOnOnce(func() bool { return !qu.etcd.restored && qu.clock.now.Sub(qu.wrote) > qu.quietFor() }); idle {
			return true
		}
	}
	return false
}

// goOnOnce performs one action or, if there is none, lets time pass until something comes due. It
// reports whether there is none and the end has come.
func (qu *quiescence) goOnOnce(end func() bool) bool {
	if a, any := qu.nextOngoing(); any {
		qu.Do(a)
		return false
	}
	if end() {
		return true
	}
	d := time.Minute
	if next := qu.clock.next(); !next.IsZero() {
		d = min(d, next.Sub(qu.clock.now))
	}
	qu.clock.pass(d)
	return false
}

// nextOngoing takes turns, so that no actor starves.
func (qu *quiescence) nextOngoing() (Action, bool) {
	var all []Action
	for _, a := range qu.Enabled() {
		if a.Verb.GoesOn() && a.What != "stale" {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return Action{}, false
	}
	qu.turn++
	return all[qu.turn%len(all)], true
}

// Finish brings the world to rest, checks the rules of rest, deletes all pods, and checks again.
// Faults are over.
func (w *World) Finish() {
	w.quiescence.leaveShadow()
	w.quiescence.endFamilies()
	if len(w.Violations) > 0 || !w.migration.endMove() || !w.quiescence.replaceFirst() {
		return
	}
	if w.quiescence.rest("with pods") {
		w.sched.dropAll()
		w.quiescence.deletePods(func(*machine, string, *corev1.Pod) bool { return true })
		settled := w.quiescence.rest("without pods")
		if settled && w.poolUsers.openAll() {
			settled = w.quiescence.rest("once windows are open")
		}
		for range len(w.machines) + 1 { // those that waited for others have theirs retired then
			if settled && w.quiescence.restartRetired() {
				settled = w.quiescence.rest("once agents have restarted")
			}
		}
	}
}

func (qu *quiescence) rest(when string) bool {
	if len(qu.Violations) > 0 {
		return false
	}
	limit := qu.restWithin()
	rests := qu.Quiesce(limit)
	if !rests && len(qu.Violations) == 0 && qu.dropRefused() {
		rests = qu.Quiesce(limit)
	}
	if len(qu.Violations) == 0 && qu.restartClosed() {
		rests = qu.Quiesce(limit)
	}
	if len(qu.Violations) == 0 && qu.restartUnknown() {
		rests = qu.Quiesce(limit)
	}
	if !rests && len(qu.Violations) == 0 {
		qu.violate(9, "%s: no rest within %d actions", when, limit)
	}
	qu.replaceLost()
	if limit := qu.restWithin(); !qu.Quiesce(limit) && len(qu.Violations) == 0 {
		qu.violate(9, "%s: no rest within %d actions", when, limit)
	}
	if len(qu.Violations) > 0 {
		return false
	}
	qu.settled.checkRest(when)
	qu.passDue()
	qu.settled.checkQuiet(when)
	qu.settled.checkRestart(when)
	return len(qu.Violations) == 0
}

// dropRefused removes the pods without an address, and reports whether there were any, where
// their nodes would never come to rest: for a pod of both families, an agent in multi-pool mode
// requests a block of the family that has one, returns it because the other family has none,
// and requests it again at the next ADD (docs/contributing/architecture.md).
func (qu *quiescence) dropRefused() bool {
	return len(qu.cfg.Families) > 1 && qu.multiPool() &&
		qu.deletePods(func(m *machine, slot string, _ *corev1.Pod) bool { return m.endpoints[slot] == nil })
}

// deletePods deletes some pods, and reports whether there were any.
func (qu *quiescence) deletePods(which func(*machine, string, *corev1.Pod) bool) (any bool) {
	for _, m := range qu.machines {
		for _, slot := range qu.workload.slots {
			if pod := m.kubelet.podObject(slot); pod != nil && pod.DeletionTimestamp == nil && which(m, slot, pod) {
				m.kubelet.deletePod(slot)
				any = true
			}
		}
	}
	return any
}

// replaceLost deletes pods that have lost their network.
func (qu *quiescence) replaceLost() {
	qu.deletePods(func(_ *machine, _ string, pod *corev1.Pod) bool { return qu.workload.dropped[string(pod.UID)] != nil })
}

// passDue performs actions that come due in a moment: a window may be about to open, or a turn to
// come, and a check at that very time does not count as a second check.
func (qu *quiescence) passDue() {
	for range 100 {
		next := qu.clock.next()
		if next.IsZero() || next.After(qu.clock.now.Add(time.Second)) {
			return
		}
		qu.clock.pass(next.Sub(qu.clock.now))
		qu.goOn()
	}
}

// goOn performs everything that needs no time to pass.
func (qu *quiescence) goOn() {
	for {
		a, any := qu.nextOngoing()
		if !any {
			return
		}
		qu.Do(a)
	}
}

// checkQuiet is rule 8: an operator that checks everything again makes no write that was not due
// since its last check, and that only once.
func (r *settledRules) checkQuiet(when string) {
	before := r.quiescence.lasting
	r.quiescence.reconcileAll()
	if r.quiescence.lasting != before {
		r.violate(8, "%s: operators wrote %d times at rest", when, r.quiescence.lasting-before)
	}
	before = r.quiescence.sent
	r.quiescence.reconcileAll()
	if r.quiescence.sent != before {
		r.violate(8, "%s: operators sent %d writes where they had just looked", when, r.quiescence.sent-before)
	}
}

// checkRestart is rule 8: a leader that is started again at rest writes nothing. Windows open and close on the minute.
func (r *settledRules) checkRestart(when string) {
	if len(r.Violations) > 0 || r.cfg.Settings.ParkBlocks && slices.ContainsFunc(r.machines, r.infersAnew) {
		return
	}
	qu := r.quiescence
	qu.passUntil(r.clock.now.Truncate(time.Minute).Add(time.Minute + time.Second))
	sent := qu.sent
	lasting := qu.lasting
	for _, o := range r.operators {
		if o.leads {
			o.crash()
			r.Do(Action{Verb: Start, Who: o.name})
			r.Do(Action{Verb: Lead, Who: o.name})
		}
	}
	qu.passUntil(r.clock.now.Add(50 * time.Second))
	if r.cfg.Skew == 0 && qu.sent != sent { // else its minute begins at another time
		r.violate(8, "%s: operators sent %d writes after a restart at rest", when, qu.sent-sent)
	}
	if rests := qu.goOnUntilRest(r.restWithin()); !rests || qu.lasting != lasting {
		r.violate(8, "%s: operators wrote %d times after a restart at rest", when, qu.lasting-lasting)
	}
}

// infersAnew reports whether a new process infers anew which CIDRs an agent has closed (docs/modes.md#draining): a pod
// waits, or the agent has closed one, and only the process before knew since when it is empty, or returned.
func (r *settledRules) infersAnew(m *machine) bool {
	return m.whole != nil && (m.lacksAddresses() || len(m.whole.Closed()) > 0)
}

// passUntil lets time pass until t, and performs what comes due.
func (qu *quiescence) passUntil(t time.Time) {
	for qu.goOn(); qu.clock.now.Before(t); qu.goOn() {
		next := qu.clock.next()
		if next.IsZero() || next.After(t) {
			next = t
		}
		qu.clock.pass(next.Sub(qu.clock.now))
	}
}

// reconcileAll makes everything be reconciled.
func (qu *quiescence) reconcileAll() {
	for _, o := range qu.operators {
		if !o.leads {
			continue
		}
		for _, m := range qu.machines {
			o.queues[nodes].Add(request(m.name))
		}
		for _, name := range qu.api.Keys(KindPool) {
			o.queues[pools].Add(request(name))
		}
		for _, name := range qu.api.Keys(KindBlock) {
			o.queues[blocks].Add(request(name))
		}
		if qu.sched != nil {
			o.queues[unscheduled].Add(request("pods"))
		}
		if qu.cfg.Asking != nil {
			for _, name := range qu.ciliumPools() {
				o.queues[ciliumPools].Add(request(name))
			}
			if qu.whole() {
				o.queues[keeper].Add(request("pods"))
			}
		}
	}
	qu.goOn()
}

// endFamilies ends the changes of IPv6. In every other world it serves again and some agents
// run it; in the others users are done with it.
func (qu *quiescence) endFamilies() {
	if !qu.cfg.SwitchesFamilies {
		return
	}
	qu.poolUsers.ipv6Over = !qu.gains() && qu.pick("people", 2, 2) == 1
	for _, pool := range qu.cfg.Pools {
		qu.endFamily(pool)
	}
	for _, m := range qu.machines {
		switch off := len(m.families) < len(qu.cfg.Families); {
		case qu.poolUsers.ipv6Over && !off:
			m.setFamilies(ipv4Alone)
		case !qu.poolUsers.ipv6Over && off && !m.off && qu.pick(m.name, 2, 2) == 0:
			m.setFamilies(allOfThem)
		}
	}
}

// endFamily makes the IPv6 ranges that a pool had at first serve, or drain.
func (qu *quiescence) endFamily(first *v1alpha1.PodIPPool) {
	stored, ok := qu.api.Get(KindPool, first.Name).(*v1alpha1.PodIPPool)
	if !ok || first.Spec.IPv6 == nil || qu.poolUsers.ipv6Over && stored.Spec.IPv6 == nil {
		return
	}
	pool := stored.DeepCopy()
	pool.Spec.IPv6 = first.Spec.IPv6.DeepCopy()
	for i := range pool.Spec.IPv6.CIDRs {
		if qu.poolUsers.ipv6Over {
			pool.Spec.IPv6.CIDRs[i].AllocationPolicy = v1alpha1.AllocationDrain
		}
	}
	qu.must(qu.api.Update(pool, false))
}

// replaceFirst comes to rest before agents start that have never run on their Nodes, and checks
// that these have first blocks of the pools that rule them.
func (qu *quiescence) replaceFirst() bool {
	if qu.cfg.Labels == nil || qu.whole() || qu.fixed() || qu.cfg.Settings.Shadow {
		return true
	}
	var fresh []*machine
	for _, m := range qu.machines {
		if m.held = qu.isFresh(m); m.held {
			fresh = append(fresh, m)
		}
	}
	if len(fresh) == 0 {
		return true
	}
	if !qu.Quiesce(qu.restWithin()) && len(qu.Violations) == 0 {
		qu.violate(9, "before agents start: no rest within %d actions", qu.restWithin())
	}
	for _, m := range fresh {
		if m.held = false; len(qu.Violations) == 0 && qu.isFresh(m) {
			qu.rules.checkFirst(m)
		}
	}
	return len(qu.Violations) == 0
}

// isFresh reports whether no trace of an agent was ever seen on a Node.
func (qu *quiescence) isFresh(m *machine) bool {
	cn, exists := qu.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
	return m.phase == down && qu.api.Get(KindNode, m.name) != nil && qu.api.Get(KindPod, m.podOf("agent")) == nil &&
		(!exists || isUnread(cn))
}

// endFaults lets operators run, and suspends faults until the returned function is called.
func (qu *quiescence) endFaults() (begin func()) {
	faults := qu.cfg.Faults
	qu.cfg.Faults = 0
	for _, o := range qu.operators {
		o.frozen = false
	}
	qu.clock.pass(0) // who has lost the lead sees it
	return func() { qu.cfg.Faults = faults }
}

// restartClosed restarts the agents that have closed a CIDR for which their node has a block
// again, while pods get no address, where no block is parked: an operator knows of closed blocks only
// there. It reports whether there were any.
func (qu *quiescence) restartClosed() bool {
	restarted := false
	if qu.cfg.Settings.ParkBlocks {
		return false
	}
	for _, m := range qu.machines {
		if m.whole != nil && m.lacksAddresses() && slices.ContainsFunc(m.whole.Closed(), func(cidr netip.Prefix) bool {
			b, ok := qu.api.Get(KindBlock, crd.BlockName(cidr)).(*v1alpha1.PodIPBlock)
			return ok && b.Spec.NodeName == m.name && b.Status.Closed == nil
		}) {
			m.crash()
			restarted = true
		}
	}
	return restarted
}

// restartRetired restarts the agents with retired addresses of their own, and reports whether there
// are any.
func (qu *quiescence) restartRetired() bool {
	any := false
	for _, m := range qu.machines {
		cn, ok := qu.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		if !ok || m.phase != serving {
			continue
		}
		for _, own := range m.routers() {
			if cn.Status.IPAM.ReleaseIPs[own.String()] == "released" {
				m.crash()
				any = true
				break
			}
		}
	}
	return any
}

// leaveShadow replaces operators in shadow mode by others that act.
func (qu *quiescence) leaveShadow() {
	for _, o := range qu.operators {
		if o.settings.Shadow {
			if o.up {
				o.crash()
			}
			o.settings = qu.cfg.Upgraded
		}
	}
}
