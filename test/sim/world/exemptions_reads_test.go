package world

import (
	"net/netip"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// TestChangedMeanwhile checks that a write may omit a block only if, when read live, the block
// was in another phase than the decision assumed.
func TestChangedMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		decided ipalloc.Phase
		reads   string
		want    bool
	}{
		"it was in another phase":     {ipalloc.Draining, crd.BlockName(first), true},
		"it was as decided on":        {ipalloc.InService, crd.BlockName(first), false},
		"another block was looked at": {ipalloc.Draining, crd.BlockName(second), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			for _, cidr := range []netip.Prefix{first, second} {
				w.must(w.api.Create(blockIn(cidr, "n1", "")))
			}
			o := w.operators[0]
			o.start(0)
			shown, err := crd.BlockFrom(w.api.Get(KindBlock, crd.BlockName(first)).(*v1alpha1.PodIPBlock))
			if err != nil {
				t.Fatal(err)
			}
			shown.Phase = test.decided
			f := &flight{controller: nodes, name: "n1", knew: map[netip.Prefix]crd.Block{first: shown}}
			f.noteRead(o, test.reads)
			if got := f.unshown(first); got != test.want {
				t.Errorf("not to be listed: %t, want %t", got, test.want)
			}
		})
	}
}

// TestFoundInPlace checks that what a claim found in place is not held against what its
// operator had received. What the operator reads afterwards is, and so is any other block.
func TestFoundInPlace(t *testing.T) {
	for name, test := range map[string]struct {
		found string
		reads int
		want  bool
	}{
		"the claim reads what it found":         {crd.BlockName(first), 1, false},
		"it reads that once more":               {crd.BlockName(first), 2, true},
		"it reads another block":                {crd.BlockName(second), 1, true},
		"a reconcile reads that claims nothing": {"", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			w.must(w.api.Create(blockIn(first, "n1", "")))
			o := w.operators[0]
			o.start(0)
			shown := crd.Block{Name: crd.BlockName(first), CIDR: first, Pool: "main", Node: "n1", UID: "another", ResourceVersion: "1"}
			o.parts.Node.Ledger.Upsert(shown)
			f := &flight{controller: nodes, name: "n1", found: test.found}
			for range test.reads {
				f.noteRead(o, shown.Name)
			}
			if got := len(f.others) > 0; got != test.want {
				t.Errorf("held against it: %t, want %t", got, test.want)
			}
		})
	}
}
