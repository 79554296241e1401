//go:build linux

package main

import "k8s.io/apimachinery/pkg/types"

// flow is a pod that pings the address of another one.
type flow struct {
	from, to     string
	fromID, toID types.UID
	address      string
}

// lostByStaying adds up what was lost between pods both of which are still there, and
// counts these flows. results are what a pod reports, by the address that it pings.
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

// renumbered is what a move has come to.
type renumbered struct {
	// flows are those between pods that were to stay, judged those of pods that did.
	flows, judged int
	pings         losses
	broken        []string // budgets
	left          []string // what still names the old range
}

// unharmed reports whether no ping was lost of a pod that was to stay.
func (r renumbered) unharmed() bool {
	return r.pings.Lost == 0 && r.pings.Sent > 0 && r.judged == r.flows && r.flows > 0
}

// passed reports whether all is as it should be.
func (r renumbered) passed() bool { return r.unharmed() && len(r.broken) == 0 && len(r.left) == 0 }
