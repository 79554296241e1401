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
		{"cold", "cold start", "claim"}, {"restart", "restart", "stream"}, {"storm", "scale-up storm", "claim"}, {"reclaim", "reclaim storm", "reclaim"},
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

func curves(k kept) []curve {
	var out []curve
	for _, c := range grown() {
		for _, floor := range []bool{true, false} {
			line, name := curve{title: c.title, floor: floor}, ours
			if floor {
				name = bare(c.floor).name
			}
			for _, n := range slices.Sorted(maps.Keys(k.by[c.measure])) {
				if values := k.by[c.measure][n].values(name, "seconds"); len(values) > 0 {
					line.points = append(line.points, point{n, median(values)})
				}
			}
			out = append(out, line)
		}
	}
	return out
}

// superlinear is how much more a node may take at a size than at the smallest one, before
// the table says so.
const superlinear = 1.1

// perNode is how much more a node takes at a point than at the first.
func (c curve) perNode(p point) float64 {
	first := c.points[0]
	return (p.seconds / float64(p.nodes)) / (first.seconds / float64(first.nodes))
}

func growthTable(k kept) string {
	lines := curves(k)
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
	out.WriteString("### Growth\n\nSeconds by number of nodes. In bold: how many times as long a node takes as at the smallest size, where that is above " +
		number(superlinear) + ": worse than linear.\n\n")
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
			out.WriteString(" " + number(l.points[i].seconds))
			if times := l.perNode(l.points[i]); times > superlinear {
				out.WriteString(", **" + number(times) + "×**")
			}
			out.WriteString(" |")
		}
		out.WriteString("\n")
	}
	return out.String() + "\n"
}
