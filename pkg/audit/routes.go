package audit

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
)

// routes checks that frr-k8s announces the node's blocks, and no others, by the operator's
// FRRConfigurations.
func (n *nodeCheck) routes() {
	routes := n.snapshot.Routes
	if routes == nil {
		return
	}
	var announced, blocks []netip.Prefix
	for _, v := range routes.OfNode(n.name) {
		announced = append(announced, v.Prefixes...)
	}
	slices.SortFunc(announced, netip.Prefix.Compare)
	for _, cidr := range slices.Compact(announced) {
		if b := n.byCIDR[cidr]; b == nil || b.Node != n.name {
			n.add(AnnouncedByOtherNode, Finding{Object: nodeObject(n.name), Subject: cidr}, "announces a block that it does not hold")
		}
	}
	if n.obj == nil || n.view == nil {
		return
	}
	for _, b := range n.blocks {
		if n.view.HasBlock(b.CIDR) {
			blocks = append(blocks, b.CIDR)
		}
	}
	why := "the API server serves no FRRConfigurations"
	if routes.Known() {
		slices.SortFunc(blocks, netip.Prefix.Compare)
		if _, why = frrconfig.For(n.obj, routes.Templates(), blocks, routes.SharesHostname(n.name)); why == "" {
			why = "the operator has not written it"
		}
	}
	for _, cidr := range blocks {
		if !slices.Contains(announced, cidr) {
			n.add(BlockNotAnnounced, Finding{Object: blockObject(crd.BlockName(cidr)), Others: []Object{nodeObject(n.name)}, Subject: cidr}, "node %s does not announce it: %s", n.name, why)
		}
	}
}
