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
	took    time.Duration
	faults  map[fault]int
	figures []figure
}

type figure struct {
	n    int
	what string
}

// tell collects the figures of a run, even if it failed.
func (c *chaos) tell() *report {
	v := c.checker.tell()
	starts, endings := 0, 0
	for _, o := range c.operator {
		o.mu.Lock()
		starts += o.starts
		endings += o.endings
		o.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &report{took: time.Since(c.begin), faults: maps.Clone(c.faults), figures: []figure{
		{v.versions(), "versions judged"}, {v.stats.Gaps, "versions missed"}, {v.leaders, "leader changes"},
		{starts, "operator starts"}, {endings, "operators that ended by themselves"},
		{v.stats.Claims, "blocks claimed"}, {v.again, "of these, of blocks that had been claimed before"}, {v.stats.Reclaims, "blocks released"},
		{v.stats.Drains, "drains begun"}, {v.stats.Undrains, "drains undone"},
		{v.handshakes, "addresses released by handshake"}, {v.givenBack, "blocks given back by agents"},
		{int(c.load.created.Load()), "pods created"}, {int(c.load.deleted.Load()), "pods deleted"},
		{int(c.fleet.Added.Load()), "CNI ADDs"}, {int(c.fleet.Failed.Load()), "CNI ADDs that failed and were tried again"},
		{int(c.fleet.Dropped.Load()), "endpoints that an agent could not restore"}, {v.stats.AgentChecks, "questions to the agents"},
	}}
}

func (r *report) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		fmt.Fprintf(w, "\t%d\t  fault: %s\n", r.faults[kind], kind)
	}
	for _, f := range r.figures {
		fmt.Fprintf(w, "\t%d\t  %s\n", f.n, f.what)
	}
	_ = w.Flush()
	fmt.Fprintf(to, "after %s\n", r.took.Round(time.Second))
}

// progress prints the progress of a run in one line.
func (c *chaos) progress(v verdict) {
	c.mu.Lock()
	phase, n := c.phase, 0
	for _, count := range c.faults {
		n += count
	}
	c.mu.Unlock()
	leads := "no operator"
	if o := leader(c.operator); o != nil {
		leads = o.name
	}
	c.say("%4.0f s  %-9s %3d faults, %s leads; pods +%d -%d; %d versions, %d claims, %d releases, %d handshakes, %d given back, %d leader changes, %d broken",
		time.Since(c.begin).Seconds(), phase, n, leads, c.load.created.Load(), c.load.deleted.Load(),
		v.versions(), v.stats.Claims, v.stats.Reclaims, v.handshakes, v.givenBack, v.leaders, len(v.violations))
}
