// Package whole judges versions of objects where agents are assigned whole blocks, in multi-pool
// and kubernetes mode, by the rules in docs/contributing/architecture.md as docs/modes.md applies
// them. It complements package invariant. The Checker there passes it every version, and judges
// block objects in every mode.
package whole

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The programs that write, as the API server names them: by the beginning of
// their user agent (apimachinery, pkg/apis/meta/v1, managedFields).
const (
	AgentWriter    = "cilium-agent"
	OperatorWriter = "cilium-pool-operator"
	CiliumWriter   = "cilium-operator"
	// Unknown stands for an unknown writer.
	Unknown = "an unknown writer"
)

// Carrier is how agents are assigned whole blocks: the field of an object that lists
// them.
type Carrier struct {
	// CIDRs reads the list; false: no object of that kind.
	CIDRs func(client.Object) ([]netip.Prefix, bool)
	// Fields are its paths in managedFields. None: the API server keeps no
	// managedFields of such objects, so the writer is unknown.
	Fields [][]string
	// Takes is the writer that may remove CIDRs from the list. Empty: none, as long as
	// the object exists.
	Takes string
}

// KnowsWriters reports whether the writer of a list is known.
func (c Carrier) KnowsWriters() bool { return len(c.Fields) > 0 }

// InPools is multi-pool mode: the CIDRs under any of Cilium's pools, which only the
// agent removes.
func InPools() Carrier {
	return Carrier{
		CIDRs: func(o client.Object) ([]netip.Prefix, bool) {
			cn, ok := o.(*ciliumv2.CiliumNode)
			if !ok {
				return nil, false
			}
			return AssignedIn(cn, ""), true
		},
		Fields: [][]string{{"f:spec", "f:ipam", "f:pools", "f:allocated"}},
		Takes:  AgentWriter,
	}
}

// OnNode is kubernetes mode: the podCIDRs and annotations of a Node.
func OnNode() Carrier {
	return Carrier{
		CIDRs: func(o client.Object) ([]netip.Prefix, bool) {
			node, ok := o.(*corev1.Node)
			if !ok {
				return nil, false
			}
			return NodeCIDRs(node), true
		},
	}
}

// The annotations that an agent in kubernetes mode reads its CIDRs from (Cilium v1.20.1,
// pkg/annotation/k8s.go).
const (
	ipv4PodCIDR = "network.cilium.io/ipv4-pod-cidr"
	ipv6PodCIDR = "network.cilium.io/ipv6-pod-cidr"
)

// NodeCIDRs returns the CIDRs that a Node assigns to an agent in kubernetes mode, IPv4
// first: for each family the podCIDR of its spec, else the one of its annotation
// (pkg/k8s/node.go, ParseNode).
func NodeCIDRs(node *corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, key := range []string{ipv4PodCIDR, ipv6PodCIDR} {
		for _, said := range append(slices.Clone(node.Spec.PodCIDRs), node.Annotations[key]) {
			if p, err := netip.ParsePrefix(said); err == nil && p.Addr().Is4() == (key == ipv4PodCIDR) {
				out = append(out, p.Masked())
				break
			}
		}
	}
	return out
}

// AssignedTo returns the CIDRs assigned to an agent in multi-pool mode under the pool
// default, in their order.
func AssignedTo(cn *ciliumv2.CiliumNode) []netip.Prefix { return AssignedIn(cn, "default") }

// AssignedIn returns the CIDRs under one of Cilium's pools; "": under any.
func AssignedIn(cn *ciliumv2.CiliumNode, pool string) []netip.Prefix {
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

// OwnAddresses returns the agent's own addresses, as its CiliumNode lists them.
func OwnAddresses(o client.Object) []netip.Addr {
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

// writer names the managers of some fields of an object.
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
		return Unknown
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
