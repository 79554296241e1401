package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grown are what the growth curve shows: one line each for ours and its floor.
func grown() []growing {
	return []growing{
		{"cold", "cold start", "claim"}, {"restart", "restart", "list"}, {"storm", "scale-up storm", "claim"}, {"reclaim", "reclaim storm", "reclaim"},
	}
}

type growing struct{ measure, title, floor string }

// curve is a measure's seconds by size, for one contender.
type curve struct {
	title  string
	floor  bool
	points []point
}

type point struct {
	nodes   int
	seconds float64
}

func curves(r results) []curve {
	var out []curve
	for _, c := range grown() {
		for _, floor := range []bool{true, false} {
			line, name := curve{title: c.title, floor: floor}, ours
			if floor {
				name = bare(c.floor).name
			}
			bySize := map[int][]float64{}
			for _, s := range r.Samples {
				v, ok := s.Values["seconds"]
				if ok && s.Measure == c.measure && s.Contender == name {
					bySize[s.Nodes] = append(bySize[s.Nodes], v)
				}
			}
			for _, n := range slices.Sorted(maps.Keys(bySize)) {
				line.points = append(line.points, point{n, median(bySize[n])})
			}
			out = append(out, line)
		}
	}
	return out
}

func growthTable(r results) string {
	lines := curves(r)
	var sizes []int
	for _, l := range lines {
		for _, p := range l.points {
			if !slices.Contains(sizes, p.nodes) {
				sizes = append(sizes, p.nodes)
			}
		}
	}
	slices.Sort(sizes)
	if len(sizes) < 2 {
		return ""
	}
	var out strings.Builder
	out.WriteString("### Growth\n\nSeconds by number of nodes. A column twice the size of the one before should be at most twice as long.\n\n")
	out.WriteString("![Seconds by number of nodes](performance-growth.svg)\n\n| measure | contender |")
	for _, n := range sizes {
		fmt.Fprintf(&out, " %d |", n)
	}
	out.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(sizes)) + "\n")
	for _, l := range lines {
		name := ours
		if l.floor {
			name = "floor"
		}
		fmt.Fprintf(&out, "| %s | %s |", l.title, name)
		for _, n := range sizes {
			i := slices.IndexFunc(l.points, func(p point) bool { return p.nodes == n })
			if i < 0 {
				out.WriteString(" - |")
				continue
			}
			out.WriteString(" " + number(l.points[i].seconds) + " |")
		}
		out.WriteString("\n")
	}
	return out.String() + "\n"
}

func sizesTable(r results) string {
	if len(r.Sizes) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("### Bytes per object\n\nAs JSON with managed fields: what etcd keeps of custom resources, and what each watch of them receives.\n\n| object | bytes |\n| --- | --- |\n")
	for _, name := range slices.SortedFunc(maps.Keys(r.Sizes), func(a, b string) int { return int(r.Sizes[a] - r.Sizes[b]) }) {
		fmt.Fprintf(&out, "| %s | %.0f |\n", name, r.Sizes[name])
	}
	return out.String() + "\n"
}
