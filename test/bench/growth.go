package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grown returns what the growth curve shows: one line each for this operator and its floor.
func grown() []growing {
	return []growing{
		{"cold", "cold start, from the first node on", "seconds", "first s", "claim", true},
		{"restart", "restart", "seconds", "", "stream", true},
		{"storm", "scale-up storm", "seconds", "", "claim", true},
		{"reclaim", "reclaim storm", "seconds", "", "reclaim", true},
		{"join", "cold start without CiliumNodes, from the first node on", "seconds", "first s", "join", true},
		{"rest", "own CPU at rest", "cpu s", "", "watch", true},
		{"cold", "own CPU, cold start, from the first node on", "cpu s", firstCPU, "claim", false},
		{"restart", "own CPU, restart", "cpu s", "", "stream", false},
		{"storm", "own CPU, scale-up storm", "cpu s", "", "claim", false},
		{"reclaim", "own CPU, reclaim storm", "cpu s", "", "reclaim", false},
		{"join", "own CPU, cold start without CiliumNodes, from the first node on", "cpu s", firstCPU, "join", false},
	}
}

// showsGrowth reports whether the tables of growth show a measure.
func showsGrowth(name string) bool {
	return slices.ContainsFunc(growthMeasures(), func(m measure) bool { return m.name == name })
}

// growing is a value of a measure, in seconds.
type growing struct {
	measure, title, value string
	// less is a value to subtract, "" for none: what it took until the first node. That is the
	// start of the process, which would hide how the rest grows, and its first read of
	// everything, whose growth the restart shows.
	less, floor string
	// drawn: the plot shows it too.
	drawn bool
}

// curve is a value by size, for one contender.
type curve struct {
	title        string
	floor, drawn bool
	points       []point
}

type point struct {
	nodes int
	value float64
	// of are the samples that the value is the median of.
	of measured
}

func (p point) commits() string { return strings.Join(p.of.commits(), ", ") }

func curves(k kept) []curve {
	var out []curve
	for _, c := range grown() {
		for _, floor := range []bool{true, false} {
			name := ours
			if floor {
				name = bare(c.floor).name
			}
			out = append(out, curve{title: c.title, floor: floor, drawn: c.drawn, points: points(sameMachine(k.by[c.measure]), name, c.value, c.less)})
		}
	}
	return out
}

// sameMachine leaves out the sizes that were measured on another machine than the full size,
// or the largest where that is missing: times of two machines show no growth.
func sameMachine(bySize map[int]measured) map[int]measured {
	if len(bySize) == 0 {
		return bySize
	}
	as, full := bySize[fullSize]
	if !full {
		as = bySize[slices.Max(slices.Collect(maps.Keys(bySize)))]
	}
	out := maps.Clone(bySize)
	maps.DeleteFunc(out, func(_ int, m measured) bool {
		return m.run.Cores != as.run.Cores || m.run.Memory != as.run.Memory || m.run.Kernel != as.run.Kernel
	})
	return out
}

// points returns the medians of a contender's value, less another one, by size. Samples that
// lack either are left out.
func points(bySize map[int]measured, contender, value, less string) []point {
	var out []point
	for _, n := range slices.Sorted(maps.Keys(bySize)) {
		of := measured{run: bySize[n].run}
		var values []float64
		for _, s := range bySize[n].samples {
			v, ok := s.Values[value]
			minus, known := s.Values[less]
			if s.Contender == contender && ok && (known || less == "") {
				values, of.samples = append(values, v-minus), append(of.samples, s)
			}
		}
		if len(values) > 0 {
			out = append(out, point{n, median(values), of})
		}
	}
	return out
}

const (
	// superlinear is how many times as much a node may take as at the base before the table
	// reports it.
	superlinear = 1.1
	// growthBase is the number of nodes from which growth is judged: below it, too large a
	// part does not depend on the number of nodes.
	growthBase = fullSize / 4
)

// base returns the point that growth is compared with: growthBase, or the smallest size if
// that is missing.
func (c curve) base() point {
	for _, p := range c.points {
		if p.nodes == growthBase {
			return p
		}
	}
	if len(c.points) > 0 {
		return c.points[0]
	}
	return point{}
}

// last returns the point of the largest size.
func (c curve) last() point {
	if len(c.points) == 0 {
		return point{}
	}
	return c.points[len(c.points)-1]
}

// commits names the commit of the smallest size, and that of each size that was measured at
// another one.
func (c curve) commits() string {
	if len(c.points) == 0 {
		return "-"
	}
	first := c.points[0].commits()
	out := []string{first}
	for _, p := range c.points[1:] {
		if p.commits() != first {
			out = append(out, fmt.Sprintf("%d: %s", p.nodes, p.commits()))
		}
	}
	return strings.Join(out, "; ")
}

// perNode returns how many times as much a node takes at a point as at the base; 0 if the
// base took too little to tell.
func (c curve) perNode(p point) float64 {
	base := c.base()
	if base.value == 0 {
		return 0
	}
	return (p.value / float64(p.nodes)) / (base.value / float64(base.nodes))
}

func growthTable(k kept) string {
	lines := curves(k)
	var sizes []int
	for _, l := range lines {
		for _, p := range l.points {
			sizes = append(sizes, p.nodes)
		}
	}
	slices.Sort(sizes)
	if sizes = slices.Compact(sizes); len(sizes) < 2 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "### Growth\n\nSeconds by number of nodes. In bold: how many times as much a node takes as at %d nodes (at the smallest size measured, where that "+
		"is larger), where that is above %s: worse than linear. \"From the first node on\" is less what it took until the first node was published: the start of the process and "+
		"its first read of everything. Sizes that another machine measured are left out. "+
		"Commits: that of the smallest size, and of each size that was measured at another one.\n\n", growthBase, number(superlinear))
	out.WriteString("![Seconds by number of nodes](growth.svg)\n\n| measure | contender |")
	for _, n := range sizes {
		fmt.Fprintf(&out, " %d |", n)
	}
	out.WriteString(" commits |\n| --- | --- |" + strings.Repeat(" --- |", len(sizes)+1) + "\n")
	for _, l := range lines {
		out.WriteString(l.row(sizes))
	}
	return out.String() + "\n"
}

// row formats a row of the growth table.
func (c curve) row(sizes []int) string {
	name := ours
	if c.floor {
		name = "floor"
	}
	out := fmt.Sprintf("| %s | %s |", c.title, name)
	for _, n := range sizes {
		i := slices.IndexFunc(c.points, func(p point) bool { return p.nodes == n })
		if i < 0 {
			out += " - |"
			continue
		}
		out += " " + number(c.points[i].value)
		if times := c.perNode(c.points[i]); n > c.base().nodes && times > superlinear {
			out += ", **" + telling(times, superlinear) + "×**"
		}
		out += " |"
	}
	return out + " " + c.commits() + " |\n"
}
