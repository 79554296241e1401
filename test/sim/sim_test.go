package main

import (
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

// TestFamilies plays seeds where IPv6 leaves a pool and agents, and returns; in multi-pool mode
// it comes to those of IPv4.
func TestFamilies(t *testing.T) {
	plays(t, "-seeds=8", "-traits=families")
	plays(t, "-seeds=4", "-traits=families", "-mode=multi-pool")
}

// TestRestores plays seeds where etcd is put back to an older copy.
func TestRestores(t *testing.T) {
	plays(t, "-seeds=12", "-traits=restores")
	plays(t, "-seeds=8", "-traits=restores", "-mode=multi-pool")
}

// TestNodeAgents plays seeds where this project's node agents assign addresses.
func TestNodeAgents(t *testing.T) {
	plays(t, "-seeds=20", "-mode=delegated-plugin")
	plays(t, "-seeds=8", "-mode=delegated-plugin", "-traits=restores")
}
func TestLongNodeAgents(t *testing.T) { plays(t, "-seeds=100", "-seed=21", "-mode=delegated-plugin") }

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
		from := options{traits: allTraits}.originOf(seed)
		switch seed {
		case 5:
			from.mode = ciliumnode.DelegatedPlugin
		case 6:
			from.mode = ciliumnode.MultiPool // where most traits are
		}
		from.traits = (allTraits &^ restores).in(from.mode) // that one stands alone
		if from.mode == ciliumnode.MultiPool {
			from.traits &^= scheduling | families // they would exclude pools and parking
		}
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
	writes := []string{"claim", "publish", "drain", "mark", "cool down", "give up"}
	t.Run("crd", func(t *testing.T) { heldToModel(t, ciliumnode.CRD, append(writes, "remove")) })
	t.Run("multi-pool", func(t *testing.T) { heldToModel(t, ciliumnode.MultiPool, writes) })
}

func heldToModel(t *testing.T, mode ciliumnode.Mode, writes []string) {
	t.Helper()
	did := map[string]int{}
	for seed := uint64(2); seed <= 7; seed++ {
		out := play(origin{seed: seed, mode: mode, profile: lateLeader}, 400, world.Freeze|world.Lag|world.AgentKill|world.BlockEdits, nil)
		for _, v := range out.violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		wide := slices.ContainsFunc(out.actions, func(a world.Action) bool { return a.Verb == world.BlockMake && a.What == "wide" })
		if held := out.counts.Modelled; !wide && int(held) != out.counts.Steps || held < float64(out.counts.Steps)/4 || out.counts.Comparable != out.counts.Steps {
			t.Errorf("seed %d: %.0f of %d steps were held to the model, %d could be; a block of another size was made: %t",
				seed, held, out.counts.Steps, out.counts.Comparable, wide)
		}
		for name, n := range out.counts.Did {
			did[name] += n
		}
	}
	for _, name := range writes {
		if did[name] == 0 {
			t.Errorf("no operator did this: %s", name)
		}
	}
}

// TestIdle checks that a search without actions fails, and one that never leads to some action.
func TestIdle(t *testing.T) {
	s := newSearch(options{faults: world.AllFaults(), traits: allTraits}, &strings.Builder{})
	if diff := cmp.Diff([]string{"claim", "publish"}, s.idle()); diff != "" {
		t.Error(diff)
	}
	s.actions = enough
	s.counts.Add(world.Counts{Did: map[string]int{"claim": 1}, Ops: map[string]int{"kill": 1}})
	idle := s.idle()
	for name, want := range map[string]bool{"claim": false, "kill": false, "give up": true, "call-kills": true} {
		if slices.Contains(idle, name) != want {
			t.Errorf("%s: asked for: %t, want %t", name, !want, want)
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
// protocol can explain, or if one world loses pods at restart after restart.
func TestBudget(t *testing.T) {
	for planned, want := range map[int]int{0: 2, 100: 2, 10_000: 11, 100_000: 44} {
		if got := (losses{planned: planned}).mayWorlds(500); got != want {
			t.Errorf("%d worlds: %d may lose pods, want %d", planned, got, want)
		}
	}
	for name, test := range map[string]struct {
		restarts []int // at which each world loses pods
		want     bool
	}{
		"at the budget":    {[]int{mayRestarts, 1, 0}, false},
		"one world more":   {[]int{1, 1, 1}, true},
		"one restart more": {[]int{mayRestarts + 1}, true},
	} {
		s := newSearch(options{seeds: 1000, steps: 10, mode: ciliumnode.CRD}, &strings.Builder{})
		for _, n := range test.restarts {
			s.finish(outcome{counts: world.Counts{Lost: 3 * n, LossyRestarts: n}})
		}
		if _, more := s.take(); s.overspent() != test.want || more == test.want {
			t.Errorf("%s: %s; goes on: %t", name, s.tellLosses(), more)
		}
	}
}
