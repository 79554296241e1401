package main

import (
	"fmt"
	"math"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// losses counts the pods that agents did not restore because of the window in their protocol
// (docs/reliability.md), in worlds of one kind.
type losses struct {
	// planned is how many worlds the whole search has.
	planned int
	// mayWorlds and mayRestarts are the budget: how many worlds may lose pods, and at how many
	// agent restarts any one of them may.
	mayWorlds, mayRestarts int

	marks int // addresses marked for release
	pods  int // not restored
	// worlds is how many worlds lost pods, and most at how many agent restarts the worst of
	// them did.
	worlds, most int
}

// The rates, well above those observed.
const (
	rateInWindow  = 1. / 50 // of worlds where all is done to lose pods
	rateElsewhere = 1. / 5000
)

// falseAlarm bounds the probability that an operator whose losses have these rates exceeds a
// budget in one search.
const falseAlarm = 1e-5

// losesPods reports whether worlds can lose pods in the window: agents in other modes do not
// answer marks.
func (o origin) losesPods() bool { return o.mode == ciliumnode.CRD }

// planLosses counts the worlds of each kind in a search.
func (o options) planLosses() (inWindow, elsewhere losses) {
	for i := range o.seeds {
		switch of := o.originOf(o.from + uint64(i)); {
		case !of.losesPods():
		case of.profile == window:
			inWindow.planned++
		default:
			elsewhere.planned++
		}
	}
	inWindow.setBudget(perWorld(rateInWindow, o.steps))
	elsewhere.setBudget(perWorld(rateElsewhere, o.steps))
	return inWindow, elsewhere
}

// perWorld returns the probability that a world loses pods. It grows with the number of random
// actions.
func perWorld(rate float64, steps int) float64 { return 1 - math.Pow(1-rate, float64(steps)/500) }

// setBudget sets the budget for worlds that each lose pods with probability p, independently.
// It covers all worlds that the search plans to play, so it does not matter when it is checked.
func (l *losses) setBudget(p float64) {
	l.mayWorlds = binomialBound(l.planned, p, falseAlarm)
	l.mayRestarts = poissonBound(-math.Log1p(-p), falseAlarm/float64(max(1, l.planned)))
}

// add counts a world.
func (l *losses) add(o outcome) {
	l.marks, l.pods = l.marks+o.counts.Marks, l.pods+o.counts.Lost
	if o.counts.Lost > 0 {
		l.worlds, l.most = l.worlds+1, max(l.most, o.counts.LossyRestarts)
	}
}

func (l losses) String() string {
	return fmt.Sprintf("%d of %d worlds lost pods (budget %d), one of them at %d restarts of agents (budget %d): %d pods, of %d addresses marked for release",
		l.worlds, l.planned, l.mayWorlds, l.most, l.mayRestarts, l.pods, l.marks)
}

// binomialBound returns the smallest number that is exceeded with probability tail at most, if
// each of n independent events has probability p.
func binomialBound(n int, p, tail float64) int {
	return bound(n, tail, func(k float64) float64 {
		return logFactorial(float64(n)) - logFactorial(k) - logFactorial(float64(n)-k) + k*math.Log(p) + (float64(n)-k)*math.Log1p(-p)
	})
}

// manyRestarts is more than the number of agent restarts in any world.
const manyRestarts = 1000

// poissonBound returns the smallest number that is exceeded with probability tail at most by
// the number of independent events that happen mean times on average.
func poissonBound(mean, tail float64) int {
	return bound(manyRestarts, tail, func(k float64) float64 { return k*math.Log(mean) - mean - logFactorial(k) })
}

// bound returns the smallest number, up to most, that is exceeded with probability tail at
// most, given the logarithm of each number's probability.
func bound(most int, tail float64, logOf func(k float64) float64) int {
	exceeded := 0.0
	for k := most; k > 0; k-- {
		if exceeded += math.Exp(logOf(float64(k))); exceeded > tail {
			return k
		}
	}
	return 0
}

func logFactorial(n float64) float64 {
	l, _ := math.Lgamma(n + 1)
	return l
}

// isOver reports whether more pods were lost than the budget allows.
func (l losses) isOver() bool { return l.worlds > l.mayWorlds || l.most > l.mayRestarts }

// overspent says where more pods were lost than allowed; "": nowhere.
func (s *searching) overspent() string {
	switch {
	case s.opts.modelAlone:
	case s.inWindow.isOver():
		return "in worlds about the window of the agents' protocol " + s.inWindow.String()
	case s.elsewhere.isOver():
		return s.elsewhere.String()
	}
	return ""
}
