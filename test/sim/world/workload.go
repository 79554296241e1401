package world

import (
	"strings"
	"time"
)

// workload is the agents, kubelets and their pods.
type workload struct {
	*World
	slots []string // of pods, on each node
	// dropped are pods, by UID, that were not restored; refused is when a pod's last CNI ADD
	// failed.
	dropped map[string]error
	refused map[string]time.Time
}

func (wl *workload) enableAgent(m *machine) {
	if m.kubelet.podDue() {
		wl.can(AgentPod, m.name, "")
	}
	if m.phase == down {
		if wl.api.Get(KindNode, m.name) != nil && !wl.clock.now.Before(m.again) && !m.held {
			wl.can(AgentStart, m.name, "")
		}
		return
	}
	wl.enableStartup(m)
	if m.nodeAgent == nil {
		wl.enableWatch(m)
	}
	if m.mayReport() && !m.silent {
		wl.can(AgentReport, m.name, "")
	}
	if m.phase == serving && wl.isMadeAgain(m) {
		wl.can(AgentSync, m.name, "")
	}
	if !wl.etcd.restored { // docs/operations.md: it would not restore pods outside its pool
		wl.canIf(AgentKill, AgentDies, m.name, "")
	}
	if m.phase < serving && m.store != nil {
		wl.canIf(AgentEmpty, AgentNothing, m.name, "")
	}
	wl.canIf(AgentMute, AgentMutes, m.name, "")
}

// enableWatch enables the events of an agent's watch.
func (wl *workload) enableWatch(m *machine) {
	if _, more := m.nextSeen(); !more || !m.reads() {
		return
	}
	wl.can(AgentSee, m.name, "")
	if m.whole != nil && m.seen != nil {
		wl.can(AgentAgain, m.name, "")
	}
}

// isMadeAgain reports whether the Node is another one than its agent knows.
func (wl *workload) isMadeAgain(m *machine) bool {
	node := wl.api.Get(KindNode, m.name)
	return node != nil && node.GetUID() != m.node
}

// enableStartup enables an agent's steps until it serves.
func (wl *workload) enableStartup(m *machine) {
	switch {
	case m.phase == waiting && m.mayOpen():
		wl.can(AgentOpen, m.name, "")
	case m.phase == opened:
		wl.can(AgentRestore, m.name, "")
	case m.phase == restored:
		wl.can(AgentServe, m.name, "")
	}
}

func (wl *workload) enablePods(m *machine) {
	for _, slot := range wl.slots {
		pod := m.kubelet.podObject(slot)
		if m.phase == serving && m.kubelet.wantsAdd(slot, pod) {
			wl.can(PodAdd, m.name, slot)
			if m.nodeAgent != nil {
				wl.canIf(AgentKill, AddKilled, m.name, slot)
			}
		}
		if m.phase == serving && m.kubelet.wantsDel(slot, pod) {
			wl.can(PodDel, m.name, slot)
		}
		if m.kubelet.wantsStatus(slot, pod) {
			wl.can(PodStatus, m.name, slot)
		}
		switch {
		case pod == nil:
			wl.enableNewPod(m, slot)
			continue
		case pod.DeletionTimestamp == nil:
			wl.can(PodDelete, m.name, slot)
			if m.endpoints[slot] != nil && !finished(pod) && (!wl.sandboxesGoFirst() || m.phase == serving) {
				wl.can(PodFinish, m.name, slot)
			}
		case m.endpoints[slot] == nil:
			wl.can(PodGone, m.name, slot)
		}
		wl.canIf(ForcedPods, PodForce, m.name, slot)
	}
}

// do performs an action of a machine's agents, its kubelet or its pods; false: it is of something else.
func (wl *workload) do(a Action, m *machine) bool {
	return wl.doAgent(a.Verb, m) || wl.doNodeAgent(a.Verb, m, a.What) || wl.doPod(a.Verb, m, a.What)
}

func (wl *workload) doAgent(verb Verb, m *machine) bool {
	switch verb {
	case AgentStart:
		m.boot()
	case AgentOpen:
		m.open()
	case AgentRestore:
		m.restore()
	case AgentServe:
		m.own()
	case AgentSee:
		m.observe()
	case AgentAgain:
		m.seesList(m.seen)
	case AgentReport:
		m.report()
	case AgentSync:
		m.discover()
	case AgentPod:
		m.kubelet.writePod()
	case AgentRollout:
		m.crash()
	case AgentDies:
		m.crash()
	case AgentNothing:
		m.reportNothing()
	case AgentMutes:
		m.silent = !m.silent
	default:
		return false
	}
	return true
}

func (wl *workload) doPod(verb Verb, m *machine, slot string) bool {
	switch verb {
	case PodNew:
		slot, asks, _ := strings.Cut(slot, "=")
		m.kubelet.newPod(slot, asks)
	case PodAdd:
		m.kubelet.add(slot)
	case AddKilled:
		m.kubelet.addKilled(slot)
	case PodStatus:
		m.kubelet.writeStatus(slot)
	case PodFinish:
		m.kubelet.finish(slot)
	case PodDelete:
		m.kubelet.deletePod(slot)
	case PodDel:
		m.kubelet.del(slot)
	case PodGone:
		m.kubelet.podGone(slot)
	case PodForce:
		m.kubelet.podGone(slot)
	default:
		return false
	}
	return true
}

// enableNewPod enables a pod for an empty slot, unless the scheduler fills it.
func (wl *workload) enableNewPod(m *machine, slot string) {
	if wl.api.Get(KindNode, m.name) == nil || wl.sched.binds(slot) {
		return
	}
	if wl.stays(slot) { // one at a time, anywhere
		if wl.api.Get(KindPod, m.kubelet.podKey(slot)) == nil {
			wl.can(PodNew, m.name, slot+"=stay")
		}
		return
	}
	wl.can(PodNew, m.name, slot)
	for _, asks := range wl.asks() {
		wl.can(PodNew, m.name, slot+"="+asks)
	}
}
