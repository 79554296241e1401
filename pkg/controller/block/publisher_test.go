package block

import (
	"context"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const cidr = "10.0.0.0/30"

func publisher(b *fakeapi.Cluster) *Publisher {
	return &Publisher{Cache: b.Cached(), Client: b.API, Ledger: b.Ledger, Counters: b.Shared, Clock: b.Clock}
}

func blockObject(published bool, phase ipalloc.Phase) *v1alpha1.PodIPBlock {
	obj := fixtures.BlockObject(cidr, ipalloc.InService)
	crd.SetBlockPublished(obj, published, fixtures.Noon())
	crd.SetBlockPhase(obj, phase, "Returned", "x", fixtures.Noon())
	return obj
}

// The condition follows from the objects alone: a process that has just started writes it, once.
func TestPublished(t *testing.T) {
	claimed := crd.NewBlock(fixtures.Prefix(cidr), "p", "n", "node-uid")
	has, hasNot := fixtures.CiliumNode("n", "", cidr), fixtures.CiliumNode("n", "", "10.0.0.4/30")
	undone := blockObject(true, ipalloc.InService)
	undone.Generation = 3                         // a drain, and its undo
	older := blockObject(true, ipalloc.InService) // without the condition Draining: no write for that alone
	meta.RemoveStatusCondition(&older.Status.Conditions, v1alpha1.BlockDraining)
	tests := map[string]struct {
		obj    *v1alpha1.PodIPBlock
		cn     *ciliumv2.CiliumNode
		paused bool
		want   string // the condition; "": it is not written
	}{
		"claimed":                           {obj: claimed, cn: hasNot},
		"claimed, without a CiliumNode":     {obj: claimed},
		"published":                         {obj: claimed, cn: has, want: v1alpha1.PublishedInSpec},
		"published, and written":            {obj: blockObject(true, ipalloc.InService), cn: has},
		"published, and its spec changed":   {obj: undone, cn: has, want: v1alpha1.PublishedInSpec},
		"withdrawn":                         {obj: blockObject(true, ipalloc.InService), cn: hasNot, want: v1alpha1.PublishedNotInSpec},
		"withdrawn with the CiliumNode":     {obj: blockObject(true, ipalloc.InService), want: v1alpha1.PublishedNotInSpec},
		"published, of an older operator":   {obj: older, cn: has},
		"published again":                   {obj: blockObject(false, ipalloc.InService), cn: has, want: v1alpha1.PublishedInSpec},
		"draining":                          {obj: blockObject(true, ipalloc.Draining), cn: hasNot},
		"cooling down, still on the list":   {obj: blockObject(true, ipalloc.CoolingDown), cn: has},
		"being deleted":                     {obj: fixtures.BeingDeleted(fixtures.BlockObject(cidr, ipalloc.InService)), cn: has},
		"published, the operator is paused": {obj: claimed, cn: has, paused: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{test.obj.DeepCopy()}
			if test.cn != nil {
				objects = append(objects, test.cn.DeepCopy())
			}
			b := fakeapi.New(t, ciliumnode.CRD, objects...)
			for _, want := range []string{test.want, ""} { // the second time there is nothing to write
				b.Calls = nil
				p := publisher(b)
				p.ReadOnly = test.paused
				if _, err := p.Reconcile(t.Context(), fakeapi.RequestOf(test.obj.Name)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(slices.Repeat([]string{"update PodIPBlock status"}, min(1, len(want))), b.Calls, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("writes (-want +got):\n%s", diff)
				}
			}
			is := &v1alpha1.PodIPBlock{}
			if err := b.API.Get(t.Context(), client.ObjectKeyFromObject(test.obj), is); err != nil {
				t.Fatal(err)
			}
			c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.BlockPublished)
			if test.want != "" && (c == nil || c.Reason != test.want || is.Status.Phase != v1alpha1.PhaseInService) {
				t.Errorf("phase %s, condition %+v", is.Status.Phase, c)
			}
			if d := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.BlockDraining); test.want != "" && (d == nil || d.Reason != v1alpha1.DrainingInService) {
				t.Errorf("the same write says of its drain: %+v", d)
			}
		})
	}
}

// While the write of a block waits for its turn, the block begins to cool down.
func TestPublisherLooksAgainAfterItsWait(t *testing.T) {
	obj := fixtures.BlockObject(cidr, ipalloc.InService)
	b := fakeapi.New(t, ciliumnode.CRD, obj, fixtures.CiliumNode("n", "", cidr))
	p := publisher(b)
	p.Pace = func(ctx context.Context) error {
		now := &v1alpha1.PodIPBlock{}
		if err := b.API.Get(ctx, client.ObjectKeyFromObject(obj), now); err != nil {
			return err
		}
		crd.SetBlockPhase(now, ipalloc.CoolingDown, "Returned", "x", fixtures.Noon())
		return b.API.Status().Update(ctx, now)
	}
	if _, err := p.Reconcile(t.Context(), fakeapi.RequestOf(obj.Name)); err != nil {
		t.Fatal(err)
	}
	if k := b.Blocks()[0]; k.Phase != ipalloc.CoolingDown || k.Published {
		t.Errorf("the block is %s, published: %t", k.Phase, k.Published)
	}
}
