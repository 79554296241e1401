package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	reportFile = "report.md"
	plotFile   = "growth.svg"
	// allocatorFile is the output of the allocators' Go benchmarks, stored with the
	// results.
	allocatorFile = "alloc.txt"
)

// report writes the tables of all runs, and a plot, into the folder of their results.
func report(args []string) error {
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	dir := flags.String("results", keptResults, "folder of the results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	runs, err := loadResults(*dir)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fmt.Errorf("no results in %s: run bench run first", *dir)
	}
	// The allocators' benchmarks are Go's own, run by make bench-alloc.
	alloc, err := os.ReadFile(filepath.Join(*dir, allocatorFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k := keep(runs)
	return errors.Join(
		os.WriteFile(filepath.Join(*dir, plotFile), []byte(growthPlot(k)), 0o644),
		os.WriteFile(filepath.Join(*dir, reportFile), []byte(k.markdown(strings.Split(string(alloc), "\n"))), 0o644))
}

func (k kept) markdown(allocator []string) string {
	var out strings.Builder
	out.WriteString(k.runsList())
	out.WriteString(goalsTable(k))
	for _, t := range tables() {
		for _, measure := range k.variants(t.measure) {
			out.WriteString(k.tableOf(t, measure))
		}
	}
	out.WriteString(memoryTable(k))
	out.WriteString(apiSettingsTable(k))
	out.WriteString(settingsTable(k))
	if len(allocator) > 1 {
		fmt.Fprintf(&out, "### Allocator\n\n%s\n", allocatorTable(allocator))
	}
	out.WriteString(growthTable(k))
	out.WriteString(reactionGrowth(k))
	out.WriteString(failoverTable(k))
	out.WriteString(poolsTable(k))
	out.WriteString(sizesTable(k))
	return out.String()
}

// tableOf returns the tables of a measure, for each size that is not only a point of the growth
// curve, as sizes below the full one are.
func (k kept) tableOf(t table, measure string) string {
	var out strings.Builder
	for _, nodes := range slices.Sorted(maps.Keys(k.by[measure])) {
		m := k.by[measure][nodes]
		if _, full := k.by[measure][fullSize]; nodes < fullSize && (nodes < m.run.Nodes || full && showsGrowth(measure)) {
			continue // a point of the growth curve
		}
		if nodes == 1 {
			continue // the process alone
		}
		title := t.title + strings.TrimPrefix(measure, t.measure)
		if nodes != fullSize {
			title += fmt.Sprintf(", %d nodes", nodes)
		}
		fmt.Fprintf(&out, "### %s\n\n%s Commit %s.\n\n%s\n", title, t.note, strings.Join(m.commits(), ", "), t.markdown(m.samples))
	}
	return out.String()
}

func (r *results) began() string { return r.Began.UTC().Format("2006-01-02 15:04 UTC") }

// runsList lists the runs that the tables come from.
func (k kept) runsList() string {
	var out strings.Builder
	out.WriteString("### Runs\n\nThe tables are written from the results of these runs:\n\n")
	for _, r := range k.used() {
		fmt.Fprintf(&out, "- `%s`, commit %s, begun %s, %.0f minutes, on %d cores (%s; %s; %s).", r.Command, r.Commit,
			r.began(), r.Took.Minutes(), r.Cores, r.Memory, shortKernel(r.Kernel), r.Go)
		out.WriteString("\n")
	}
	return out.String() + "\n"
}
