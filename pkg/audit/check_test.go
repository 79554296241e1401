package audit

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// short returns a finding as tables name it: reason, object, others, address.
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

func joinShort(findings []Finding) string {
	var out []string
	for _, f := range findings {
		out = append(out, short(f))
	}
	return strings.Join(out, ", ")
}

type checkTest struct {
	spoil func(w world)
	want  string // findings, as shorts names them
}

func allChecks() map[string]map[string]checkTest {
	return map[string]map[string]checkTest{
		"addresses": checksAddresses(), "pods": checksPods(), "podCIDRs": checksPodCIDRs(), "blocks": checksBlocks(),
		"handshakes": checksHandshakes(), "nodes and pools": checksNodesAndPools(), "routes": checksRoutes(),
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
				if got := joinShort(Check(w.Objects, settings())); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
				if len(w.Agents) == 0 || group == "routes" { // the findings are about all nodes
					return
				}
				w.addTwin()
				if got := joinShort(Check(w.Objects, settings())); got != test.want {
					t.Errorf("beside another pool: got  %s\nwant %s", got, test.want)
				}
			})
		}
	}
}

// Where one of two nodes with an address is a CiliumNode without a Node, as from a backup, findings name that remedy first.
func TestStaleCiliumNodeFirst(t *testing.T) {
	const first = "there is no Node b: unless its machine runs on, first delete its CiliumNode"
	for name, test := range map[string]struct {
		spoil  func(world)
		reason Reason
		want   string
	}{
		"its pool has an address of a living node": {func(w world) { w.publish("b", "10.0.0.3") }, AddressOnTwoNodes, first},
		"its pool has one of its block":            {func(w world) { w.unpublish("a", "10.0.0.5"); w.publish("b", "10.0.0.5") }, PoolEntryOfOtherNode, first},
		"it lists the block of that node": {func(w world) {
			w.cn("b").PodCIDRs = append(w.cn("b").PodCIDRs, netip.MustParsePrefix("10.0.0.0/29"))
		}, PodCIDROfOtherNode, first},
		"its report, too": {func(w world) {
			w.cn("a").Used[netip.MustParseAddr("10.0.0.3")] = "default/x"
			w.cn("b").Used[netip.MustParseAddr("10.0.0.3")] = "default/y"
		}, AddressUsedTwice, first},
		"a pod has an address of it": {func(w world) { w.pod("x", "a", "10.0.0.11") }, PodAddressOfOtherNode, first},
		"it lists the CIDR of a living node": {func(w world) {
			for _, name := range []string{"a", "b"} {
				w.cn(name).PodCIDRs = append(w.cn(name).PodCIDRs, netip.MustParsePrefix("192.0.2.0/24"))
			}
		}, PodCIDROnTwoNodes, first},
		"a pod has an address of its block": {func(w world) {
			w.deleteCiliumNode("b")
			w.pod("x", "a", "10.0.0.11")
		}, PodAddressOfOtherNode, "there is no such Node: once the operator has given the block back, pin it to a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy()
			w.deleteNode("b")
			test.spoil(w)
			found := Check(w.Objects, settings())
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.Reason == test.reason && strings.HasSuffix(f.Message, test.want) }) {
				t.Errorf("found %v", found)
			}
		})
	}
}

// An operator that is paused, or runs in shadow, makes no repair.
func TestCheckOfIdleOperator(t *testing.T) {
	for name, idle := range map[string]func(*Settings){
		"paused": func(s *Settings) { s.Paused = true }, "shadow": func(s *Settings) { s.Shadow = true },
	} {
		w, set := healthy(), settings()
		w.deleteCiliumNode("a")
		idle(&set)
		if got := joinShort(Check(w.Objects, set)); got != "" {
			t.Errorf("%s: found %s", name, got)
		}
	}
}

