package world

import (
	"time"
)

// quietFor is how long operators must not write to count as at rest: longer than any of their
// waits.
func (w *World) quietFor() time.Duration {
	const quiet = 12 * time.Minute
	if w.cfg.Maintenance != nil {
		return quiet + w.cfg.Maintenance.Longest
	}
	return quiet
}

// GoesOn reports whether an action continues without new user input or faults.
func (v Verb) GoesOn() bool {
	switch v {
	case Start, Lead, Watch, Tell, Reconcile, Call, Shown, Timeout, Thaw,
		AgentStart, AgentOpen, AgentRestore, AgentServe, AgentSee, AgentReport, AgentPod, AgentSync,
		PodAdd, PodStatus, PodDel, PodGone, Collect, CommandCall, AgentRollout, SchedulerSee, Schedule:
		return true
	}
	return false
}

// Calm ends all faults and continues until the operators are at rest. It returns false if that
// takes more than limit actions.
func (w *World) Calm(limit int) bool {
	w.unpause()
	return w.goOnUntilRest(limit)
}

// goOnUntilRest is Calm without changing pools or nodes.
func (w *World) goOnUntilRest(limit int) bool {
	faults := w.cfg.Faults
	w.cfg.Faults = 0
	defer func() { w.cfg.Faults = faults }()
	w.sched.faultsEnd()
	for _, o := range w.operators {
		o.frozen = false
	}
	w.pass(0) // who has lost the lead sees it
	w.wrote = w.now
	for range limit {
		if len(w.Violations) > 0 {
			return false
		}
		if a, any := w.anyCalm(); any {
			w.Do(a)
			continue
		}
		if w.now.Sub(w.wrote) > w.quietFor() {
			return true
		}
		d := time.Minute
		if next := w.next(); !next.IsZero() {
			d = min(d, next.Sub(w.now))
		}
		w.pass(d)
	}
	return false
}

// anyCalm takes turns, so that no actor starves.
func (w *World) anyCalm() (Action, bool) {
	var all []Action
	for _, a := range w.Enabled() {
		if a.Verb.GoesOn() && a.What != "stale" {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return Action{}, false
	}
	w.turn++
	return all[w.turn%len(all)], true
}

// Finish brings the world to rest, checks what must hold there, deletes all pods, and checks
// again. Faults are over.
func (w *World) Finish() {
	w.leaveShadow()
	w.endFamilies()
	if len(w.Violations) > 0 || !w.endMove() || !w.replaceFirst() {
		return
	}
	if w.rest("with pods") {
		w.sched.dropAll()
		for _, m := range w.machines {
			for _, slot := range w.slots {
				if pod := m.podObject(slot); pod != nil && pod.DeletionTimestamp == nil {
					m.deletePod(slot)
				}
			}
		}
		settled := w.rest("without pods")
		if settled && w.openAll() {
			settled = w.rest("once windows are open")
		}
		for range len(w.machines) + 1 { // those that waited for others have theirs retired then
			if settled && w.restartRetired() {
				settled = w.rest("once agents have restarted")
			}
		}
	}
}

// restWithin bounds the number of actions until rest: whoever waits for a turn asks again and
// again.
func (w *World) restWithin() int {
	return 20000 * int(w.quietFor()/(12*time.Minute))
}

// Settle continues until the operators are at rest, without changing pools, and checks that
// they then write nothing. It returns false if a rule was broken.
func (w *World) Settle(when string) bool {
	if limit := w.restWithin(); len(w.Violations) == 0 && !w.goOnUntilRest(limit) && len(w.Violations) == 0 {
		w.violate(9, "%s: no rest within %d actions", when, limit)
	}
	if len(w.Violations) == 0 {
		w.passDue()
		w.holdQuiet(when)
	}
	return len(w.Violations) == 0
}

func (w *World) rest(when string) bool {
	if len(w.Violations) > 0 {
		return false
	}
	if w.cfg.Settings.ParkBlocks {
		w.replaceLost() // pods that hang bring blocks that agents return, without end (docs/contributing/architecture.md)
	}
	limit := w.restWithin()
	calm := w.Calm(limit)
	if !calm && len(w.Violations) == 0 && w.dropRefused() {
		calm = w.Calm(limit)
	}
	if len(w.Violations) == 0 && w.restartClosed() {
		calm = w.Calm(limit)
	}
	if !calm && len(w.Violations) == 0 {
		w.violate(9, "%s: no rest within %d actions", when, limit)
	}
	w.replaceLost()
	if limit := w.restWithin(); !w.Calm(limit) && len(w.Violations) == 0 {
		w.violate(9, "%s: no rest within %d actions", when, limit)
	}
	if len(w.Violations) > 0 {
		return false
	}
	w.holdRest(when)
	w.passDue()
	w.holdQuiet(when)
	return len(w.Violations) == 0
}

// dropRefused removes the pods without an address, and reports whether there were any, where
// their nodes would never come to rest: for a pod of both families, an agent in multi-pool mode
// requests a block of the family that has one, returns it because the other family has none,
// and requests it again at the next ADD (docs/contributing/architecture.md).
func (w *World) dropRefused() (dropped bool) {
	if len(w.cfg.Families) < 2 || !w.whole() {
		return false
	}
	for _, m := range w.machines {
		for _, slot := range w.slots {
			if pod := m.podObject(slot); pod != nil && pod.DeletionTimestamp == nil && m.endpoints[slot] == nil {
				m.deletePod(slot)
				dropped = true
			}
		}
	}
	return dropped
}

// replaceLost deletes pods that have lost their network.
func (w *World) replaceLost() {
	for _, m := range w.machines {
		for _, slot := range w.slots {
			if pod := m.podObject(slot); pod != nil && w.dropped[string(pod.UID)] != nil && pod.DeletionTimestamp == nil {
				m.deletePod(slot)
			}
		}
	}
}

// passDue performs what comes due in a moment: a window may be about to open, or a turn to
// come, and a check at that very time does not count as a second check.
func (w *World) passDue() {
	for range 100 {
		next := w.next()
		if next.IsZero() || next.After(w.now.Add(time.Second)) {
			return
		}
		w.pass(next.Sub(w.now))
		w.goOn()
	}
}

// goOn performs everything that needs no time to pass.
func (w *World) goOn() {
	for {
		a, any := w.anyCalm()
		if !any {
			return
		}
		w.Do(a)
	}
}

// holdQuiet is rule 8: an operator that checks everything again writes nothing, except what the
// passing of time has made due since its last check, and that only once.
func (w *World) holdQuiet(when string) {
	before := w.lasting
	w.lookAgain()
	if w.lasting != before {
		w.violate(8, "%s: operators wrote %d times at rest", when, w.lasting-before)
	}
	before = w.sent
	w.lookAgain()
	if w.sent != before {
		w.violate(8, "%s: operators sent %d writes where they had just looked", when, w.sent-before)
	}
}

// lookAgain makes everything be reconciled.
func (w *World) lookAgain() {
	for _, o := range w.operators {
		if !o.leads {
			continue
		}
		for _, m := range w.machines {
			o.queues[nodes].Add(request(m.name))
		}
		for _, name := range w.api.Keys(KindPool) {
			o.queues[pools].Add(request(name))
		}
		for _, name := range w.api.Keys(KindBlock) {
			o.queues[blocks].Add(request(name))
		}
		if w.sched != nil {
			o.queues[unscheduled].Add(request("pods"))
		}
		if w.cfg.Asking != nil {
			for _, name := range w.ciliumPools() {
				o.queues[ciliumPools].Add(request(name))
			}
		}
	}
	w.goOn()
}
