package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// report is what a run shows.
type report struct {
	verdict
	settings
	phases []phase
	done   map[string]int
	took   time.Duration
}

func (t *trial) report() *report {
	r := &report{verdict: judge(t.record.changes(), t.bound), settings: t.settings, phases: t.phases, done: t.people.done}
	r.took = time.Since(t.begin)
	for i, p := range r.phases {
		if i > 0 && p.exhausted > 0 { // the first is without the feature
			r.found("no address", "%d CNI ADDs %s", p.exhausted, p.name)
		}
	}
	return r
}

// judge is an error where there are findings, or none of a planted fault.
func (r *report) judge() error {
	if r.plant {
		for _, kind := range []string{wrongBind, overOffer} {
			if r.counts[kind] == 0 {
				return fmt.Errorf("a planted fault was not found: %s", kind)
			}
		}
		fmt.Println("the planted fault was found")
		return nil
	}
	if len(r.findings) > 0 {
		return errFound
	}
	return nil
}

func (r *report) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\n\tpods bound\tper second\tCNI ADDs\tfound no address\tmet a starting agent\t\n")
	for _, p := range r.phases {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%d\t%d\t%d\t\n", p.name, p.bound, float64(p.bound)/p.took.Seconds(), p.added, p.exhausted, p.interrupted)
	}
	_ = w.Flush()
	fmt.Fprintln(to)
	w = tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(value any, format string, args ...any) {
		fmt.Fprintf(w, "\t%v\t  %s\n", value, fmt.Sprintf(format, args...))
	}
	line(r.versions, "versions of objects judged, in %s", r.took.Round(time.Second))
	line(r.requesting.wrong, "of %d pods with a request bound without an address", r.requesting.bound)
	line(r.plain.wrong, "of %d pods without one", r.plain.bound)
	line(r.requesting.most, "most pods with a request bound within one second")
	line(r.overOffers, "versions with an offer above the addresses there are")
	line(r.longestWait.Round(time.Millisecond), "longest that a pod was pending while a node had an address for it; at most %s", r.bound)
	line(r.longestPending.Round(time.Millisecond), "longest that a pod was pending at all")
	line(r.full, "times no eligible node had an address left")
	line(r.nodes, "nodes")
	for _, name := range slices.Sorted(maps.Keys(r.done)) {
		line(r.done[name], "%s", name)
	}
	_ = w.Flush()
	for _, f := range r.findings {
		fmt.Fprintln(to, "FOUND", f)
	}
}
