package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// memory is that of a process, in MiB.
type memory struct{ peak, settled float64 }

// footprint is what this operator takes after a restart.
type footprint struct {
	nodes, blocks, pods int // blocks and pods are per node
	// with pods, without any, and alone: with one node and no pods.
	with, without, alone memory
}

func (m memory) known() bool { return m.peak > 0 && m.settled > 0 }

func (m memory) less(o memory) memory { return memory{m.peak - o.peak, m.settled - o.settled} }

func (m memory) times(f float64) memory { return memory{m.peak * f, m.settled * f} }

// perNode returns the memory per node in KiB, beyond what the process takes alone.
func (f footprint) perNode() (memory, bool) {
	if !f.without.known() || !f.alone.known() || f.nodes < 2 {
		return memory{}, false
	}
	return f.without.less(f.alone).times(1024 / float64(f.nodes-1)), true
}

// perPod returns the memory per pod in bytes.
func (f footprint) perPod() (memory, bool) {
	if !f.with.known() || !f.without.known() || f.pods < 1 {
		return memory{}, false
	}
	return f.with.less(f.without).times((1 << 20) / float64(f.nodes*f.pods)), true
}

// footprints returns those of a restart with one number of pods whose memory is known, by
// number of nodes, the smallest first.
func footprints(bySize map[int]measured) []footprint {
	var out []footprint
	alone := memoryOf(bySize[1], oursPodless)
	for _, nodes := range slices.Sorted(maps.Keys(bySize)) {
		m := bySize[nodes]
		f := footprint{
			nodes: nodes, blocks: int(median(m.values(ours, "blocks per node"))), pods: int(median(m.values(ours, podsPerNode))),
			with: memoryOf(m, ours), without: memoryOf(m, oursPodless), alone: alone,
		}
		if f.with.known() {
			out = append(out, f)
		}
	}
	return out
}

// commitsOf returns the commits of the samples at several sizes.
func commitsOf(bySize map[int]measured, sizes ...int) []string {
	var out []string
	for _, nodes := range sizes {
		out = append(out, bySize[nodes].commits()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func memoryOf(m measured, contender string) memory {
	return memory{median(m.values(contender, "peak MiB")), median(m.values(contender, "settled MiB"))}
}

func memoryTable(k kept) string {
	var out strings.Builder
	for _, measure := range k.variants("restart") {
		for _, f := range footprints(k.by[measure]) {
			node, hasNode := f.perNode()
			pod, hasPod := f.perPod()
			fmt.Fprintf(&out, "| %d%s | %d | %d | %s | %s | %s | %s | %s | %s |\n", f.nodes, strings.TrimPrefix(measure, "restart"), f.blocks, f.pods, f.with.cells(f.with.known()),
				f.without.cells(f.without.known()), f.alone.cells(f.alone.known()), node.cells(hasNode), pod.cells(hasPod),
				strings.Join(commitsOf(k.by[measure], f.nodes, 1), ", "))
		}
	}
	if out.Len() == 0 {
		return ""
	}
	return "### Memory\n\nRSS of this operator after a restart: peak, settled. The process alone: in a cluster of one node without pods. " +
		"A node: what a cluster without pods takes beyond the process alone, divided by its other nodes. A pod: what the same cluster takes more " +
		"with pods, divided by the pods. Garbage that is not collected yet is a part of all.\n\n" +
		"| nodes | blocks per node | pods per node | with pods, MiB | without pods, MiB | the process alone, MiB | a node, KiB | a pod, bytes | commit |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" + out.String() + "\n"
}

func (m memory) cells(known bool) string {
	if !known {
		return "-"
	}
	return number(m.peak) + ", " + number(m.settled)
}
