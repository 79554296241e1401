package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The plot: both axes double at each step, so that what grows linearly with the number of
// nodes is a straight line of a fixed slope.
const (
	plotWidth, plotHeight = 760, 440
	plotLeft, plotRight   = 60, 190
	plotTop, plotBottom   = 20, 50
)

// colours returns colors that readers with color blindness can distinguish (Okabe, Ito).
func colours() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}
}

// axis maps values to a range of pixels, by their logarithm.
type axis struct{ low, high, from, to float64 }

func (a axis) at(v float64) float64 {
	if a.high == a.low {
		return (a.from + a.to) / 2
	}
	return a.from + (math.Log2(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// growthPlot draws seconds by number of nodes: this operator as solid lines, floors dashed.
func growthPlot(k kept) string {
	lines := slices.DeleteFunc(curves(k), func(c curve) bool { return !c.drawn })
	x := axis{low: math.Inf(1), high: math.Inf(-1), from: plotLeft, to: plotWidth - plotRight}
	y := axis{low: math.Inf(1), high: math.Inf(-1), from: plotHeight - plotBottom, to: plotTop}
	for _, l := range lines {
		for _, p := range l.shown() {
			x.low, x.high = min(x.low, math.Log2(float64(p.nodes))), max(x.high, math.Log2(float64(p.nodes)))
			y.low, y.high = min(y.low, math.Floor(math.Log2(p.value))), max(y.high, math.Ceil(math.Log2(p.value)))
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	out.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	if x.high >= x.low {
		grid(&out, x, y)
		for i, l := range lines {
			draw(&out, l, x, y, colours()[i/2%len(colours())])
		}
		legend(&out, lines)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// shown returns the points that have a logarithm: a floor may use too little CPU to count.
func (c curve) shown() []point {
	return slices.DeleteFunc(slices.Clone(c.points), func(p point) bool { return p.value <= 0 })
}

func grid(out *strings.Builder, x, y axis) {
	for e := y.low; e <= y.high; e++ {
		v := math.Exp2(e)
		fmt.Fprintf(out, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, plotWidth-plotRight, y.at(v), y.at(v), plotLeft-6, y.at(v)+4, number(v))
	}
	for e := x.high; e >= x.low-0.01; e-- {
		v := math.Exp2(e)
		fmt.Fprintf(out, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n",
			x.at(v), x.at(v), plotTop, plotHeight-plotBottom, x.at(v), plotHeight-plotBottom+18, v)
	}
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="middle">nodes</text><text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">seconds</text>`+"\n",
		(plotLeft+plotWidth-plotRight)/2, plotHeight-12, plotHeight/2, plotHeight/2)
}

func draw(out *strings.Builder, l curve, x, y axis, colour string) {
	if len(l.shown()) == 0 {
		return
	}
	var points []string
	for _, p := range l.shown() {
		px, py := x.at(float64(p.nodes)), y.at(p.value)
		points = append(points, fmt.Sprintf("%.1f,%.1f", px, py))
		fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px, py, colour)
	}
	fmt.Fprintf(out, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", strings.Join(points, " "), colour, dash(l))
}

func legend(out *strings.Builder, lines []curve) {
	const step = 20
	for i, l := range lines {
		if len(l.shown()) == 0 {
			continue
		}
		at, left := plotTop+10+i*step, plotWidth-plotRight+14
		name := l.title
		if l.floor {
			name += ", floor"
		}
		fmt.Fprintf(out, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
			left, left+28, at, at, colours()[i/2%len(colours())], dash(l), left+34, at+4, name)
	}
}

func dash(l curve) string {
	if l.floor {
		return ` stroke-dasharray="5 4"`
	}
	return ""
}
