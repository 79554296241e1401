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

// The page is written by hand, except for the text between these two lines.
const (
	beginMark = "<!-- begin: written by bench report -->"
	endMark   = "<!-- end: written by bench report -->"
)

const (
	pageFile = "performance.md"
	plotFile = "performance-growth.svg"
	// allocatorFile is the output of the allocators' Go benchmarks, stored with the
	// results.
	allocatorFile = "alloc.txt"
)

// report writes the generated part of performance.md, and its plot.
func report(args []string) error {
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	dir := flags.String("results", keptResults, "folder of the results")
	docs := flags.String("docs", "docs", "folder of "+pageFile)
	if err := flags.Parse(args); err != nil {
		return err
	}
	old, err := os.ReadFile(filepath.Join(*docs, pageFile))
	if err != nil {
		return err
	}
	page, plot, err := pageFrom(*dir, string(old))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(*docs, plotFile), []byte(plot), 0o644),
		os.WriteFile(filepath.Join(*docs, pageFile), []byte(page), 0o644))
}

// pageFrom returns the page with its generated part regenerated, and its plot.
func pageFrom(dir, old string) (page, plot string, err error) {
	before, rest, ok := strings.Cut(old, beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return "", "", fmt.Errorf("%s has no place for the results: it needs the lines %q and %q", pageFile, beginMark, endMark)
	}
	runs, err := loadResults(dir)
	if err != nil {
		return "", "", err
	}
	if len(runs) == 0 {
		return "", "", fmt.Errorf("no results in %s: run bench run first", dir)
	}
	// The allocators' benchmarks are Go's own, run by make bench-alloc.
	alloc, err := os.ReadFile(filepath.Join(dir, allocatorFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	k := keep(runs)
	return before + beginMark + "\n\n" + k.markdown(strings.Split(string(alloc), "\n")) + endMark + after, growthPlot(k), nil
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
	out.WriteString(poolsTable(k) + notes(inOrder(k.by["pools"])...))
	out.WriteString(sizesTable(k) + notes(measured{run: k.sizes}))
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
		out.WriteString(notes(m))
	}
	return out.String()
}

// notes repeats under a table the notes on the runs that it is written from.
func notes(of ...measured) string {
	var runs []*results
	for _, m := range of {
		if m.run != nil && !slices.Contains(runs, m.run) {
			runs = append(runs, m.run)
		}
	}
	var out strings.Builder
	for _, r := range runs {
		which := "this run"
		if len(runs) > 1 {
			which = "the run of commit " + r.Commit + ", begun " + r.began()
		}
		if r.Note != "" {
			fmt.Fprintf(&out, "Note on %s: %s\n\n", which, r.Note)
		}
	}
	return out.String()
}

func (r *results) began() string { return r.Began.UTC().Format("2006-01-02 15:04 UTC") }

// runsList lists the runs that the tables come from.
func (k kept) runsList() string {
	var out strings.Builder
	out.WriteString("### Runs\n\nThe tables are written from [the results of these runs](../test/bench/results):\n\n")
	for _, r := range k.used() {
		fmt.Fprintf(&out, "- `%s`, commit %s, begun %s, %.0f minutes, on %d cores (%s; %s; %s).", r.Command, r.Commit,
			r.began(), r.Took.Minutes(), r.Cores, r.Memory, shortKernel(r.Kernel), r.Go)
		if r.Note != "" {
			out.WriteString(" " + r.Note)
		}
		out.WriteString("\n")
	}
	return out.String() + "\n"
}
