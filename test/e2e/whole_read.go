//go:build linux

package main

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// The programs that write, as the API server names them: by the beginning of
// their user agent (apimachinery, pkg/apis/meta/v1, managedFields).
const (
	agentWriter    = "cilium-agent"
	operatorWriter = "cilium-pool-operator"
	ciliumWriter   = "cilium-operator"
)

// carrier is how agents are told whole blocks: the field of an object that lists
// them.
type carrier struct {
	// cidrs reads the list; false: no object of that kind.
	cidrs func(client.Object) ([]netip.Prefix, bool)
	// fields lead to it in managedFields. None: the API server keeps none of such
	// objects, so nobody can tell who wrote.
	fields [][]string
	// takes is who may take something off the list. Empty: nobody, as long as the
	// object is there.
	takes string
}

// ownedBlock is a PodIPBlock.
type ownedBlock struct {
	cidr    netip.Prefix
	node    string
	cooling bool
}

func blockOf(o client.Object) (ownedBlock, bool) {
	b, ok := o.(*v1alpha1.PodIPBlock)
	if !ok {
		return ownedBlock{}, false
	}
	cidr, err := netip.ParsePrefix(b.Spec.CIDR)
	return ownedBlock{cidr, b.Spec.Node, meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockCoolingDown)}, err == nil
}

// ownAddresses are those that an agent has for itself.
func ownAddresses(o client.Object) []netip.Addr {
	cn, ok := o.(*ciliumv2.CiliumNode)
	if !ok {
		return nil
	}
	said := []string{
		cn.Spec.HealthAddressing.IPv4, cn.Spec.HealthAddressing.IPv6, cn.Spec.IngressAddressing.IPV4, cn.Spec.IngressAddressing.IPV6,
	}
	for _, a := range cn.Spec.Addresses {
		if a.Type == addressing.NodeCiliumInternalIP {
			said = append(said, a.IP)
		}
	}
	var out []netip.Addr
	for _, s := range said {
		if addr, err := netip.ParseAddr(s); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// inPools is multi-pool mode: what stands under any of Cilium's pools, of which the
// agent alone takes something.
func inPools() carrier {
	return carrier{
		cidrs: func(o client.Object) ([]netip.Prefix, bool) {
			cn, ok := o.(*ciliumv2.CiliumNode)
			if !ok {
				return nil, false
			}
			return toldIn(cn, ""), true
		},
		fields: [][]string{{"f:spec", "f:ipam", "f:pools", "f:allocated"}},
		takes:  agentWriter,
	}
}

// onNode is kubernetes mode: the podCIDRs of a Node, else its annotations.
func onNode() carrier {
	return carrier{
		cidrs: func(o client.Object) ([]netip.Prefix, bool) {
			node, ok := o.(*corev1.Node)
			if !ok {
				return nil, false
			}
			return nodeCIDRs(node), true
		},
	}
}

// The annotations that tell an agent in kubernetes mode its CIDRs (Cilium
// v1.20.1, pkg/annotation/k8s.go).
const (
	ipv4PodCIDR = "network.cilium.io/ipv4-pod-cidr"
	ipv6PodCIDR = "network.cilium.io/ipv6-pod-cidr"
)

func nodeCIDRs(node *corev1.Node) []netip.Prefix {
	said := node.Spec.PodCIDRs
	if len(said) == 0 {
		said = []string{node.Annotations[ipv4PodCIDR], node.Annotations[ipv6PodCIDR]}
	}
	var out []netip.Prefix
	for _, s := range said {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// toldTo are the CIDRs that an agent in multi-pool mode is told under the pool
// default, in their order.
func toldTo(cn *ciliumv2.CiliumNode) []netip.Prefix { return toldIn(cn, "default") }

// toldIn are those under a pool of Cilium's; "": under any.
func toldIn(cn *ciliumv2.CiliumNode, pool string) []netip.Prefix {
	var out []netip.Prefix
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		for _, cidr := range entry.CIDRs {
			if pool == "" || entry.Pool == pool {
				out = append(out, cidr.Masked())
			}
		}
	}
	return out
}

// writer names who has set one of some fields of an object to what it is now.
func writer(o client.Object, fields [][]string) string {
	var names []string
	for _, m := range o.GetManagedFields() {
		var owned map[string]any
		data, err := json.Marshal(m.FieldsV1)
		if err != nil || json.Unmarshal(data, &owned) != nil {
			continue
		}
		if slices.ContainsFunc(fields, func(path []string) bool { return has(owned, path) }) {
			names = append(names, m.Manager)
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " and ")
}

func has(tree map[string]any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	below, ok := tree[path[0]].(map[string]any)
	return ok && has(below, path[1:])
}
