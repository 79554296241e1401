package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// poolsRow is a value of the measure pools.
type poolsRow struct {
	value, title string
	// grows: it may grow with the blocks, but not faster.
	grows bool
}

func poolsRows() []poolsRow {
	rows := []poolsRow{
		{"restart s", "restart: time, s", true}, {"restart cpu s", "own CPU until it rests, s", true},
		{"restart peak MiB", "peak RSS, MiB", true}, {"restart writes", "writes", false},
	}
	for _, burst := range []struct{ name, title string }{{"claims", "a block more for each node"}, {"returns", "a block less for each node"}} {
		rows = append(rows,
			poolsRow{burst.name + " s", burst.title + ": time, s", true}, poolsRow{burst.name + " cpu s", "own CPU, s", true},
			poolsRow{burst.name + " writes", "writes of blocks and CiliumNodes", true}, poolsRow{burst.name + " pool writes", "writes of pools", false},
			poolsRow{burst.name + " changes", "changes of blocks", false},
			poolsRow{burst.name + " status p50 ms", "from a change to the status that counts it: median, ms", false},
			poolsRow{burst.name + " status p99 ms", "99th percentile, ms", false}, poolsRow{burst.name + " status max ms", "worst, ms", false})
	}
	return append(rows, poolsRow{"peak MiB", "peak RSS of all, MiB", true}, poolsRow{"settled MiB", "settled RSS after all, MiB", true})
}

// poolsTable returns a table with a column for each number of blocks.
func poolsTable(k kept) string {
	bySize := k.by["pools"]
	if len(bySize) == 0 {
		return ""
	}
	sizes := slices.Sorted(maps.Keys(bySize))
	first := bySize[sizes[0]]
	of := func(m measured, value string) float64 { return median(m.values(oursUnpaced, value)) }
	head, rule := "| blocks |", "| --- |"
	for _, n := range sizes {
		head, rule = head+fmt.Sprintf(" %.0f |", of(bySize[n], "blocks")), rule+" --- |"
	}
	var commits []string
	for _, n := range sizes {
		commits = append(commits, bySize[n].commits()...)
	}
	slices.Sort(commits)
	var out strings.Builder
	fmt.Fprintf(&out, "### Many pools\n\n%.0f pools, each with its own nodes, %d blocks per node. Commit %s. In bold: how many times as much a block "+
		"takes as at the smallest size, where that is above %s: worse than linear.\n\n%s\n%s\n", of(first, "pools"), blocksPerNode,
		strings.Join(slices.Compact(commits), ", "), number(superlinear), head, rule)
	for _, row := range poolsRows() {
		out.WriteString("| " + row.title + " |")
		for _, n := range sizes {
			values := bySize[n].values(oursUnpaced, row.value)
			text := cell(values, nil, false)
			per, perFirst := of(bySize[n], row.value)/of(bySize[n], "blocks"), of(first, row.value)/of(first, "blocks")
			if row.grows && len(values) > 0 && perFirst > 0 && per/perFirst > superlinear {
				text += ", **" + number(per/perFirst) + "×**"
			}
			out.WriteString(" " + text + " |")
		}
		out.WriteString("\n")
	}
	return out.String() + "\n"
}
