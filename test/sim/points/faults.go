package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// place is where a fault can be injected.
type place int

const (
	atWrite place = iota // a write of an operator
	atEvent              // an event that a watch shows an operator
	atAgent              // a step of an agent
	kindsOfPlaces
)

// places are the places that a scenario passed.
type places struct {
	number [kindsOfPlaces]int
	// versions is the number of versions at each write, of the kind that had the most.
	versions []int
}

// fault is one kind of fault at a place.
type fault struct {
	name, about string
	at          place
	// inject replaces the action a, and reports whether it has performed a or made it
	// impossible. Otherwise a follows.
	inject func(d *driver, a world.Action) bool
}

// The delays of events, in simulated time: shorter than most timers of the operator, and
// longer than all of them.
const (
	shortDelay = 20 * time.Second
	longDelay  = 15 * time.Minute
)

func faults() []fault {
	return slices.Concat(faultsAtWrites(), []fault{
		{"event-late", "the event is shown 20 s late, after those of other watches", atEvent, func(d *driver, a world.Action) bool {
			d.withhold(a, shortDelay, false)
			return true
		}},
		{"watch-stalled", "the watch shows nothing for 15 minutes, from the event on", atEvent, func(d *driver, a world.Action) bool {
			d.withhold(a, longDelay, false)
			return true
		}},
		{"events-missed", "the same, and then begins anew with a list, without what was between", atEvent, func(d *driver, a world.Action) bool {
			d.withhold(a, longDelay, true)
			return true
		}},
		{"agent-killed", "the agent dies after the step", atAgent, func(d *driver, a world.Action) bool {
			d.w.Do(a)
			if kill := (world.Action{Verb: world.AgentDies, Who: a.Who}); d.w.Can(kill) {
				d.w.Do(kill)
			}
			return true
		}},
	})
}

// faultsAtWrites returns the faults at an operator's writes.
func faultsAtWrites() []fault {
	all := []fault{
		{"killed-before", "the operator dies before the write, and starts again", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.KillOperator, a.Who, "")
			return true
		}},
		{"killed-after", "the write is carried out, the operator dies, and starts again", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.CallKills, a.Who, a.What)
			return true
		}},
		{"replaced-before", "the operator dies before the write, and another one takes over", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.KillOperator, a.Who, "")
			d.keepDown(a.Who)
			return true
		}},
		{"replaced-after", "the write is carried out, the operator dies, and another one takes over", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.CallKills, a.Who, a.What)
			d.keepDown(a.Who)
			return true
		}},
		{"response-lost", "the write is carried out, and its response is lost", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.CallUnheard, a.Who, a.What)
			return true
		}},
		{"not-sent", "the connection fails before the write", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.CallFails, a.Who, a.What)
			return true
		}},
		{"throttled", "the API server refuses the write for now", atWrite, func(d *driver, a world.Action) bool {
			d.do(world.CallThrottle, a.Who, a.What)
			return true
		}},
	}
	for _, after := range []time.Duration{shortDelay, 3 * time.Minute, longDelay} {
		all = append(all, fault{
			"paused-" + strconv.Itoa(int(after.Seconds())) + "s",
			fmt.Sprintf("the operator stops with the write in hand, another one leads, and the write arrives after %s", after),
			atWrite, func(d *driver, a world.Action) bool {
				d.pause(a, after)
				return true
			},
		})
	}
	return append(all, fault{
		name: fromOldCache, at: atWrite,
		about: "the write is carried out, the operator dies, and for a minute it then sees each kind of objects as it was N versions ago, for every N that there is",
		inject: func(d *driver, a world.Action) bool {
			d.do(world.CallKills, a.Who, a.What)
			d.startOld(a.Who, d.point.ago)
			return true
		},
	})
}

const fromOldCache = "old-cache"

// isOldCache reports whether the fault is injected once for each number of versions that a
// cache can lack, and named with it.
func (f fault) isOldCache() bool { return f.name == fromOldCache }

// point is one fault at one place of a scenario.
type point struct {
	scenario scenario
	fault    fault
	// number counts the places of the fault's kind, from 1; 0: no fault.
	number int
	// ago is the number of versions that an old cache lacks.
	ago int
}

func (p point) faultName() string {
	if p.fault.isOldCache() {
		return p.fault.name + "-" + strconv.Itoa(p.ago)
	}
	return p.fault.name
}

func (p point) String() string {
	if p.number == 0 {
		return p.scenario.name + " without a fault"
	}
	return fmt.Sprintf("%s/%s/%d", p.scenario.name, p.faultName(), p.number)
}

// parsePoint finds a point by its name.
func parsePoint(name string) (point, error) {
	of, _, _ := strings.Cut(name, "/")
	for _, s := range scenarios() {
		if s.name != of {
			continue
		}
		for _, p := range pointsOf(s, faults(), play(point{scenario: s}, nil).met) {
			if p.String() == name {
				return p, nil
			}
		}
	}
	return point{}, fmt.Errorf("no point %q: a run is named SCENARIO/FAULT/POINT, as in a finding", name)
}

// pointsOf returns all points of a scenario, given the places it passes without a fault.
func pointsOf(s scenario, some []fault, met places) []point {
	var out []point
	for _, f := range some {
		for number := 1; number <= met.number[f.at]; number++ {
			if !f.isOldCache() {
				out = append(out, point{scenario: s, fault: f, number: number})
				continue
			}
			for ago := 1; ago <= met.versions[number-1]; ago++ {
				out = append(out, point{s, f, number, ago})
			}
		}
	}
	return out
}
