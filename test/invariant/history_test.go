package invariant_test

import (
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

func TestEveryVersionIsSeenInOrder(t *testing.T) {
	w := newWorld(t)
	var got []int
	checker := w.watch(invariant.Options{OnChange: func(c invariant.Change) {
		if cn, ok := c.New.(*ciliumv2.CiliumNode); ok && c.Name == "b" {
			got = append(got, cn.Spec.IPAM.PreAllocate)
		}
	}})
	var want []int
	for i := 1; i <= 50; i++ {
		w.cilium("b", func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.PreAllocate = i })
		want = append(want, i)
	}
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if n := checker.Stats().Versions[invariant.KindCiliumNode]; n != len(want) {
		t.Errorf("%d versions counted, want %d", n, len(want))
	}
}

func TestAPIServerRestarts(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{})
	w := worldOn(t, cluster.Config())
	checker := w.watch(invariant.Options{})
	w.Must(cluster.KillAPIServer())
	w.Must(cluster.StartAPIServer(w.Ctx))
	w.Must(checker.Sync(w.Ctx)) // The watches are back, and there was no write meanwhile.
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff([]string{"2 CiliumNode a"}, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	if gaps := checker.Stats().Gaps; gaps != 0 {
		t.Errorf("%d gaps, though nothing was written meanwhile", gaps)
	}
	// Writes before the watches are back may be missed, but not an IP in two pools.
	w.Must(cluster.KillAPIServer())
	w.Must(cluster.StartAPIServer(w.Ctx))
	w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff([]string{"2 CiliumNode a", "1 CiliumNode b"}, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}
