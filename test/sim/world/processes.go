package world

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
)

// processes run the operators, one of which has the Lease.
type processes struct {
	*World
	lease struct {
		holder  *Operator
		renewed time.Time
	}
}

func (ps *processes) enableOperator(o *Operator) {
	switch {
	case !o.up:
		ps.can(Start, o.name, "")
		if len(ps.rules.torn) == 0 {
			ps.canIf(StaleList, Start, o.name, "stale")
		}
		return
	case o.frozen:
		ps.can(Thaw, o.name, "")
		return
	}
	if !o.leads && (ps.lease.holder == nil || !ps.clock.now.Before(ps.lease.renewed.Add(leaseFor))) {
		ps.can(Lead, o.name, "")
	}
	ps.canIf(Kill, KillOperator, o.name, "")
	ps.canIf(Freeze, FreezeOp, o.name, "")
	if ps.cfg.Faults.Has(Upgrade) || o.settings.Shadow {
		ps.can(UpgradeOp, o.name, "")
	}
	ps.enableStreams(o)
	switch {
	case o.leads && o.claimable():
		ps.enableReconciles(o)
	case o.leads && o.busy(nodes) < o.workers(nodes):
		for _, name := range o.queues[nodes].ready() {
			ps.can(Early, o.name, controllerName(nodes)+"/"+name)
		}
	}
	for _, f := range o.flights {
		ps.enableCall(o, f)
	}
}

func (ps *processes) enableStreams(o *Operator) {
	for _, s := range o.streams {
		if _, more := s.next(ps.api); more {
			ps.can(Watch, o.name, s.name)
		}
		if len(s.undelivered) > 0 {
			ps.can(Tell, o.name, s.name)
		}
		if s.synced() {
			ps.canIf(Relist, List, o.name, s.name)
		}
	}
}

func (ps *processes) enableReconciles(o *Operator) {
	for c, q := range o.queues {
		if q.due(); o.busy(c) >= o.workers(c) || !o.mayDecide(c) {
			continue
		}
		for _, name := range q.ready() {
			ps.can(Reconcile, o.name, controllerName(c)+"/"+name)
		}
	}
}

// mayDecide reports whether reconciles of a controller wait for nothing.
func (o *Operator) mayDecide(controller int) bool {
	return o.begun || o.claimable() && controller == nodes
}

// claimable reports whether a process has read everything but pods.
func (o *Operator) claimable() bool {
	pods := o.stream(KindPod.String())
	return pods != nil && !pods.later
}

func (ps *processes) enableCall(o *Operator, f *flight) {
	c, what := f.pending, f.String()
	if c.verb == "wait" {
		switch {
		case o.shown(c.shown):
			ps.can(Shown, o.name, what)
		case !ps.clock.now.Before(f.since.Add(shownWithin)):
			ps.can(Timeout, o.name, what)
		}
		return
	}
	ps.can(Call, o.name, what)
	ps.canIf(Fail, CallFails, o.name, what)
	if !c.writes() {
		return
	}
	ps.canIf(Fail, CallThrottle, o.name, what)
	ps.canIf(Unheard, CallUnheard, o.name, what)
	ps.canIf(KillAfterWrite, CallKills, o.name, what)
	ps.canIf(Freeze, CallFreezes, o.name, what)
}

// settings returns those of the leading operator.
func (ps *processes) settings() config.Settings {
	if h := ps.lease.holder; h != nil {
		return h.settings
	}
	return ps.cfg.Settings
}

func (ps *processes) doOperator(a Action, o *Operator) {
	switch a.Verb {
	case Start:
		o.start(ps.versionsAgo(a.What))
	case Lead:
		ps.lease.holder, ps.lease.renewed, o.leads = o, ps.clock.now, true
		ps.etcd.lead(o)
	case Watch:
		ps.watch(o, o.stream(a.What))
	case Tell:
		o.stream(a.What).tell()
		o.settle()
	case List:
		s := o.stream(a.What)
		s.list(ps.api, len(ps.api.history[s.kind]))
	case Reconcile, Early:
		c := controllerOf(a.What)
		o.reconcile(c, a.What[len(controllerName(c))+1:])
	case KillOperator:
		o.crash()
	case FreezeOp:
		o.frozen = true
	case Thaw:
		o.frozen = false
	case UpgradeOp:
		o.crash()
		o.settings = ps.cfg.Upgraded
	default:
		ps.doCall(a.Verb, o, o.flight(a.What))
	}
}

// versionsAgo returns how old the first lists of a process are, for "stale" or "stale-N".
func (ps *processes) versionsAgo(what string) int {
	if what == "" {
		return 0
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(what, "stale-")); err == nil {
		return n
	}
	return staleBy
}

func (ps *processes) doCall(verb Verb, o *Operator, f *flight) {
	switch verb {
	case Call, Shown:
	case Timeout, CallFails:
		f.pending.fate = failed
	case CallThrottle:
		f.pending.fate = throttled
	case CallUnheard:
		f.pending.fate = unheard
	case CallKills:
		o.current = f
		_ = o.carryOut(f.pending)
		o.crash()
		return
	case CallFreezes:
		o.frozen = true
		return
	}
	o.resume(f)
}

// show brings all watches up to date.
func (ps *processes) show() {
	for _, o := range ps.operators {
		for _, s := range o.streams {
			for o.running() {
				if _, more := s.next(ps.api); !more {
					break
				}
				ps.watch(o, s)
			}
		}
	}
	for _, m := range ps.machines {
		if m.reads() {
			m.observeAll()
		}
		if m.nodeAgent.up() {
			m.nodeAgent.seesAll()
		}
	}
	ps.sched.seeAll()
}

func (ps *processes) watch(o *Operator, s *stream) {
	s.take(ps.api)
	if !ps.cfg.Faults.Has(HandlerLag) {
		for len(s.undelivered) > 0 {
			s.tell()
		}
	}
	o.settle()
}

// logTo returns the context of a reconcile.
func (ps *processes) logTo(o *Operator, f *flight) context.Context {
	if ps.trace == nil {
		return ps.quiet
	}
	who := fmt.Sprintf("%s %s: ", o.name, f)
	return log.IntoContext(context.Background(), traceLogger(func(line string) { ps.tracef("%s%s", who, line) }))
}

// shownToAll reports whether every running operator has received all versions of a kind.
func (ps *processes) shownToAll(kind Kind) bool {
	for _, o := range ps.operators {
		for _, s := range o.streams {
			if _, more := s.next(ps.api); o.up && s.kind == kind && (more || s.later || len(s.undelivered) > 0) {
				return false
			}
		}
	}
	return true
}

// describe adds the call to the name of an action.
func (w *World) describe(a Action) string {
	if a.Verb != Migrate && a.Who == people && w.migration.mover.busy() {
		return a.String() + ": " + w.migration.mover.pending.String()
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

// staleBy is the largest number of versions that a stale list may lack.
const staleBy = 5

func controllerOf(what string) int {
	for c := range controllers {
		if name := controllerName(c); len(what) > len(name) && what[:len(name)+1] == name+"/" {
			return c
		}
	}
	panic("no such controller: " + what)
}
