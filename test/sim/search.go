package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// searching is the state of a search.
type searching struct {
	opts  options
	out   io.Writer
	begun time.Time

	mu      sync.Mutex
	next    int
	done    int
	actions int
	on      map[string]int // seeds with each fault on
	with    map[traits]int // actions in worlds with each trait
	counts  world.Counts
	// simulated is the time that passed in all worlds together.
	simulated time.Duration
	losses    losses
	failed    *outcome
}

func newSearch(o options, out io.Writer) *searching {
	return &searching{opts: o, out: out, begun: time.Now(), on: map[string]int{}, with: map[traits]int{}, losses: o.planLosses()}
}

// run returns the outcome of the first seed that failed, or nil. Seeds are independent worlds,
// so several run concurrently.
func (s *searching) run() *outcome {
	stop := make(chan struct{})
	var progress, workers sync.WaitGroup
	progress.Go(func() { s.progress(stop) })
	for range max(1, s.opts.workers) {
		workers.Go(func() {
			for seed, more := s.take(); more; seed, more = s.take() {
				s.finish(play(s.opts.originOf(seed), s.opts.steps, s.opts.faults, nil))
			}
		})
	}
	workers.Wait()
	close(stop)
	progress.Wait()
	return s.failed
}

func (s *searching) take() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil || s.overspent() || s.next == s.opts.seeds {
		return 0, false
	}
	s.next++
	return s.opts.from + uint64(s.next-1), true
}

func (s *searching) finish(o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.actions += len(o.actions)
	s.counts.Add(o.counts)
	s.simulated += o.simulated
	s.losses.add(o)
	for _, one := range world.Each(o.faults) {
		s.on[one.String()]++
	}
	for _, one := range world.Each(o.traits) {
		s.with[one] += len(o.actions)
	}
	if len(o.violations) > 0 && (s.failed == nil || o.seed < s.failed.seed) {
		s.failed = &o
	}
}

func (s *searching) progress(stop <-chan struct{}) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			s.mu.Lock()
			fmt.Fprintf(s.out, "%s: %d of %d seeds, %d actions, %d faults\n",
				time.Since(s.begun).Round(time.Second), s.done, s.opts.seeds, s.actions, sum(s.counts.Faults))
			s.mu.Unlock()
		}
	}
}

// figures describes the search.
func (s *searching) figures() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds × %d random actions, %d in all, in %s\n",
		s.done, s.opts.steps, s.actions, time.Since(s.begun).Round(time.Second))
	fmt.Fprintf(&b, "faults: %s\n", list(s.counts.Faults))
	fmt.Fprintf(&b, "written by operators: %s\n", list(s.counts.Did))
	fmt.Fprintf(&b, "done, with what it took to come to rest: %s\n", list(s.counts.Ops))
	fmt.Fprintf(&b, "simulated time: %.2f years\n", s.simulated.Hours()/24/365)
	fmt.Fprintf(&b, "held to the model of the address protocol: %s of %d steps times what they are about, and %s of those in crd mode\n",
		percent(s.counts.Modelled, s.counts.Steps), s.counts.Steps, percent(s.counts.Modelled, s.counts.StepsOfCRD))
	fmt.Fprintf(&b, "window of the agents' protocol: %s; %d more were lost after people took their addresses away\n", s.losses, s.counts.LostByHand)
	return b.String()
}

// percent returns a part as a percentage of all.
func percent(part float64, all int) string {
	if all == 0 {
		return "none"
	}
	return fmt.Sprintf("%.0f %%", 100*part/float64(all))
}

func list(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// missing returns the counts that have not increased.
func (s *searching) missing(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return s.counts.Faults[name]+s.counts.Did[name] > 0 })
}

func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// After enough actions everything must have happened, and everything about a trait after
// enoughOfOne actions in worlds that have it.
const (
	enough      = 200_000
	enoughOfOne = 50_000
)

// idle names the missing actions. Short searches, and those with chosen faults or a chosen profile,
// only have to claim and publish.
func (s *searching) idle() []string {
	must := []string{"claim", "publish"}
	long := s.actions >= enough && s.opts.profile == ""
	if long && s.opts.faults == world.AllFaults() {
		must = append(must, musts(s.opts.mode)...)
	}
	var out []string
	for _, name := range must {
		if s.counts.Did[name] == 0 {
			out = append(out, name)
		}
	}
	if !long {
		return out
	}
	for _, fault := range world.Each(s.opts.faults & faultsIn(s.opts.mode)) {
		out = append(out, s.missing(fault.Marks())...)
	}
	for _, trait := range world.Each(s.opts.traits.in(s.opts.mode)) {
		switch n := s.with[trait]; {
		case n == 0:
			out = append(out, "a world with "+trait.String())
		case n >= enoughOfOne && (trait != dual || s.opts.mode == ""): // no mode has all of its marks
			out = append(out, s.missing(trait.marks())...)
		}
	}
	return out
}

// musts are the required actions of operators and agents in a mode.
func musts(mode ciliumnode.Mode) []string {
	all := []string{"cool down", "give up", "drain", "undrain"}
	switch mode {
	case ciliumnode.Kubernetes:
		return append(all, "move", "publish IPv6", "publish a wide block", "Node back under its agent")
	case ciliumnode.MultiPool:
		return append(all, "mark", "give back", "make a CiliumNode", "publish IPv6", "give back IPv6", "publish a wide block",
			"Node back under its agent")
	case ciliumnode.CRD:
		return append(all, "mark", "remove", "make a CiliumNode")
	}
	return append(all, "mark", "remove", "make a CiliumNode", "give back")
}
