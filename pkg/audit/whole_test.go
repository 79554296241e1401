package audit

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	v4Annotation = "network.cilium.io/ipv4-pod-cidr"
	v6Annotation = "network.cilium.io/ipv6-pod-cidr"
)

// wholeWorld is a cluster with agents that are assigned whole blocks, in objects that tests damage
// before they are read.
type wholeWorld struct {
	world
	ciliumNodes map[string]*ciliumv2.CiliumNode
	changed     map[string]time.Time // by CiliumNode; else long ago
}

// healthyIn returns nodes a and b, each with a /29 of a pool and a pod on its third address.
func healthyIn(mode ciliumnode.Mode) *wholeWorld {
	w := &wholeWorld{world{&clusterread.Objects{Time: now, Mode: mode}}, map[string]*ciliumv2.CiliumNode{}, map[string]time.Time{}}
	w.pool("main", "10.0.0.0/24")
	w.add("a", "10.0.0.0/29")
	w.add("b", "10.0.0.8/29")
	return w
}

func (w *wholeWorld) add(name, cidr string) {
	w.node(name)
	w.CiliumNodes = nil // read makes them
	w.newBlock(name, cidr)
	cn := &ciliumv2.CiliumNode{}
	cn.Name = name
	w.ciliumNodes[name] = cn
	first := netip.MustParsePrefix(cidr).Addr().Next()
	if w.Mode == ciliumnode.Kubernetes {
		w.nodeOf(name).Annotations = map[string]string{v4Annotation: cidr}
		w.left(name, cidr)
	} else {
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 6}}}
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: first.String()}}
		if w.Mode == ciliumnode.DelegatedPlugin {
			cn.Spec.Addresses[0].IP = "169.254.23.0"
			cn.Spec.IPAM.Pools.Requested[0].Needed.IPv4Addrs = 1
		}
		w.list(name, "default", cidr)
	}
	w.pod("on-"+name, name, first.Next().String())
}

func (w *wholeWorld) nodeOf(name string) *corev1.Node {
	return &w.Nodes[slices.IndexFunc(w.Nodes, func(n corev1.Node) bool { return n.Name == name })]
}

// optOut adds a Node with a podCIDR and with labels that say that Cilium does not run on it.
func (w *wholeWorld) optOut(name string) {
	node := corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"192.0.2.0/24"}}}
	node.Name, node.Labels = name, map[string]string{v1alpha1.OptOutLabel: "true"}
	w.Nodes = append(w.Nodes, node)
}

// selecting returns a selector for nodes by a label with their name.
func selecting(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "node-restriction.kubernetes.io/name", Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}

// list adds CIDRs to a CiliumNode's list for a Cilium pool.
func (w *wholeWorld) list(name, pool string, cidrs ...string) {
	pools := &w.ciliumNodes[name].Spec.IPAM.Pools
	i := slices.IndexFunc(pools.Allocated, func(e ipamtypes.IPAMPoolAllocation) bool { return e.Pool == pool })
	if i < 0 {
		i, pools.Allocated = len(pools.Allocated), append(pools.Allocated, ipamtypes.IPAMPoolAllocation{Pool: pool})
	}
	for _, c := range cidrs {
		pools.Allocated[i].CIDRs = append(pools.Allocated[i].CIDRs, iputil.PrefixFrom(netip.MustParsePrefix(c)))
	}
}

// left sets podCIDRs of a CiliumNode: leftovers of crd mode, or the CIDRs that an agent in
// kubernetes mode runs with.
func (w *wholeWorld) left(name string, cidrs ...string) {
	spec := &w.ciliumNodes[name].Spec.IPAM
	spec.PodCIDRs = nil
	for _, c := range cidrs {
		spec.PodCIDRs = append(spec.PodCIDRs, iputil.PrefixFrom(netip.MustParsePrefix(c)))
	}
}

// blue adds a pool for the Cilium pool blue, and a block of it that node a holds and does not
// list.
func (w *wholeWorld) blue() {
	w.pool("blues", "10.8.0.0/24").Spec.CiliumPoolName = "blue"
	w.newBlock("a", "10.8.0.0/29").Spec.PoolName = "blues"
}

