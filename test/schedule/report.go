package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// report contains the results of a run.
type report struct {
	verdict
	settings
	phases []phase
	exact  *exactReport // of runExact
	steps  []step       // of runKinds
	done   map[string]int
	took   time.Duration
	// early counts CNI ADDs that found no address because the agent had not yet seen it.
	early int
}

func (t *trial) report() *report {
	history := t.record.changes()
	r := &report{verdict: judge(history, t.bound), settings: t.settings, phases: t.phases, done: t.people.done}
	r.took = time.Since(t.begin)
	switch t.run {
	case runExact:
		r.exact = newExactReport(t.bursts, history, t.limit)
		for _, text := range r.exact.findings() {
			r.found("exact", "%s", text)
		}
	case runKinds:
		r.steps = t.steps
		if n := t.cluster.fleet.Failed.Load(); n > 0 {
			r.found("kinds", "%d CNI ADDs failed", n)
		}
	}
	var missed []string
	r.early, missed = t.cluster.misses.judge(history)
	for _, text := range missed {
		r.found(noAddress, "%s", text)
	}
	return r
}

// judge returns an error if there are findings, or if there are none of a planted fault.
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
	switch r.run {
	case runExact:
		r.exact.print(to)
	case runKinds:
		printSteps(to, r.steps)
	default:
		r.printPhases(to)
	}
	fmt.Fprintln(to)
	r.printVerdict(to)
}

func (r *report) printPhases(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\n\tpods bound\tper second\tCNI ADDs\tfound no address\tmet a starting agent\t\n")
	for _, p := range r.phases {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%d\t%d\t%d\t\n", p.name, p.bound, float64(p.bound)/p.took.Seconds(), p.added, p.exhausted, p.interrupted)
	}
	_ = w.Flush()
}

func (r *report) printVerdict(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(value any, format string, args ...any) {
		fmt.Fprintf(w, "\t%v\t  %s\n", value, fmt.Sprintf(format, args...))
	}
	line(r.versions, "versions of objects judged, in %s", r.took.Round(time.Second))
	line(r.requesting.wrong, "of %d pods with a request bound without an address", r.requesting.bound)
	line(r.plain.wrong, "of %d pods without one", r.plain.bound)
	line(r.requesting.most, "most pods with a request bound within one second")
	line(r.counts[noAddress], "CNI ADDs of theirs that found no address")
	line(r.early, "more that came before the agent had seen what its CiliumNode has: a kubelet makes a sandbox first")
	line(r.overOffers, "versions with an offer above the addresses there are")
	line(r.longestWait.Round(time.Millisecond), "longest that a pod was pending while a node had an address for it; at most %s", r.bound)
	line(r.longestPending.Round(time.Millisecond), "longest that a pod was pending at all")
	line(r.full, "times no eligible node had an address left")
	if n := len(r.gaps); n > 0 {
		slices.Sort(r.gaps)
		line(r.gaps[n/2].Round(time.Millisecond), "median from the last address taken, while nodes can grow, to the next pod bound; longest %s, of %d times",
			r.gaps[n-1].Round(time.Millisecond), n)
	}
	if r.run != runKinds {
		line(r.nodes, "nodes")
	}
	for _, name := range slices.Sorted(maps.Keys(r.done)) {
		line(r.done[name], "%s", name)
	}
	_ = w.Flush()
	for _, f := range r.findings {
		fmt.Fprintln(to, "FOUND", f)
	}
}
