package export

import (
	"context"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// prefixRow is a prefix to route to a node.
type prefixRow struct {
	Prefix string `json:"prefix"`
	Node   string `json:"node"`
	// NextHop is the Node's InternalIP of the prefix's family; empty: it has none.
	NextHop string `json:"nextHop"`
	Pool    string `json:"pool"`
	// Phase is InService or Draining: pods may use either.
	Phase string `json:"phase"`
}

// readPrefixes returns the blocks that their own nodes list in the field of the mode, sorted by
// address. Lists from different instants can hide a prefix for a moment, but route none to a
// node that does not hold it: block and CiliumNode must agree.
func readPrefixes(ctx context.Context, from client.Reader, mode ciliumnode.Mode) ([]prefixRow, error) {
	var (
		nodes       corev1.NodeList
		ciliumNodes ciliumv2.CiliumNodeList
		blocks      v1alpha1.PodIPBlockList
	)
	for _, list := range []client.ObjectList{&nodes, &ciliumNodes, &blocks} {
		if err := from.List(ctx, list); err != nil {
			return nil, err
		}
	}
	views := viewsOf(mode, ciliumNodes.Items, nodes.Items)
	var routed []crd.Block
	for i := range blocks.Items {
		// A malformed block with a CIDR is held nevertheless.
		b, _ := crd.BlockFrom(&blocks.Items[i])
		if view := views[b.Node]; b.CIDR.IsValid() && view != nil && slices.Contains(view.Listed(), b.CIDR) {
			routed = append(routed, b)
		}
	}
	slices.SortFunc(routed, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	hops := map[string][]netip.Addr{}
	for i := range nodes.Items {
		hops[nodes.Items[i].Name] = internalIPs(&nodes.Items[i])
	}
	rows := []prefixRow{}
	for _, b := range routed {
		row := prefixRow{Prefix: b.CIDR.String(), Node: b.Node, Pool: b.Pool, Phase: b.Phase.String()}
		is4 := b.CIDR.Addr().Is4()
		if i := slices.IndexFunc(hops[b.Node], func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			row.NextHop = hops[b.Node][i].String()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// viewsOf reads the objects that assign blocks to agents, by node.
func viewsOf(mode ciliumnode.Mode, ciliumNodes []ciliumv2.CiliumNode, nodes []corev1.Node) map[string]*ciliumnode.View {
	read, views := ciliumnode.NewViews(mode), map[string]*ciliumnode.View{}
	for i := range ciliumNodes {
		if view := read.CiliumNode(&ciliumNodes[i]); view != nil {
			views[view.Name] = view
		}
	}
	for i := range nodes {
		if view := read.Node(&nodes[i]); view != nil {
			views[view.Name] = view
		}
	}
	return views
}

func internalIPs(node *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}
