package plugin

import (
	"net/netip"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// assigned MODE NODE POOL CIDR... creates a Node with an agent that has been Ready for an hour,
// runs in this mode, and is assigned these blocks. The first has the router's address, where it has one.
func (w *world) cmdAssigned(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 4, "assigned MODE NODE POOL CIDR...")
	mode, name, pool := args[0], args[1], args[2]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	var cidrs []iputil.Prefix
	for _, cidr := range args[3:] {
		w.cmdBlock(ts, false, []string{name, pool, cidr})
		cidrs = append(cidrs, iputil.PrefixFrom(netip.MustParsePrefix(cidr)))
	}
	if mode == "kubernetes" {
		node.Annotations = map[string]string{"network.cilium.io/ipv4-pod-cidr": args[3]}
		cn.Spec.IPAM.PodCIDRs = cidrs[:1]
	} else {
		cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: cidrs}}
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: cidrs[0].Addr().Next().String()}}
	}
	if mode == "delegated-plugin" {
		cn.Spec.Addresses[0].IP = "169.254.23.0"
	}
	w.create(ts, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.0.1"}}
	w.updateStatus(ts, node)
	w.agent(ts, name)
	w.create(ts, cn)
}
