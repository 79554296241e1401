package world

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// shownWithin bounds an operator's wait for the watch to deliver its own claims, as in
// pkg/controller.
const shownWithin = 5 * time.Second

// Action is something that can happen next.
type Action struct {
	Verb Verb
	// Who acts, or is affected: an operator, a node, "people" or "time".
	Who string
	// The object of the action, if necessary.
	What string
}

// String returns the notation that ParseAction reads.
func (a Action) String() string {
	if a.What == "" {
		return string(a.Verb) + " " + a.Who
	}
	return string(a.Verb) + " " + a.Who + " " + a.What
}

// ParseAction reads an action from its String.
func ParseAction(s string) (Action, error) {
	parts := strings.Fields(s)
	if len(parts) < 2 || len(parts) > 3 {
		return Action{}, fmt.Errorf("an action is of the form \"verb who [what]\", not %q", s)
	}
	a := Action{Verb: Verb(parts[0]), Who: parts[1]}
	if len(parts) == 3 {
		a.What = parts[2]
	}
	return a, nil
}

// Verb is a kind of action.
type Verb string

// Actions of operators, and outcomes of their calls.
const (
	Start     Verb = "start"     // a process starts
	Lead      Verb = "lead"      // it takes the lease
	Watch     Verb = "watch"     // a watch shows the next version
	Tell      Verb = "tell"      // a handler gets the next version that its cache has
	Reconcile Verb = "reconcile" // a reconcile begins, up to its first call
	Early     Verb = "early"     // a reconcile of a node begins before everything has been read
	Call      Verb = "call"      // a call goes through, and the reconcile goes on to the next
	Shown     Verb = "shown"     // a block waited for has been shown, and the reconcile goes on
	Timeout   Verb = "timeout"   // it has not been shown in time

	CallFails    Verb = "call-fails"
	CallThrottle Verb = "call-throttled"
	CallUnheard  Verb = "call-unheard"
	CallKills    Verb = "call-kills"
	CallFreezes  Verb = "call-freezes" // the process stops with this write in hand
	KillOperator Verb = "kill"
	List         Verb = "list"
	FreezeOp     Verb = "freeze"
	Thaw         Verb = "thaw"
	UpgradeOp    Verb = "upgrade"
)

// Actions of agents and kubelets.
const (
	AgentStart   Verb = "agent-start"
	AgentOpen    Verb = "agent-open"
	AgentRestore Verb = "agent-restore"
	AgentServe   Verb = "agent-serve"
	AgentSee     Verb = "agent-see"
	AgentAgain   Verb = "agent-sees-again" // the version that it saw last
	AgentReport  Verb = "agent-report"
	AgentPod     Verb = "agent-pod"
	AgentSync    Verb = "agent-sync"
	AgentDies    Verb = "agent-dies"
	AgentNothing Verb = "agent-reports-nothing"
	AgentMutes   Verb = "agent-mutes"
	AgentRollout Verb = "agent-rollout" // it restarts, as its configuration has changed

	AgentFamilies Verb = "agent-families" // it restarts with other families

	NodeAgentStart   Verb = "node-agent-start" // this project's
	NodeAgentSee     Verb = "node-agent-sees"
	NodeAgentRun     Verb = "node-agent-reconcile"
	NodeAgentCall    Verb = "node-agent-call"
	NodeAgentFails   Verb = "node-agent-call-fails"
	NodeAgentUnheard Verb = "node-agent-call-unheard"
	NodeAgentKills   Verb = "node-agent-call-kills"
	NodeAgentDies    Verb = "node-agent-dies"
	Reboot           Verb = "reboot"
	DiskLost         Verb = "disk-lost"
	StoreLost        Verb = "store-lost"

	PodNew    Verb = "pod-new"
	PodAdd    Verb = "pod-add"
	AddKilled Verb = "pod-add-killed" // the runtime is, once the plugin has assigned addresses
	PodStatus Verb = "pod-status"
	PodFinish Verb = "pod-finish"
	PodDelete Verb = "pod-delete"
	PodDel    Verb = "pod-del"
	PodGone   Verb = "pod-gone"
	PodForce  Verb = "pod-force"

	SandboxDel Verb = "sandbox-del" // of one that is gone
)

// Actions of the scheduler, and of those who create pods for it.
const (
	SchedulerSee Verb = "scheduler-see"
	Schedule     Verb = "schedule"
	PodWait      Verb = "pod-wait"
	PodDrop      Verb = "pod-drop" // a pod is deleted that is not bound
)