// keep adds a pin of a pool that keeps addresses.
func (w *wholeWorld) keep(cidr, owner string) {
	if len(w.Pins) == 0 {
		pool := w.pool("kept", "10.8.0.0/24")
		pool.Spec.CiliumPoolName = "kept"
		pool.Spec.IPv4.BlockSize = 32
	}
	prefix := netip.MustParsePrefix(cidr)
	pin := v1alpha1.PodIPPin{Spec: crd.PinSpec(prefix, owner)}
	pin.Name = crd.BlockName(prefix)
	w.Pins = append(w.Pins, pin)
}

// sixth assigns an IPv6 block to node a. The agent of b names IPv4 addresses only, and so b
// needs none.
func (w *wholeWorld) sixth() {
	w.Pools[0].Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/120"}}}
	w.newBlock("a", "fd00::/125")
	w.nodeOf("a").Annotations[v6Annotation] = "fd00::/125"
	w.owns("b", "10.0.0.9")
}

// owns makes an agent name addresses of its own.
func (w *wholeWorld) owns(name string, addrs ...string) {
	spec := &w.ciliumNodes[name].Spec
	for _, addr := range addrs {
		spec.Addresses = append(spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: addr})
	}
}

func (w *wholeWorld) unlist(name string) { w.ciliumNodes[name].Spec.IPAM.Pools.Allocated = nil }

// read builds the views.
func (w *wholeWorld) read() *clusterread.Objects {
	views, s := ciliumnode.NewViewReader(w.Mode), *w.Objects
	for name, cn := range w.ciliumNodes {
		if v := views.CiliumNode(cn); v != nil {
			changed, ok := w.changed[name]
			if !ok {
				changed = long
			}
			s.CiliumNodes = append(s.CiliumNodes, clusterread.CiliumNode{View: v, Changed: changed})
		}
	}
	for i := range s.Nodes {
		if v := views.Node(&s.Nodes[i]); v != nil {
			s.CiliumNodes = append(s.CiliumNodes, clusterread.CiliumNode{View: v})
		}
	}
	return &s
}

type wholeTest struct {
	spoil func(w *wholeWorld)
	want  string // findings, as shorts names them
}

func TestCheckWholeBlocks(t *testing.T) {
	for mode, tests := range map[ciliumnode.Mode]map[string]wholeTest{
		ciliumnode.MultiPool: checksMultiPool(), ciliumnode.DelegatedPlugin: checksDelegated(), ciliumnode.Kubernetes: checksKubernetes(),
	} {
		for name, test := range tests {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				w := healthyIn(mode)
				if test.spoil != nil {
					test.spoil(w)
				}
				s := w.read()
				found := Check(s, settings())
				if got := joinShort(found); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
				for _, f := range found {
					if strings.Contains(f.Message, "no pod gets") {
						t.Errorf("%s: %s; its agent gives pods any address of a block", f.Reason, f.Message)
					}
				}
				for _, e := range Catalogue() {
					sameReason := func(f Finding) bool { return f.Reason == e.Reason }
					if slices.ContainsFunc(found, sameReason) && !slices.Contains(e.Modes(), mode) {
						t.Errorf("%s is not said to be found in %s mode", e.Reason, mode)
					}
				}
				if r := NewReport(s, 1, found); len(r.Findings) > 0 && r.Mode != mode.String() {
					t.Errorf("the report is of mode %q", r.Mode)
				}
			})
		}
	}
}

func checksDelegated() map[string]wholeTest {
	silent := func(w *wholeWorld) { w.ciliumNodes["a"].Spec.IPAM.Pools.Requested = nil }
	return map[string]wholeTest{
		"healthy":                  {},
		"a node agent is silent":   {spoil: silent, want: "NodeAgentSilent CiliumNode/a"},
		"one of a node that joins": {spoil: func(w *wholeWorld) { silent(w); w.ciliumNodes["a"].CreationTimestamp.Time = now }},
		"a family is switched off, and assigned": {
			spoil: func(w *wholeWorld) {
				w.CiliumConfig = &ciliumconfig.Config{Data: map[string]string{"enable-ipv4": "false"}}
			},
			want: "FamilySwitchedOff CiliumNode/a, FamilySwitchedOff CiliumNode/b",
		},
		"Cilium's agent in another mode": {
			spoil: func(w *wholeWorld) { w.ciliumNodes["a"].Spec.Addresses[0].IP = "10.0.0.1" },
			want:  "NodeAgentSilent CiliumNode/a",
		},
	}
}

