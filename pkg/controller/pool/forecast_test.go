package pool

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/forecast"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// pool returns pool p as stored in the API server.
func (b *bed) pool() *v1alpha1.PodIPPool {
	b.T.Helper()
	got := &v1alpha1.PodIPPool{}
	if err := b.API.Get(b.T.Context(), types.NamespacedName{Name: "p"}, got); err != nil {
		b.T.Fatal(err)
	}
	return got
}

func (b *bed) soon() *metav1.Condition {
	b.T.Helper()
	c := meta.FindStatusCondition(b.pool().Status.Conditions, v1alpha1.PoolExhaustedSoon)
	if c == nil {
		b.T.Fatal("there is no condition ExhaustedSoon")
	}
	return c
}

// hold creates n more blocks of pool p, each a /30 of 10.0.0.0/8.
func (b *bed) hold(n int) {
	b.T.Helper()
	for range n {
		at := len(b.Blocks()) * 4
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(at >> 16), byte(at >> 8), byte(at)}), 30)
		if err := b.API.Create(b.T.Context(), crd.NewBlock(cidr, "p", "n", "node-uid")); err != nil {
			b.T.Fatal(err)
		}
	}
}

// A pool that grows steadily announces once, even across restarts of the operator, that it will
// be exhausted, and once that it will not after it has stopped growing. Time alone causes no
// other write.
func TestForecastOfPool(t *testing.T) {
	b := newBed(t, fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/24")))
	pass := func(hour int) []string {
		b.Clock.SetTime(fixtures.Noon().Add(time.Duration(hour) * time.Hour))
		return b.poolLook()
	}
	turnedAt, events, hour := 0, 0, 0
	for pass(hour); hour < 44; {
		b.hold(1)
		hour++
		pass(hour)
		if b.soon().Status == metav1.ConditionTrue && turnedAt == 0 {
			turnedAt = hour
		}
		if events += len(b.EventsOf(event.ReasonPoolExhaustedSoon)); hour%10 == 5 {
			b.restart()
		}
	}
	// Half of the 64 blocks are left after 32 hours.
	if turnedAt < 31 || turnedAt > 33 || events != 1 {
		t.Errorf("ExhaustedSoon at hour %d, reported %d times", turnedAt, events)
	}
	if c := b.soon(); c.Reason != ReasonGrowing || !strings.Contains(c.Message, "ipv4: the blocks held grow by 1 an hour (in the last 24h), so that none is free in 20h, by 2026-01-04T04:00Z.") {
		t.Errorf("the condition is %+v", c)
	}

	var writes []string
	for ; hour < 44+9*24; hour += 2 {
		writes = append(writes, pass(hour+2)...)
	}
	if !slices.Equal(writes, []string{"update PodIPPool status"}) || b.soon().Status != metav1.ConditionFalse {
		t.Errorf("after the growth has stopped: writes %v, the condition is %+v", writes, b.soon())
	}
	if again, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("p")); err != nil || again.RequeueAfter != 0 {
		t.Errorf("after all that it looks again after %s, error %v", again.RequeueAfter, err)
	}
}

