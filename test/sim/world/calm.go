package world

import (
	"time"
)

// quietFor is how long no operator must write to be at rest: longer than all
// that it waits for.
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

// Calm ends all faults and lets everything go on until the operators are at rest. It
// returns false if they are not within limit actions.
func (w *World) Calm(limit int) bool {
	w.unpause()
	return w.goOnUntilRest(limit)
}

// goOnUntilRest is Calm with pools and nodes left as people have them.
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

// Finish brings the world to rest, checks what must hold there, sends all pods
// away, and checks again. Faults are over.
func (w *World) Finish() {
	w.leaveShadow()
	w.endFamilies()
	if len(w.Violations) > 0 || !w.endMove() || !w.endRenumbering() || !w.replaceFirst() {
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

// restWithin bounds how many actions it takes to come to rest: those who wait for
// a turn look again and again.
func (w *World) restWithin() int {
	return 20000 * int(w.quietFor()/(12*time.Minute))
}

// Settle lets everything go on, with pools as people have them, until the operators are at
// rest, and checks that they write nothing then. It returns false if a rule broke.
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
		w.replaceLost() // pods that hang bring blocks that agents return, without end (docs/architecture.md)
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

// dropRefused removes the pods without an address, and reports whether there are any, where
// their nodes never come to rest: for a pod of both families an agent in multi-pool mode
// requests a block of the family that has one, returns it as the other family has none, and
// requests it again at the next ADD (docs/architecture.md).
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

// replaceLost does away with pods that have lost their network.
func (w *World) replaceLost() {
	for _, m := range w.machines {
		for _, slot := range w.slots {
			if pod := m.podObject(slot); pod != nil && w.dropped[string(pod.UID)] != nil && pod.DeletionTimestamp == nil {
				m.deletePod(slot)
			}
		}
	}
}

// passDue lets happen what comes due in a moment: a window may be just about to
// open, or a turn to come, for which a look at that very time is no look again.
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

// goOn lets everything happen that needs no time.
func (w *World) goOn() {
	for {
		a, any := w.anyCalm()
		if !any {
			return
		}
		w.Do(a)
	}
}

// holdQuiet is rule 8: an operator that looks at everything again writes nothing,
// but what the hour has brought since it last looked; and that only once.
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

// lookAgain has everything looked at.
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