func checksMultiPool() map[string]wholeTest {
	return map[string]wholeTest{
		"healthy": {},
		"a block listed for another node too": {
			spoil: func(w *wholeWorld) { w.list("b", "default", "10.0.0.0/29") },
			want:  "PodCIDROfOtherNode CiliumNode/b PodIPBlock/10.0.0.0-29 10.0.0.0/29",
		},
		"a foreign CIDR on two nodes": {
			spoil: func(w *wholeWorld) { w.list("a", "default", "192.0.2.0/28"); w.list("b", "blue", "192.0.2.0/29") },
			want:  "PodCIDROnTwoNodes CiliumNode/b CiliumNode/a 192.0.2.0/29, ForeignPodCIDR CiliumNode/a 192.0.2.0/28, ForeignPodCIDR CiliumNode/b 192.0.2.0/29",
		},
		"a CIDR of a pool, without a block": {
			spoil: func(w *wholeWorld) { w.list("a", "default", "10.0.0.64/29") },
			want:  "PodCIDRWithoutBlock CiliumNode/a 10.0.0.64/29",
		},
		"a CIDR of a pool for blue, without a block": {
			spoil: func(w *wholeWorld) { w.blue(); w.deleteBlock("10.8.0.0-29"); w.list("a", "blue", "10.8.0.0/29") },
			want:  "PodCIDRWithoutBlock CiliumNode/a 10.8.0.0/29",
		},
		"a CIDR of a pool for blue, listed for the default one": {
			spoil: func(w *wholeWorld) { w.blue(); w.deleteBlock("10.8.0.0-29"); w.list("a", "default", "10.8.0.0/29") },
			want:  "ForeignPodCIDR CiliumNode/a 10.8.0.0/29",
		},
		"a block listed twice for its pool, which agents ignore": {spoil: func(w *wholeWorld) { w.list("a", "default", "10.0.0.0/29", "10.0.0.5/29") }},
		"a CIDR in another": {
			spoil: func(w *wholeWorld) { w.list("a", "default", "10.0.0.4/30") },
			want:  "ListedTwice CiliumNode/a 10.0.0.4/30, ForeignPodCIDR CiliumNode/a 10.0.0.4/30",
		},
		"a CIDR for two pools": {func(w *wholeWorld) { w.list("a", "blue", "10.0.0.0/29") }, "ListedTwice CiliumNode/a 10.0.0.0/29"},
		"a block in service that the agent has returned": {
			spoil: func(w *wholeWorld) { w.newBlock("a", "10.0.0.16/29") },
			want:  "BlockNotPublished PodIPBlock/10.0.0.16-29 CiliumNode/a 10.0.0.16/29",
		},
		"returned a moment ago": {
			spoil: func(w *wholeWorld) { w.newBlock("a", "10.0.0.16/29"); w.changed["a"] = now.Add(-time.Minute) },
		},
		"a block for Cilium's pool blue is not listed": {
			spoil: func(w *wholeWorld) { w.blue() },
			want:  "BlockNotPublished PodIPBlock/10.8.0.0-29 CiliumNode/a 10.8.0.0/29",
		},
		"not listed by a pause of the pool for blue": {spoil: func(w *wholeWorld) { w.blue(); w.Pools[1].Spec.Paused = new(true) }},
		"not listed, and the default pool is paused": {
			spoil: func(w *wholeWorld) { w.blue(); w.Pools[0].Spec.Paused = new(true) },
			want:  "BlockNotPublished PodIPBlock/10.8.0.0-29 CiliumNode/a 10.8.0.0/29",
		},
		"returned, and the pool for blue is paused": {
			spoil: func(w *wholeWorld) { w.blue(); w.Pools[1].Spec.Paused = new(true); w.newBlock("a", "10.0.0.16/29") },
			want:  "BlockNotPublished PodIPBlock/10.0.0.16-29 CiliumNode/a 10.0.0.16/29",
		},
		"over its own limit": {
			spoil: func(w *wholeWorld) {
				w.newBlock("a", "10.0.0.16/29")
				w.ciliumNodes["a"].Spec.IPAM.MaxAllocate = 6
			},
		},
		"the only block is lost, with the addresses in use": {
			spoil: func(w *wholeWorld) { w.unlist("a") },
			want: "AddressOutsidePool CiliumNode/a 10.0.0.1, AddressOutsidePool CiliumNode/a 10.0.0.2, NodeWithoutAddresses Node/a PodIPPool/main, " +
				"BlockNotPublished PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29",
		},
		"the agent has no use for the family": {
			spoil: func(w *wholeWorld) {
				w.unlist("a")
				w.deletePod("on-a")
				w.deleteBlock("10.0.0.0-29")
				w.ciliumNodes["a"].Spec.Addresses = nil
				w.ciliumNodes["a"].Spec.IPAM.Pools.Requested[0].Needed = ipamtypes.IPAMPoolDemand{IPv6Addrs: 8}
			},
			want: "NodeServedByNoPool Node/a", // in the other one
		},
		"pods ask for what nothing serves": {
			spoil: func(w *wholeWorld) {
				w.blue()
				w.list("a", "blue", "10.8.0.0/29")
				w.pod("served", "a").Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue"}
				w.pod("unserved", "a").Annotations = map[string]string{"ipam.cilium.io/ip-pool": "bleu"}
				w.ciliumNodes["b"].Spec.IPAM.Pools.Requested = append(w.ciliumNodes["b"].Spec.IPAM.Pools.Requested, ipamtypes.IPAMPoolRequest{Pool: "green", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 3}})
			},
			want: "NodeServedByNoPool Node/b, PodServedByNoPool Pod/default/unserved Node/a",
		},
		"pods that do not require their kept addresses": {
			spoil: func(w *wholeWorld) {
				w.keep("10.8.0.1/32", "default/db-0")
				w.keep("10.8.0.2/32", "default/vm.kubevirt.io/name=one")
				w.pod("db-0", "a")
				w.pod("launcher-x7", "a").Labels = map[string]string{"vm.kubevirt.io/name": "one"}
				w.pod("other", "a").Labels = map[string]string{"vm.kubevirt.io/name": "two"}
			},
			want: "KeptAddressOptional PodIPPool/kept Pod/default/db-0",
		},
		"pods that require their kept addresses": {
			spoil: func(w *wholeWorld) {
				w.keep("10.8.0.1/32", "default/vm.kubevirt.io/name=one")
				pod := w.pod("launcher-x7", "a")
				pod.Labels = map[string]string{"vm.kubevirt.io/name": "one"}
				pod.Annotations = map[string]string{"ipam.cilium.io/require-pool-match": "true"}
			},
			want: "PodServedByNoPool Pod/default/launcher-x7 Node/a", // there is no CiliumPodIPPool for its owner yet
		},
		"a block that cools down is listed": {
			spoil: func(w *wholeWorld) { w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.Returned, now) },
			want:  "CoolingBlockPublished PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29",
		},
		"a drain waits for pods": {spoil: func(w *wholeWorld) { w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, long) }},
		"a drain waits for nothing": {
			spoil: func(w *wholeWorld) {
				w.newBlock("a", "10.0.0.16/29")
				w.list("a", "default", "10.0.0.16/29")
				w.phase("10.0.0.16-29", ipalloc.Draining, expand.Deleted, long)
			},
			want: "DrainStuck PodIPBlock/10.0.0.16-29 CiliumNode/a 10.0.0.16/29",
		},
		"a pod outside": {func(w *wholeWorld) { w.pod("x", "a", "192.0.2.8") }, "PodAddressUnowned Pod/default/x 192.0.2.8"},
		"a pod of another pool of Cilium's": {
			spoil: func(w *wholeWorld) { w.list("a", "blue", "192.0.2.0/28"); w.pod("x", "a", "192.0.2.8") },
			want:  "ForeignPodCIDR CiliumNode/a 192.0.2.0/28",
		},
		"a pod with an address that another node lists": {
			spoil: func(w *wholeWorld) { w.pod("x", "a", "10.0.0.12") },
			want:  "PodAddressOfOtherNode Pod/default/x CiliumNode/b 10.0.0.12",
		},
		"two pods with one address": {func(w *wholeWorld) { w.pod("x", "a", "10.0.0.2") }, "PodsShareAddress Pod/default/x Pod/default/on-a 10.0.0.2"},
		"two routers with one address": {
			spoil: func(w *wholeWorld) { w.ciliumNodes["b"].Spec.Addresses[0].IP = "10.0.0.1" },
			want: "AddressUsedTwice CiliumNode/b CiliumNode/a 10.0.0.1, ClusterAddressInUse CiliumNode/a 10.0.0.1, AddressOutsidePool CiliumNode/b 10.0.0.1, " +
				"PoolCoversClusterAddresses PodIPPool/main 10.0.0.1",
		},
		"left of crd mode": {
			spoil: func(w *wholeWorld) {
				w.left("a", "10.0.0.0/29")
				w.ciliumNodes["a"].Spec.IPAM.Pool = ipamtypes.AllocationMap{"10.0.0.1": {}, "ten": {}}
			},
			want: "LeftFromCRDMode CiliumNode/a",
		},
		"no CiliumNode": {func(w *wholeWorld) { delete(w.ciliumNodes, "a") }, "CiliumNodeMissing Node/a"},
		"no Node": {
			spoil: func(w *wholeWorld) { w.deleteNode("a") },
			want:  "BlockWithoutNode PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29, CiliumNodeWithoutNode CiliumNode/a",
		},
		"no Node, and CIDRs for another pool of Cilium's alone": {
			spoil: func(w *wholeWorld) {
				w.deleteNode("a")
				w.deleteBlock("10.0.0.0-29")
				w.deletePod("on-a")
				w.unlist("a")
				w.list("a", "blue", "192.0.2.0/28")
				w.ciliumNodes["a"].Spec.Addresses = nil
			},
			want: "ForeignPodCIDR CiliumNode/a 192.0.2.0/28, CiliumNodeWithoutNode CiliumNode/a",
		},
		"another IPAM gave it its block": {
			spoil: func(w *wholeWorld) {
				w.block("10.0.0.0-29").Labels = map[string]string{"cilium-pool.io/adopted-from": "multi-pool"}
				w.ciliumNodes["a"].Spec.Addresses = nil
			},
		},
	}
}

