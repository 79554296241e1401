package audit

import (
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func checksBlocks() map[string]checkTest {
	third := func(w world) *v1alpha1.PodIPBlock { return w.newBlock("a", "10.0.0.16/29") }
	return map[string]checkTest{
		"not published":            {func(w world) { third(w) }, "BlockNotPublished PodIPBlock/10.0.0.16-29 CiliumNode/a 10.0.0.16/29"},
		"not published yet":        {spoil: func(w world) { third(w).CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }},
		"not published by a limit": {spoil: func(w world) { third(w); w.cn("a").Limits.MaxAllocate = 6 }},
		"not published as its pool serves no node": {spoil: func(w world) {
			w.pool("blues", "10.9.0.0/24").Spec.CiliumPoolName = "blue"
			w.newBlock("a", "10.9.0.0/29").Spec.PoolName = "blues"
		}},
		"not published as it goes": {spoil: func(w world) { third(w).DeletionTimestamp = &metav1.Time{Time: now} }},
		"not published by a pause": {spoil: func(w world) {
			third(w)
			w.Nodes[0].Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}},
		"overlap": {
			spoil: func(w world) { w.newBlock("b", "10.0.0.0/28").CreationTimestamp = metav1.NewTime(now) },
			want:  "BlocksOverlap PodIPBlock/10.0.0.0-28 PodIPBlock/10.0.0.0-29 10.0.0.0/28",
		},
		"malformed": {func(w world) { third(w).Name = "mine" }, "BlockMalformed PodIPBlock/mine 10.0.0.16/29"},
		"without a pool": {
			spoil: func(w world) { w.block("10.0.0.0-29").Spec.PoolName = "gone" },
			want:  "BlockWithoutPool PodIPBlock/10.0.0.0-29 PodIPPool/gone 10.0.0.0/29",
		},
		"without its finalizer": {func(w world) { w.block("10.0.0.0-29").Finalizers = nil }, "BlockUnprotected PodIPBlock/10.0.0.0-29 10.0.0.0/29"},
		"without a Node":        {func(w world) { w.newBlock("gone", "10.0.0.16/29") }, "BlockWithoutNode PodIPBlock/10.0.0.16-29 Node/gone 10.0.0.16/29"},
		"of a Node that Cilium has left": {
			spoil: func(w world) {
				w.Nodes[0].Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
				w.deleteCiliumNode("a")
			},
			want: "BlockWithoutNode PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29",
		},
		"cools down": {spoil: func(w world) {
			third(w)
			w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.Returned, now.Add(-3*time.Minute))
		}},
		"cools down too long": {
			spoil: func(w world) {
				third(w)
				w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.Returned, now.Add(-7*time.Minute))
			},
			want: "CooldownOverdue PodIPBlock/10.0.0.16-29 Node/a 10.0.0.16/29",
		},
		"cools down from next year on": {
			spoil: func(w world) {
				third(w)
				w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.Returned, now.AddDate(1, 0, 0))
			},
			want: "TimeInFuture PodIPBlock/10.0.0.16-29",
		},
		"cools down long, as its pool says": {spoil: func(w world) {
			third(w)
			w.Pools[0].Spec.Cooldown = new(v1alpha1.Duration("1h"))
			w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.Returned, now.Add(-time.Hour))
		}},
		"cools down after its Node": {spoil: func(w world) {
			w.newBlock("gone", "10.0.0.16/29")
			w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.NodeGone, now.Add(-12*time.Minute))
		}},
		"cools down too long after its Node": {
			spoil: func(w world) {
				w.newBlock("gone", "10.0.0.16/29")
				w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.NodeGone, now.Add(-16*time.Minute))
			},
			want: "CooldownOverdue PodIPBlock/10.0.0.16-29 Node/gone 10.0.0.16/29",
		},
		"cools down too long under a pause": {spoil: func(w world) {
			third(w)
			w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.Returned, now.Add(-7*time.Minute))
			w.Pools[0].Spec.Paused = new(true)
		}},
		"cools down and is published": {
			spoil: func(w world) { w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.Returned, now) },
			want:  "CoolingBlockPublished PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29",
		},
	}
}

func checksHandshakes() map[string]checkTest {
	drains := func(w world) {
		w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, long)
		w.free("a", "10.0.0.2")
		delete(w.cn("a").Used, netip.MustParseAddr("10.0.0.1"))
	}
	const stuck = "DrainStuck PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29"
	return map[string]checkTest{
		"marked, of unknown age": {spoil: func(w world) { w.entry("a", "10.0.0.4", expand.Marked, time.Time{}) }},
		"marked lately":          {spoil: func(w world) { w.entry("a", "10.0.0.4", expand.Marked, now.Add(-time.Minute)) }},
		"marked for long":        {func(w world) { w.entry("a", "10.0.0.4", expand.Marked, long) }, "StuckHandshake CiliumNode/a 10.0.0.4"},
		"answered for long":      {func(w world) { w.entry("a", "10.0.0.4", expand.Ready, long) }, "StuckHandshake CiliumNode/a 10.0.0.4"},
		"marked in use":          {func(w world) { w.entry("a", "10.0.0.2", expand.Marked, time.Time{}) }, "MarkedInUse CiliumNode/a 10.0.0.2"},
		"the agent's own, retired": {spoil: func(w world) {
			w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, now)
			w.entry("a", "10.0.0.1", expand.Released, long)
		}},
		"the agent's own, retired in a block in service": {
			spoil: func(w world) { w.entry("a", "10.0.0.1", expand.Released, time.Time{}) },
			want:  "MarkedInUse CiliumNode/a 10.0.0.1",
		},
		"a pod's, retired": {
			spoil: func(w world) {
				w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, now)
				w.entry("a", "10.0.0.2", expand.Released, time.Time{})
			},
			want: "MarkedInUse CiliumNode/a 10.0.0.2",
		},
		"refused in use":             {spoil: func(w world) { w.entry("a", "10.0.0.2", expand.DoNotRelease, time.Time{}) }},
		"left over":                  {func(w world) { w.entry("a", "192.0.2.1", expand.DoNotRelease, time.Time{}) }, "StaleRelease CiliumNode/a 192.0.2.1"},
		"requests a report":          {spoil: func(w world) { w.entry("a", "192.0.2.1", expand.Marked, now) }},
		"requests a report for long": {func(w world) { w.entry("a", "192.0.2.1", expand.Marked, long) }, "StaleRelease CiliumNode/a 192.0.2.1"},
		"in no block": {
			spoil: func(w world) { w.publish("a", "192.0.2.7"); w.entry("a", "192.0.2.7", expand.Marked, long) },
			want:  "ForeignPoolEntry CiliumNode/a 192.0.2.7, StaleRelease CiliumNode/a 192.0.2.7",
		},
		"drains, in use":     {spoil: func(w world) { w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, long) }},
		"drains, and stands": {spoil: drains, want: stuck},
		"drains, and moves":  {spoil: func(w world) { drains(w); w.cn("a").Changed = now.Add(-time.Minute) }},
		"drains since lately": {spoil: func(w world) {
			drains(w)
			w.phase("10.0.0.0-29", ipalloc.InService, "", now)
			w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, now)
		}},
		"drains, but for the agent's own":    {spoil: func(w world) { drains(w); w.cn("a").Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }},
		"drains, but for one given to a pod": {spoil: func(w world) { drains(w); w.cn("a").Addresses.Pool[netip.MustParseAddr("10.0.0.4")] = "default/x" }},
	}
}
