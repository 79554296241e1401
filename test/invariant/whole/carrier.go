// Package whole judges versions of objects where agents are assigned whole blocks, in multi-pool
// and kubernetes mode, by the rules in docs/contributing/architecture.md as docs/modes.md applies
// them. It complements package invariant. The Checker there passes it every version, and judges
// block objects in every mode.
package whole

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// The programs that write, as the API server names them: by the beginning of
// their user agent (apimachinery, pkg/apis/meta/v1, managedFields).
const (
	AgentWriter     = "cilium-agent"
	NodeAgentWriter = "cilium-pool-node-agent"
	OperatorWriter  = "cilium-pool-operator"
	CiliumWriter    = "cilium-operator"
	// Unknown stands for an unknown writer.
	Unknown = "an unknown writer"
)

// Entry is a CIDR that is assigned to an agent, under one of Cilium's pools if it has several.
type Entry struct {
	Pool string
	CIDR netip.Prefix
	// Parked: it stands under the reserved pool for CIDRs of its pool that drain.
	Parked bool
}

// parkedSuffix ends the names of the reserved pools.
const parkedSuffix = ".draining.cilium-pool.io"

// Under returns the name of the pool that it stands under.
func (e Entry) Under() string {
	if e.Parked {
		return e.Pool + parkedSuffix
	}
	return e.Pool
}

// Compare orders entries as agents write them.
func (e Entry) Compare(other Entry) int {
	return cmp.Or(strings.Compare(e.Under(), other.Under()), e.CIDR.Compare(other.CIDR))
}

func (e Entry) String() string { return e.CIDR.String() + " of pool " + e.Pool }

// Entries returns the list of an agent in multi-pool mode, as it stands.
func Entries(cn *ciliumv2.CiliumNode) []Entry {
	var out []Entry
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		pool, parked := strings.CutSuffix(entry.Pool, parkedSuffix)
		for _, cidr := range entry.CIDRs {
			out = append(out, Entry{pool, cidr.Masked(), parked})
		}
	}
	return out
}

// Carrier is how agents are assigned whole blocks: the field of an object that lists
// them.
type Carrier struct {
	// Entries reads the list; false: no object of that kind.
	Entries func(client.Object) ([]Entry, bool)
	// Fields are its paths in managedFields. None: the API server keeps no
	// managedFields of such objects, so the writer is unknown.
	Fields [][]string
	// Takes is the writer that may remove CIDRs from the list. Empty: none, as long as
	// the object exists.
	Takes string
	// Closes: a CIDR under a reserved pool is closed to new pods, and only such a CIDR may be removed.
	Closes bool
}

// KnowsWriters reports whether the writer of a list is known.
func (c Carrier) KnowsWriters() bool { return len(c.Fields) > 0 }

// InPools is multi-pool mode: the CIDRs under any of Cilium's pools, which only the
// agent removes.
func InPools() Carrier {
	return Carrier{
		Entries: func(o client.Object) ([]Entry, bool) {
			cn, ok := o.(*ciliumv2.CiliumNode)
			if !ok {
				return nil, false
			}
			return Entries(cn), true
		},
		Fields: [][]string{{"f:spec", "f:ipam", "f:pools", "f:allocated"}},
		Takes:  AgentWriter,
	}
}

// ByNodeAgent is mode delegated-plugin: this project's node agent removes closed CIDRs.
func ByNodeAgent() Carrier {
	c := InPools()
	c.Takes = NodeAgentWriter
	c.Closes = true
	return c
}

// OnNode is kubernetes mode: the podCIDRs and annotations of a Node.
func OnNode() Carrier {
	return Carrier{
		Entries: func(o client.Object) (out []Entry, ok bool) {
			node, ok := o.(*corev1.Node)
			if ok {
				for _, cidr := range NodeCIDRs(node) {
					out = append(out, Entry{CIDR: cidr})
				}
			}
			return out, ok
		},
	}
}

// NodeCIDRs returns the CIDRs that a Node assigns to an agent in kubernetes mode, IPv4 first.
func NodeCIDRs(node *corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, f := range ipalloc.Families() {
		if p, ok := hostscope.PodCIDR(node, f); ok {
			out = append(out, p)
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

// writer returns the writer of a version, or else names the managers of some of its fields.
func writer(c invariant.Change, fields [][]string) string {
	if c.Writer != "" {
		return c.Writer
	}
	var names []string
	for _, m := range c.New.GetManagedFields() {
		var owned map[string]any
		data, err := json.Marshal(m.FieldsV1)
		if err != nil || json.Unmarshal(data, &owned) != nil {
			continue
		}
		if slices.ContainsFunc(fields, func(path []string) bool { return owns(owned, path) }) {
			names = append(names, m.Manager)
		}
	}
	if len(names) == 0 {
		return Unknown
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " and ")
}

func owns(tree map[string]any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	below, ok := tree[path[0]].(map[string]any)
	return ok && owns(below, path[1:])
}
