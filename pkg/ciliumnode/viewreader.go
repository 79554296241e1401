package ciliumnode

import (
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
)

// ViewReader reads all nodes of a cluster: its CiliumNodes first, then its Nodes. It reads each node from
// the object that assigns its blocks. If that is the Node, the view also has the report of the agent
// in the CiliumNode.
type ViewReader struct {
	mode Mode
	// reports are the ones of agents in kubernetes mode, by the name of the CiliumNode.
	reports map[string]agentReport
}

// agentReport is the report of an agent in kubernetes mode in its CiliumNode.
type agentReport struct {
	exists         bool
	activeCIDRs    []netip.Prefix // the ones that it runs with
	familyDisabled [2]bool        // it does not run the family
	own            []netip.Addr
}

// NewViewReader returns a ViewReader that has read no node.
func NewViewReader(mode Mode) *ViewReader {
	return &ViewReader{mode: mode, reports: map[string]agentReport{}}
}

// CiliumNode reads a CiliumNode; nil if it does not assign blocks in this mode.
func (vs *ViewReader) CiliumNode(cn *ciliumv2.CiliumNode) *View {
	if vs.mode != Kubernetes {
		return vs.mode.View(cn)
	}
	vs.reports[cn.Name] = agentReport{
		exists: true, activeCIDRs: prefixes(cn.Spec.IPAM.PodCIDRs), familyDisabled: familiesUnnamed(cn), own: ownAddresses(cn),
	}
	return nil
}

// Node reads a Node, after all CiliumNodes; nil if it does not assign blocks in this
// mode.
func (vs *ViewReader) Node(node *corev1.Node) *View {
	if vs.mode != Kubernetes {
		return nil
	}
	return viewOfNode(node, vs.reports[node.Name])
}
