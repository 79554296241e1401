//go:build linux

package main

import "k8s.io/apimachinery/pkg/types"

// flow is a pod that pings the address of another one.
type flow struct {
	from, to     string
	fromID, toID types.UID
	address      string
}

// lostByStaying adds up the losses between pods that both still exist, and counts these flows.
// results are the reports of pods, by the address that they ping.
func lostByStaying(flows []flow, now map[string]types.UID, results map[string]map[string]losses) (sum losses, judged int) {
	for _, f := range flows {
		r, reported := results[f.from][f.address]
		if now[f.from] != f.fromID || now[f.to] != f.toID || !reported {
			continue
		}
		judged++
		sum.Sent += r.Sent
		sum.Lost += r.Lost
		sum.LongestGapMs = max(sum.LongestGapMs, r.LongestGapMs)
	}
	return sum, judged
}

// renumbered is the result of a move.
type renumbered struct {
	// flows are those between pods that were meant to stay, judged those of pods that did.
	flows, judged int
	pings         losses
	broken        []string // budgets
	left          []string // what still names the old range
}

// unharmed reports whether no pod that was meant to stay has lost a ping.
func (r renumbered) unharmed() bool {
	return r.pings.Lost == 0 && r.pings.Sent > 0 && r.judged == r.flows && r.flows > 0
}

// passed reports whether the move went as it should.
func (r renumbered) passed() bool { return r.unharmed() && len(r.broken) == 0 && len(r.left) == 0 }
