package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

const (
	// maxActions bounds a step of a scenario, and maxWait its simulated time: longer than all
	// faults and timers together.
	maxActions = 50_000
	maxWait    = 3 * time.Hour
	// downFor is the time that an operator stays down once another one has replaced it.
	downFor = 10 * time.Minute
	// oldFor is the time that an operator sees an old state: 15 s until it leads again, and some
	// more.
	oldFor = time.Minute
)

// driver plays a scenario: of all possible actions it takes the first one that needs no
// decision by users, and lets time pass if there is none. So up to its fault a scenario always
// takes the same course.
type driver struct {
	w     *world.World
	point point
	// counting is set once the preparation of the scenario is over.
	counting bool
	injected bool
	met      places

	down   map[string]time.Time // operators that stay down, until when
	stream *withheld
	paused *pausedWrite
	old    *oldCache
	block  string // that the scenario is about
	failed []string
}

// oldCache is an operator with watches that stop after their first lists.
type oldCache struct {
	who   string
	until time.Time
}

// withheld is a watch of an operator that pauses for a while.
type withheld struct {
	who, what string
	until     time.Time
	relist    bool
}

// pausedWrite is a write that an operator sends once it resumes.
type pausedWrite struct {
	call  world.Action
	until time.Time
}

// play runs the scenario of a point with its fault, or without a fault if it has no number.
func play(p point, trace func(string)) *driver {
	config := p.scenario.world()
	config.Trace = trace
	d := &driver{w: world.New(config), point: p, down: map[string]time.Time{}}
	defer d.w.Close()
	d.guard(func() {
		for i, step := range p.scenario.steps {
			d.counting = i >= p.scenario.from
			if !d.take(step) {
				return
			}
		}
		d.finish()
	})
	for _, v := range d.w.Violations {
		d.failed = append(d.failed, v.String())
	}
	if p.number > 0 && !d.injected && len(d.failed) == 0 {
		d.failed = append(d.failed, "the point was not reached: the scenario took another course")
	}
	return d
}

// guard turns a panic into a finding.
func (d *driver) guard(f func()) {
	defer func() {
		if thrown := recover(); thrown != nil {
			d.failed = append(d.failed, fmt.Sprintf("panic: %v", thrown))
		}
	}()
	f()
}

// findings names the faults of a run.
func (d *driver) findings() []string {
	var out []string
	for _, text := range d.failed {
		out = append(out, fmt.Sprintf("%s: %s", d.point, text))
	}
	return out
}

// take performs a step, and lets the world continue until its condition holds.
func (d *driver) take(s step) bool {
	if s.do != nil {
		s.do(d)
	}
	begin := d.w.Now()
	for range maxActions {
		if len(d.w.Violations) > 0 {
			return false
		}
		if d.next() {
			continue
		}
		if s.until(view{d.w, d.block}) {
			return true
		}
		if d.w.Now().Sub(begin) > maxWait {
			break
		}
		d.passTime()
	}
	d.failed = append(d.failed, fmt.Sprintf("%q did not come about within %s", s.name, d.w.Now().Sub(begin)))
	return false
}

// finish ends the fault, and checks the world at rest, with its pods and without.
func (d *driver) finish() {
	d.counting = false
	for range maxActions {
		if d.due().IsZero() {
			break
		}
		if !d.next() {
			d.passTime()
		}
	}
	d.w.Finish()
}

// next performs the first possible action that needs no decision. It returns false if there is
// none.
func (d *driver) next() bool {
	d.resume()
	for _, a := range d.w.Enabled() {
		if !goesOn(a) || d.withholds(a) || a.Verb == world.Start && d.w.Now().Before(d.down[a.Who]) {
			continue
		}
		d.step(a)
		return true
	}
	return false
}

// step performs an action, or injects the fault if this is its point.
func (d *driver) step(a world.Action) {
	at, ok := d.placeOf(a)
	if ok && d.counting {
		d.met.number[at]++
		if at == atWrite {
			d.met.versions = append(d.met.versions, d.w.API().Versions())
		}
		if d.point.number == d.met.number[at] && d.point.fault.at == at && !d.injected {
			d.injected = true
			if d.point.fault.inject(d, a) {
				return
			}
		}
	}
	d.w.Do(a)
}

