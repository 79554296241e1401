package ciliumnode

import (
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
)

// Views reads all nodes of a cluster: its CiliumNodes first, then its Nodes. It reads each node from
// the object that assigns its blocks. If that is the Node, the view also has the report of the agent
// in the CiliumNode.
type Views struct {
	mode Mode
	// By the name of a CiliumNode, in kubernetes mode: the CIDRs that its agent runs with, the
	// families that it does not run, and the agent's own addresses.
	activeCIDRs    map[string][]netip.Prefix
	familyDisabled map[string][2]bool
	agentAddresses map[string][]netip.Addr
}

// NewViews returns empty Views.
func NewViews(mode Mode) *Views {
	return &Views{mode: mode, activeCIDRs: map[string][]netip.Prefix{}, familyDisabled: map[string][2]bool{}, agentAddresses: map[string][]netip.Addr{}}
}

// CiliumNode reads a CiliumNode; nil if it does not assign blocks in this mode.
func (vs *Views) CiliumNode(cn *ciliumv2.CiliumNode) *View {
	if vs.mode != Kubernetes {
		return vs.mode.View(cn)
	}
	vs.activeCIDRs[cn.Name] = append([]netip.Prefix{}, prefixes(cn.Spec.IPAM.PodCIDRs)...)
	vs.familyDisabled[cn.Name] = familiesUnnamed(cn)
	vs.agentAddresses[cn.Name] = ownAddresses(cn)
	return nil
}

// Node reads a Node, after all CiliumNodes; nil if it does not assign blocks in this
// mode.
func (vs *Views) Node(node *corev1.Node) *View {
	if vs.mode != Kubernetes {
		return nil
	}
	v := vs.mode.View(node)
	v.BlockAssignment.ActiveCIDRs = vs.activeCIDRs[node.Name]
	v.BlockAssignment.HasAgent = vs.activeCIDRs[node.Name] != nil
	v.familyDisabled = vs.familyDisabled[node.Name]
	v.Own = vs.agentAddresses[node.Name]
	return v
}
