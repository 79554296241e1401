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

// verdict is what the table says about a goal.
type verdict struct{ measured, rounds, result, machine, commits string }

func unmeasured() verdict { return verdict{notMeasured, "-", "-", "-", "-"} }

// row formats a row of the goals table.
func (v verdict) row(about, against, atMost string) string {
	return "| " + strings.Join([]string{about, against, atMost, v.measured, v.rounds, v.result, v.machine, v.commits}, " | ") + " |\n"
}

// goalsTable returns a table of the goals and the measured values.
func goalsTable(k kept) string {
	var out strings.Builder
	out.WriteString("### Goals\n\nMedians at 5,000 nodes, or ratios of medians over the rounds of one run that both contenders have, and the range of " +
		"the values of each round. A goal is undecided if it was met in some rounds and missed in others. One round is enough for counts such as writes; " +
		"any other goal measured in one round is marked \"once\". " +
		"Memory of a node and of a pod is compared with what it was at an earlier commit. Growth compares two sizes, which may be of two runs: " +
		"if these measured different commits, the goal is marked \"other commit\". Machine: how many times as much CPU the same fixed work took " +
		"meanwhile. Above 1, the machine was slower for what is measured than for what it is compared with, and the measured ratio is too high.\n\n" +
		"| goal | compared with | at most | measured | rounds | result | machine | commit |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, g := range goals() {
		out.WriteString(g.verdict(k.by[g.measure][fullSize]).row(g.about, cmp.Or(g.of, "-"), number(g.atMost)))
	}
	out.WriteString(memoryGoals(k))
	var floor curve
	for _, l := range curves(k) { // each floor precedes what it is the floor of
		if l.floor {
			floor = l
			continue
		}
		v, base := l.goal()
		against := fmt.Sprintf("its own at %d nodes", base)
		if last := floor.last(); last.nodes == l.last().nodes && floor.perNode(last) > 0 {
			against += "; the floor's growth: " + number(floor.perNode(last))
		}
		out.WriteString(v.row("growth per node, "+l.title, against, number(superlinear)))
	}
	return out.String() + "\n"
}

const (
	// memoryBaseCommit is the commit before CiliumNodes and pods were packed in memory.
	memoryBaseCommit = "7a3b22b4d74c"
	// memoryShare is the share of the memory at memoryBaseCommit that a node and a pod may
	// take.
	memoryShare     = 2.0 / 3
	memoryShareText = "2/3"
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
	restarts := k.by["restart"]
	rounds := func(nodes int, contender string) int { return len(restarts[nodes].values(contender, "peak MiB")) }
	with, without, alone := rounds(base.nodes, ours), rounds(base.nodes, oursPodless), rounds(1, oursPodless)
	nodeCommits, podCommits := commitsOf(restarts, base.nodes, 1), commitsOf(restarts, base.nodes)
	var out strings.Builder
	for _, g := range []struct {
		about, unit string
		now, base   float64
		known       bool
		rounds      int
		commits     []string
	}{
		{"peak memory of a node, restart", "KiB", node.peak, baseNode.peak, hasNode, min(without, alone), nodeCommits},
		{"settled memory of a node, restart", "KiB", node.settled, baseNode.settled, hasNode, min(without, alone), nodeCommits},
		{"peak memory of a pod, restart", "bytes", pod.peak, basePod.peak, hasPod, min(with, without), podCommits},
		{"settled memory of a pod, restart", "bytes", pod.settled, basePod.settled, hasPod, min(with, without), podCommits},
	} {
		v := unmeasured()
		if g.known {
			share := g.now / g.base
			v = verdict{telling(share, memoryShare), strconv.Itoa(g.rounds), outcomeOf(share <= memoryShare, g.rounds), "-", strings.Join(g.commits, ", ")}
		}
		out.WriteString(v.row(g.about, number(g.base)+" "+g.unit+" at "+memoryBaseCommit, memoryShareText))
	}
	return out.String()
}

// verdict compares the measured value, or ratio, with the limit.
func (g goal) verdict(m measured) verdict {
	v, ok := g.measured(m)
	if !ok {
		return unmeasured()
	}
	byRound := g.byRound(m)
	text := func(v float64) string { return telling(v, g.atMost) }
	return verdict{text(v) + spread(v, byRound, text), strconv.Itoa(len(byRound)), g.outcome(v, byRound), g.machine(m), strings.Join(m.commits(), ", ")}
}

