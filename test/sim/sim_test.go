package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// TestSeeds plays a few seeds, TestLongSeeds more of them, and make sim as many as requested.
func TestSeeds(t *testing.T)     { plays(t, "-seeds=15") }
func TestLongSeeds(t *testing.T) { plays(t, "-seeds=185", "-seed=16") }

// TestPools plays seeds with pods that request several Cilium pools.
func TestPools(t *testing.T) { plays(t, "-seeds=10", "-mode=multi-pool", "-traits=pools") }
func TestLongPools(t *testing.T) {
	plays(t, "-seeds=70", "-seed=11", "-mode=multi-pool", "-traits=pools")
}

// TestFamilies plays seeds where IPv6 leaves a pool and agents, and returns.
func TestFamilies(t *testing.T) { plays(t, "-seeds=8", "-traits=families") }

func plays(t *testing.T, args ...string) {
	t.Helper()
	var out strings.Builder
	if code := run(append(args, "-steps=400", "-workers=1", "-shrink=10s"), &out); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestReplays replays action sequences that once broke a rule.
func TestReplays(t *testing.T) {
	files, err := filepath.Glob("testdata/*.actions")
	if err != nil || len(files) == 0 {
		t.Fatalf("no replays: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseScript(string(body))
			if err != nil {
				t.Fatal(err)
			}
			out := s.run(nil)
			for _, v := range out.violations {
				t.Error(v)
			}
			if len(out.actions) < len(s.actions)/2 {
				t.Errorf("only %d of %d actions were possible: the replay no longer shows anything", len(out.actions), len(s.actions))
			}
		})
	}
}

// TestDeterministic checks that the same seed creates the same world, and that its actions
// alone recreate it.
func TestDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		var first, second, third []string
		log := func(to *[]string) func(string) { return func(line string) { *to = append(*to, line) } }
		from := originOf(seed)
		if seed == 6 {
			from.mode = ciliumnode.MultiPool // where most traits are
		}
		from.traits = traits(allTraits).in(from.mode)
		out := play(from, 300, world.AllFaults(), log(&first))
		play(from, 300, world.AllFaults(), log(&second))
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("seed %d differs (-first +second):\n%.2000s", seed, diff)
		}
		script{out.origin, out.faults, out.actions}.run(log(&third))
		if diff := cmp.Diff(first, third); diff != "" {
			t.Fatalf("the actions of seed %d lead elsewhere (-first +replayed):\n%.2000s", seed, diff)
		}
	}
}

// TestHeldToModel checks that each step of a world is held to the model, except where blocks
// have another size than their pool's, and that across worlds everything worth checking
// happens.
func TestHeldToModel(t *testing.T) {
	did := map[string]int{}
	for seed := uint64(1); seed <= 6; seed++ {
		out := play(origin{seed: seed, mode: ciliumnode.CRD, profile: lateLeader}, 400, world.Freeze|world.Lag|world.AgentKill|world.BlockEdits, nil)
		for _, v := range out.violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		wide := out.counts.Faults["block of another size made"] > 0
		if held := out.counts.Modelled; !wide && int(held) != out.counts.Steps || held < float64(out.counts.Steps)/4 || out.counts.StepsOfCRD != out.counts.Steps {
			t.Errorf("seed %d: %.0f of %d steps were held to the model, %d in crd mode; a block of another size was made: %t",
				seed, held, out.counts.Steps, out.counts.StepsOfCRD, wide)
		}
		for name, n := range out.counts.Did {
			did[name] += n
		}
	}
	for _, name := range []string{"claim", "publish", "drain", "mark", "remove", "cool down", "give up"} {
		if did[name] == 0 {
			t.Errorf("no operator did this: %s", name)
		}
	}
}

// TestIdle checks that a search without actions fails.
func TestIdle(t *testing.T) {
	s := newSearch(options{faults: world.AllFaults()}, &strings.Builder{})
	if diff := cmp.Diff([]string{"claim", "publish"}, s.idle()); diff != "" {
		t.Error(diff)
	}
	s.actions = enough
	s.counts.Add(world.Counts{Did: map[string]int{"claim": 1, "publish": 1, "mark": 1, "remove": 1, "cool down": 1, "give up": 1}})
	if diff := cmp.Diff([]string{"drain", "undrain", "make a CiliumNode", "give back", "killed"}, s.idle()[:5]); diff != "" {
		t.Error(diff)
	}
}

