package audit

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Faults on top of each other, in any order, do not stop the audit; the same
// snapshot gives the same findings, and a report loses none of them.
func TestManyFaults(t *testing.T) {
	var spoils []func(world)
	for _, tests := range allChecks() {
		for _, test := range tests {
			if test.want != nil {
				spoils = append(spoils, test.spoil)
			}
		}
	}
	ran := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := healthy()
		if !spoil(w, r, spoils) {
			continue
		}
		ran++
		found := Check(w.Snapshot, settings())
		if diff := cmp.Diff(shorts(found), shorts(Persisting(found, Check(w.Snapshot, settings())))); diff != "" {
			t.Fatalf("seed %d: the same look again (-first +second):\n%s", seed, diff)
		}
		told, about := 0, 0 // addresses, or objects as a whole
		for _, f := range NewReport(w.Snapshot, 1, found).Findings {
			told += max(1, len(f.Subjects))
			if f.Severity == "" || f.Mend == "" {
				t.Fatalf("seed %d: %s is not in the catalogue", seed, f.Reason)
			}
		}
		for i := range found {
			about++
			if i > 0 && found[i].group() == found[i-1].group() && found[i].Says != found[i-1].Says {
				t.Fatalf("seed %d: told as one, and said are %q and %q", seed, found[i-1].Says, found[i].Says)
			}
		}
		if told != about {
			t.Fatalf("seed %d: %d findings, %d are told:\n%v", seed, about, told, shorts(found))
		}
	}
	if ran < 1000 {
		t.Errorf("only %d of 2000 worlds could be spoiled", ran)
	}
}

// spoil applies some faults. It returns false where one has taken away what
// another was to spoil.
func spoil(w world, r *rand.Rand, spoils []func(world)) (done bool) {
	defer func() { done = recover() == nil }()
	for range 1 + r.IntN(6) {
		spoils[r.IntN(len(spoils))](w)
	}
	return true
}
