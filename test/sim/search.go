package main

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// searching is the state of a search.
type searching struct {
	opts  options
	out   io.Writer
	begun time.Time

	mu        sync.Mutex
	next      int
	done      int
	actions   int
	counts    world.Counts
	simulated time.Duration // the time that passed in all worlds together
	losses    losses
	failed    *outcome
}

func newSearch(o options, out io.Writer) *searching {
	return &searching{opts: o, out: out, begun: time.Now(), counts: world.NewCounts(), losses: o.planLosses()}
}

// run returns the outcome of the first seed that failed, or nil. Seeds are independent worlds,
// so several run concurrently.
func (s *searching) run() *outcome {
	var workers sync.WaitGroup
	for range max(1, s.opts.workers) {
		workers.Go(func() {
			for seed, more := s.take(); more; seed, more = s.take() {
				s.finish(play(s.opts.originOf(seed), s.opts.steps, s.opts.faults, nil))
			}
		})
	}
	workers.Wait()
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
	if len(o.violations) > 0 && (s.failed == nil || o.seed < s.failed.seed) {
		s.failed = &o
	}
	if s.done%100 == 0 {
		fmt.Fprintf(s.out, "%s: %d of %d seeds, %d actions\n", time.Since(s.begun).Round(time.Second), s.done, s.opts.seeds, s.actions)
	}
}

// figures describes the search.
func (s *searching) figures() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds × %d random actions, %d in all, in %s; simulated time: %.2f years\n",
		s.done, s.opts.steps, s.actions, time.Since(s.begun).Round(time.Second), s.simulated.Hours()/24/365)
	fmt.Fprintf(&b, "written by operators: %s\n", list(s.counts.Did))
	fmt.Fprintf(&b, "done, with what it took to come to rest: %s\n", list(s.counts.Ops))
	fmt.Fprintf(&b, "held to the model of the address protocol: %.0f %% of the steps in crd and multi-pool mode times what they are about\n",
		100*s.counts.Modelled/float64(max(1, s.counts.Comparable)))
	fmt.Fprintf(&b, "window of the agents' protocol: %s; %d more were lost after people took their addresses away\n", s.tellLosses(), s.counts.LostByHand)
	return b.String()
}

func list(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// enough is the number of actions after which everything must have happened.
const enough = 400_000

// idle names the missing actions, and the missing writes of operators. Short searches, and those
// with chosen faults, traits, or a mode or profile, only have to claim and publish.
func (s *searching) idle() []string {
	writes := []string{"claim", "publish"}
	var out []string
	if o := s.opts; s.actions >= enough && o.profile == "" && o.mode == "" && o.faults == world.AllFaults() && o.traits == allTraits {
		writes = append(writes, "drain", "undrain", "mark", "remove", "retire", "cool down", "give up", "move", "offer", "park",
			"make a CiliumNode", "make a CiliumPodIPPool", "delete a CiliumPodIPPool")
		for verb := range weights(rand.New(rand.NewPCG(1, 1))) {
			rare := strings.HasPrefix(string(verb), "command-") // a search has few commands
			if s.counts.Ops[string(verb)] == 0 && !rare {
				out = append(out, string(verb))
			}
		}
	}
	for _, name := range writes {
		if s.counts.Did[name] == 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
