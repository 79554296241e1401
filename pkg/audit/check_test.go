package audit

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// short is a finding as tables name it: reason, object, others, address.
func short(f Finding) string {
	parts := []string{string(f.Reason), f.Object.String()}
	for _, o := range f.Others {
		parts = append(parts, o.String())
	}
	if f.Subject.IsValid() {
		parts = append(parts, addressOrCIDR(&f))
	}
	return strings.Join(parts, " ")
}

func shorts(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, short(f))
	}
	return out
}

type checkTest struct {
	spoil func(w world)
	want  []string // nil: nothing is wrong
}

func allChecks() map[string]map[string]checkTest {
	return map[string]map[string]checkTest{
		"addresses": checksAddresses(), "pods": checksPods(), "podCIDRs": checksPodCIDRs(), "blocks": checksBlocks(),
		"handshakes": checksHandshakes(), "nodes and pools": checksNodesAndPools(),
	}
}

func TestCheck(t *testing.T) {
	for group, tests := range allChecks() {
		for name, test := range tests {
			t.Run(group+"/"+name, func(t *testing.T) {
				w := healthy()
				if test.spoil != nil {
					test.spoil(w)
				}
				if diff := cmp.Diff(test.want, shorts(Check(w.Snapshot, settings()))); diff != "" {
					t.Errorf("findings (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func checksAddresses() map[string]checkTest {
	return map[string]checkTest{
		"healthy": {},
		"an address on two nodes is blamed on the one without the block": {
			spoil: func(w world) { w.publish("a", "10.0.0.12") },
			want:  []string{"AddressOnTwoNodes CiliumNode/a CiliumNode/b 10.0.0.12"},
		},
		"foreign on both": {
			spoil: func(w world) { w.publish("a", "192.0.2.7"); w.publish("b", "192.0.2.7") },
			want:  []string{"AddressOnTwoNodes CiliumNode/a CiliumNode/b 192.0.2.7"},
		},
		"two keys for one address": {
			spoil: func(w world) { w.cn("a").NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3")} },
			want:  []string{"AddressTwiceInPool CiliumNode/a 10.0.0.3"},
		},
		"odd and unreadable keys": {
			spoil: func(w world) {
				w.unpublish("a", "10.0.0.3")
				w.cn("a").NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
				w.cn("a").Unreadable = []string{"ten"}
			},
			want: []string{"PoolEntryMalformed CiliumNode/a 10.0.0.3", "PoolEntryUnreadable CiliumNode/a"},
		},
		"an odd key counts against another node": {
			spoil: func(w world) { w.cn("b").NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3")} },
			want:  []string{"AddressOnTwoNodes CiliumNode/b CiliumNode/a 10.0.0.3", "PoolEntryMalformed CiliumNode/b 10.0.0.3"},
		},
		"an address of another node's block that it does not publish": {
			spoil: func(w world) { w.unpublish("b", "10.0.0.12"); w.publish("a", "10.0.0.12") },
			want:  []string{"PoolEntryOfOtherNode CiliumNode/a PodIPBlock/10.0.0.8-29 10.0.0.12"},
		},
		"a pool's address without a block": {
			spoil: func(w world) { w.publish("a", "10.0.0.77") },
			want:  []string{"PoolEntryWithoutBlock CiliumNode/a PodIPPool/main 10.0.0.77"},
		},
		"a foreign address": {
			spoil: func(w world) { w.publish("a", "192.0.2.7") },
			want:  []string{"ForeignPoolEntry CiliumNode/a 192.0.2.7"},
		},
		"reported in use outside the pool": {
			spoil: func(w world) { w.cn("a").Used[netip.MustParseAddr("192.0.2.7")] = "default/x" },
			want:  []string{"AddressOutsidePool CiliumNode/a 192.0.2.7"},
		},
		"a pod's address of the node's block outside the pool": {
			spoil: func(w world) { w.unpublish("a", "10.0.0.5"); w.pod("late", "a", "10.0.0.5") },
			want:  []string{"AddressOutsidePool CiliumNode/a 10.0.0.5"},
		},
		"two agents report one address": {
			spoil: func(w world) {
				w.publish("b", "10.0.0.3")
				w.cn("a").Used[netip.MustParseAddr("10.0.0.3")] = "default/x"
				w.cn("b").Used[netip.MustParseAddr("10.0.0.3")] = "default/y"
			},
			want: []string{"AddressOnTwoNodes CiliumNode/b CiliumNode/a 10.0.0.3", "AddressUsedTwice CiliumNode/b CiliumNode/a 10.0.0.3"},
		},
	}
}

func checksPods() map[string]checkTest {
	return map[string]checkTest{
		"on an unowned address": {
			spoil: func(w world) { w.pod("x", "a", "192.0.2.7") },
			want:  []string{"PodAddressUnowned Pod/default/x 192.0.2.7"},
		},
		"IPv4-mapped, as some write it": {
			spoil: func(w world) { w.pod("x", "a", "::ffff:10.0.0.3") },
		},
		"on an address in another node's pool": {
			spoil: func(w world) { w.pod("x", "a", "10.0.0.11") },
			want:  []string{"PodAddressOfOtherNode Pod/default/x CiliumNode/b 10.0.0.11"},
		},
		"on an address of another node's block": {
			spoil: func(w world) { w.unpublish("b", "10.0.0.11"); w.pod("x", "a", "10.0.0.11") },
			want:  []string{"PodAddressOfOtherNode Pod/default/x PodIPBlock/10.0.0.8-29 10.0.0.11"},
		},
		"two with one address": {
			spoil: func(w world) { w.pod("x", "a", "10.0.0.2") },
			want:  []string{"PodsShareAddress Pod/default/x Pod/default/on-a 10.0.0.2"},
		},
		"host network and finished ones do not count": {
			spoil: func(w world) {
				w.pod("host", "a", "192.0.2.7").Spec.HostNetwork = true
				w.pod("done", "a", "10.0.0.2").Status.Phase = corev1.PodSucceeded
				w.pod("dead", "a", "192.0.2.8").Status.Phase = corev1.PodFailed
				w.pod("waits", "a")
				w.pod("unbound", "")
			},
		},
		"nodes without Cilium have addresses of others": {
			spoil: func(w world) {
				w.Nodes = append(w.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: map[string]string{v1alpha1.OptOutLabel: "true"}}})
				w.pod("x", "virtual", "192.0.2.7")
				w.pod("y", "nowhere", "192.0.2.8")
			},
		},
		"but not of ours": {
			spoil: func(w world) {
				w.Nodes = append(w.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "virtual", Labels: map[string]string{v1alpha1.OptOutLabel: "true"}}})
				w.pod("x", "virtual", "10.0.0.11")
			},
			want: []string{"PodAddressOfOtherNode Pod/default/x CiliumNode/b 10.0.0.11"},
		},
	}
}

func checksPodCIDRs() map[string]checkTest {
	list := func(w world, name, cidr string) {
		w.cn(name).PodCIDRs = append(w.cn(name).PodCIDRs, netip.MustParsePrefix(cidr))
	}
	return map[string]checkTest{
		"of another node's block": {
			spoil: func(w world) { list(w, "a", "10.0.0.8/29") },
			want:  []string{"PodCIDROfOtherNode CiliumNode/a PodIPBlock/10.0.0.8-29 10.0.0.8/29"},
		},
		"around blocks of two nodes": {
			spoil: func(w world) { list(w, "a", "10.0.0.0/28") },
			want:  []string{"PodCIDROfOtherNode CiliumNode/a PodIPBlock/10.0.0.8-29 10.0.0.0/28"},
		},
		"without a block, on the grid": {
			spoil: func(w world) { w.deleteBlock("10.0.0.0-29") },
			want:  []string{"PodCIDRWithoutBlock CiliumNode/a 10.0.0.0/29"},
		},
		"foreign": {
			spoil: func(w world) { list(w, "a", "192.0.2.0/24"); w.publish("a", "192.0.2.7") },
			want:  []string{"ForeignPodCIDR CiliumNode/a 192.0.2.0/24"},
		},
		"foreign, on two nodes": {
			spoil: func(w world) { list(w, "a", "192.0.2.0/24"); list(w, "b", "192.0.2.64/26") },
			want: []string{
				"PodCIDROnTwoNodes CiliumNode/b CiliumNode/a 192.0.2.64/26",
				"ForeignPodCIDR CiliumNode/a 192.0.2.0/24", "ForeignPodCIDR CiliumNode/b 192.0.2.64/26",
			},
		},
		"a block published and not listed": {
			spoil: func(w world) { w.cn("a").PodCIDRs = nil },
			want:  []string{"BlockNotListed PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29"},
		},
	}
}

func checksBlocks() map[string]checkTest {
	third := func(w world) *v1alpha1.PodIPBlock { return w.newBlock("a", "10.0.0.16/29") }
	return map[string]checkTest{
		"not published": {
			spoil: func(w world) { third(w) },
			want:  []string{"BlockNotPublished PodIPBlock/10.0.0.16-29 CiliumNode/a 10.0.0.16/29"},
		},
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
			want:  []string{"BlocksOverlap PodIPBlock/10.0.0.0-28 PodIPBlock/10.0.0.0-29 10.0.0.0/28"},
		},
		"malformed": {
			spoil: func(w world) { third(w).Name = "mine" },
			want:  []string{"BlockMalformed PodIPBlock/mine 10.0.0.16/29"},
		},
		"without a pool": {
			spoil: func(w world) { w.block("10.0.0.0-29").Spec.PoolName = "gone" },
			want:  []string{"BlockWithoutPool PodIPBlock/10.0.0.0-29 PodIPPool/gone 10.0.0.0/29"},
		},
		"without its finalizer": {
			spoil: func(w world) { w.block("10.0.0.0-29").Finalizers = nil },
			want:  []string{"BlockUnprotected PodIPBlock/10.0.0.0-29 10.0.0.0/29"},
		},
		"without a Node": {
			spoil: func(w world) { w.newBlock("gone", "10.0.0.16/29") },
			want:  []string{"BlockWithoutNode PodIPBlock/10.0.0.16-29 Node/gone 10.0.0.16/29"},
		},
		"of a Node that Cilium has left": {
			spoil: func(w world) {
				w.Nodes[0].Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
				w.deleteCiliumNode("a")
			},
			want: []string{"BlockWithoutNode PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29"},
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
			want: []string{"CooldownOverdue PodIPBlock/10.0.0.16-29 Node/a 10.0.0.16/29"},
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
			want: []string{"CooldownOverdue PodIPBlock/10.0.0.16-29 Node/gone 10.0.0.16/29"},
		},
		"cools down too long under a pause": {spoil: func(w world) {
			third(w)
			w.phase("10.0.0.16-29", ipalloc.CoolingDown, expand.Returned, now.Add(-7*time.Minute))
			w.Pools[0].Spec.Paused = true
		}},
		"cools down and is published": {
			spoil: func(w world) { w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.Returned, now) },
			want:  []string{"CoolingBlockPublished PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29"},
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
		"marked for long": {
			spoil: func(w world) { w.entry("a", "10.0.0.4", expand.Marked, long) },
			want:  []string{"StuckHandshake CiliumNode/a 10.0.0.4"},
		},
		"answered for long": {
			spoil: func(w world) { w.entry("a", "10.0.0.4", expand.Ready, long) },
			want:  []string{"StuckHandshake CiliumNode/a 10.0.0.4"},
		},
		"marked in use": {
			spoil: func(w world) { w.entry("a", "10.0.0.2", expand.Marked, time.Time{}) },
			want:  []string{"MarkedInUse CiliumNode/a 10.0.0.2"},
		},
		"the agent's own, retired": {spoil: func(w world) {
			w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, now)
			w.entry("a", "10.0.0.1", expand.Released, long)
		}},
		"the agent's own, retired in a block in service": {
			spoil: func(w world) { w.entry("a", "10.0.0.1", expand.Released, time.Time{}) },
			want:  []string{"MarkedInUse CiliumNode/a 10.0.0.1"},
		},
		"a pod's, retired": {
			spoil: func(w world) {
				w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, now)
				w.entry("a", "10.0.0.2", expand.Released, time.Time{})
			},
			want: []string{"MarkedInUse CiliumNode/a 10.0.0.2"},
		},
		"refused in use": {spoil: func(w world) { w.entry("a", "10.0.0.2", expand.DoNotRelease, time.Time{}) }},
		"left over": {
			spoil: func(w world) { w.entry("a", "192.0.2.1", expand.DoNotRelease, time.Time{}) },
			want:  []string{"StaleRelease CiliumNode/a 192.0.2.1"},
		},
		"requests a report": {spoil: func(w world) { w.entry("a", "192.0.2.1", expand.Marked, now) }},
		"requests a report for long": {
			spoil: func(w world) { w.entry("a", "192.0.2.1", expand.Marked, long) },
			want:  []string{"StaleRelease CiliumNode/a 192.0.2.1"},
		},
		"in no block": {
			spoil: func(w world) { w.publish("a", "192.0.2.7"); w.entry("a", "192.0.2.7", expand.Marked, long) },
			want:  []string{"ForeignPoolEntry CiliumNode/a 192.0.2.7", "StaleRelease CiliumNode/a 192.0.2.7"},
		},
		"drains, in use":     {spoil: func(w world) { w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, long) }},
		"drains, and stands": {spoil: drains, want: []string{stuck}},
		"drains, and moves":  {spoil: func(w world) { drains(w); w.cn("a").Changed = now.Add(-time.Minute) }},
		"drains since lately": {spoil: func(w world) {
			drains(w)
			w.phase("10.0.0.0-29", ipalloc.InService, "", now)
			w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, now)
		}},
		"drains, but for the agent's own":    {spoil: func(w world) { drains(w); w.cn("a").Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")} }},
		"drains, but for one given to a pod": {spoil: func(w world) { drains(w); w.cn("a").Pool[netip.MustParseAddr("10.0.0.4")] = "default/x" }},
	}
}

func checksNodesAndPools() map[string]checkTest {
	condition := func(p *v1alpha1.PodIPPool, kind string, status metav1.ConditionStatus, reason string) {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
	}
	return map[string]checkTest{
		"CiliumNode missing": {
			spoil: func(w world) { w.deleteCiliumNode("a") },
			want:  []string{"CiliumNodeMissing Node/a"},
		},
		"CiliumNode missing under a pause": {spoil: func(w world) { w.deleteCiliumNode("a"); w.Pools[0].Spec.Paused = true }},
		"Node gone, blocks cooling down": {
			spoil: func(w world) {
				w.deleteNode("a")
				w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.NodeGone, now)
			},
			want: []string{"CoolingBlockPublished PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29", "CiliumNodeWithoutNode CiliumNode/a"},
		},
		"no address": {
			spoil: func(w world) { w.node("c") },
			want:  []string{"NodeWithoutAddresses Node/c PodIPPool/main"},
		},
		"no pool": {
			spoil: func(w world) {
				w.node("c")
				w.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-restriction.kubernetes.io/zone": "x"}}
			},
			want: []string{"NodeServedByNoPool Node/c"},
		},
		"another IPAM's": {
			spoil: func(w world) {
				w.node("c")
				w.cn("c").PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.32/29")} // on the grid
				w.pod("on-c", "c", "10.0.0.34")
			},
			want: []string{"NodeYetToMove Node/c"},
		},
		"adopted, and not published yet": {
			spoil: func(w world) {
				w.node("c")
				w.cn("c").PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.32/28")}
				w.newBlock("c", "10.0.0.32/28").Labels = map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}
				w.pod("on-c", "c", "10.0.0.34")
			},
			want: []string{"NodeYetToMove Node/c"},
		},
		"adopted, and given back": {
			spoil: func(w world) {
				w.node("c")
				w.newBlock("c", "10.0.0.32/28").Labels = map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}
				w.phase("10.0.0.32-28", ipalloc.CoolingDown, expand.Returned, now)
			},
			want: []string{"NodeWithoutAddresses Node/c PodIPPool/main"},
		},
		"another IPAM's, with what is a block elsewhere": {
			spoil: func(w world) {
				w.node("c")
				w.cn("c").PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.8/29")}
			},
			want: []string{"PodCIDROfOtherNode CiliumNode/c PodIPBlock/10.0.0.8-29 10.0.0.8/29", "NodeYetToMove Node/c"},
		},
		"a taint of nodes without Cilium": {spoil: func(w world) {
			w.node("c")
			w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "no-cilium"}}
		}},
		"a taint of nodes whose labels are not final": {spoil: func(w world) {
			w.node("c")
			w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
		}},
		"such a taint on a node with addresses, which holds a block": {
			spoil: func(w world) {
				w.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
				w.deleteCiliumNode("a")
			},
			want: []string{"CiliumNodeMissing Node/a"},
		},
		"short of addresses": {
			spoil: func(w world) {
				w.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: "PodAddressShortage", Status: corev1.ConditionTrue, Reason: "PoolsExhausted"}}
			},
			want: []string{"NodeShortOfAddresses Node/b"},
		},
		"pools overlap": {
			spoil: func(w world) { w.pool("other", "10.0.0.128/25", "10.1.0.0/24") },
			want:  []string{"PoolsOverlap PodIPPool/other PodIPPool/main 10.0.0.128/25"},
		},
		"a pool covers a node and Services": {
			spoil: func(w world) {
				w.Nodes[0].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.130"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
				w.cn("b").Host = []netip.Addr{netip.MustParseAddr("10.0.0.131")}
				services := networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
				services.Spec.CIDRs = []string{"10.0.0.192/26", "10.96.0.0/16"}
				w.ServiceCIDRs = append(w.ServiceCIDRs, services)
			},
			want: []string{"PoolCoversClusterAddresses PodIPPool/main 10.0.0.130", "PoolCoversClusterAddresses PodIPPool/main 10.0.0.131", "PoolCoversClusterAddresses PodIPPool/main 10.0.0.192/26"},
		},
		"a router in a block of another node": {
			spoil: func(w world) {
				w.cn("a").Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")} // in its own block
				w.cn("b").Own = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
			},
			want: []string{"PoolCoversClusterAddresses PodIPPool/main 10.0.0.3"},
		},
		"a pod has the address of another node's router": {
			spoil: func(w world) {
				w.cn("b").Own = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
				w.cn("b").Used[netip.MustParseAddr("10.0.0.2")] = "router"
			},
			want: []string{
				"AddressUsedTwice CiliumNode/b CiliumNode/a 10.0.0.2", "ClusterAddressInUse CiliumNode/a 10.0.0.2",
				"AddressOutsidePool CiliumNode/b 10.0.0.2", "PoolCoversClusterAddresses PodIPPool/main 10.0.0.2",
			},
		},
		"a pod has a node's address": {
			spoil: func(w world) {
				w.Nodes[1].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "10.0.0.2"}}
			},
			want: []string{"ClusterAddressInUse CiliumNode/a 10.0.0.2", "PoolCoversClusterAddresses PodIPPool/main 10.0.0.2"},
		},
		"pools overlap where one drains": {spoil: func(w world) {
			w.pool("other", "10.0.0.128/25").Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		}},
		"pool contradicts itself": {
			spoil: func(w world) { w.pool("other", "10.1.0.0/30") },
			want:  []string{"PoolInvalid PodIPPool/other"},
		},
		"pool contradicts the operator's flags": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionFalse, "Invalid") },
			want:  []string{"PoolInvalid PodIPPool/main"},
		},
		"pool fits the operator's flags alone": {spoil: func(w world) {
			least := int32(45) // below our default of reclaim
			w.Pools[0].Spec.Expand.ThresholdPercent = &least
		}},
		"pool chosen by a label of kubelets": {
			spoil: func(w world) {
				w.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist},
				}}
			},
			want: []string{"PoolChosenByKubelet PodIPPool/main"},
		},
		"pool chosen by a label that is trusted": {
			spoil: func(w world) {
				w.Pools[0].Annotations = map[string]string{v1alpha1.TrustedLabelsAnnotation: "true"}
				w.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist},
				}}
			},
		},
		"pool exhausted": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock") },
			want:  []string{"PoolExhausted PodIPPool/main"},
		},
		"pool exhausted as all of it drains": {spoil: func(w world) {
			condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock")
			w.Pools[0].Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		}},
		"pool unseen": {
			spoil: func(w world) { w.Pools[0].Generation = 2 },
			want:  []string{"PoolStatusStale PodIPPool/main"},
		},
		"no agents": {
			spoil: func(w world) { w.Agents = nil },
			want:  []string{"NoAgentsFound DaemonSet/cilium"},
		},
	}
}

// Every reason is in the catalogue once, with all there is to say, and is found
// by one of the tables above.
func TestCatalogue(t *testing.T) {
	found := map[Reason]bool{}
	for _, tests := range allChecks() {
		for _, test := range tests {
			for _, want := range test.want {
				reason, _, _ := strings.Cut(want, " ")
				found[Reason(reason)] = true
			}
		}
	}
	for _, tests := range []map[string]wholeTest{checksMultiPool(), checksKubernetes()} {
		for _, test := range tests {
			for _, want := range test.want {
				reason, _, _ := strings.Cut(want, " ")
				found[Reason(reason)] = true
			}
		}
	}
	seen := map[Reason]bool{}
	for _, e := range Catalogue() {
		if seen[e.Reason] || e.Meaning == "" || e.Fix == "" {
			t.Errorf("%s is twice in the catalogue, or says too little", e.Reason)
		}
		if !found[e.Reason] {
			t.Errorf("no table has %s", e.Reason)
		}
		seen[e.Reason] = true
	}
	for reason := range found {
		if !seen[reason] {
			t.Errorf("%s is not in the catalogue", reason)
		}
	}
}
