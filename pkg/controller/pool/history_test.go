package pool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/retry"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const (
	readHistory   = "get PodIPPoolHistory"
	createHistory = "create PodIPPoolHistory"
	updateHistory = "update PodIPPoolHistory"
	updateStatus  = "update PodIPPool status"
)

// history returns pool p's history as stored in the API server, nil if there is none.
func (b *bed) history() *v1alpha1.PodIPPoolHistory {
	b.T.Helper()
	got := &v1alpha1.PodIPPoolHistory{}
	err := b.API.Get(b.T.Context(), types.NamespacedName{Name: "p"}, got)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.T.Fatal(err)
	}
	return got
}

// poolCalls is poolLook with live reads; it also returns when the pool is to be reconciled
// again.
func (b *bed) poolCalls() ([]string, time.Duration) {
	b.T.Helper()
	b.Calls = nil
	result, err := b.r.Reconcile(b.T.Context(), fakeapi.RequestOf("p"))
	if err != nil {
		b.T.Fatal(err)
	}
	return b.Calls, result.RequeueAfter
}

// historyBed has pool p, reconciled once.
func historyBed(t *testing.T) *bed {
	t.Helper()
	pool := fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	pool.UID = "pool-uid"
	b := newBed(t, pool)
	b.poolLook()
	return b
}

