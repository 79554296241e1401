package main

import (
	"fmt"
	"slices"
	"strings"
)

// ratio is a row of the first table: a value of this operator, divided by the value of each
// contender beside it.
type ratio struct {
	about, measure, value string
	own                   string // ours, or oursMultiPool
	against               [3]string
}

// ratios returns the rows. Their columns are the floor, cluster-pool and multi-pool.
func ratios() []ratio {
	claim, serve := bare("claim").name, bare("serve").name
	return []ratio{
		{"cold start: a block for every node", "cold", "seconds", ours, [3]string{claim, clusterPool, multiPool}},
		{"the same, peak memory", "cold", "peak MiB", ours, [3]string{"", clusterPool, multiPool}},
		{"the same, API server's CPU", "cold", "apiserver cpu s", ours, [3]string{claim}},
		{"cold start in multi-pool mode", "cold", "seconds", oursMultiPool, [3]string{serve, "", multiPool}},
		{"the same, peak memory", "cold", "peak MiB", oursMultiPool, [3]string{"", "", multiPool}},
		{"restart", "restart", "seconds", ours, [3]string{"", clusterPool, multiPool}},
		{"the same, until idle", "restart", "idle after s", ours, [3]string{bare("stream").name, clusterPool, multiPool}},
		{"the same, peak memory", "restart", "peak MiB", ours, [3]string{"", clusterPool, multiPool}},
		{"restart in multi-pool mode", "restart", "seconds", oursMultiPool, [3]string{"", "", multiPool}},
		{"storm: one more block for every node", "storm", "seconds", ours, [3]string{claim}},
		{"storm in multi-pool mode", "storm", "seconds", oursMultiPool, [3]string{serve, "", multiPool}},
		{"failover: the leader stops", "failover-stopped", "seconds", ours, [3]string{"", clusterPool, multiPool}},
		{"the leader is killed", "failover-killed", "seconds", ours, [3]string{"", clusterPool, multiPool}},
		{"its machine hangs", "failover-hung", "seconds", ours, [3]string{"", clusterPool, multiPool}},
		{"failover in multi-pool mode: the leader stops", "failover-stopped", "seconds", oursMultiPool, [3]string{"", "", multiPool}},
		{"the leader is killed", "failover-killed", "seconds", oursMultiPool, [3]string{"", "", multiPool}},
		{"its machine hangs", "failover-hung", "seconds", oursMultiPool, [3]string{"", "", multiPool}},
		{"steady: CPU while pods come and go", "steady", "cpu s", ours, [3]string{bare("watch").name}},
		{"steady in multi-pool mode", "steady", "cpu s", oursMultiPool, [3]string{"", clusterPool, multiPool}},
	}
}

// report returns the ratios, then a table of values for each measure.
func (b *bench) report() string {
	var out strings.Builder
	fmt.Fprintf(&out, "`%s`: this operator's value divided by the other one's. The ratio of medians, and the range of the rounds' ratios.\n\n"+
		"| this operator ÷ | floor | cluster-pool | multi-pool |\n| --- | --- | --- | --- |\n", b.command)
	for _, r := range ratios() {
		fmt.Fprintf(&out, "| %s |", r.about)
		for _, other := range r.against {
			fmt.Fprintf(&out, " %s |", r.cell(b.samples, other))
		}
		out.WriteString("\n")
	}
	for _, m := range b.measures {
		fmt.Fprintf(&out, "\n## %s\n\n%s", m.name, b.table(m))
	}
	return out.String()
}

// cell formats a ratio, "-" if one of the two was not measured.
func (r ratio) cell(samples []sample, other string) string {
	own, of := valuesOf(samples, r.measure, r.own, r.value), valuesOf(samples, r.measure, other, r.value)
	if len(own) != len(of) || median(of) == 0 {
		return "-"
	}
	var rounds []float64
	for i := range own {
		if of[i] > 0 {
			rounds = append(rounds, own[i]/of[i])
		}
	}
	return number(median(own)/median(of)) + spread(rounds)
}

// table returns the values of a measure: medians and their ranges.
func (b *bench) table(m measure) string {
	columns := []string{"seconds", "idle after s", "cpu s", "apiserver cpu s", "peak MiB", "writes", "refused writes", "versions", "own writes"}
	out := "| contender | " + strings.Join(columns, " | ") + " |\n| ---" + strings.Repeat(" | ---", len(columns)) + " |\n"
	for _, c := range m.contenders {
		out += "| " + c.name + " |"
		for _, value := range columns {
			cell := "-"
			if values := valuesOf(b.samples, m.name, c.name, value); len(values) > 0 {
				cell = number(median(values)) + spread(values)
			}
			out += " " + cell + " |"
		}
		out += "\n"
	}
	return out
}

// valuesOf returns a value of a contender in each round.
func valuesOf(samples []sample, measure, contender, value string) []float64 {
	var out []float64
	for _, s := range samples {
		if v, ok := s.Values[value]; ok && s.Measure == measure && s.Contender == contender {
			out = append(out, v)
		}
	}
	return out
}

// spread formats the range of values that do not look alike.
func spread(values []float64) string {
	if len(values) == 0 || number(slices.Min(values)) == number(slices.Max(values)) {
		return ""
	}
	return fmt.Sprintf(" (%s–%s)", number(slices.Min(values)), number(slices.Max(values)))
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch {
	case v == float64(int64(v)), v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// median returns the mean of the middle two if the number of values is even, 0 without values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
