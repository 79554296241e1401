package main

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// outcome is the result of a seed.
type outcome struct {
	origin
	faults     world.Faults
	actions    []world.Action
	violations []world.Violation
	counts     world.Counts
	simulated  time.Duration
}

// actionsUntilRest is the number of actions after the faults in a world without rules of rest.
const actionsUntilRest = 1000

// play performs steps random actions. Then faults end and everything must settle.
func play(o origin, steps int, mask world.Faults, trace func(string)) outcome {
	s := draw(o)
	r := rand.New(rand.NewPCG(o.seed, 2))
	var next func() (world.Action, bool)
	stop := func() {}
	defer func() { stop() }()
	return inWorld(o, s.config.Faults&mask, trace, func(w *world.World) (world.Action, bool) {
		if next == nil {
			next, stop = iter.Pull(direct(w, r, s))
		}
		if steps--; steps < 0 {
			return world.Action{}, false
		}
		return next()
	})
}

// inWorld creates a world and performs the actions that next returns until a rule is broken or
// there are no more; then it brings the world to rest.
func inWorld(o origin, faults world.Faults, trace func(string), next func(*world.World) (world.Action, bool)) (out outcome) {
	config := draw(o).config
	config.Trace, config.Faults = trace, faults
	if !faults.Has(world.Skew) {
		config.Skew = 0
	}
	w := world.New(config)
	begun := w.Now()
	out = outcome{origin: o, faults: faults}
	defer func() {
		if thrown := recover(); thrown != nil {
			out.violations = append(slices.Clone(w.Violations), world.Violation{Text: fmt.Sprintf("panic: %v", thrown)})
			if trace != nil {
				trace(string(debug.Stack()))
			}
		}
	}()
	for len(w.Violations) == 0 {
		a, more := next(w)
		if !more {
			break
		}
		out.actions = append(out.actions, a)
		w.Do(a)
	}
	if o.modelAlone { // rest is no rule of it
		w.Quiesce(actionsUntilRest)
	} else {
		w.Finish()
	}
	w.Close()
	out.violations, out.counts, out.simulated = w.Violations, w.Counts, w.Now().Sub(begun)
	return out
}

// choose picks a verb by weight, then one of its actions.
func choose(r *rand.Rand, weights map[world.Verb]float64, enabled []world.Action) world.Action {
	total := 0.0
	var last world.Verb
	for _, a := range enabled { // those of a verb may lie apart: each part counts
		if a.Verb != last {
			total += weights[a.Verb]
			last = a.Verb
		}
	}
	at := r.Float64() * total
	last = ""
	for i, a := range enabled {
		if a.Verb == last {
			continue
		}
		last = a.Verb
		if at -= weights[a.Verb]; at >= 0 {
			continue
		}
		n := 1
		for i+n < len(enabled) && enabled[i+n].Verb == a.Verb {
			n++
		}
		return enabled[i+r.IntN(n)]
	}
	return enabled[len(enabled)-1]
}

// origin determines a world: the same origin and the same actions give the same world.
type origin struct {
	seed    uint64
	mode    ciliumnode.Mode
	profile profile
	traits  traits
	// modelAlone: only the model of the address protocol judges.
	modelAlone bool
}

// fit removes the traits that a profile, or another trait, cannot use.
func (o origin) fit() origin {
	if o.profile.traitless() {
		if o.traits = 0; o.mode == ciliumnode.Kubernetes {
			o.mode = ciliumnode.CRD
		}
	}
	switch {
	case o.traits.has(scheduling):
		o.traits &= withScheduling
	case o.traits.has(adoption):
		o.traits &^= families
	case o.traits.has(families) && o.mode == ciliumnode.MultiPool:
		o.traits &^= pools | parking
	}
	if o.traits&^pools != restores {
		o.traits &^= restores
	}
	if o.traits&(adoption|pools|scheduling) == 0 {
		o.traits &^= dual
	}
	return o
}

func parseMode(s string) (ciliumnode.Mode, error) {
	if m := ciliumnode.Mode(s); slices.Contains(ciliumnode.Modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("no such mode here: %q; there are %s", s, ciliumnode.Modes())
}

// modeOf returns the mode of a seed: crd for three in four.
func modeOf(seed uint64) ciliumnode.Mode {
	if r := rand.New(rand.NewPCG(seed, 8)); r.IntN(4) == 0 {
		others := ciliumnode.Modes()[1:]
		return others[r.IntN(len(others))]
	}
	return ciliumnode.CRD
}

// faultsIn returns the faults possible in a mode. Only agents in crd mode report; in kubernetes
// mode the CiliumNode belongs to the agent alone.
func faultsIn(mode ciliumnode.Mode) world.Faults {
	switch mode {
	case ciliumnode.MultiPool, ciliumnode.DelegatedPlugin:
		return world.AllFaults() &^ world.AgentEmpty
	case ciliumnode.Kubernetes:
		return world.AllFaults() &^ (world.AgentEmpty | world.CiliumNodeGone | world.Edits)
	}
	return world.AllFaults()
}

// adaptTo switches the world of a seed to a mode other than crd. Migrations from another IPAM
// are left to worlds in crd mode.
func adaptTo(mode ciliumnode.Mode, seed uint64, c *world.Config) {
	if mode == ciliumnode.CRD {
		return
	}
	r := rand.New(rand.NewPCG(seed, 9))
	c.Settings.Mode, c.Upgraded.Mode = mode, mode
	c.Reserve = map[string]int{crd.DefaultCiliumPool: []int{1, 2, 4}[r.IntN(3)]}
	c.Faults &= faultsIn(mode)
}

// weighIn prefers the actions that release blocks in kubernetes mode while their Node exists:
// blocks that were never assigned to it and that users delete.
func weighIn(mode ciliumnode.Mode, w map[world.Verb]float64) {
	if mode == ciliumnode.Kubernetes {
		w[world.BlockMake] *= 3
		w[world.BlockDelete] *= 3
	}
}
