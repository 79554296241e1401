package main

import (
	"fmt"
	"math"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// losses counts the pods that agents did not restore because of the window in their protocol
// (docs/reliability.md).
type losses struct {
	// planned is the number of worlds in the whole search.
	planned int
	// mayWorlds and mayRestarts are the budget: the number of worlds that may lose pods, and the
	// number of agent restarts at which any one of them may.
	mayWorlds, mayRestarts int

	marks int // addresses marked for release
	pods  int // not restored
	// worlds is the number of worlds that lost pods, and most the number of agent restarts at
	// which the worst of them did.
	worlds, most int
}

// lossRate is the part of worlds that may lose pods, well above the observed one.
const lossRate = 1. / 5000

// falseAlarm bounds the probability that an operator with this loss rate exceeds a budget in one
// search.
const falseAlarm = 1e-5

// losesPods reports whether worlds can lose pods in the window: agents in other modes do not
// answer marks.
func (o origin) losesPods() bool { return o.mode == ciliumnode.CRD }

// planLosses counts the worlds in a search that can lose pods.
func (o options) planLosses() (l losses) {
	for i := range o.seeds {
		if o.originOf(o.from + uint64(i)).losesPods() {
			l.planned++
		}
	}
	l.setBudget(perWorld(lossRate, o.steps))
	return l
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

// overspent reports whether more pods were lost than the budget allows.
func (s *searching) overspent() bool {
	return !s.opts.modelAlone && (s.losses.worlds > s.losses.mayWorlds || s.losses.most > s.losses.mayRestarts)
}