// TestIdleInMode checks that a search in one mode must show all actions of that mode, and no
// others.
func TestIdleInMode(t *testing.T) {
	tests := map[ciliumnode.Mode]struct{ has, hasNot []string }{
		ciliumnode.CRD:        {[]string{"remove", "agent reported nothing", "node-delete", "migrate start"}, []string{"give back", "move", "make a CiliumPodIPPool"}},
		ciliumnode.MultiPool:  {[]string{"give back", "ciliumnode-delete", "node-delete", "block-tear", "upgraded", "make a CiliumPodIPPool", "publish a wide block"}, []string{"remove", "migrate start"}},
		ciliumnode.Kubernetes: {[]string{"move", "block-tear", "node-off", "publish IPv6", "block of another size made"}, []string{"mark", "ciliumnode-delete"}},
	}
	for mode, test := range tests {
		s := newSearch(options{faults: world.AllFaults(), traits: allTraits, mode: mode}, &strings.Builder{})
		s.actions = enough
		for _, trait := range world.Each(s.opts.traits.in(mode)) {
			if want := "a world with " + trait.String(); !slices.Contains(s.idle(), want) {
				t.Errorf("%s: %q is not asked for", mode, want)
			}
			s.with[trait] = enoughOfOne
		}
		idle := s.idle()
		for _, name := range test.has {
			if !slices.Contains(idle, name) {
				t.Errorf("%s: %q is not asked for: %v", mode, name, idle)
			}
		}
		for _, name := range test.hasNot {
			if slices.Contains(idle, name) {
				t.Errorf("%s: %q is asked for, and cannot happen", mode, name)
			}
		}
	}
}

func TestScript(t *testing.T) {
	s := script{origin{seed: 7, mode: ciliumnode.MultiPool, profile: staleWatch, traits: windows | pressure}, world.Kill | world.Lag, []world.Action{
		{Verb: world.Start, Who: "op1"}, {Verb: world.Reconcile, Who: "op1", What: "node/n1"},
	}}
	again, err := parseScript(s.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again, cmp.AllowUnexported(script{}, origin{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"seed x", "faults none-such", "profile none-such", "traits none-such", "mode none-such", "start", "a b c d"} {
		if _, err := parseScript(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestShrink checks that shrinking drops only needless actions.
func TestShrink(t *testing.T) {
	bad := world.Violation{Rule: 9, Text: "with pods: node n1 has no CiliumNode"}
	if gist(bad) != gist(world.Violation{Rule: 9, Text: "with pods: node n22 has no CiliumNode"}) {
		t.Error("the same violation on another node counts as another")
	}
	out := play(origin{seed: 3, mode: ciliumnode.CRD, profile: plain}, 100, world.AllFaults(), nil)
	s := script{out.origin, out.faults, out.actions}
	if got := shrink(s, bad, time.Second); len(got.actions) != len(s.actions) || got.faults != s.faults {
		t.Errorf("a script that does not fail was shrunk to %d of %d actions", len(got.actions), len(s.actions))
	}
}

// TestBudget checks that a search fails if more worlds lose pods than the window of the agents'
// protocol can explain, or if one world loses pods at restart after restart. At the budget it
// passes.
func TestBudget(t *testing.T) {
	search := func() *searching {
		return newSearch(options{seeds: 2000, steps: 500, mode: ciliumnode.CRD}, &strings.Builder{})
	}
	loses := func(restarts int) outcome {
		return outcome{origin: origin{mode: ciliumnode.CRD, profile: plain}, counts: world.Counts{Lost: 3 * restarts, LossyRestarts: restarts}}
	}
	s := search()
	budget := s.losses
	if budget.planned < 1000 || budget.mayWorlds == 0 || budget.mayWorlds > budget.planned/100 || budget.mayRestarts == 0 {
		t.Fatalf("budget %+v", budget)
	}
	s.finish(loses(budget.mayRestarts)) // it counts once
	for range budget.mayWorlds - 1 {
		s.finish(loses(1))
	}
	s.finish(loses(0))
	if _, more := s.take(); s.overspent() || !more {
		t.Errorf("at the budget: %s; goes on: %t", s.losses, more)
	}
	s.finish(loses(1))
	if _, more := s.take(); !s.overspent() || more {
		t.Errorf("one world more: %s; goes on: %t", s.losses, more)
	}
	s = search()
	s.finish(loses(budget.mayRestarts + 1))
	if !s.overspent() {
		t.Errorf("a world that loses pods again and again: %s", s.losses)
	}
}

// TestBounds checks that each bound is exceeded with at most the given probability, and the
// number below it with more.
func TestBounds(t *testing.T) {
	for worlds, want := range map[int]int{100: 2, 10_000: 10, 100_000: 42} {
		p := perWorld(lossRate, 500)
		got := binomialBound(worlds, p, falseAlarm)
		if got != want {
			t.Errorf("%d worlds: %d, want %d", worlds, got, want)
		}
		exactly, upTo := math.Pow(1-p, float64(worlds)), 0.0
		for k := range got + 1 {
			if 1-upTo <= falseAlarm {
				t.Errorf("%d worlds: %d would do", worlds, k-1)
			}
			upTo += exactly
			exactly *= float64(worlds-k) / float64(k+1) * p / (1 - p)
		}
		if 1-upTo > falseAlarm {
			t.Errorf("%d worlds: %d is exceeded with %g", worlds, got, 1-upTo)
		}
	}
}
