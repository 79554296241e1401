package main

import (
	"fmt"
	"math"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// losses counts the pods that agents did not restore because of the window in their protocol
// (docs/reliability.md).
type losses struct {
	planned int // worlds of the whole search that can lose pods
	marks   int // addresses marked for release
	pods    int // not restored
	// worlds is the number of worlds that lost pods, and most the number of agent restarts at
	// which the worst of them did.
	worlds, most int
}

const (
	// lossRate is the part of worlds of 500 random actions that may lose pods, well above the
	// observed one.
	lossRate = 1. / 5000
	// mayRestarts is the number of agent restarts at which any one world may lose pods.
	mayRestarts = 2
)

// planLosses counts the worlds in a search that can lose pods: agents in other modes do not answer
// marks.
func (o options) planLosses() (l losses) {
	for i := range o.seeds {
		if o.originOf(o.from+uint64(i)).mode == ciliumnode.CRD {
			l.planned++
		}
	}
	return l
}

// mayWorlds is the number of worlds that may lose pods: five standard deviations more than the rate
// predicts. It covers the whole search, so it does not matter when it is checked.
func (l losses) mayWorlds(steps int) int {
	mean := float64(l.planned) * lossRate * float64(steps) / 500
	return int(mean + 5*math.Sqrt(mean) + 2)
}

// add counts a world.
func (l *losses) add(o outcome) {
	l.marks, l.pods = l.marks+o.counts.Marks, l.pods+o.counts.Lost
	if o.counts.Lost > 0 {
		l.worlds, l.most = l.worlds+1, max(l.most, o.counts.LossyRestarts)
	}
}

func (s *searching) tellLosses() string {
	l := s.losses
	return fmt.Sprintf("%d of %d worlds lost pods (budget %d), one of them at %d restarts of agents (budget %d): %d pods, of %d addresses marked for release",
		l.worlds, l.planned, l.mayWorlds(s.opts.steps), l.most, mayRestarts, l.pods, l.marks)
}

// overspent reports whether more pods were lost than the budget allows.
func (s *searching) overspent() bool {
	return !s.opts.modelAlone && (s.losses.worlds > s.losses.mayWorlds(s.opts.steps) || s.losses.most > mayRestarts)
}