func (d *driver) placeOf(a world.Action) (place, bool) {
	switch a.Verb {
	case world.Call:
		return atWrite, d.w.Writes(a)
	case world.Watch:
		return atEvent, d.w.Leads(a.Who)
	case world.AgentStart, world.AgentOpen, world.AgentRestore, world.AgentServe, world.AgentSee, world.AgentReport, world.PodAdd, world.PodDel:
		return atAgent, true
	}
	return 0, false
}

// do performs an action that must be possible.
func (d *driver) do(verb world.Verb, who, what string) {
	d.w.Do(world.Action{Verb: verb, Who: who, What: what})
}

// try performs an action of users if it is possible: after a fault it may not be, or not be
// needed.
func (d *driver) try(verb world.Verb, who, what string) {
	if a := (world.Action{Verb: verb, Who: who, What: what}); d.w.Can(a) {
		d.w.Do(a)
	}
}

// keepDown keeps an operator from starting again for a while.
func (d *driver) keepDown(who string) { d.down[who] = d.w.Now().Add(downFor) }

func (d *driver) withhold(a world.Action, howLong time.Duration, relist bool) {
	d.stream = &withheld{who: a.Who, what: a.What, until: d.w.Now().Add(howLong), relist: relist}
}

func (d *driver) withholds(a world.Action) bool {
	if a.Verb != world.Watch {
		return false
	}
	return d.stream != nil && a.Who == d.stream.who && a.What == d.stream.what ||
		d.old != nil && a.Who == d.old.who && d.w.Synced(a.Who, a.What)
}

// startOld starts an operator on lists that are some versions old. It leads once its old lease has
// expired, and sees no newer version for a while.
func (d *driver) startOld(who string, versionsAgo int) {
	d.do(world.Start, who, fmt.Sprintf("stale-%d", versionsAgo))
	d.old = &oldCache{who, d.w.Now().Add(oldFor)}
}

// pause pauses an operator with a write in hand.
func (d *driver) pause(a world.Action, howLong time.Duration) {
	d.do(world.CallFreezes, a.Who, a.What)
	d.paused = &pausedWrite{call: a, until: d.w.Now().Add(howLong)}
}

// resume ends a fault at its end time.
func (d *driver) resume() {
	if s := d.stream; s != nil && !d.w.Now().Before(s.until) {
		d.stream = nil
		if again := (world.Action{Verb: world.List, Who: s.who, What: s.what}); s.relist && d.w.Can(again) {
			d.w.Do(again)
		}
	}
	if d.old != nil && !d.w.Now().Before(d.old.until) {
		d.old = nil
	}
	if p := d.paused; p != nil && !d.w.Now().Before(p.until) {
		d.paused = nil
		if thaw := (world.Action{Verb: world.Thaw, Who: p.call.Who}); d.w.Can(thaw) {
			d.w.Do(thaw)
		}
		if d.w.Can(p.call) { // before its watches show it the changes
			d.w.Do(p.call)
		}
	}
}

// passTime lets time pass until something comes due, a minute at most.
func (d *driver) passTime() {
	now := d.w.Now()
	to := now.Add(time.Minute)
	for _, due := range []time.Time{d.w.Due(), d.due()} {
		if due.After(now) && due.Before(to) {
			to = due
		}
	}
	d.do(world.Pass, "time", to.Sub(now).String())
}

// due returns when the fault enters its next stage, or zero.
func (d *driver) due() time.Time {
	switch {
	case d.stream != nil:
		return d.stream.until
	case d.paused != nil:
		return d.paused.until
	case d.old != nil:
		return d.old.until
	}
	return time.Time{}
}

// goesOn reports whether an action needs no decision, by users or by the fault.
func goesOn(a world.Action) bool {
	return a.Verb.GoesOn() && a.Verb != world.Thaw && !strings.HasPrefix(a.What, "stale")
}