// A claim, a cooldown and a release each cost one write of the pool's history, before that of
// its status, and nothing once settled. The history is read once, live.
func TestHistoryIsWrittenWithTheCounts(t *testing.T) {
	pool := fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	pool.UID = "pool-uid"
	b := newBed(t, pool)
	held := claimed("10.0.0.0/30", "n", 0)
	steps := []struct {
		what  string
		do    func(*state.Ledger)
		calls []string
		want  int // of the blocks listed
	}{
		{"first look", func(*state.Ledger) {}, []string{readHistory, createHistory, updateStatus}, 0},
		{"claimed", func(l *state.Ledger) { l.Upsert(held) }, []string{updateHistory, updateStatus}, 0},
		{"draining", func(l *state.Ledger) { l.Upsert(fixtures.At(held, 2, ipalloc.Draining)) }, []string{updateStatus}, 0},
		{"cooling down", func(l *state.Ledger) { l.Upsert(coolingDown(held, 1, expand.Returned)) }, []string{updateHistory, updateStatus}, 1},
		{"gone", func(l *state.Ledger) { l.Remove(coolingDown(held, 1, expand.Returned)) }, []string{updateHistory, updateStatus}, 1},
	}
	for _, s := range steps {
		b.Clock.SetTime(b.Clock.Now().Add(time.Hour))
		s.do(b.Ledger)
		if calls, _ := b.poolCalls(); !slices.Equal(calls, s.calls) {
			t.Errorf("%s: calls are %v, want %v", s.what, calls, s.calls)
		}
		if calls, _ := b.poolCalls(); len(calls) > 0 {
			t.Errorf("%s, and settled: calls %v", s.what, calls)
		}
		if got := b.history().ReturnedBlocks; len(got) != s.want {
			t.Errorf("%s: %v are listed, want %d", s.what, got, s.want)
		}
	}
	owner := metav1.OwnerReference{APIVersion: "cilium-pool.io/v1alpha1", Kind: "PodIPPool", Name: "p", UID: "pool-uid"}
	if diff := cmp.Diff([]metav1.OwnerReference{owner}, b.history().OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	b.restart()
	if calls, _ := b.poolCalls(); !slices.Equal(calls, []string{readHistory}) {
		t.Errorf("after a restart calls are %v, want one read", calls)
	}
}

// Wherever the operator is killed around the two writes, and whatever their outcome, the next
// process ends with the same history and status.
func TestHistoryOverCrash(t *testing.T) {
	type end struct {
		History *v1alpha1.PodIPPoolHistory
		Status  v1alpha1.PodIPPoolStatus
	}
	run := func(t *testing.T, write string, f fakeapi.Fate) end {
		b := historyBed(t)
		held := fixtures.BlockObject("10.0.0.0/30", ipalloc.CoolingDown)
		if err := b.API.Create(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		b.Ledger.Upsert(b.ReadBlock(held))
		b.Clock.SetTime(hour(1))
		b.Fate = func(call string) fakeapi.Fate {
			if call == write {
				return f
			}
			return fakeapi.Done
		}
		if _, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil && !errors.Is(err, fakeapi.ErrLine) {
			t.Fatal(err)
		}
		b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
		if write != "" {
			b.restart()
		}
		b.poolLook()
		if writes := b.poolLook(); len(writes) > 0 {
			t.Errorf("once settled it writes %v", writes)
		}
		return end{b.history(), b.pool().Status}
	}
	want := run(t, "", fakeapi.Done)
	if len(want.History.ReturnedBlocks) != 1 || len(want.History.IPv4.HeldBlocks) != 2 {
		t.Fatalf("the history is %+v", want.History)
	}
	for _, write := range []string{updateHistory, updateStatus} {
		for what, f := range map[string]fakeapi.Fate{"refused": fakeapi.Refused, "fakeapi.Unheard": fakeapi.Unheard} {
			t.Run(write+" "+what, func(t *testing.T) {
				got := run(t, write, f)
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "UID")); diff != "" {
					t.Errorf("it ends in another state (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// After a change by another writer the history is read again, and none of that change is
// overwritten.
func TestHistoryConflict(t *testing.T) {
	b := historyBed(t)
	other := b.history()
	other.ReturnedBlocks = []v1alpha1.ReturnedBlock{cameBack("10.9.0.0/30", "m", 1, 2, "Returned")}
	if err := b.API.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b.Ledger.Upsert(claimed("10.0.0.0/30", "n", 0))
	b.Clock.SetTime(hour(1))
	calls, again := b.poolCalls()
	if !slices.Equal(calls, []string{updateHistory, updateStatus}) || again != retry.Conflict {
		t.Errorf("calls are %v, again after %s", calls, again)
	}
	if calls, _ := b.poolCalls(); !slices.Equal(calls, []string{readHistory, updateHistory}) {
		t.Errorf("then calls are %v", calls)
	}
	got := b.history()
	if len(got.ReturnedBlocks) != 1 || got.ReturnedBlocks[0].NodeName != "m" || len(got.IPv4.HeldBlocks) != 2 {
		t.Errorf("the history is %+v", got)
	}
}

// If a history is deleted by hand, a new one begins, except for a pool that is being deleted:
// garbage collection would never finish.
func TestHistoryDeleted(t *testing.T) {
	for name, deleting := range map[string]bool{"pool stays": false, "pool goes too": true} {
		t.Run(name, func(t *testing.T) {
			b := historyBed(t)
			b.Ledger.Upsert(claimed("10.0.0.0/30", "n", 0))
			if deleting {
				if err := b.API.Delete(t.Context(), b.pool()); err != nil {
					t.Fatal(err)
				}
				b.Pools.Set(b.pool())
			}
			if err := b.API.Delete(t.Context(), b.history()); err != nil {
				t.Fatal(err)
			}
			b.Clock.SetTime(hour(1))
			b.poolLook()
			b.poolLook()
			switch got := b.history(); {
			case deleting && got != nil:
				t.Errorf("there is %+v again", got)
			case !deleting && (got == nil || !got.ReturnedBlocksSince.Time.Equal(hour(1))):
				t.Errorf("the history is %+v", got)
			}
			if writes := b.poolLook(); len(writes) > 0 {
				t.Errorf("once settled it writes %v", writes)
			}
		})
	}
}

// The history of an earlier pool of the same name does not apply to this one.
func TestHistoryOfEarlierPool(t *testing.T) {
	earlier, pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	earlier.UID, pool.UID = "earlier", "pool-uid"
	old := crd.NewHistory(earlier)
	old.ReturnedBlocks, old.ReturnedBlocksSince = many(3), since(-5)
	b := newBed(t, pool, old)
	b.poolLook()
	got := b.history()
	if !crd.IsHistoryOf(got, pool) || len(got.ReturnedBlocks) > 0 || !got.ReturnedBlocksSince.Time.Equal(fixtures.Noon()) {
		t.Errorf("the history is %+v", got)
	}
	// The same if this process remembers the earlier pool's.
	if err := b.API.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	recreated := b.pool()
	recreated.Finalizers = nil
	if err := b.API.Update(t.Context(), recreated); err != nil {
		t.Fatal(err)
	}
	if err := b.API.Delete(t.Context(), recreated); err != nil {
		t.Fatal(err)
	}
	recreated.UID, recreated.ResourceVersion = "", ""
	if err := b.API.Create(t.Context(), fixtures.Finalized(recreated)); err != nil {
		t.Fatal(err)
	}
	b.poolLook()
	if got := b.history(); got == nil || !crd.IsHistoryOf(got, b.pool()) {
		t.Errorf("the history is %+v", got)
	}
}

// A write that the API server refuses is counted and retried later. The status is written in
// the meantime, and says what the forecast lacks.
func TestHistoryRefused(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "cilium-pool.io", Resource: "podippoolhistories"}, "p", errors.New("no right"))
	tests := map[string]struct {
		refuse string
		calls  []string
		reason string
		errors map[string]float64
	}{
		"read":  {readHistory, []string{readHistory, updateStatus}, ReasonNoHistory, map[string]float64{}},
		"write": {createHistory, []string{readHistory, createHistory, updateStatus}, ReasonLasting, map[string]float64{"cilium_pool_api_writes_total PodIPPoolHistory error create": 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
			pool.UID = "pool-uid"
			b := newBed(t, pool)
			b.Refuse = map[string]error{test.refuse: forbidden}
			calls, again := b.poolCalls()
			if !slices.Equal(calls, test.calls) || again != historyRetry {
				t.Errorf("calls are %v, again after %s; want %v, %s", calls, again, test.calls, historyRetry)
			}
			if c := b.soon(); c.Reason != test.reason {
				t.Errorf("the condition is %+v, want reason %s", c, test.reason)
			}
			counted := fakeapi.Series(t, b.Shared.Writes)
			for series := range counted {
				if !strings.Contains(series, "History") {
					delete(counted, series)
				}
			}
			if diff := cmp.Diff(test.errors, counted); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}

			// What happens until the write is allowed is not lost.
			held := claimed("10.0.0.0/30", "n", 0)
			for _, now := range []crd.Block{held, coolingDown(held, 1, expand.Returned)} {
				b.Ledger.Upsert(now)
				b.poolLook()
			}
			b.Refuse = nil
			b.poolLook()
			if got := b.history(); got == nil || len(got.ReturnedBlocks) != 1 {
				t.Errorf("the history is %+v", got)
			}
			if c := meta.FindStatusCondition(b.pool().Status.Conditions, v1alpha1.PoolExhaustedSoon); c.Reason != ReasonLasting {
				t.Errorf("in the end the condition is %+v", c)
			}
			if calls, again := b.poolCalls(); len(calls) > 0 || again == historyRetry {
				t.Errorf("once settled calls are %v, again after %s", calls, again)
			}
		})
	}
}

// A deleted pool's history, and what has begun to drain in it, is forgotten: another pool of
// its name starts anew.
func TestPoolForgotten(t *testing.T) {
	b := historyBed(t)
	paced := &crd.Pool{Name: "p", Maintenance: crd.Maintenance{BlocksPerHour: 60}}
	b.Pacing.Take(paced, 1, b.Clock.Now())
	if n, _ := b.Pacing.Budget(paced, b.Clock.Now()); n != 0 {
		t.Fatalf("%d more blocks may drain, want none in this minute", n)
	}
	pool := b.pool()
	pool.Finalizers = nil
	if err := b.API.Update(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if err := b.API.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	b.poolLook()
	if n := len(b.r.histories.byPool); n > 0 {
		t.Errorf("%d histories are kept", n)
	}
	if n, _ := b.Pacing.Budget(paced, b.Clock.Now()); n != 1 {
		t.Errorf("%d blocks may drain in a new pool, want one", n)
	}
}

// Pools are reconciled at once, each by one worker.
func TestHistoriesOfManyPools(t *testing.T) {
	h := &histories{}
	var workers sync.WaitGroup
	for i := range 8 {
		pool := fmt.Sprint("pool", i)
		workers.Go(func() {
			for range 100 {
				known := h.of(pool)
				known.failing = true
				if again := h.of(pool); again != known || !again.failing {
					t.Errorf("%s has another history", pool)
				}
				h.forget(pool)
				if h.of(pool).failing {
					t.Errorf("%s has a history that was forgotten", pool)
				}
			}
		})
	}
	workers.Wait()
}

// However many blocks come and go, the history stays within the CRD's limits.
func TestHistoryIsBounded(t *testing.T) {
	b := historyBed(t)
	before := b.history()
	for i := range maxReturned + maxReturned/4 {
		b.Clock.SetTime(hour(i))
		held := claimed("10.0.0.0/30", "n", i)
		held.UID = types.UID(fmt.Sprint(i))
		b.Ledger.Upsert(held)
		b.poolLook()
		resting := coolingDown(held, i, expand.Returned)
		resting.Since = resting.Since.Add(time.Minute)
		b.Ledger.Upsert(resting)
		b.poolLook()
		b.Ledger.Remove(resting)
		b.Clock.SetTime(hour(i).Add(30 * time.Minute))
		b.poolLook()
	}
	got := b.history()
	if n := len(got.ReturnedBlocks); n != maxReturned {
		t.Errorf("%d returned blocks are listed, want %d", n, maxReturned)
	}
	if n := len(got.IPv4.HeldBlocks); n < 50 || n > maxReturned {
		t.Errorf("%d samples are kept", n)
	}
	if !before.ReturnedBlocksSince.Before(got.ReturnedBlocksSince) || equality.Semantic.DeepEqual(before, got) {
		t.Errorf("the record says that it goes back to %v", got.ReturnedBlocksSince)
	}
}