// machine returns the ratio of the CPU times of the fixed work, where the goal is a ratio that
// depends on the machine's speed.
func (g goal) machine(m measured) string {
	if g.of == "" || g.counted() || strings.HasSuffix(g.value, "MiB") {
		return "-"
	}
	g.value = fixedWork
	if v, ok := g.measured(m); ok {
		return number(v)
	}
	return "-"
}

// telling formats a value like number, with more decimals where rounding would hide whether
// it is above the limit.
func telling(v, limit float64) string {
	const mostDecimals = 7
	text := number(v)
	_, fraction, _ := strings.Cut(text, ".")
	for decimals := len(fraction) + 1; decimals <= mostDecimals; decimals++ {
		if rounded, err := strconv.ParseFloat(text, 64); err != nil || (rounded > limit) == (v > limit) {
			break
		}
		text = strconv.FormatFloat(v, 'f', decimals, 64)
	}
	return text
}

// measured returns the goal's value, or its ratio, if the samples contain it.
func (g goal) measured(m measured) (float64, bool) {
	m = g.paired(m)
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

// paired returns the samples of the rounds that both contenders have, or all if there are
// none: a ratio of medians over other rounds may be outside the range of the rounds' ratios.
func (g goal) paired(m measured) measured {
	if g.of == "" {
		return m
	}
	own, other := g.rounds(m, g.name()), g.rounds(m, g.of)
	both := measured{run: m.run}
	for _, s := range m.samples {
		if _, ok := own[s.Round]; ok && other[s.Round] > 0 {
			both.samples = append(both.samples, s)
		}
	}
	if len(both.samples) == 0 {
		return m
	}
	return both
}

// rounds returns a contender's value in each round.
func (g goal) rounds(m measured, contender string) map[int]float64 {
	out := map[int]float64{}
	for _, s := range m.samples {
		if v, ok := s.Values[g.value]; ok && s.Contender == contender {
			out[s.Round] = v
		}
	}
	return out
}

// name returns the name of the measured contender.
func (g goal) name() string { return cmp.Or(g.contender, ours) }

// byRound returns the value, or the ratio, of each round that both contenders have.
func (g goal) byRound(m measured) []float64 {
	own, other := g.rounds(m, g.name()), g.rounds(m, g.of)
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
	rounds := len(byRound)
	if rounds > 1 && slices.Min(byRound) <= g.atMost && slices.Max(byRound) > g.atMost {
		return "undecided"
	}
	if g.counted() {
		rounds = max(rounds, enoughRounds)
	}
	return outcomeOf(v <= g.atMost, rounds)
}

// counted reports whether the value is a number of requests, which a busy machine does not
// change.
func (g goal) counted() bool { return strings.Contains(g.value, "writes") || g.value == "versions" }

// enoughRounds is how many rounds a verdict needs to stand unmarked.
const enoughRounds = 2

func outcomeOf(met bool, rounds int) string {
	out := "**missed**"
	if met {
		out = "met"
	}
	if rounds < enoughRounds {
		out += ", once"
	}
	return out
}

// spread formats the range of values, unless all look like v.
func spread(v float64, values []float64, text func(float64) string) string {
	if len(values) < 2 || text(slices.Min(values)) == text(v) && text(slices.Max(values)) == text(v) {
		return ""
	}
	return fmt.Sprintf(" (%s–%s)", text(slices.Min(values)), text(slices.Max(values)))
}

// goal compares what a node takes at the largest size with what it takes at the base, whose
// number of nodes it returns too.
func (c curve) goal() (v verdict, base int) {
	from, to := c.base(), c.last()
	if from.value == 0 || to.nodes <= from.nodes {
		return unmeasured(), growthBase
	}
	times, rounds := c.perNode(to), min(len(from.of.samples), len(to.of.samples))
	v = verdict{telling(times, superlinear), strconv.Itoa(rounds), outcomeOf(times <= superlinear, rounds), slower(from, to), from.commits()}
	if from.commits() != to.commits() {
		v.result += ", other commit"
		v.commits = fmt.Sprintf("%d: %s; %d: %s", from.nodes, from.commits(), to.nodes, to.commits())
	}
	return v, from.nodes
}

// slower returns how many times as much CPU the fixed work took at one point as at another.
func slower(from, to point) string {
	work := func(p point) float64 { return median(p.of.values(p.of.samples[0].Contender, fixedWork)) }
	if work(from) == 0 || work(to) == 0 {
		return "-"
	}
	return number(work(to) / work(from))
}
