package pool

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const updateStatus = "update PodIPPool status"

// poolLook reconciles pool p once, and returns its writes.
func (b *bed) poolLook() []string {
	b.T.Helper()
	b.Calls = nil
	if _, err := b.r.Reconcile(b.T.Context(), fakeapi.RequestOf("p")); err != nil {
		b.T.Fatal(err)
	}
	return fakeapi.WritesOf(b.Calls)
}

// A pool that is deleted during a reconcile is reconciled as it was, or not at all.
func TestPoolGoesMeanwhile(t *testing.T) {
	for name, call := range map[string]string{"before its finalizer": "patch PodIPPool", "before its status": "update PodIPPool status"} {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
			if call != "patch PodIPPool" {
				pool = fixtures.Finalized(pool)
			}
			b := newBed(t, pool)
			gone := false
			b.Before = func(now string) {
				if !gone && now == call {
					gone = true
					b.Pools.Delete("p")
					if err := b.API.Delete(t.Context(), fixtures.PodIPPool("p", 1, "10.0.0.0/28")); err != nil {
						t.Fatal(err)
					}
				}
			}
			b.poolLook()
			if !gone {
				t.Errorf("no %s among %v", call, b.Calls)
			}
		})
	}
}

// A deleted pool stays until none of its blocks is left, whether the watch or only the API
// server knows them.
func TestPoolFinalizer(t *testing.T) {
	block := fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)
	tests := map[string]struct {
		pool    *v1alpha1.PodIPPool
		objects []client.Object
		news    func(b *bed)
		there   bool
	}{
		"deleted, and nothing is left": {pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28")))},
		"deleted, and a block is left": {
			pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))), objects: []client.Object{block}, there: true,
		},
		"deleted, and a block is left that the watch has not shown": {
			pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))), objects: []client.Object{block}, there: true,
			news: func(b *bed) { b.Ledger.Remove(b.Blocks()[0]) },
		},
		"deleted, and a block is left that only the ledger knows": {
			pool: fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))), there: true,
			news: func(b *bed) { b.Ledger.Upsert(b.ReadBlock(block)) },
		},
		"not deleted": {pool: fixtures.PodIPPool("p", 1, "10.0.0.0/28"), there: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append([]client.Object{test.pool}, test.objects...)...)
			if test.news != nil {
				test.news(b)
			}
			b.poolLook()
			got := &v1alpha1.PodIPPool{}
			err := b.API.Get(t.Context(), types.NamespacedName{Name: "p"}, got)
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if there := err == nil; there != test.there {
				t.Fatalf("the pool is there: %t, want %t", there, test.there)
			}
			if test.there && !slices.Contains(got.Finalizers, v1alpha1.Finalizer) {
				t.Errorf("finalizers are %v", got.Finalizers)
			}
		})
	}
}

