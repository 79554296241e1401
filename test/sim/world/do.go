package world

import (
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func (w *World) doOperator(a Action, o *Operator) {
	switch a.Verb {
	case Start:
		o.start(w.versionsAgo(a.What))
	case Lead:
		w.lease.holder, w.lease.renewed, o.leads = o, w.now, true
	case Watch:
		w.watch(o, o.stream(a.What))
	case Tell:
		o.stream(a.What).tell()
		o.settle()
	case List:
		s := o.stream(a.What)
		s.list(w.api, len(w.api.history[s.kind]))
		w.Counts.Faults["compacted watch"]++
	case Reconcile, Early:
		c := controllerOf(a.What)
		o.reconcile(c, a.What[len(controllerName(c))+1:])
	case KillOperator:
		w.Counts.Faults["killed before a write"] += o.writing()
		w.Counts.Faults["killed"]++
		o.crash()
	case FreezeOp:
		w.Counts.Faults["frozen"]++
		o.frozen = true
	case Thaw:
		o.frozen = false
	case UpgradeOp:
		w.Counts.Faults["upgraded"]++
		o.crash()
		o.settings = w.cfg.Upgraded
	default:
		w.doCall(a.Verb, o, o.flight(a.What))
	}
}

// staleBy is how many versions of a kind a stale list may lack at most.
const staleBy = 5

// versionsAgo returns how old the first lists of a process are, for "stale" or "stale-N".
func (w *World) versionsAgo(what string) int {
	if what == "" {
		return 0
	}
	w.Counts.Faults["stale list"]++
	if n, err := strconv.Atoi(strings.TrimPrefix(what, "stale-")); err == nil {
		return n
	}
	return staleBy
}

func controllerOf(what string) int {
	for c := range controllers {
		if name := controllerName(c); len(what) > len(name) && what[:len(name)+1] == name+"/" {
			return c
		}
	}
	panic("no such controller: " + what)
}

// writing returns how many writes the process is about to send.
func (o *Operator) writing() int {
	n := 0
	for _, f := range o.flights {
		if f.pending.writes() {
			n++
		}
	}
	return n
}

func (w *World) doCall(verb Verb, o *Operator, f *flight) {
	switch verb {
	case Call, Shown:
	case Timeout:
		w.Counts.Faults["not shown in time"]++
		f.pending.fate = failed
	case CallFails:
		w.Counts.Faults["call failed"]++
		f.pending.fate = failed
	case CallThrottle:
		w.Counts.Faults["call refused"]++
		f.pending.fate = throttled
	case CallUnheard:
		w.Counts.Faults["answer lost"]++
		f.pending.fate = unheard
	case CallKills:
		w.Counts.Faults["killed after a write"]++
		o.current = f
		_ = o.carryOut(f.pending)
		o.crash()
		return
	case CallFreezes:
		w.Counts.Faults["frozen with a write in hand"]++
		o.frozen = true
		return
	}
	if o.leads && w.lease.holder != o && f.pending.writes() {
		w.Counts.Faults["write without the lease"]++
	}
	o.resume(f)
}

// carryOut performs a call to the API server on behalf of the operator.
func (o *Operator) carryOut(c *call) error {
	if c.writes() {
		o.w.sent++
		o.w.Counts.Ops["write "+c.kind.String()]++
		if !c.conditional {
			o.w.violate(4, "%s: %s is not conditional", o.name, c)
			if o.w.refinement != nil {
				o.w.refinement.unbound(c)
			}
		}
		o.holdOwnWrite(c)
	}
	o.w.writer = o
	err := c.do()
	o.w.writer = nil
	if err == nil {
		o.noteHeard(c)
	}
	o.takeAnswer(c, err)
	if err != nil {
		o.w.tracef("%s %s: %v", o.name, c, err)
		o.w.Counts.Ops["answered "+reasonOf(err)]++
		if c.writes() && o.w.lease.holder != o && apierrors.IsConflict(err) {
			o.w.Counts.Faults["old write refused"]++
		}
	}
	return err
}

// takeAnswer records what a response tells the reconcile in progress.
func (o *Operator) takeAnswer(c *call, err error) {
	if o.w.refinement != nil && c.verb == "get" && err == nil {
		o.w.refinement.reads(o, o.current, c)
	}
	if c.looks() && err == nil {
		o.current.look(o, c.key)
	}
	if c.verb == "create" && c.kind == KindBlock && apierrors.IsAlreadyExists(err) {
		o.current.found = c.key
	}
	if c.verb == "get" && c.kind == KindCiliumNode && c.key == o.current.name {
		o.current.foundNone = apierrors.IsNotFound(err)
	}
}

func (w *World) doAgent(verb Verb, m *machine) bool {
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
	case AgentReport:
		m.report()
	case AgentSync:
		w.Counts.Did["Node back under its agent"]++
		m.discover()
	case AgentPod:
		m.writePod()
	case AgentRollout:
		w.Counts.Did["agent moved"]++
		m.crash()
	case AgentDies:
		w.Counts.Faults["agent died"]++
		m.crash()
	case AgentNothing:
		w.Counts.Faults["agent reported nothing"]++
		m.reportNothing()
	case AgentMutes:
		w.Counts.Faults["agent muted"]++
		m.silent = !m.silent
	default:
		return false
	}
	return true
}

func (w *World) doPod(verb Verb, m *machine, slot string) bool {
	switch verb {
	case PodNew:
		slot, asks, _ := strings.Cut(slot, "=")
		m.newPod(slot, asks)
	case PodAdd:
		m.add(slot)
	case PodStatus:
		m.writeStatus(slot)
	case PodFinish:
		m.finish(slot)
	case PodDelete:
		m.deletePod(slot)
	case PodDel:
		m.del(slot)
	case PodGone:
		m.podGone(slot)
	case PodForce:
		w.Counts.Faults["pod removed by force"]++
		m.podGone(slot)
	default:
		return false
	}
	return true
}

func (w *World) doTime(a Action) {
	if a.Verb == JumpFar {
		w.Counts.Faults["clock jumped"]++
		w.kubeletsWrite(duration(a.What))
		w.now = w.now.Add(duration(a.What)) // no lease is renewed meanwhile
		return
	}
	d := w.next().Sub(w.now)
	if a.What != "next" {
		d = duration(a.What)
	}
	w.kubeletsWrite(d)
	w.pass(d)
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

// describe adds what the name of an action leaves out.
func (w *World) describe(a Action) string {
	if a.Verb != Migrate && a.Who == people && w.mover.busy() {
		return a.String() + ": " + w.mover.pending.String()
	}
	o := w.operator(a.Who)
	if o == nil || !o.up {
		return a.String()
	}
	if f := o.flight(a.What); f != nil && a.Verb != Reconcile {
		return a.String() + ": " + f.pending.String()
	}
	return a.String()
}

// show brings all watches up to date.
func (w *World) show() {
	for _, o := range w.operators {
		for _, s := range o.streams {
			for o.running() {
				if _, more := s.next(w.api); !more {
					break
				}
				w.watch(o, s)
			}
		}
	}
	for _, m := range w.machines {
		for m.reads() {
			if _, more := m.nextSeen(); !more {
				break
			}
			m.observe()
		}
	}
	w.sched.seeAll()
}

func (w *World) watch(o *Operator, s *stream) {
	s.take(w.api)
	if !w.cfg.Faults.Has(HandlerLag) {
		for len(s.undelivered) > 0 {
			s.tell()
		}
	}
	o.settle()
}
