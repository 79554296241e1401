package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reactionTables returns the tables of the full size, one for each rate.
func reactionTables() []table {
	columns := append([]column{{"pods", "pods", false}, {"pods/s reached", "pods/s reached", false}, {"p50 ms", "p50, ms", true}, {"p99 ms", "p99, ms", true},
		{"max ms", "max, ms", true}, {"seconds", "all pods, s", true}, {"writes per burst", "writes per pod", false}, {"reports", "reports meanwhile", false}},
		spentColumns()...)
	var out []table
	for i, rate := range reactRates() {
		note := "The same at another rate."
		if i == 0 {
			note = fmt.Sprintf("From the answer to the bound pod's create until a watch shows the new addresses. Each pod is on another node, which needs a second block for it. "+
				"Agents of other nodes send %d reports/s meanwhile. A busy API server lowers the rate of pods; where they still come faster than blocks can be written, they wait for each other.", reactReports)
		}
		out = append(out, table{reactName(rate), fmt.Sprintf("Reaction at %d pods/s", rate), note, columns})
	}
	return out
}

func reactionGoals() []goal {
	var out []goal
	for _, rate := range reactRates() {
		out = append(out, goal{about: fmt.Sprintf("reaction at %d bound pods/s, 99th percentile", rate), measure: reactName(rate), value: "p99 ms", of: bare("react").name, atMost: reactLimit})
	}
	return out
}

// reactionGrowth shows the 99th percentile by number of nodes, for each rate. It judges no
// ratio per node, because a reaction should not take longer in a larger cluster at all.
func reactionGrowth(k kept) string {
	var sizes []int
	for _, rate := range reactRates() {
		sizes = append(sizes, slices.Collect(maps.Keys(k.by[reactName(rate)]))...)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	if len(sizes) < 2 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "### Growth of reactions\n\nThe 99th percentile, in ms, by number of nodes, and how many times that at %d nodes (at the smallest size measured, where that is larger). "+
		"In bold: more than %s times the floor's. Pods are bound to half of the nodes at most: more nodes have more pods, which wait for each other at rates that the machine does not reach.\n\n"+
		"| pods/s | |", growthBase, number(reactLimit))
	for _, n := range sizes {
		fmt.Fprintf(&out, " %d |", n)
	}
	out.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(sizes)) + "\n")
	for i, g := range reactionGoals() {
		for _, row := range reactionRows(g, sameMachine(k.by[g.measure]), sizes) {
			fmt.Fprintf(&out, "| %d | %s |\n", reactRates()[i], strings.Join(row, " | "))
		}
	}
	return out.String() + "\n"
}

// reactionRows returns the rows for one rate.
func reactionRows(g goal, bySize map[int]measured, sizes []int) [][]string {
	floor, own, ratio := []string{"floor"}, []string{ours}, []string{"times the floor's"}
	pods, rates := []string{"pods"}, []string{"pods/s reached: floor, " + ours}
	for _, n := range sizes {
		m := bySize[n]
		times := "-"
		if v, ok := g.measured(m); ok {
			if times = telling(v, g.atMost) + "×"; v > g.atMost {
				times = "**" + times + "**"
			}
		}
		of := func(contender, value string) string { return cell(m.values(contender, value), nil, false) }
		floor = append(floor, latency(bySize, g.of, n))
		own = append(own, latency(bySize, ours, n))
		ratio = append(ratio, times)
		pods = append(pods, of(ours, "pods"))
		rates = append(rates, of(g.of, "pods/s reached")+", "+of(ours, "pods/s reached"))
	}
	return [][]string{floor, own, ratio, pods, rates}
}

// latency formats a contender's 99th percentile at a size, and its ratio to the base.
func latency(bySize map[int]measured, contender string, nodes int) string {
	line := curve{points: points(bySize, contender, "p99 ms", "")}
	i := slices.IndexFunc(line.points, func(p point) bool { return p.nodes == nodes })
	if i < 0 {
		return "-"
	}
	text, base := number(line.points[i].value), line.base()
	if nodes > base.nodes && base.value > 0 {
		text += ", " + number(line.points[i].value/base.value) + "×"
	}
	return text
}