// A refused finalizer does not stop the status.
func TestRefusedFinalizerHidesNoStatus(t *testing.T) {
	b := newBed(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.Refuse = map[string]error{"patch PodIPPool": errors.New("no")}
	_, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p"))
	if err == nil || !slices.Contains(b.Calls, updateStatus) {
		t.Errorf("%v; calls %v", err, b.Calls)
	}
}

// The addresses in use come with every status, and alone only if they have changed by a twentieth,
// once a minute.
func TestPoolUsedIsPaced(t *testing.T) {
	b := newBed(t, fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/24")))
	version := 1
	reports := func(n int) {
		version++
		cn := fixtures.CiliumNode("n", strconv.Itoa(version))
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
		for i := range n {
			cn.Status.IPAM.Used[fmt.Sprintf("10.0.0.%d", 1+i)] = ipamtypes.AllocationIP{}
		}
		b.Ledger.UpsertCiliumNode(b.Mode.View(cn))
	}
	for i, step := range []struct {
		used    int
		after   time.Duration // since the last step
		blocks  []string      // that are claimed
		want    int64
		writes  int
		requeue time.Duration
	}{
		{used: 40, blocks: []string{"10.0.0.0/26"}, want: 40, writes: 1},
		{used: 41, after: time.Hour, want: 40},                                   // too few
		{used: 42, after: time.Second, want: 42, writes: 1},                      // two in forty
		{used: 50, after: 20 * time.Second, want: 42, requeue: 40 * time.Second}, // too soon
		{used: 51, after: 40 * time.Second, want: 51, writes: 1},
		{used: 52, after: time.Second, blocks: []string{"10.0.0.64/26"}, want: 52, writes: 1}, // with other news
		{used: 0, after: time.Minute, want: 0, writes: 1},
		{used: 1, after: time.Minute, want: 1, writes: 1},
		{used: 1, after: time.Minute, blocks: []string{"10.0.0.128/26"}, want: 1, writes: 1},
		{used: 9, after: 15 * time.Second, want: 9, writes: 1}, // the agent reports the pods of the new block
	} {
		b.Clock.SetTime(b.Clock.Now().Add(step.after))
		for _, cidr := range step.blocks {
			b.Ledger.Upsert(fixtures.Block(cidr, "p", "n", 1))
		}
		reports(step.used)
		b.Calls = nil
		result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p"))
		if err != nil {
			t.Fatal(err)
		}
		got := &v1alpha1.PodIPPool{}
		if err := b.API.Get(t.Context(), types.NamespacedName{Name: "p"}, got); err != nil {
			t.Fatal(err)
		}
		if used, writes := *got.Status.IPv4.Addresses.Used, len(fakeapi.WritesOf(b.Calls)); used != step.want || writes != step.writes || result.RequeueAfter != step.requeue {
			t.Errorf("step %d: used %d after %d writes, again after %s; want %+v", i, used, writes, result.RequeueAfter, step)
		}
	}
	if got, want := fakeapi.Series(t, b.r.Metrics.addresses)["cilium_pool_pool_addresses ipv4 p used"], 9.0; got != want {
		t.Errorf("the metric is %v, want %v", got, want)
	}
}

// Agents that are assigned whole blocks do not report the addresses in use: a pool does not say 0.
func TestPoolUsedIsUnknown(t *testing.T) {
	for _, mode := range []ciliumnode.Mode{ciliumnode.MultiPool, ciliumnode.Kubernetes} {
		b := newBedIn(t, mode, fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28")))
		b.poolLook()
		got := &v1alpha1.PodIPPool{}
		if err := b.API.Get(t.Context(), types.NamespacedName{Name: "p"}, got); err != nil || got.Status.IPv4 == nil || got.Status.IPv4.Addresses.Used != nil {
			t.Errorf("%s: %v, used is %+v", mode, err, got.Status.IPv4)
		}
	}
}

// A pool has all conditions from the first visit on. While its spec cannot be read, its status keeps
// the CIDRs that nodes hold, so that the CRD's rules refuse to remove them.
func TestPoolUntilItsSpecCannotBeRead(t *testing.T) {
	obj := fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b := newBed(t, obj)
	b.r.Cilium = &ciliumconfig.Latest{}
	b.r.Cilium.Set(&ciliumconfig.Config{Known: true})
	b.Ledger.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	status := func() v1alpha1.PodIPPoolStatus {
		t.Helper()
		b.poolLook()
		got := &v1alpha1.PodIPPool{}
		if err := b.API.Get(t.Context(), types.NamespacedName{Name: "p"}, got); err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	conditions := func(s v1alpha1.PodIPPoolStatus) map[string]metav1.ConditionStatus {
		is := map[string]metav1.ConditionStatus{}
		for _, c := range s.Conditions {
			is[c.Type] = c.Status
		}
		return is
	}
	before := status()
	if diff := cmp.Diff(map[string]metav1.ConditionStatus{
		v1alpha1.PoolReady: "True", v1alpha1.PoolOverlapping: "False", v1alpha1.PoolReservedHeld: "False", v1alpha1.PoolCoversCluster: "False",
		v1alpha1.PoolMasqueraded: "False", v1alpha1.PoolExhausted: "False", v1alpha1.PoolWindow: "True", v1alpha1.PoolCiliumPool: "True", v1alpha1.PoolFamiliesServed: "True",
	}, conditions(before)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	obj = fixtures.Invalidated(obj)
	obj.Generation++
	b.Pools.Set(obj)
	after := status()
	if diff := cmp.Diff(before.IPv4.CIDRs, after.IPv4.CIDRs); diff != "" || len(before.IPv4.CIDRs) != 1 || after.IPv4.Blocks.Free != 0 || after.IPv4.Blocks.Held != 1 || after.Effective != nil {
		t.Errorf("before %+v, after %+v, effective %+v", before.IPv4, after.IPv4, after.Effective)
	}
	if diff := cmp.Diff(map[string]metav1.ConditionStatus{
		v1alpha1.PoolReady: "False", v1alpha1.PoolOverlapping: "Unknown", v1alpha1.PoolReservedHeld: "Unknown", v1alpha1.PoolCoversCluster: "Unknown",
		v1alpha1.PoolMasqueraded: "Unknown", v1alpha1.PoolExhausted: "Unknown", v1alpha1.PoolWindow: "True", v1alpha1.PoolCiliumPool: "Unknown", v1alpha1.PoolFamiliesServed: "True",
	}, conditions(after)); diff != "" {
		t.Errorf("conditions of a pool that cannot be read (-want +got):\n%s", diff)
	}
}

// A pool's status is written only when it changes.
func TestPoolStatusAtRest(t *testing.T) {
	b := newBed(t, fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28")))
	if writes := b.poolLook(); !slices.Equal(writes, []string{updateStatus}) {
		t.Errorf("first writes are %v", writes)
	}
	if writes := b.poolLook(); len(writes) > 0 {
		t.Errorf("settled: writes %v", writes)
	}
	b.Ledger.Upsert(fixtures.Block("10.0.0.0/30", "p", "n", 1))
	if writes := b.poolLook(); !slices.Equal(writes, []string{updateStatus}) {
		t.Errorf("with a block: writes %v, want one", writes)
	}
}
