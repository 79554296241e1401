package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// goal is a limit that the project has set itself: for a value of this operator, or for its
// ratio to another contender's in the same run.
type goal struct {
	about, measure, value string
	// contender is the measured one; "": this operator in crd mode. Its value is divided by
	// that of the contender of, if set.
	contender, of string
	atMost        float64
}

const notMeasured = "not measured"

func goals() []goal {
	claim, reclaimed := bare("claim").name, bare("reclaim").name
	return slices.Concat([]goal{
		{about: "cold start", measure: "cold", value: "seconds", of: claim, atMost: 1.3},
		{about: "cold start", measure: "cold", value: "seconds", of: clusterPool, atMost: 1},
		{about: "cold start", measure: "cold", value: "seconds", of: multiPool, atMost: 1},
		{about: "cold start", measure: "cold", value: "seconds", of: clusterPoolAsIs, atMost: 0.2},
		{about: "cold start", measure: "cold", value: "seconds", of: multiPoolAsIs, atMost: 0.4},
		{about: "versions that every agent receives", measure: "cold", value: "versions", of: claim, atMost: 1},
		{about: "the API server's CPU, cold start", measure: "cold", value: "apiserver cpu s", of: claim, atMost: 1.1},
		{about: "cold start without CiliumNodes", measure: "join", value: "seconds", of: bare("join").name, atMost: 1.25},
		{about: "peak memory, cold start", measure: "cold", value: "peak MiB", of: clusterPool, atMost: 1},
		{about: "peak memory, cold start", measure: "cold", value: "peak MiB", of: multiPool, atMost: 1},
		{about: "restart", measure: "restart", value: "seconds", of: bare("stream").name, atMost: 1.5},
		{about: "writes at a restart", measure: "restart", value: "writes", atMost: 0},
		{about: "peak memory, restart", measure: "restart", value: "peak MiB", of: clusterPool, atMost: 1},
		{about: "peak memory, restart", measure: "restart", value: "peak MiB", of: multiPool, atMost: 1},
		{about: "scale-up storm", measure: "storm", value: "seconds", of: claim, atMost: 1.3},
		{about: "the API server's CPU, scale-up storm", measure: "storm", value: "apiserver cpu s", of: claim, atMost: 1.1},
		{about: "reclaim storm", measure: "reclaim", value: "seconds", of: reclaimed, atMost: 1.15},
		{about: "the API server's CPU, reclaim storm", measure: "reclaim", value: "apiserver cpu s", of: reclaimed, atMost: 1.1},
		{about: "writes per block reclaimed", measure: "reclaim", value: "writes per block", of: reclaimed, atMost: 1},
	}, reactionGoals(), []goal{
		{about: "first claim after the leader was stopped, s", measure: "failover", value: "stopped claim max s", atMost: 1},
		{about: "writes at rest", measure: "rest", value: "own writes", atMost: 0},
		{about: "CPU at rest, multi-pool mode", measure: "rest", value: "cpu s", contender: oursMultiPool, of: multiPool, atMost: 1},
		{about: "cold start, multi-pool mode", measure: "modes", value: "seconds", contender: oursMultiPool, of: multiPool, atMost: 1},
		{about: "a second block, multi-pool mode, median", measure: "modes", value: "p50 ms", contender: oursMultiPool, of: multiPool, atMost: 1},
	})
}