// Time, and the garbage collector.
const (
	Pass    Verb = "pass"
	JumpFar Verb = "jump"
	Collect Verb = "collect"
)

// Actions of users who migrate nodes, and outcomes of their command.
const (
	Configure      Verb = "configure"
	Migrate        Verb = "migrate"
	CommandCall    Verb = "command-call"
	CommandFails   Verb = "command-call-fails"
	CommandUnheard Verb = "command-call-unheard"
	CommandKills   Verb = "command-call-kills"
	CommandDies    Verb = "command-dies"
)

// Actions of users.
const (
	NodeDelete  Verb = "node-delete"
	NodeOff     Verb = "node-off"
	NodeMake    Verb = "node-make"
	CNDelete    Verb = "ciliumnode-delete"
	CNEdit      Verb = "ciliumnode-edit"
	PoolEdit    Verb = "pool-edit"
	BlockDelete Verb = "block-delete"
	BlockMake   Verb = "block-make"
	PinMake     Verb = "pin-make"
	PinDelete   Verb = "pin-delete"
	BlockTear   Verb = "block-tear"
	BlockStrip  Verb = "block-strip"
	BlockStatus Verb = "block-status"
	Cordon      Verb = "cordon"
	NodeLabel   Verb = "node-label"
	NodeAddress Verb = "node-address"
	ServiceEdit Verb = "service-edit"
	Touch       Verb = "touch"
	BackupTake  Verb = "backup-take"
	BackupAgain Verb = "backup-restore"
	EtcdCopy    Verb = "etcd-copy"
	EtcdBack    Verb = "etcd-restore"

	CiliumPoolEdit Verb = "ciliumpool-edit"
	NamespaceEdit  Verb = "namespace-edit"
)

// Enabled returns the actions that are possible now, in a fixed order. The slice is valid until
// the next call.
func (w *World) Enabled() []Action {
	w.enabled = w.enabled[:0]
	for _, o := range w.operators {
		w.processes.enableOperator(o)
	}
	for _, m := range w.machines {
		if !m.off {
			w.workload.enableNodeAgent(m)
			w.workload.enableAgent(m)
			w.migration.enableMove(m)
			w.workload.enableFamilies(m)
			w.workload.enablePods(m)
		}
		w.users.enableCollect(m)
	}
	w.sched.enable()
	w.clock.enableTime()
	w.migration.enableMover()
	w.users.enablePeople()
	w.etcd.enable()
	return w.enabled
}

func (w *World) can(verb Verb, who, what string) {
	w.enabled = append(w.enabled, Action{verb, who, what})
}

func (w *World) canIf(fault Faults, verb Verb, who, what string) {
	if w.cfg.Faults.Has(fault) {
		w.can(verb, who, what)
	}
}

// aDay is the furthest that time advances to the next thing that comes due: a window may open
// only in years, which for a world is never.
const aDay = 24 * time.Hour

// Can reports whether an action is possible now.
func (w *World) Can(a Action) bool { return slices.Contains(w.Enabled(), a) }

func (w *World) count(a Action) {
	w.Counts.Ops[string(a.Verb)]++
	w.Counts.Steps++
	if !w.fixed() && !w.delegated() {
		w.Counts.Comparable++
	}
}

// Do performs an enabled action.
func (w *World) Do(a Action) {
	if w.trace != nil {
		w.tracef("%s %s", w.clock.now.Format("15:04:05.0"), w.describe(a))
	}
	w.count(a)
	if w.refinement != nil {
		w.refinement.before(a)
	}
	switch o, m := w.operator(a.Who), w.machine(a.Who); {
	case o != nil:
		w.processes.doOperator(a, o)
	case m != nil && w.workload.do(a, m):
	case a.Who == schedulerName:
		w.sched.do(a.Verb, a.What)
	case a.Who == people && w.migration.mover != nil && w.migration.doMover(a.Verb, a.What):
	case a.Who == "time":
		w.clock.doTime(a)
	default:
		w.users.doPeople(a)
	}
	if w.refinement != nil {
		w.Counts.Modelled += w.refinement.share()
		w.refinement.changed()
	}
	if !w.cfg.Faults.Has(Lag) {
		w.processes.show()
	}
	for _, o := range w.operators {
		o.learn()
	}
}