func checksAddresses() map[string]checkTest {
	return map[string]checkTest{
		"healthy": {},
		"an address on two nodes is blamed on the one without the block": {
			spoil: func(w world) { w.publish("a", "10.0.0.12") },
			want:  "AddressOnTwoNodes CiliumNode/a CiliumNode/b 10.0.0.12",
		},
		"foreign on both": {
			spoil: func(w world) { w.publish("a", "192.0.2.7"); w.publish("b", "192.0.2.7") },
			want:  "AddressOnTwoNodes CiliumNode/a CiliumNode/b 192.0.2.7",
		},
		"two keys for one address": {
			spoil: func(w world) { w.cn("a").Addresses.NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3")} },
			want:  "AddressTwiceInPool CiliumNode/a 10.0.0.3",
		},
		"two odd keys for one address": {
			spoil: func(w world) {
				w.unpublish("a", "10.0.0.3")
				w.cn("a").Addresses.NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.3")}
			},
			want: "AddressTwiceInPool CiliumNode/a 10.0.0.3",
		},
		"odd and unreadable keys": {
			spoil: func(w world) {
				w.unpublish("a", "10.0.0.3")
				w.cn("a").Addresses.NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
				w.cn("a").Addresses.Unreadable = []string{"ten"}
				w.cn("a").BadFields = []ciliumnode.BadField{{Path: "spec.ipam.podCIDRs[1]", Text: `"10.020.0.0/24"`}}
			},
			want: "FieldUnreadable CiliumNode/a, PoolEntryMalformed CiliumNode/a 10.0.0.3, PoolEntryUnreadable CiliumNode/a",
		},
		"an odd key counts against another node": {
			spoil: func(w world) { w.cn("b").Addresses.NonCanonical = []netip.Addr{netip.MustParseAddr("10.0.0.3")} },
			want:  "AddressOnTwoNodes CiliumNode/b CiliumNode/a 10.0.0.3, PoolEntryMalformed CiliumNode/b 10.0.0.3",
		},
		"an address of another node's block that it does not publish": {
			spoil: func(w world) { w.unpublish("b", "10.0.0.12"); w.publish("a", "10.0.0.12") },
			want:  "PoolEntryOfOtherNode CiliumNode/a PodIPBlock/10.0.0.8-29 10.0.0.12",
		},
		"a pool's address without a block": {
			spoil: func(w world) { w.publish("a", "10.0.0.77") },
			want:  "PoolEntryWithoutBlock CiliumNode/a PodIPPool/main 10.0.0.77",
		},
		"a foreign address": {func(w world) { w.publish("a", "192.0.2.7") }, "ForeignPoolEntry CiliumNode/a 192.0.2.7"},
		"reported in use outside the pool": {
			spoil: func(w world) { w.cn("a").Used[netip.MustParseAddr("192.0.2.7")] = "default/x" },
			want:  "AddressOutsidePool CiliumNode/a 192.0.2.7",
		},
		"a pod's address of the node's block outside the pool": {
			spoil: func(w world) { w.unpublish("a", "10.0.0.5"); w.pod("late", "a", "10.0.0.5") },
			want:  "AddressOutsidePool CiliumNode/a 10.0.0.5",
		},
		"two agents report one address": {
			spoil: func(w world) {
				w.publish("b", "10.0.0.3")
				w.cn("a").Used[netip.MustParseAddr("10.0.0.3")] = "default/x"
				w.cn("b").Used[netip.MustParseAddr("10.0.0.3")] = "default/y"
			},
			want: "AddressOnTwoNodes CiliumNode/b CiliumNode/a 10.0.0.3, AddressUsedTwice CiliumNode/b CiliumNode/a 10.0.0.3",
		},
	}
}

func checksPods() map[string]checkTest {
	return map[string]checkTest{
		"on an unowned address": {func(w world) { w.pod("x", "a", "192.0.2.7") }, "PodAddressUnowned Pod/default/x 192.0.2.7"},
		"IPv4-mapped, as some write it": {
			spoil: func(w world) { w.pod("x", "a", "::ffff:10.0.0.3") },
		},
		"on an address in another node's pool": {
			spoil: func(w world) { w.pod("x", "a", "10.0.0.11") },
			want:  "PodAddressOfOtherNode Pod/default/x CiliumNode/b 10.0.0.11",
		},
		"on an address of another node's block": {
			spoil: func(w world) { w.unpublish("b", "10.0.0.11"); w.pod("x", "a", "10.0.0.11") },
			want:  "PodAddressOfOtherNode Pod/default/x PodIPBlock/10.0.0.8-29 10.0.0.11",
		},
		"two with one address": {func(w world) { w.pod("x", "a", "10.0.0.2") }, "PodsShareAddress Pod/default/x Pod/default/on-a 10.0.0.2"},
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
			want: "PodAddressOfOtherNode Pod/default/x CiliumNode/b 10.0.0.11",
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
			want:  "PodCIDROfOtherNode CiliumNode/a PodIPBlock/10.0.0.8-29 10.0.0.8/29",
		},
		"around blocks of two nodes": {
			spoil: func(w world) { list(w, "a", "10.0.0.0/28") },
			want:  "PodCIDROfOtherNode CiliumNode/a PodIPBlock/10.0.0.8-29 10.0.0.0/28",
		},
		"without a block, on the grid": {func(w world) { w.deleteBlock("10.0.0.0-29") }, "PodCIDRWithoutBlock CiliumNode/a 10.0.0.0/29"},
		"foreign":                      {func(w world) { list(w, "a", "192.0.2.0/24"); w.publish("a", "192.0.2.7") }, "ForeignPodCIDR CiliumNode/a 192.0.2.0/24"},
		"foreign, on two nodes": {
			spoil: func(w world) { list(w, "a", "192.0.2.0/24"); list(w, "b", "192.0.2.64/26") },
			want:  "PodCIDROnTwoNodes CiliumNode/b CiliumNode/a 192.0.2.64/26, ForeignPodCIDR CiliumNode/a 192.0.2.0/24, ForeignPodCIDR CiliumNode/b 192.0.2.64/26",
		},
		"a block published and not listed": {
			spoil: func(w world) { w.cn("a").PodCIDRs = nil },
			want:  "BlockNotListed PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29",
		},
	}
}