// goalsTable returns a table of the goals and the measured values.
func goalsTable(k kept) string {
	var out strings.Builder
	out.WriteString("### Goals\n\nRatios of medians at 5,000 nodes, all of one run, and the range of the ratios of each round. A goal is undecided if it was met in " +
		"some rounds and missed in others; a single round decides only what is counted. " +
		"Memory of a node and of a pod is compared with what it was at an earlier commit.\n\n" +
		"| goal | compared with | at most | measured | rounds | | commit |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, g := range goals() {
		against := g.of
		if against == "" {
			against = "-"
		}
		m := k.by[g.measure][fullSize]
		text, rounds, outcome, commit := notMeasured, "-", "-", "-"
		if v, ok := g.measured(m); ok {
			byRound := g.byRound(m)
			text, rounds, outcome = number(v)+spread(v, byRound), strconv.Itoa(len(byRound)), g.outcome(v, byRound)
			commit = strings.Join(m.commits(), ", ")
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %s |\n", g.about, against, number(g.atMost), text, rounds, outcome, commit)
	}
	out.WriteString(memoryGoals(k))
	for _, l := range curves(k) {
		if !l.floor {
			text, outcome, base := l.goal()
			fmt.Fprintf(&out, "| growth per node, %s | its own at %d nodes | %s | %s | - | %s | see Growth |\n", l.title, base, number(superlinear), text, outcome)
		}
	}
	return out.String() + "\n"
}

const (
	// memoryBaseCommit is the commit before CiliumNodes and pods were packed in memory.
	memoryBaseCommit = "7a3b22b4d74c"
	// memoryShare is the share of the memory at memoryBaseCommit that a node and a pod may
	// take.
	memoryShare = 2.0 / 3
)

// memoryBase is what a restart took then: the operator of that commit, run by this benchmark
// (bench run -measures=restart -bin=DIR) on 23 November 2026, medians of three rounds with pods
// and alone, and one round without pods.
func memoryBase() footprint {
	return footprint{nodes: fullSize, blocks: 2, pods: 20,
		with: memory{236.05, 236.05}, without: memory{190.98, 190.98}, alone: memory{56.10, 56.10}}
}

// memoryGoals compares what a node and a pod take with what they took at memoryBaseCommit,
// in the same cluster.
func memoryGoals(k kept) string {
	base := memoryBase()
	now := footprint{}
	for _, f := range footprints(k.by["restart"]) {
		if f.nodes == base.nodes && f.pods == base.pods {
			now = f
		}
	}
	baseNode, _ := base.perNode()
	basePod, _ := base.perPod()
	node, hasNode := now.perNode()
	pod, hasPod := now.perPod()
	commit := strings.Join(commitsOf(k.by["restart"], base.nodes, 1), ", ")
	var out strings.Builder
	for _, g := range []struct {
		about, unit string
		now, base   float64
		known       bool
	}{
		{"peak memory of a node, restart", "KiB", node.peak, baseNode.peak, hasNode},
		{"settled memory of a node, restart", "KiB", node.settled, baseNode.settled, hasNode},
		{"peak memory of a pod, restart", "bytes", pod.peak, basePod.peak, hasPod},
		{"settled memory of a pod, restart", "bytes", pod.settled, basePod.settled, hasPod},
	} {
		text, outcome, of := notMeasured, "-", "-"
		if g.known {
			text, outcome, of = number(g.now/g.base), outcomeOf(g.now/g.base <= memoryShare), commit
		}
		fmt.Fprintf(&out, "| %s | %s %s at %s | %s | %s | - | %s | %s |\n", g.about, number(g.base), g.unit, memoryBaseCommit, number(memoryShare), text, outcome, of)
	}
	return out.String()
}

// measured returns the goal's value, or its ratio, if the samples contain it.
func (g goal) measured(m measured) (float64, bool) {
	own := m.values(g.name(), g.value)
	if len(own) == 0 {
		return 0, false
	}
	if g.of == "" {
		return median(own), true
	}
	other := median(m.values(g.of, g.value))
	return median(own) / other, other > 0
}

// name returns the name of the measured contender.
func (g goal) name() string { return cmp.Or(g.contender, ours) }

// byRound returns the value, or the ratio, of each round that both contenders have.
func (g goal) byRound(m measured) []float64 {
	values := func(contender string) map[int]float64 {
		out := map[int]float64{}
		for _, s := range m.samples {
			if v, ok := s.Values[g.value]; ok && s.Contender == contender {
				out[s.Round] = v
			}
		}
		return out
	}
	own, other := values(g.name()), values(g.of)
	var out []float64
	for _, round := range slices.Sorted(maps.Keys(own)) {
		switch {
		case g.of == "":
			out = append(out, own[round])
		case other[round] > 0:
			out = append(out, own[round]/other[round])
		}
	}
	return out
}

// outcome says whether a goal was met.
func (g goal) outcome(v float64, byRound []float64) string {
	switch {
	case len(byRound) < 2 && !g.counted():
		return outcomeOf(v <= g.atMost) + ", once"
	case len(byRound) > 1 && slices.Min(byRound) <= g.atMost && slices.Max(byRound) > g.atMost:
		return "undecided"
	}
	return outcomeOf(v <= g.atMost)
}

// counted reports whether the value is a number of requests, which a busy machine does not
// change.
func (g goal) counted() bool { return strings.Contains(g.value, "writes") || g.value == "versions" }

func outcomeOf(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// spread formats the range of values, unless all look like v.
func spread(v float64, values []float64) string {
	if len(values) < 2 || number(slices.Min(values)) == number(v) && number(slices.Max(values)) == number(v) {
		return ""
	}
	return fmt.Sprintf(" (%s–%s)", number(slices.Min(values)), number(slices.Max(values)))
}

// goal returns how many times as much a node takes at the largest size as at the base,
// whether that is a goal that was met, and the number of nodes of the base.
func (c curve) goal() (text, outcome string, base int) {
	from := c.base()
	if from.value == 0 || c.points[len(c.points)-1].nodes <= from.nodes {
		return notMeasured, "-", growthBase
	}
	times := c.perNode(c.points[len(c.points)-1])
	return number(times), outcomeOf(times <= superlinear), from.nodes
}