// It is no news that a pool being phased out will have no free block; its series show that it
// is being phased out.
func TestForecastOfPhasedOutPool(t *testing.T) {
	var history []v1alpha1.HeldBlocks
	for hour := range 24 {
		history = append(history, v1alpha1.HeldBlocks{Since: metav1.NewTime(fixtures.Noon().Add(time.Duration(hour) * time.Hour)), Count: int64(hour)})
	}
	now := fixtures.Noon().Add(24 * time.Hour)
	serving := fixtures.PodIPPool("p", 1, "10.0.0.0/25")
	if got := Foresee(now, fixtures.PoolOf(t, serving), ipalloc.IPv4, history, 8, false); !got.Expected {
		t.Errorf("in service: %+v", got)
	}
	for what, obj := range map[string]*v1alpha1.PodIPPool{
		"drained": withPolicy(serving.DeepCopy(), v1alpha1.AllocationDrain), "deleted": fixtures.BeingDeleted(serving),
	} {
		if got := Foresee(now, fixtures.PoolOf(t, obj), ipalloc.IPv4, history, 8, false); got.Expected {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// The metrics of a pool being phased out raise no alert about an intended state.
func TestPhasedOutPoolSeries(t *testing.T) {
	b := newBed(t, fixtures.Finalized(withPolicy(fixtures.PodIPPool("p", 1, "10.0.0.0/28"), v1alpha1.AllocationDrain)))
	b.poolLook()
	of := func() map[string]float64 { return fakeapi.Series(t, b.r.Metrics.phasing, b.r.Metrics.ready) }
	want := map[string]float64{"cilium_pool_pool_phasing_out ipv4 p": 1, "cilium_pool_pool_ready p": 1}
	if diff := cmp.Diff(want, of()); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	if len(b.EventsOf(event.ReasonPoolEmpty)) != 1 {
		t.Error("no event reports that the pool is empty")
	}
	b.r.Metrics.forget("p")
	if got := of(); len(got) > 0 {
		t.Errorf("the pool is gone, and there is %v", got)
	}
}

// A pool without a free block is exhausted, and is not predicted to be. The condition of a pool
// whose spec has changed, or that is deleted, is up to date.
func TestForecastCondition(t *testing.T) {
	growing := []Foresight{{Family: ipalloc.IPv4, Estimate: forecast.Estimate{Over: time.Hour, PerHour: 9, Expected: true, Left: time.Hour}}}
	far := []Foresight{{Family: ipalloc.IPv4, Estimate: forecast.Estimate{Over: 72 * time.Hour, PerHour: 9, Expected: true, Left: 30 * time.Hour}}}
	lasting := []Foresight{{Family: ipalloc.IPv4}}
	is := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: "x", Message: "of old"}
	}
	tests := map[string]struct {
		pool    *v1alpha1.PodIPPool
		was     []metav1.Condition
		seen    []Foresight
		unread  bool
		horizon time.Duration
		status  metav1.ConditionStatus
		reason  string
	}{
		"growing":                           {seen: growing, horizon: 24 * time.Hour, status: "True", reason: ReasonGrowing},
		"lasting":                           {seen: lasting, horizon: 24 * time.Hour, status: "False", reason: ReasonLasting},
		"farther away than the horizon":     {seen: far, horizon: 24 * time.Hour, status: "False", reason: ReasonLasting},
		"but no reason to take it back":     {seen: far, horizon: 24 * time.Hour, was: []metav1.Condition{is(v1alpha1.PoolExhaustedSoon, "True")}, status: "True", reason: ReasonGrowing},
		"exhausted":                         {seen: lasting, horizon: 24 * time.Hour, was: []metav1.Condition{is(v1alpha1.PoolExhausted, "True")}, status: "False", reason: ReasonExhausted},
		"one family exhausted, one growing": {seen: growing, horizon: 24 * time.Hour, was: []metav1.Condition{is(v1alpha1.PoolExhausted, "True")}, status: "True", reason: ReasonGrowing},
		"deleted":                           {pool: fixtures.BeingDeleted(fixtures.PodIPPool("p", 1, "10.0.0.0/24")), seen: growing, horizon: 24 * time.Hour, status: "False", reason: ReasonDeleting},
		"never valid":                       {horizon: 24 * time.Hour, status: "Unknown", reason: ReasonInvalid},
		"no history":                        {seen: lasting, unread: true, horizon: 24 * time.Hour, status: "Unknown", reason: ReasonNoHistory},
		"no history, and exhausted":         {seen: lasting, unread: true, horizon: 24 * time.Hour, was: []metav1.Condition{is(v1alpha1.PoolExhausted, "True")}, status: "False", reason: ReasonExhausted},
		"no horizon":                        {seen: growing, was: []metav1.Condition{is(v1alpha1.PoolExhaustedSoon, "True")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := test.pool
			if obj == nil {
				obj = fixtures.PodIPPool("p", 1, "10.0.0.0/24")
			}
			obj.Status.Conditions = test.was
			setForecast(obj, test.seen, !test.unread, test.horizon, fixtures.Noon(), false)
			c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolExhaustedSoon)
			switch {
			case test.status == "" && c != nil:
				t.Errorf("there is a condition: %+v", c)
			case test.status == "":
			case c == nil || c.Status != test.status || c.Reason != test.reason || c.Message == "":
				t.Errorf("the condition is %+v, want %s, %s", c, test.status, test.reason)
			}
		})
	}
}

func TestBlocksPerNode(t *testing.T) {
	sized := func(bits int32, change func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
		obj := fixtures.PodIPPool("p", 1, "10.0.0.0/20")
		obj.Spec.IPv4.BlockSize = bits
		if change != nil {
			change(&obj.Spec)
		}
		return obj
	}
	number := func(n int32) *int32 { return &n }
	tests := map[string]struct {
		pool *v1alpha1.PodIPPool
		want int64
	}{
		"30 addresses, and 2 for the agent and 4 free are requested": {sized(27, nil), 1},
		"6 addresses": {sized(29, nil), 1},
		"2 addresses": {sized(30, nil), 3},
		"2 addresses, and no more than 2 blocks are allowed": {
			sized(30, func(s *v1alpha1.PodIPPoolSpec) { s.Expand.MaxBlocksPerNode = number(2) }), 2,
		},
		"30 addresses, and 100 are to be free": {
			sized(27, func(s *v1alpha1.PodIPPoolSpec) { s.Expand.MinFree = number(100) }), 4,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PoolOf(t, test.pool)
			if got := blocksPerNode(pool, ipalloc.IPv4); got != test.want {
				t.Errorf("a node takes %d blocks, want %d", got, test.want)
			}
			if f := Foresee(fixtures.Noon(), pool, ipalloc.IPv4, nil, 3*test.want+test.want-1, false); f.Room != 3 {
				t.Errorf("%d nodes fit, want 3", f.Room)
			}
		})
	}
}