func checksKubernetes() map[string]wholeTest {
	return map[string]wholeTest{
		"healthy":                    {},
		"the agent has yet to start": {spoil: func(w *wholeWorld) { delete(w.ciliumNodes, "a"); w.deletePod("on-a") }},
		"a Node without Cilium":      {spoil: func(w *wholeWorld) { w.optOut("c"); w.pod("x", "c", "192.0.2.8") }},
		"no agent, and a label says so: the block stays with the Node": {spoil: func(w *wholeWorld) {
			w.nodeOf("a").Labels = map[string]string{v1alpha1.OptOutLabel: "true"}
			w.Agents = w.Agents[1:] // b has one
			delete(w.ciliumNodes, "a")
			w.deletePod("on-a")
		}},
		"a drain waits for the Node": {spoil: func(w *wholeWorld) {
			w.deletePod("on-a")
			w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, long)
		}},
		"the agent runs with another": {
			spoil: func(w *wholeWorld) { w.left("a", "10.9.0.0/24"); w.deletePod("on-a"); w.pod("x", "a", "10.9.0.7") },
			want:  "AgentOnOtherPodCIDR Node/a 10.9.0.0/24",
		},
		"the agent runs with another node's": {
			spoil: func(w *wholeWorld) { w.left("a", "10.0.0.8/29") },
			want:  "AgentOnOtherPodCIDR Node/a PodIPBlock/10.0.0.8-29 10.0.0.8/29",
		},
		"the agent runs, and the Node names nothing": {
			spoil: func(w *wholeWorld) { w.nodeOf("a").Annotations = nil },
			want:  "AgentOnOtherPodCIDR Node/a 10.0.0.0/29",
		},
		"spec.podCIDRs goes first": {
			spoil: func(w *wholeWorld) { w.nodeOf("a").Spec.PodCIDRs = []string{"10.9.0.0/24"} },
			want:  "AgentOnOtherPodCIDR Node/a 10.0.0.0/29, ForeignPodCIDR Node/a 10.9.0.0/24, NodePodCIDRFirst Node/a PodIPBlock/10.0.0.0-29 10.0.0.0/29",
		},
		"a block of a family that the agent does not run": {
			spoil: func(w *wholeWorld) { w.sixth(); w.owns("a", "10.0.0.1") },
			want:  "FamilyNotRun Node/a PodIPBlock/fd00---125 fd00::/125",
		},
		"a block of each family that the agent runs": {spoil: func(w *wholeWorld) { w.sixth(); w.owns("a", "10.0.0.1", "fd00::1") }},
		"the agent names no address of its own":      {spoil: func(w *wholeWorld) { w.sixth() }},
		"a podCIDR of another family, from elsewhere": {
			spoil: func(w *wholeWorld) { w.nodeOf("a").Annotations[v6Annotation] = "fd01::/64"; w.owns("a", "10.0.0.1") },
			want:  "ForeignPodCIDR Node/a fd01::/64",
		},
		"nothing listed": {
			spoil: func(w *wholeWorld) { w.nodeOf("a").Annotations = nil; delete(w.ciliumNodes, "a"); w.deletePod("on-a") },
			want:  "NodeWithoutAddresses Node/a PodIPPool/main, BlockNotPublished PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29",
		},
		"a second block": {func(w *wholeWorld) { w.newBlock("a", "10.0.0.16/29") }, "BlockNotPublished PodIPBlock/10.0.0.16-29 Node/a 10.0.0.16/29"},
		"the block of another node": {
			spoil: func(w *wholeWorld) {
				w.nodeOf("b").Annotations[v4Annotation] = "10.0.0.0/29"
				w.left("b", "10.0.0.0/29")
				w.deletePod("on-b")
			},
			want: "PodCIDROfOtherNode Node/b PodIPBlock/10.0.0.0-29 10.0.0.0/29, BlockNotPublished PodIPBlock/10.0.0.8-29 Node/b 10.0.0.8/29",
		},
		"removed by force": {func(w *wholeWorld) { w.deleteBlock("10.0.0.0-29") }, "PodCIDRWithoutBlock Node/a 10.0.0.0/29"},
		"a podCIDR of no pool": {
			spoil: func(w *wholeWorld) {
				w.deleteBlock("10.0.0.0-29")
				w.deletePod("on-a")
				w.nodeOf("a").Annotations = nil
				w.nodeOf("a").Spec.PodCIDR = "10.9.0.0/24"
				w.left("a", "10.9.0.0/24")
			},
			want: "ForeignPodCIDR Node/a 10.9.0.0/24",
		},
		"a pod outside": {func(w *wholeWorld) { w.pod("x", "a", "192.0.2.8") }, "PodAddressUnowned Pod/default/x 192.0.2.8"},
		"a pod of the Node's block outside its podCIDR": {
			spoil: func(w *wholeWorld) { w.newBlock("a", "10.0.0.16/29"); w.pod("x", "a", "10.0.0.18") },
			want:  "AddressOutsidePool Node/a 10.0.0.18, BlockNotPublished PodIPBlock/10.0.0.16-29 Node/a 10.0.0.16/29",
		},
		"a pod with an address of another node": {
			spoil: func(w *wholeWorld) { w.pod("x", "a", "10.0.0.12") },
			want:  "PodAddressOfOtherNode Pod/default/x Node/b 10.0.0.12",
		},
		"a block that cools down is assigned": {
			spoil: func(w *wholeWorld) { w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.Returned, now) },
			want:  "CoolingBlockPublished PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29",
		},
		"no pool": {
			spoil: func(w *wholeWorld) {
				w.add("c", "10.0.0.16/29")
				w.deleteBlock("10.0.0.16-29")
				w.deletePod("on-c")
				w.nodeOf("c").Annotations = nil
				w.left("c")
				for i := range w.Pools {
					w.Pools[i].Spec.NodeSelector = selecting("a", "b")
				}
				w.nodeOf("a").Labels, w.nodeOf("b").Labels = map[string]string{"node-restriction.kubernetes.io/name": "a"}, map[string]string{"node-restriction.kubernetes.io/name": "b"}
			},
			want: "NodeServedByNoPool Node/c",
		},
	}
}
