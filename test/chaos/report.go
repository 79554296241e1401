package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report contains the results of a run.
type report struct {
	Run     string // the scenario
	Runs    int
	Seconds float64
	// Faults and Figures are counts by name.
	Faults, Figures map[string]int
}

// Names of figures, in the order in which they are printed.
const (
	versionsJudged = "versions judged"
	gaps           = "versions missed"
	leaderChanges  = "leader changes"
	operatorStarts = "operator starts"
	operatorEnds   = "operators that ended by themselves"
	blocksClaimed  = "blocks claimed"
	claimedAgain   = "of these, of blocks that had been claimed before"
	blocksReleased = "blocks released"
	drains         = "drains begun"
	undrains       = "drains undone"
	handshakesDone = "addresses released by handshake"
	givenBack      = "blocks given back by agents"
	podsCreated    = "pods created"
	podsDeleted    = "pods deleted"
	addsDone       = "CNI ADDs"
	addsFailed     = "CNI ADDs that failed and were tried again"
	dropped        = "endpoints that an agent could not restore"
	agentChecks    = "questions to the agents"
	operations     = "operations checked by porcupine"
	histories      = "histories of blocks"
	unknownWrites  = "operations of unknown outcome"

	moveSeconds   = "seconds from the first renumber to the last"
	movesKilled   = "times that renumber was killed and called again"
	movesAborted  = "times that it was aborted and begun again"
	podsEvicted   = "pods evicted"
	podsAlone     = "pods without a controller, which people moved"
	podsStayed    = "pods that were not evicted, and kept their address"
	agentsRenewed = "agents restarted by it"
	budgetsJudged = "PodDisruptionBudgets, of which"
	budgetsSpent  = "- with no pod more than they ask for at some time"
)

func figureNames() []string {
	return []string{
		versionsJudged, gaps, leaderChanges, operatorStarts, operatorEnds, blocksClaimed, claimedAgain, blocksReleased, drains, undrains,
		handshakesDone, givenBack, podsCreated, podsDeleted, addsDone, addsFailed, dropped, agentChecks, operations, histories, unknownWrites,
		moveSeconds, movesKilled, movesAborted, podsEvicted, podsAlone, podsStayed, agentsRenewed, budgetsJudged, budgetsSpent,
	}
}

// ofOneKind returns the figures of renumber, and those of one mode alone.
func ofOneKind() []string {
	return []string{
		handshakesDone, givenBack, moveSeconds, movesKilled, movesAborted, podsEvicted, podsAlone, podsStayed, agentsRenewed, budgetsJudged, budgetsSpent,
	}
}

// tell collects the figures, also of a run that failed.
func (c *chaos) tell() (*report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	v, err := c.verdict(ctx, "/verdict")
	c.mu.Lock()
	defer c.mu.Unlock()
	f := map[string]int{
		versionsJudged: v.versions(), gaps: v.Stats.Gaps, leaderChanges: v.Leaders,
		blocksClaimed: v.Stats.Claims, blocksReleased: v.Stats.Reclaims, drains: v.Stats.Drains, undrains: v.Stats.Undrains,
		agentChecks: v.Stats.AgentChecks,
		podsCreated: int(c.load.created.Load()), podsDeleted: int(c.load.deleted.Load()),
		addsDone: int(c.fleet.Added.Load()), addsFailed: int(c.fleet.Failed.Load()), dropped: int(c.fleet.Dropped.Load()),
	}
	switch c.Mode {
	case multiPoolMode:
		f[givenBack] = v.GivenBack
	case kubernetesMode:
	default:
		f[handshakesDone] = v.Handshakes
	}
	for _, o := range c.operator {
		o.mu.Lock()
		f[operatorStarts] += o.starts
		f[operatorEnds] += o.endings
		o.mu.Unlock()
	}
	if h := c.claims; h != nil {
		f[operations], f[histories] = len(h.Operations), h.Blocks()
		f[claimedAgain] = h.Requests["create done"] - h.Blocks()
		f[unknownWrites] = h.Requests["publish unknown"] + h.Requests["withdraw unknown"]
	}
	maps.Copy(f, c.moves.figures(v.Evictions))
	r := &report{Run: c.scenario.name, Runs: 1, Seconds: time.Since(c.begin).Seconds(), Faults: map[string]int{}, Figures: f}
	for kind, n := range c.faults {
		r.Faults[string(kind)] = n
	}
	return r, err
}

// add adds the figures of another run.
func (r *report) add(o *report) {
	if r.Faults == nil {
		r.Faults, r.Figures = map[string]int{}, map[string]int{}
	}
	r.Run = o.Run
	r.Runs += o.Runs
	r.Seconds += o.Seconds
	for k, n := range o.Faults {
		r.Faults[k] += n
	}
	for k, n := range o.Figures {
		r.Figures[k] += n
	}
}

func (r *report) print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(n int, what string) { fmt.Fprintf(w, "\t%d\t  %s\n", n, what) }
	line(r.Runs, fmt.Sprintf("runs, of %s", time.Duration(r.Seconds*float64(time.Second)).Round(time.Second)))
	total := 0
	for _, n := range r.Faults {
		total += n
	}
	line(total, "faults injected, of which")
	for _, kind := range (settings{Run: r.Run}).scenario().kinds() {
		line(r.Faults[string(kind)], "- "+string(kind))
	}
	for _, name := range figureNames() {
		n, counted := r.Figures[name]
		if counted || !slices.Contains(ofOneKind(), name) {
			line(n, name)
		}
	}
	_ = w.Flush()
}

// progress prints the progress of a run in one line.
func (c *chaos) progress(v verdict) {
	c.mu.Lock()
	phase, faults := c.phase, maps.Clone(c.faults)
	c.mu.Unlock()
	n := 0
	for _, count := range faults {
		n += count
	}
	leads := "no operator"
	if o := leader(c.operator); o != nil {
		leads = o.name
	}
	c.say("%4.0f s  %-9s %3d faults, %s leads; pods +%d -%d; %d versions, %d claims, %d releases, %s, %d leader changes, %d broken",
		time.Since(c.begin).Seconds(), phase, n, leads, c.load.created.Load(), c.load.deleted.Load(),
		v.versions(), v.Stats.Claims, v.Stats.Reclaims, c.Mode.returns(v), v.Leaders, len(v.Violations))
}

// causes returns the lines of an error without duplicates.
func causes(err error) string {
	var out []string
	for _, line := range strings.Split(err.Error(), "\n") {
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
