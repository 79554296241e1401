package audit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Combined faults, in any order, do not stop the audit; the same objects yield the same findings,
// in any order of lists, and a report shows each finding in its own words.
func TestManyFaults(t *testing.T)     { manyFaults(t, 400) }
func TestLongManyFaults(t *testing.T) { manyFaults(t, 2000) }

func manyFaults(t *testing.T, worlds int) {
	t.Helper()
	spoils := allSpoils()
	ran := 0
	for seed := range uint64(worlds) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := healthy()
		if !spoil(w, r, spoils) || twice(w.Nodes) || twice(w.Blocks) || twice(w.Pools) {
			continue
		}
		ran++
		found := Check(w.Objects, settings())
		shuffle(w, r)
		if diff := cmp.Diff(found, Check(w.Objects, settings()), cmp.Comparer(equal[netip.Prefix])); diff != "" {
			t.Fatalf("seed %d: the same objects in another order (-first +second):\n%s", seed, diff)
		}
		if diff := cmp.Diff(expected(found), reportedIn(t, NewReport(w.Objects, 1, found))); diff != "" {
			t.Fatalf("seed %d: findings, and what the report says of them (-want +got):\n%s", seed, diff)
		}
	}
	if ran < worlds/2 {
		t.Errorf("only %d of %d worlds could be spoiled", ran, worlds)
	}
}

// allSpoils returns all faults of the tables, in the same order in each run.
func allSpoils() []func(world) {
	var spoils []func(world)
	groups := allChecks()
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		for _, name := range slices.Sorted(maps.Keys(groups[group])) {
			if test := groups[group][name]; test.want != "" {
				spoils = append(spoils, test.spoil)
			}
		}
	}
	return spoils
}

// shuffle reorders the lists of a snapshot.
func shuffle(w world, r *rand.Rand) {
	shuffled(w.Nodes, r)
	shuffled(w.CiliumNodes, r)
	shuffled(w.Pods, r)
	shuffled(w.Pools, r)
	shuffled(w.Blocks, r)
	shuffled(w.Agents, r)
}

func shuffled[T any](list []T, r *rand.Rand) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// twice reports whether two objects have one name, which cannot happen in a list. Pods are
// exempt: findings about them name their node.
func twice[T any, P interface {
	*T
	metav1.Object
}](list []T) bool {
	seen := map[string]bool{}
	for i := range list {
		name := P(&list[i]).GetName()
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return false
}

func equal[T comparable](a, b T) bool { return a == b }

// expected returns the findings as a report should show them: the fault, the object and the
// addresses.
func expected(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		line := fmt.Sprint(f.Reason, f.Object, f.Others, f.Message)
		if f.Subject.IsValid() {
			line += addressOrCIDR(&f)
		}
		out = append(out, line)
	}
	return out
}

func reportedIn(t *testing.T, report Report) []string {
	var out []string
	for _, f := range report.Findings {
		if f.Severity == "" || f.Fix == "" {
			t.Fatalf("%s is not in the catalogue", f.Reason)
		}
		line := fmt.Sprint(f.Reason, f.Object, f.Others, f.Message)
		if len(f.Subjects) == 0 {
			out = append(out, line)
		}
		for _, s := range f.Subjects {
			out = append(out, line+s.Address)
		}
	}
	return out
}

// spoil applies some faults. It returns false if one has removed the object that another was to
// damage.
func spoil(w world, r *rand.Rand, spoils []func(world)) (done bool) {
	defer func() { done = recover() == nil }()
	for range 1 + r.IntN(6) {
		spoils[r.IntN(len(spoils))](w)
	}
	return true
}
