package main

import (
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// director draws the next action in a world: at random, and at times along a plot. It is a
// coroutine, so that a plot reads from top to bottom. Only the actions it draws are recorded and
// replayed.
type director struct {
	w *world.World
	r *rand.Rand
	s scenario

	yield func(world.Action) bool
	over  bool
	// held actions do not happen for now, such as the events of one watch.
	held []fits
}

// fits reports whether an action is wanted.
type fits func(world.Action) bool

// direct returns the endless sequence of a world's actions.
func direct(w *world.World, r *rand.Rand, s scenario) iter.Seq[world.Action] {
	return func(yield func(world.Action) bool) {
		d := &director{w: w, r: r, s: s, yield: yield}
		d.begin()
		for !d.over {
			d.wander(1 + r.IntN(50))
			if plot := s.profile.plot(); plot != nil {
				d.play(plot)
			}
			if s.traits.has(moves) && d.odds(.5) {
				d.play((*director).unreadable)
			}
			if s.traits.has(parking) && d.odds(.3) {
				d.play((*director).scattered)
			}
			if s.traits.has(families) && s.mode == ciliumnode.CRD && d.odds(.5) {
				d.switchOff()
			}
		}
	}
}

// begin performs the plots that need a young world.
func (d *director) begin() {
	if d.s.traits.has(labels) && d.s.mode == ciliumnode.CRD && d.odds(.8) {
		d.play((*director).firstRead)
	}
	if d.s.traits.has(pools) && d.odds(.5) {
		d.play((*director).picked)
	}
	if d.s.traits.has(scheduling) && d.odds(.5) {
		d.crowded()
	}
	if d.s.traits.has(moves) && d.odds(.5) {
		d.moveTogether()
	}
}

// plot is a sequence of unlucky events about the leader, the other operator, and two nodes.
type plot func(d *director, leader, other, node, elsewhere string)

// play performs a plot if an operator leads.
func (d *director) play(p plot) {
	if leader, other, ok := d.awake(); ok {
		node, elsewhere := d.nodes()
		p(d, leader, other, node, elsewhere)
		d.release()
	}
}

// wander performs n random actions.
func (d *director) wander(n int) {
	for range n {
		d.playOne(func(world.Action) bool { return true })
	}
}

// playOne performs one of the possible actions that fit, and reports whether there was one.
func (d *director) playOne(fit ...fits) bool {
	if d.over {
		return false
	}
	enabled := d.w.Enabled()
	weights := d.s.weights
	if slices.ContainsFunc(enabled, func(a world.Action) bool { return a.Verb == world.Thaw }) {
		weights = d.s.frozen
	}
	var some []world.Action
	for _, a := range enabled {
		if anyOf(fit, a) && !anyOf(d.held, a) {
			some = append(some, a)
		}
	}
	if len(some) == 0 {
		return false
	}
	d.over = !d.yield(choose(d.r, weights, some))
	return true
}

func anyOf(of []fits, a world.Action) bool {
	return slices.ContainsFunc(of, func(f fits) bool { return f(a) })
}

// drive performs up to n actions that fit, until none is left or the wanted state is reached.
func (d *director) drive(n int, wanted func() bool, fit ...fits) {
	for range n {
		if wanted() || !d.playOne(fit...) {
			return
		}
	}
}

func never() bool { return false }

// hold prevents actions that fit until release is called.
func (d *director) hold(fit fits) { d.held = append(d.held, fit) }

func (d *director) release() { d.held = nil }

func (d *director) odds(p float64) bool { return d.r.Float64() < p }

// action matches the actions of a verb by an actor (any, if empty) on an object with a prefix of its
// name.
func action(verb world.Verb, who, what string) fits {
	return func(a world.Action) bool {
		return a.Verb == verb && (who == "" || a.Who == who) && strings.HasPrefix(a.What, what)
	}
}

// works matches the steps of an operator without faults.
func works(operator string) fits {
	return func(a world.Action) bool {
		switch a.Verb {
		case world.Start:
			return a.Who == operator && a.What == ""
		case world.Lead, world.Watch, world.Tell, world.Reconcile, world.Call, world.Shown, world.Timeout:
			return a.Who == operator
		}
		return false
	}
}

// but matches some without others.
func but(some, others fits) fits {
	return func(a world.Action) bool { return some(a) && !others(a) }
}

func passes(a world.Action) bool { return a.Verb == world.Pass }

// lives matches the steps of a node without faults.
func lives(node string) fits {
	return func(a world.Action) bool {
		switch a.Verb {
		case world.AgentStart, world.AgentOpen, world.AgentRestore, world.AgentServe, world.AgentSee, world.AgentReport,
			world.AgentPod, world.AgentSync, world.NodeAgentStart, world.NodeAgentSee, world.NodeAgentRun, world.NodeAgentCall, world.PodAdd, world.PodStatus, world.PodDel, world.PodGone:
			return a.Who == node
		}
		return false
	}
}

// watches matches the events of an operator's watch of a kind (any, if empty), and their
// delivery to its handler.
func watches(operator, kind string) fits {
	return func(a world.Action) bool {
		return (a.Verb == world.Watch || a.Verb == world.Tell) && a.Who == operator && (kind == "" || a.What == kind)
	}
}
