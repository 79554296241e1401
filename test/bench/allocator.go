package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// allocation is one line of the allocators' Go benchmarks: a task for a number of blocks.
type allocation struct {
	work, allocator string
	blocks          int
	// Per block: CPU time, bytes allocated and number of allocations.
	ns, bytes, allocs float64
}

// parseAllocation parses a line of go test -bench output. It returns false for other lines.
func parseAllocation(line string) (allocation, bool) {
	f := strings.Fields(line)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		return allocation{}, false
	}
	parts := strings.Split(strings.TrimPrefix(f[0], "Benchmark"), "/")
	if len(parts) != 3 {
		return allocation{}, false
	}
	a := allocation{work: parts[0], allocator: parts[2]}
	if i := strings.LastIndexByte(a.allocator, '-'); i > 0 && strings.Trim(a.allocator[i+1:], "0123456789") == "" {
		a.allocator = a.allocator[:i] // drop the GOMAXPROCS suffix
	}
	var err error
	if a.blocks, err = strconv.Atoi(parts[1]); err != nil {
		return allocation{}, false
	}
	value := map[string]float64{}
	for i := 2; i+1 < len(f); i += 2 {
		if value[f[i+1]], err = strconv.ParseFloat(f[i], 64); err != nil {
			return allocation{}, false
		}
	}
	a.ns, a.bytes, a.allocs = value["cpu-ns/block"], value["B/op"], value["allocs/op"]
	if a.restores() {
		a.bytes /= float64(a.blocks)
		a.allocs /= float64(a.blocks)
	}
	return a, true
}

// restores reports whether the task restores all blocks.
func (a allocation) restores() bool { return strings.HasPrefix(a.work, "Restore") }

// cell formats the time per block, its ratio to the first allocator's, and what matters
// most: how often claims and releases allocate, and the bytes of a restore.
func (a allocation) cell(first allocation) string {
	text := number(a.ns) + " ns"
	if a.allocator != first.allocator && first.ns > 0 {
		text += fmt.Sprintf(", **%s×**", number(a.ns/first.ns))
	}
	switch {
	case a.restores():
		return text + fmt.Sprintf(", %s B", number(a.bytes))
	case a.work == "Taken":
		return text
	}
	return text + fmt.Sprintf(", %.0f allocs", a.allocs)
}

var works = []struct{ name, title string }{
	{"Claim", "claim"}, {"Release", "release"}, {"Restore", "restore, in order"}, {"RestoreShuffled", "restore, shuffled"},
	{"Taken", "look-up"},
}

// allocatorTable returns a table with a row per task and number of blocks, and a column per
// allocator.
func allocatorTable(lines []string) string {
	var all []allocation
	var names []string
	commit := "unknown"
	for _, line := range lines {
		if value, ok := strings.CutPrefix(line, "commit: "); ok {
			commit = value
		}
		a, ok := parseAllocation(line)
		if !ok {
			continue
		}
		all = append(all, a)
		if !slices.Contains(names, a.allocator) {
			names = append(names, a.allocator)
		}
	}
	var out strings.Builder
	out.WriteString("CPU time per block, and in bold how many times ipalloc's it is. Look-up: who has a block and, ipalloc alone, what overlaps " +
		"it; Cilium's cidrset, whether it is taken. Commit " + commit + ".\n\n| work | blocks held |")
	for _, name := range names {
		out.WriteString(" " + name + " |")
	}
	out.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(names)) + "\n")
	for _, w := range works {
		for _, n := range sizesOf(all, w.name) {
			fmt.Fprintf(&out, "| %s | %d |", w.title, n)
			of := func(name string) (allocation, bool) {
				i := slices.IndexFunc(all, func(a allocation) bool { return a.work == w.name && a.blocks == n && a.allocator == name })
				if i < 0 {
					return allocation{}, false
				}
				return all[i], true
			}
			first, _ := of(names[0])
			for _, name := range names {
				text := "-"
				if a, ok := of(name); ok {
					text = a.cell(first)
				}
				out.WriteString(" " + text + " |")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// sizesOf returns the numbers of blocks for which a task was measured, ascending.
func sizesOf(all []allocation, work string) []int {
	var out []int
	for _, a := range all {
		if a.work == work && !slices.Contains(out, a.blocks) {
			out = append(out, a.blocks)
		}
	}
	slices.Sort(out)
	return out
}
