package audit

import (
	"fmt"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func checksNodesAndPools() map[string]checkTest {
	condition := func(p *v1alpha1.PodIPPool, kind string, status metav1.ConditionStatus, reason string) {
		p.Status.Conditions = slices.DeleteFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
	}
	zone := map[string]string{"node-restriction.kubernetes.io/zone": "x"}
	// unlabelled adds node c, which has a startup taint and no label yet, beside nodes of a zone, and
	// a pod there that waits for an address.
	unlabelled := func(w world) *corev1.Pod {
		w.node("c")
		w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
		w.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: zone}
		w.Nodes[0].Labels, w.Nodes[1].Labels = zone, zone
		return w.pod("ccm", "c")
	}
	missing := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
	offer := func(w world, cidr string) {
		offers := ciliumv2.CiliumLoadBalancerIPPool{ObjectMeta: metav1.ObjectMeta{Name: "lb"}}
		offers.Spec.Blocks = []ciliumv2.CiliumLoadBalancerIPPoolIPBlock{{Cidr: ciliumv2.IPv4orIPv6CIDR(cidr)}}
		w.LoadBalancerPools = append(w.LoadBalancerPools, offers)
	}
	return map[string]checkTest{
		"CiliumNode missing": {func(w world) { w.deleteCiliumNode("a") }, "CiliumNodeMissing Node/a"},
		"Cilium in another mode": {
			spoil: func(w world) {
				w.CiliumConfig = &ciliumconfig.Config{Data: map[string]string{"ipam": "cluster-pool"}}
			},
			want: "CiliumModeDiffers ConfigMap/kube-system/cilium-config",
		},
		"a kvstore": {
			spoil: func(w world) {
				w.CiliumConfig = &ciliumconfig.Config{Data: map[string]string{"ipam": "crd", "kvstore": "etcd"}}
			},
			want: "KVStoreWithoutRoutes ConfigMap/kube-system/cilium-config",
		},
		"a range that is masqueraded": {
			spoil: func(w world) {
				w.pool("outside", "10.77.0.0/24", "10.0.1.0/24")
				w.CiliumConfig = &ciliumconfig.Config{Data: map[string]string{
					"ipam": "crd", "routing-mode": "native", "enable-ipv4-masquerade": "true", "ipv4-native-routing-cidr": "10.0.0.0/16",
				}}
			},
			want: "PoolMasqueraded PodIPPool/outside 10.77.0.0/24",
		},
		"CiliumNode missing under a pause": {spoil: func(w world) { w.deleteCiliumNode("a"); w.Pools[0].Spec.Paused = new(true) }},
		"Node gone, blocks cooling down": {
			spoil: func(w world) {
				w.deleteNode("a")
				w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.NodeGone, now)
			},
			want: "CoolingBlockPublished PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29, CiliumNodeWithoutNode CiliumNode/a",
		},
		"no address": {func(w world) { w.node("c") }, "NodeWithoutAddresses Node/c PodIPPool/main"},
		"no pool": {
			spoil: func(w world) {
				w.node("c")
				w.Pools[0].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: zone}
			},
			want: "NodeServedByNoPool Node/a, NodeServedByNoPool Node/b, NodeServedByNoPool Node/c, PoolSelectsNoNode PodIPPool/main",
		},
		"no pool of a family": {
			spoil: func(w world) {
				w.CiliumConfig = &ciliumconfig.Config{Data: map[string]string{"enable-ipv4": "true", "enable-ipv6": "true"}}
			},
			want: "NodeServedByNoPool Node/a, NodeServedByNoPool Node/b",
		},
		"another IPAM's": {
			spoil: func(w world) {
				w.node("c")
				w.cn("c").PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.32/29")} // on the grid
				w.pod("on-c", "c", "10.0.0.34")
			},
			want: "NodeYetToMove Node/c",
		},
		"adopted, and not published yet": {
			spoil: func(w world) {
				w.node("c")
				w.cn("c").PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.32/28")}
				w.newBlock("c", "10.0.0.32/28").Labels = map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}
				w.pod("on-c", "c", "10.0.0.34")
			},
			want: "NodeYetToMove Node/c",
		},
		"adopted, and given back": {
			spoil: func(w world) {
				w.node("c")
				w.newBlock("c", "10.0.0.32/28").Labels = map[string]string{v1alpha1.AdoptedLabel: "cluster-pool"}
				w.phase("10.0.0.32-28", ipalloc.CoolingDown, expand.Returned, now)
			},
			want: "NodeWithoutAddresses Node/c PodIPPool/main",
		},
		"another IPAM's, with what is a block elsewhere": {
			spoil: func(w world) {
				w.node("c")
				w.cn("c").PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.8/29")}
			},
			want: "PodCIDROfOtherNode CiliumNode/c PodIPBlock/10.0.0.8-29 10.0.0.8/29, NodeYetToMove Node/c",
		},
		"a taint of nodes without Cilium": {spoil: func(w world) {
			w.node("c")
			w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "no-cilium"}}
		}},
		"a taint of nodes whose labels are not final": {
			spoil: func(w world) {
				w.node("c")
				w.Nodes[2].Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
				w.pool("zone", "10.1.0.0/24").Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: zone}
				w.Pools[1].Spec.Priority = 10
			},
			want: "PoolSelectsNoNode PodIPPool/zone",
		},
		"no agent has ever run there": {
			spoil: func(w world) {
				w.Agents = w.Agents[1:] // b has one
				w.cn("a").View = ciliumnode.NewView(fixtures.Publishing(fixtures.CiliumNode("a", "", "10.0.0.0/29"), "10.0.0.1", "10.0.0.2"))
				w.deletePod("on-a")
				w.pod("on-a", "a", "172.16.4.1")
			},
			want: "NodeWithoutAgent Node/a",
		},
		"such a taint, and a pod that waits": {
			spoil: func(w world) { unlabelled(w) },
			want:  "NodeAwaitsLabels Node/c",
		},
		"such a taint, and a pod that tolerates it waits": {
			spoil: func(w world) {
				unlabelled(w).Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			},
			want: "NodeServedByNoPool Node/c",
		},
		"such a taint on a node with addresses, which holds a block": {
			spoil: func(w world) {
				w.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
				w.deleteCiliumNode("a")
			},
			want: "CiliumNodeMissing Node/a",
		},
		"short of addresses": {
			spoil: func(w world) {
				w.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionTrue, Reason: "PoolsExhausted"}}
			},
			want: "NodeShortOfAddresses Node/b",
		},
		"a podCIDR in a pool": {
			spoil: func(w world) { w.Nodes[0].Spec.PodCIDRs = []string{"10.0.0.128/26", "10.9.0.0/24"} },
			want:  "NodePodCIDRInPool Node/a PodIPPool/main 10.0.0.128/26",
		},
		"a podCIDR with a block of another node": {
			spoil: func(w world) { w.Nodes[0].Spec.PodCIDRs = []string{"10.0.0.0/24"} },
			want:  "NodePodCIDRInPool Node/a PodIPPool/main 10.0.0.0/24",
		},
		"a podCIDR with blocks of its node": {spoil: func(w world) { w.Nodes[0].Spec.PodCIDRs = []string{w.Blocks[0].Spec.CIDR} }},
		"a CIDR of another IPAM has an address of a node": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionTrue, clusterread.ReasonObserved)
				w.Nodes[1].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.5"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.130"}}
			},
			want: "ClusterAddressRouted Node/a 10.0.0.5, PoolCoversClusterAddresses PodIPPool/main 10.0.0.130",
		},
		"pools overlap": {
			spoil: func(w world) { w.pool("other", "10.0.0.128/25", "10.1.0.0/24") },
			want:  "PoolsOverlap PodIPPool/other PodIPPool/main 10.0.0.128/25",
		},
		"a pool covers a node and Services": {
			spoil: func(w world) {
				w.Nodes[0].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.130"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
				w.cn("b").Host = []netip.Addr{netip.MustParseAddr("10.0.0.131")}
				services := networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
				services.Spec.CIDRs = []string{"10.0.0.192/26", "10.96.0.0/16"}
				w.ServiceCIDRs = append(w.ServiceCIDRs, services)
			},
			want: "PoolCoversClusterAddresses PodIPPool/main 10.0.0.130, PoolCoversClusterAddresses PodIPPool/main 10.0.0.131, PoolCoversClusterAddresses PodIPPool/main 10.0.0.192/26",
		},
		"a pool covers addresses of Services": {
			spoil: func(w world) {
				service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
				service.Spec.ExternalIPs = []string{"10.0.0.130", "192.0.2.1"}
				service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.2"}} // a pod of a has it
				w.Services = append(w.Services, service)
			},
			want: "ClusterAddressInUse CiliumNode/a 10.0.0.2, PoolCoversClusterAddresses PodIPPool/main 10.0.0.2, PoolCoversClusterAddresses PodIPPool/main 10.0.0.130",
		},
		"a pool covers ranges of Services, where pods of a have addresses": {
			spoil: func(w world) { offer(w, "10.0.0.0/29") },
			want:  "PoolCoversClusterAddresses PodIPPool/main 10.0.0.0/29",
		},
		"Services have all of a pool's range": {
			spoil: func(w world) { offer(w, "10.0.0.0/23") },
			want:  "PoolCoversClusterAddresses PodIPPool/main 10.0.0.0/23",
		},
		"a cloud lists a router, which is in its own block, among the addresses of the Node": {spoil: func(w world) {
			w.cn("a").Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
			w.Nodes[0].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
		}},
		"a router in a block of another node": {
			spoil: func(w world) {
				w.cn("a").Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")} // in its own block
				w.cn("b").Own = []netip.Addr{netip.MustParseAddr("10.0.0.3")}
			},
			want: "PoolCoversClusterAddresses PodIPPool/main 10.0.0.3",
		},
		"a pod has the address of another node's router": {
			spoil: func(w world) {
				w.cn("b").Own = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
				w.cn("b").Used[netip.MustParseAddr("10.0.0.2")] = "router"
			},
			want: "AddressUsedTwice CiliumNode/b CiliumNode/a 10.0.0.2, ClusterAddressInUse CiliumNode/a 10.0.0.2, AddressOutsidePool CiliumNode/b 10.0.0.2, " +
				"PoolCoversClusterAddresses PodIPPool/main 10.0.0.2",
		},
		"a pod has an address of the API server": {
			spoil: func(w world) {
				w.Endpoints = []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}}}}
			},
			want: "ClusterAddressInUse CiliumNode/a 10.0.0.2, PoolCoversClusterAddresses PodIPPool/main 10.0.0.2",
		},
		"a pool has addresses of MetalLB and of an egress gateway": {
			spoil: func(w world) {
				policy := &ciliumv2.CiliumEgressGatewayPolicy{}
				policy.Spec.EgressGateway = &ciliumv2.EgressGateway{EgressIP: "10.0.0.140"}
				policy.Spec.EgressGateways = []ciliumv2.EgressGateway{{EgressIP: "192.0.2.1"}}
				w.Neighbors.Put(exclude.Claimant{Kind: exclude.EgressPolicy, Name: "e"}, exclude.OfEgressPolicy(policy))
				w.Neighbors.Put(exclude.Claimant{Kind: exclude.MetalLBPool, Name: "m/p"}, exclude.OfMetalLBPool([]string{"10.0.0.160/30", "10.0.0.168 - 10.0.0.169", "x"}))
			},
			want: "PoolCoversClusterAddresses PodIPPool/main 10.0.0.140, PoolCoversClusterAddresses PodIPPool/main 10.0.0.160/30, PoolCoversClusterAddresses PodIPPool/main 10.0.0.168/31",
		},
		"a pod has the address of a router of a Node that is gone": {
			spoil: func(w world) {
				w.CiliumNodes = slices.DeleteFunc(w.CiliumNodes, func(cn clusterread.CiliumNode) bool { return cn.Name == "gone" })
				w.node("gone")
				w.deleteNode("gone")
				w.cn("gone").Own = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
			},
			want: "CiliumNodeWithoutNode CiliumNode/gone Node/a 10.0.0.2, PoolCoversClusterAddresses PodIPPool/main 10.0.0.2",
		},
		"a pod has a node's address": {
			spoil: func(w world) {
				w.Nodes[1].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "10.0.0.2"}}
			},
			want: "ClusterAddressInUse CiliumNode/a 10.0.0.2, PoolCoversClusterAddresses PodIPPool/main 10.0.0.2",
		},
		"pools overlap where one drains": {spoil: func(w world) {
			w.pool("other", "10.0.0.128/25").Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		}},
		"pool contradicts itself": {func(w world) { w.pool("other", "10.1.0.0/30") }, "PoolInvalid PodIPPool/other"},
		"pool contradicts the operator's flags": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionFalse, "Invalid") },
			want:  "PoolInvalid PodIPPool/main",
		},
		"pool fits the operator's flags alone": {spoil: func(w world) {
			least := int32(45) // below our default of reclaim
			w.Pools[0].Spec.Expand.ThresholdPercent = &least
		}},
		"pool chosen by a label of kubelets": {
			spoil: func(w world) { w.Pools[0].Spec.NodeSelector = missing },
			want:  "PoolChosenByKubelet PodIPPool/main",
		},
		"pool chosen by a label that is trusted": {
			spoil: func(w world) {
				w.Pools[0].Annotations = map[string]string{v1alpha1.TrustedLabelsAnnotation: "true"}
				w.Pools[0].Spec.NodeSelector = missing
			},
		},
		"pool of a public range": {
			spoil: func(w world) {
				w.Pools[0].Spec.IPv4.CIDRs = append(w.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "100.162.224.0/19"})
			},
			want: "PoolRangePublic PodIPPool/main 100.162.224.0/19",
		},
		"pool of a public range of our own": {
			spoil: func(w world) {
				w.Pools[0].Spec.IPv4.CIDRs = append(w.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "100.162.224.0/19"})
				w.Pools[0].Annotations = map[string]string{v1alpha1.OwnRangesAnnotation: "true"}
			},
		},
		"pool exhausted": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock") },
			want:  "PoolExhausted PodIPPool/main",
		},
		"pods of a node wait for a full pool": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock")
				w.Nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionTrue, Reason: "PoolsExhausted"}}
				for i := range 80 {
					w.pod(fmt.Sprintf("more-%d", i), "b")
				}
			},
			want: "PoolExhausted PodIPPool/main",
		},
		"a family that agents do not run": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolFamiliesServed, metav1.ConditionFalse, "AgentsWithoutFamily")
			},
			want: "PoolFamilyNotRun PodIPPool/main",
		},
		"pool paused, of a public range": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionFalse, "Paused")
				w.Pools[0].Spec.IPv4.CIDRs = append(w.Pools[0].Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "100.162.224.0/19"})
			},
			want: "PoolNotReady PodIPPool/main, PoolRangePublic PodIPPool/main 100.162.224.0/19",
		},
		"pool of unknown state": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionUnknown, "Later") },
			want:  "PoolNotReady PodIPPool/main",
		},
		"pool not Ready as it is exhausted": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionFalse, "NodesShortOfAddresses")
				condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock")
			},
			want: "PoolExhausted PodIPPool/main",
		},
		"no operator leads": {
			spoil: func(w world) {
				w.Leader = clusterread.Leader{Lease: types.NamespacedName{Namespace: "kube-system", Name: "cpo"}, Problem: "no operator holds it"}
			},
			want: "NoOperatorLeads Lease/kube-system/cpo",
		},
		"the Lease may not be read": {spoil: func(w world) { w.Leader = clusterread.Leader{Problem: "it may not be read", Unknown: true} }},
		"CIDRs added to its CiliumPodIPPool": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolCiliumPool, metav1.ConditionFalse, "CIDRsUnused") },
			want:  "CiliumPodIPPoolUnfit PodIPPool/main",
		},
		"CiliumPodIPPool of another size, without BGP": {
			spoil: func(w world) { condition(&w.Pools[0], v1alpha1.PoolCiliumPool, metav1.ConditionFalse, "OtherSize") },
		},
		"CiliumPodIPPool of another size, with BGP": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolCiliumPool, metav1.ConditionFalse, "OtherSize")
				w.CiliumConfig = &ciliumconfig.Config{Known: true, Data: map[string]string{"enable-bgp-control-plane": "true"}}
			},
			want: "CiliumPodIPPoolUnfit PodIPPool/main",
		},
		"pool exhausted as all of it drains": {spoil: func(w world) {
			condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock")
			w.Pools[0].Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		}},
		"pool corrected, and not seen since": {
			spoil: func(w world) {
				condition(&w.Pools[0], v1alpha1.PoolReady, metav1.ConditionFalse, "Invalid")
				condition(&w.Pools[0], v1alpha1.PoolExhausted, metav1.ConditionTrue, "NoFreeBlock")
				w.Pools[0].Generation = 2
			},
			want: "PoolStatusStale PodIPPool/main",
		},
		"pins": {func(w world) {
			for cidr, reason := range map[string]string{"10.0.0.0/30": v1alpha1.PinWaitsForNode, "10.0.0.4/30": v1alpha1.PinNotABlock} {
				pin := fixtures.Pin(cidr, "gateway")
				pin.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PinReady, Status: metav1.ConditionFalse, Reason: reason}}
				w.Pins = append(w.Pins, *pin)
			}
		}, "PinNotReady PodIPPin/10.0.0.4-30"},
		"pins of Nodes to come, and of one misspelt": {func(w world) {
			w.node("gateway-1", "10.0.0.16/29")
			for cidr, node := range map[string]string{"10.0.0.0/30": "gateway-2", "10.0.0.4/30": "gatway-1", "10.0.0.8/30": "worker-1"} {
				pin := fixtures.Pin(cidr, node)
				pin.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PinReady, Status: metav1.ConditionFalse, Reason: v1alpha1.PinWaitsForNode}}
				w.Pins = append(w.Pins, *pin)
			}
		}, "PinNotReady PodIPPin/10.0.0.4-30"},
		"pool unseen": {func(w world) { w.Pools[0].Generation = 2 }, "PoolStatusStale PodIPPool/main"},
		"no agents":   {func(w world) { w.Agents = nil }, "NoAgentsFound DaemonSet/cilium"},
		"no agents, as all Nodes are gone": {spoil: func(w world) {
			w.Agents, w.Nodes, w.CiliumNodes, w.Pods = nil, nil, nil, nil
			w.phase("10.0.0.0-29", ipalloc.CoolingDown, expand.NodeGone, now)
			w.phase("10.0.0.8-29", ipalloc.CoolingDown, expand.NodeGone, now)
		}},
	}
}
