package main

import (
	"fmt"
	"math"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// losses are the pods that agents did not restore in the window of their protocol
// (docs/reliability.md), in worlds of one kind.
type losses struct {
	// planned is how many worlds the search has in all.
	planned int
	// mayWorlds and mayRestarts are the budget: how many worlds may lose pods, and in how
	// many restarts of agents one of them.
	mayWorlds, mayRestarts int

	marks int // addresses marked for release
	pods  int // not restored
	// worlds are those with a loss, and most is in how many restarts of agents the worst of
	// them lost pods.
	worlds, most int
}

// The rates, which are well above those seen (docs/testing.md).
const (
	rateInWindow  = 1. / 50 // of worlds where all is done to lose pods
	rateElsewhere = 1. / 5000
)

// falseAlarm is the probability at most with which an operator that loses pods at such a
// rate exceeds a budget in one search.
const falseAlarm = 1e-5

// losesPods says that worlds can lose pods in the window: agents of other modes answer no
// marks.
func (o origin) losesPods() bool { return o.mode == ciliumnode.CRD }

// planLosses counts the worlds of each kind that a search has.
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

// perWorld is the probability that a world loses pods, which grows with its random actions.
func perWorld(rate float64, steps int) float64 { return 1 - math.Pow(1-rate, float64(steps)/500) }

// setBudget sets the budget of worlds that lose pods with a probability, each by itself. All
// that the search plans to play count, so it is no matter when it is looked at.
func (l *losses) setBudget(p float64) {
	l.mayWorlds = binomialBound(l.planned, p, falseAlarm)
	l.mayRestarts = poissonBound(-math.Log1p(-p), falseAlarm/float64(max(1, l.planned)))
}

// add takes in a world.
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

// binomialBound is the least number that is exceeded with a probability of tail at most, if
// each of n things happens with probability p, by itself.
func binomialBound(n int, p, tail float64) int {
	return bound(n, tail, func(k float64) float64 {
		return logFactorial(float64(n)) - logFactorial(k) - logFactorial(float64(n)-k) + k*math.Log(p) + (float64(n)-k)*math.Log1p(-p)
	})
}

// manyRestarts is more than an agent restarts in a world.
const manyRestarts = 1000

// poissonBound is the least number that is exceeded with a probability of tail at most, of
// what happens mean times on average, each time by itself.
func poissonBound(mean, tail float64) int {
	return bound(manyRestarts, tail, func(k float64) float64 { return k*math.Log(mean) - mean - logFactorial(k) })
}

// bound is the least number up to most that is exceeded with a probability of tail at most,
// by the logarithm of the probability of each.
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

// isOver says that more pods were lost than the budget allows.
func (l losses) isOver() bool { return l.worlds > l.mayWorlds || l.most > l.mayRestarts }

// overspent says where more pods were lost than may be, or is "".
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
