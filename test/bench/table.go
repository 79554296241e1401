package main

import (
	"fmt"
	"slices"
	"strings"
)

// column is one value of a table.
type column struct {
	value, title string
	// ratio: show the ratio to the first contender's value.
	ratio bool
}

// table shows one measure.
type table struct {
	measure, title, note string
	columns              []column
}

// spentColumns show what CPU was used, and how fast the machine was.
func spentColumns() []column {
	return append([]column{{"cpu s", "own CPU, s", false}}, spentByOthers()...)
}

// spentByOthers are spentColumns without the contender's own CPU.
func spentByOthers() []column {
	return []column{{"apiserver cpu s", "API server CPU, s", true}, {"etcd cpu s", "etcd CPU, s", true}, {fixedWork, "fixed work, µs", true}}
}

func tables() []table {
	seconds := column{"seconds", "time, s", true}
	spent := spentColumns()
	memory := []column{{"peak MiB", "peak RSS, MiB", false}, {"settled MiB", "settled RSS, MiB", false}}
	others := []column{{"apiserver peak MiB", "API server peak RSS, MiB", false}, {"etcd peak MiB", "etcd peak RSS, MiB", false}}
	return slices.Concat([]table{
		{"cold", "Cold start", "From the start of the process until the last node is published. Nodes and CiliumNodes are there; no node has a block.",
			slices.Concat([]column{seconds, {"first s", "first node, s", false}}, spent, memory, others)},
		{"cold", "What a cold start costs others", "Successful writes; versions are those of CiliumNodes that every agent receives, for nodeipam those of Nodes.",
			[]column{{"writes", "writes", true}, {"refused writes", "refused", false}, {"versions", "versions", true}, {"version MiB", "MiB to each watcher", true}, {"pool writes", "of the pool", false}}},
		{"join", "Cold start without CiliumNodes", "The same where the agents have not made their CiliumNodes yet.",
			slices.Concat([]column{seconds, {"writes", "writes", true}, {"versions", "versions", true}}, spent)},
		{"restart", "Restart", "Blocks and running pods on every node, all as it should be. Time: until everything is read and the process leads; for cilium-operator until it says that it is initialized; what it does after that is in the time at rest. It watches all pods, this operator those that need an address. The floor receives what this operator watches and decodes nothing.",
			slices.Concat([]column{{"blocks per node", "blocks per node", false}, {podsPerNode, "pods per node", false}, seconds, {"rest s", "at rest, s", false}}, spent, []column{{"writes", "writes", false}, {"watched MiB", "received by watches, MiB", false}}, memory, others)},
		{"storm", "Scale-up storm", "One edit of the pool makes every node need one more block. In multi-pool mode each agent requests one instead, 32 at once: these requests are not among the writes and versions, but the time and the API server's CPU include them.",
			slices.Concat([]column{seconds, {"writes", "writes", true}, {"refused writes", "refused", false}, {"versions", "versions", true}}, spent)},
		{"reclaim", "Reclaim storm", "One edit of the pool makes every node give a block of 30 addresses back; all waits are zero and nothing is paced. Agents answer at once.",
			slices.Concat([]column{seconds, {"writes per block", "own writes per block", true}, {"events", "events", false}, {"refused writes", "refused", false}, {"versions", "versions", true}}, spent)},
	}, reactionTables(), []table{
		{"rest", "At rest", "Pods come and go without crossing a threshold, and agents write what those of the mode write: in crd mode each change, in the other modes nothing.",
			slices.Concat(spent, []column{{"cpu ms per 1000 reports", "own per 1,000 reports, ms", true}, {"own writes", "own writes", false}, {"reports", "reports", false}, {"pods", "pods", false}}, memory)},
		{"modes", "Multi-pool mode", "A cold start in which each block is assigned as one CIDR, as cilium-operator does. Then one agent after the other asks for a second block: from the answer to its request until a watch shows it.",
			slices.Concat([]column{seconds, {"p50 ms", "second block: p50, ms", true}, {"p99 ms", "p99, ms", false}, {"max ms", "max, ms", false}, {"writes", "writes", true}, {"versions", "versions", true}}, spent, memory)},
		{"patches", "Ways to write a pool", "One write per node that publishes 30 addresses and a podCIDR, and nothing else.",
			slices.Concat([]column{seconds}, spentByOthers(), []column{{"version MiB", "MiB to each watcher", true}})},
	})
}

// markdown formats a row per contender: medians, their range, and the ratio to the first
// row's. A value that no row has, because earlier results lack it, has no column.
func (t table) markdown(samples []sample) string {
	columns := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool {
		return !slices.ContainsFunc(samples, func(s sample) bool { _, ok := s.Values[c.value]; return ok })
	})
	var names []string
	for _, s := range samples {
		if !slices.Contains(names, s.Contender) {
			names = append(names, s.Contender)
		}
	}
	var out strings.Builder
	out.WriteString("| contender | rounds |")
	for _, c := range columns {
		out.WriteString(" " + c.title + " |")
	}
	out.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(columns)) + "\n")
	for _, name := range names {
		rounds := 0
		for _, s := range samples {
			if s.Contender == name {
				rounds++
			}
		}
		fmt.Fprintf(&out, "| %s | %d |", name, rounds)
		for _, c := range columns {
			out.WriteString(" " + cell(valuesOf(samples, name, c.value), valuesOf(samples, names[0], c.value), c.ratio && name != names[0]) + " |")
		}
		out.WriteString("\n")
	}
	return out.String()
}

// cell formats a median with its range and, if ratio is set, the ratio to base's.
func cell(values, base []float64, ratio bool) string {
	if len(values) == 0 {
		return "-"
	}
	m := median(values)
	text := number(m) + spread(m, values, number)
	if b := median(base); ratio && b > 0 {
		text += fmt.Sprintf(", **%s×**", number(m/b))
	}
	return text
}

func valuesOf(samples []sample, contender, value string) []float64 {
	var out []float64
	for _, s := range samples {
		if v, ok := s.Values[value]; ok && s.Contender == contender {
			out = append(out, v)
		}
	}
	return out
}

func shortKernel(version string) string {
	f := strings.Fields(version)
	return strings.Join(f[:min(3, len(f))], " ")
}
